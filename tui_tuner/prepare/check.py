"""What is wrong with a plan, said before anything starts, each time with the field and what would be right.

Three circles, each cheaper than the next: the plan by itself (`alone`), the plan on this machine and its
files (`here`), and the plan as the installed vLLM resolves it (`resolved`).
"""

from __future__ import annotations

import difflib
import math
import os
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from tui_tuner import evals
from tui_tuner.analysis import estimate
from tui_tuner.engines import models
from tui_tuner.evals import traffic
from tui_tuner.model import knobs
from tui_tuner.model.knobs import Facts, FieldFacts, Knob, Resolution
from tui_tuner.model.load import Lengths
from tui_tuner.model.machine import Machine, ModelShape
from tui_tuner.model.plan import PRACTICE, Plan
from tui_tuner.model.secrets import Redactor
from tui_tuner.model.values import Value, is_variant, label, same

MOST_VALUES = 12
_KIND_WORDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "table": "a table or none"}


class Problem(Struct, frozen=True):
    """One thing that is wrong: the plan's field, a sentence, and the value that would do, where there is one."""

    field: str
    say: str
    suggest: Value = None

    def __str__(self) -> str:
        return f"{self.field}: {self.say}"


# ---- the plan by itself ---------------------------------------------------------------------------------------


def alone(plan: Plan) -> list[Problem]:
    """What can be seen from the plan and the catalogue alone."""
    found: list[Problem] = []
    try:
        knob = knobs.get(plan.knob.name)
    except KeyError as error:
        return [Problem("knob.name", str(error.args[0]))]
    found += _secrets(plan)
    found += _values(plan, knob)
    found += _fixed(plan, knob)
    found += _load(plan)
    found += _evalset(plan, knob)
    if plan.price and not (math.isfinite(plan.price.per_hour) and plan.price.per_hour >= 0):
        found.append(Problem("price.per_hour", f"{plan.price.per_hour} is no price: write a number of 0 or more"))
    return found


def _secrets(plan: Plan) -> list[Problem]:
    """A plan is kept in the session file, from which secrets are taken out: the engine would be handed what is left."""
    redactor = Redactor({k: v for k, v in os.environ.items() if k != "HOME"})
    values = {f"values {i}": value for i, value in enumerate(plan.knob.values, 1)}
    parts = {"model": plan.model, **{f"fixed.{k}": v for k, v in plan.fixed.items()}}
    parts |= {f"knob.{name}": value for name, value in values.items()}
    return [
        Problem(
            field,
            "this looks like a secret, which does not belong in a plan: the session file keeps plans, and people pass "
            "them on. Take it out and set it in the environment (HF_TOKEN is the hub's)",
        )
        for field, value in parts.items()
        if _json(redactor.value(kept := {field.rpartition(".")[2]: msgspec.to_builtins(value)})) != _json(kept)
    ]


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _values(plan: Plan, knob: Knob) -> list[Problem]:
    values = plan.knob.values
    if not values:
        return [Problem("knob.values", "there is no value to try: name at least one")]
    if len(values) > MOST_VALUES:
        return [Problem("knob.values", f"{len(values)} values are too many for one sweep: name at most {MOST_VALUES}")]
    found = []
    for index, value in enumerate(values):
        if any(same(value, other) for other in values[:index]):
            found.append(Problem("knob.values", f"{label(value)} stands there twice: each value is measured once"))
        problem = _kind(knob, value)
        if problem:
            found.append(Problem("knob.values", problem))
    if plan.knob.baseline is not UNSET:
        problem = _kind(knob, plan.knob.baseline)
        if problem:
            found.append(Problem("knob.baseline", problem))
    return found


def _kind(knob: Knob, value: Value) -> str | None:
    """Why `value` is of the wrong kind for the knob, or None."""
    if is_variant(value):
        return None
    if isinstance(value, dict) and "label" in value and knob.kind != "table":
        return f'the variant {label(value)!r} names no model: write {{ label = "…", model = "…" }}'
    fits = {
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value),
        "bool": isinstance(value, bool),
        "choice": isinstance(value, str) or value is None,
        "table": isinstance(value, dict) or value is None,
    }[knob.kind]
    if fits:
        return None
    if value is None:
        return f"none is no value of {knob.name}: leave the knob out to have vLLM's default"
    return f"{value!r} is no value of {knob.name}: it takes {_KIND_WORDS.get(knob.kind, 'a text')}"


def _fixed(plan: Plan, knob: Knob) -> list[Problem]:
    found = []
    if "model" in plan.fixed:
        found.append(Problem("fixed.model", "the model is named once, as `model` of the plan: take it out of `fixed`"))
    if knob.name in plan.fixed and plan.knob.baseline is not UNSET:
        held = plan.fixed[knob.name]
        if not same(held, plan.knob.baseline):
            found.append(
                Problem(
                    f"fixed.{knob.name}",
                    f"{knob.name} is the knob: `fixed` holds it at {label(held)} and `knob.baseline` at "
                    f"{label(plan.knob.baseline)}; take it out of `fixed`, or write the same value",
                )
            )
    share = plan.fixed.get("gpu_memory_utilization")
    if share is not None and not (isinstance(share, (int, float)) and not isinstance(share, bool) and 0 < share <= 1):
        found.append(
            Problem("fixed.gpu_memory_utilization", f"{share!r} is no share of memory: a number above 0, at most 1")
        )
    batched, seqs = "max_num_batched_tokens", "max_num_seqs"
    for where, value in _points(plan):
        args = plan.args(value)
        tokens, sequences = args.get(batched), args.get(seqs)
        if isinstance(tokens, int) and isinstance(sequences, int) and tokens < sequences:
            field = where if knob.name in (batched, seqs) else f"fixed.{batched}"
            found.append(
                Problem(
                    field,
                    f"{batched} ({tokens}) must be at least {seqs} ({sequences}): "
                    f"raise {batched} to {sequences} or lower {seqs} to {tokens}",
                    sequences,
                )
            )
    return found


def _points(plan: Plan) -> list[tuple[str, Value]]:
    points: list[tuple[str, Value]] = []
    if plan.knob.baseline is not UNSET:
        points.append(("knob.baseline", plan.knob.baseline))
    return points + [("knob.values", value) for value in plan.knob.values]


def _load(plan: Plan) -> list[Problem]:
    load, found = plan.load, []
    if not 1 <= load.requests <= 100_000:
        found.append(Problem("load.requests", f"{load.requests} cannot be: send from 1 to 100,000 requests a level"))
    for level in load.concurrency:
        if not 1 <= level <= 4096:
            found.append(Problem("load.concurrency", f"{level} cannot be: from 1 to 4,096 clients"))
    for rate in load.rate:
        if not (math.isfinite(rate) and 0 < rate <= 10_000):
            found.append(Problem("load.rate", f"{rate} cannot be: a number of requests a second above 0"))
    if load.kind == "closed" and load.rate:
        found.append(Problem("load.rate", 'a closed loop has no rate: write kind = "poisson", or give concurrency'))
    if load.kind == "poisson" and load.concurrency:
        found.append(Problem("load.concurrency", 'Poisson arrivals have a rate: write kind = "closed", or give rate'))
    if load.kind == "poisson" and not load.rate:
        found.append(Problem("load.rate", "Poisson arrivals need a rate: for example rate = [4] requests a second"))
    for name, lengths in (("prompt_tokens", load.prompt_tokens), ("output_tokens", load.output_tokens)):
        mean = lengths.mean if isinstance(lengths, Lengths) else lengths
        if not 1 <= mean <= 1_000_000:
            found.append(Problem(f"load.{name}", f"{mean} tokens cannot be: at least 1"))
        if isinstance(lengths, Lengths) and not 0 <= lengths.spread <= 5:
            found.append(Problem(f"load.{name}", f"a spread of {lengths.spread} cannot be: from 0 (fixed) to 5"))
    if load.shared_prefix:
        if not 0 <= load.shared_prefix.share <= 1:
            found.append(Problem("load.shared_prefix", "share is a part of the requests: from 0 to 1"))
        shortest = load.prompt_tokens if isinstance(load.prompt_tokens, int) else load.prompt_tokens.mean
        if load.shared_prefix.tokens >= shortest:
            found.append(
                Problem(
                    "load.shared_prefix",
                    f"a prefix of {load.shared_prefix.tokens} tokens leaves nothing of a prompt of {shortest}: "
                    f"name fewer, at most {shortest - 1}",
                    shortest - 1,
                )
            )
    if load.kind == "trace":
        if not load.file:
            found.append(Problem("load.file", 'a trace needs the file with your requests: file = "traffic.jsonl"'))
        else:
            try:
                traffic.read(load.file)
            except traffic.BadTraffic as error:
                found.append(Problem("load.file", str(error)))
    return found


def _evalset(plan: Plan, knob: Knob) -> list[Problem]:
    choice = plan.evalset
    if choice.items < 0:
        return [Problem("evalset.items", f"{choice.items} cannot be: 0 for no quality pass, or a number of items")]
    if choice.items == 0:
        if knob.quality == "measure" and plan.fixed.get("load_format") != "dummy":
            return [
                Problem(
                    "evalset.items",
                    f"{knob.name} can change the answers: quality must be measured with it, name at least 20",
                    20,
                )
            ]
        return []
    if not 1 <= choice.max_tokens <= 32_768:
        return [Problem("evalset.max_tokens", f"{choice.max_tokens} cannot be: from 1 to 32,768 tokens an answer")]
    try:
        chosen = evals.load(choice.name)
    except evals.BadEvalSet as error:
        return [Problem("evalset.name", str(error))]
    if choice.items > len(chosen.items):
        return [
            Problem(
                "evalset.items",
                f"{choice.name} has {len(chosen.items)} items, not {choice.items}: ask for at most {len(chosen.items)}",
                len(chosen.items),
            )
        ]
    return []


# ---- on this machine ------------------------------------------------------------------------------------------


def model_problem(name: str) -> Problem | None:
    """Why `name` is no model that can be served from here, or None. Looks at the disk, never at a network."""
    if models.locate(name) is not None:
        return None
    if name == PRACTICE:
        return Problem("model", "the practice model is not there yet: run `tui-tuner setup`")
    looks_like_path = name.startswith((".", "/", "~")) or name.count("/") != 1
    if looks_like_path:
        folder = Path(name).expanduser()
        if folder.is_dir():
            return Problem("model", f"{name} has no config.json: name the folder that holds the model's files")
        near = difflib.get_close_matches(name, [m.name for m in models.on_disk()], n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return Problem("model", f"there is no model {name!r} on this disk: name a folder or a Hugging Face id{hint}")
    return None


def here(plan: Plan, machine: Machine, shape: ModelShape | None, available_mib: int | None) -> list[Problem]:
    """What this machine and the model's own files rule out. `available_mib` is the memory free for an engine now."""
    found: list[Problem] = []
    knob = knobs.get(plan.knob.name)
    if shape and shape.max_position and not plan.fixed.get("hf_overrides"):
        for where, value in _everywhere(plan, "max_model_len"):
            if isinstance(value, int) and not isinstance(value, bool) and value > shape.max_position:
                found.append(
                    Problem(
                        where,
                        f"{value} is longer than the model allows: at most {shape.max_position} tokens",
                        shape.max_position,
                    )
                )
    for where, value in _everywhere(plan, "tensor_parallel_size"):
        if isinstance(value, int) and not isinstance(value, bool):
            cards = machine.gpus if machine.gpu else 1
            if value > cards:
                found.append(
                    Problem(where, f"{value} cards are asked for, {cards} can be used: at most {cards}", cards)
                )
            elif shape and value > 0 and shape.heads % value:
                say = f"the model's {shape.heads} attention heads cannot be split over {value} cards"
                found.append(Problem(where, say))
    found += _memory(plan, knob, machine, available_mib)
    longest = plan.load.longest() if plan.load.kind != "trace" else 0
    for where, value in _everywhere(plan, "max_model_len"):
        if isinstance(value, int) and 0 < value < longest:
            found.append(
                Problem(
                    where,
                    f"the load's requests take up to {longest} tokens and max_model_len is {value}: "
                    f"write at least {longest}, or shorten load.prompt_tokens",
                    longest,
                )
            )
    return found


def _everywhere(plan: Plan, name: str) -> list[tuple[str, Value]]:
    """An argument's value wherever the plan sets it, each with the field that does."""
    points = _points(plan) if plan.knob.name == name else []
    return [(f"fixed.{name}", plan.fixed.get(name)), *points]


def _memory(plan: Plan, knob: Knob, machine: Machine, available_mib: int | None) -> list[Problem]:
    """A share of memory that cannot start. One beyond the edge may stand beside one that starts, to show it."""
    if not machine.memory_mib or available_mib is None:
        return []
    name = "gpu_memory_utilization"
    highest = estimate.highest_utilization(machine.memory_mib, available_mib)

    def say(share: float) -> str:
        return (
            f"{share:g} of {machine.memory_mib / 1024:.1f} GiB is {share * machine.memory_mib / 1024:.1f} GiB, and "
            f"{available_mib / 1024:.1f} GiB is free: the highest that starts now is {highest:.2f}"
        )

    def too_much(share: Any) -> bool:
        return isinstance(share, (int, float)) and not isinstance(share, bool) and share > highest

    if knob.name != name:
        share = plan.fixed.get(name)
        return [Problem(f"fixed.{name}", say(share), highest)] if share is not None and too_much(share) else []
    found = []
    base = plan.knob.baseline if plan.knob.baseline is not UNSET else plan.fixed.get(name)
    if base is not None and too_much(base):
        where = "knob.baseline" if plan.knob.baseline is not UNSET else f"fixed.{name}"
        found.append(Problem(where, say(base), highest))
    if plan.knob.values and all(too_much(v) for v in plan.knob.values):
        found.append(Problem("knob.values", say(min(plan.knob.values)), highest))
    return found


# ---- against the installed vLLM -------------------------------------------------------------------------------


def known(plan: Plan, facts: Facts) -> list[Problem]:
    """Names, types and ranges by the installed version's own declarations."""
    found: list[Problem] = []
    if not facts.fields:
        return found
    if plan.knob.name not in facts.fields:
        found.append(Problem("knob.name", f"vLLM {facts.version} has no argument {plan.knob.name}"))
    for name, value in plan.fixed.items():
        field = facts.fields.get(name)
        if field is None:
            near = difflib.get_close_matches(name, facts.fields, n=1)
            hint = f": did you mean {near[0]}?" if near else ""
            found.append(Problem(f"fixed.{name}", f"vLLM {facts.version} has no argument {name}{hint}"))
        else:
            problem = range_problem(field, value)
            if problem:
                found.append(Problem(f"fixed.{name}", problem))
    field = facts.fields.get(plan.knob.name)
    if field:
        for where, value in _points(plan):
            problem = None if isinstance(value, dict) else range_problem(field, value)
            if problem:
                found.append(Problem(where, problem))
    return found


def range_problem(field: FieldFacts, value: Value) -> str | None:
    """Why the installed version would not take `value`, or None. Types it can only judge itself are left to it."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if field.low is not None and (value < field.low or (field.low_open and value == field.low)):
            bound = "above" if field.low_open else "at least"
            return f"{value:g} is too low: {field.name} must be {bound} {field.low:g}"
        if field.high is not None and (value > field.high or (field.high_open and value == field.high)):
            bound = "below" if field.high_open else "at most"
            return f"{value:g} is too high: {field.name} must be {bound} {field.high:g}"
    if field.choices and isinstance(value, str) and value not in field.choices:
        near = difflib.get_close_matches(value, field.choices, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        return f"{value!r} is none of {field.name}'s choices{hint}: {', '.join(field.choices)}"
    return None


def resolved(plan: Plan, baseline: Value, resolutions: list[Resolution]) -> list[Problem]:
    """The installed vLLM's complaints about the baseline (first) and each value, in its own words."""
    found = []
    places = [("baseline", baseline), *(("value", v) for v in plan.knob.values)]
    for (what, value), resolution in zip(places, resolutions, strict=True):
        if resolution.problem is None:
            continue
        field = resolution.field or plan.knob.name
        if field == plan.knob.name:
            where = "knob.values" if what == "value" else "knob.baseline"
        else:
            where = "model" if field == "model" else f"fixed.{field}"
        found.append(Problem(where, f"vLLM refuses it for the {what} {label(value)}: {resolution.problem}"))
    return found
