"""The wizard's draft: what stands in its fields, as text, until Start makes a plan of it. Pure; nothing is on disk.

A field's text is read by one function and written by another, so that a preset, an earlier session's plan and what a
person types all pass through the same form.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from tui_tuner.model import load as loads
from tui_tuner.model import slo as slos
from tui_tuner.model.load import Lengths, Load, SharedPrefix
from tui_tuner.model.plan import PRACTICE, EvalChoice, Plan, Price, Sweep, Thoroughness
from tui_tuner.model.slo import GOALS, METRICS, PERCENTILES, GoalName, Slo
from tui_tuner.model.values import Value, label, parse

T = TypeVar("T")
STEPS = ("model", "work", "slo", "knob", "values", "review")
CUSTOM = "custom"


class Problem(Struct, frozen=True):
    """What is wrong with a field of the draft: a plan's field name, and a sentence."""

    field: str
    say: str
    value: Any = None  # what would be right, where that is one value


class Draft(Struct, frozen=True):
    """The text of every field of the wizard. Units as in a plan."""

    model: str = PRACTICE
    fixed: str = ""
    # the work
    load: str = CUSTOM
    kind: str = "closed"
    concurrency: str = "8"
    rate: str = "4"
    file: str = ""
    prompt_tokens: str = "128"
    output_tokens: str = "32"
    requests: str = "64"
    text: str = "random"
    shared_prefix: str = ""
    evalset: str = "basics"
    items: str = "20"
    max_tokens: str = "64"
    # the goal
    slo: str = "chat"
    goal: str = "throughput"
    ttft: str = ""
    tpot: str = ""
    itl: str = ""
    e2e: str = ""
    # the knob
    knob: str = "max_num_seqs"
    values: str = ""
    baseline: str = ""
    # how
    thoroughness: str = "quick"
    seed: str = "0"
    price: str = ""
    currency: str = "USD"
    prediction: str = ""

    def plan(self) -> tuple[Plan | None, tuple[Problem, ...]]:
        """The plan that the fields add up to, or None and what is wrong, each with its field."""
        found: list[Problem] = []

        def read(field: str, reader: Callable[[str], T], text: str, otherwise: T) -> T:
            try:
                return reader(text)
            except ValueError as error:
                found.append(Problem(field, str(error)))
                return otherwise

        model = self.model.strip()
        if not model:
            found.append(Problem("model", "name a model: one from the list, a folder, or a Hugging Face id"))
        fixed: dict[str, Value] = read("fixed", read_fixed, self.fixed, {})
        load = self._load(read)
        limits: dict[str, float] = {}
        for metric in METRICS:
            bounds: dict[int, float] = read(f"slo.{metric}", read_limits, getattr(self, metric), {})
            limits |= {f"{metric}_p{percentile}_ms": ms for percentile, ms in bounds.items()}
        goal: GoalName = next((g for g in GOALS if g == self.goal), GOALS[0])
        slo = Slo(self.slo.strip() or CUSTOM, goal, limits)
        values = read("knob.values", read_values, self.values, ())
        if not values and not any(p.field == "knob.values" for p in found):
            found.append(Problem("knob.values", "name at least one value to try"))
        baseline: Any = UNSET
        if self.baseline.strip():
            baseline = read("knob.baseline", read_value, self.baseline, None)
        items = read("evalset.items", lambda t: whole(t, 0), self.items, 0)
        max_tokens = read("evalset.max_tokens", lambda t: whole(t, 1), self.max_tokens, 64)
        price = None
        if self.price.strip():
            per_hour = read("price.per_hour", lambda t: decimal(t, 0.0), self.price, 0.0)
            price = Price(per_hour, self.currency.strip() or "USD")
        seed = read("seed", lambda t: whole(t, 0, 2**31 - 1), self.seed or "0", 0)
        if found:
            return None, tuple(found)
        thoroughness: Thoroughness = self.thoroughness  # type: ignore[assignment]
        evalset = EvalChoice(self.evalset.strip() or "basics", items, max_tokens)
        sweep = Sweep(self.knob, values, baseline)
        return Plan(model, sweep, thoroughness, seed, fixed, slo, load, evalset, price), ()

    def _load(self, read: Callable[[str, Callable[[str], Any], str, Any], Any]) -> Load:
        prompt = read("load.prompt_tokens", read_lengths, self.prompt_tokens, 128)
        output = read("load.output_tokens", read_lengths, self.output_tokens, 32)
        requests = read("load.requests", lambda t: whole(t, 1), self.requests, 64)
        prefix = read("load.shared_prefix", read_prefix, self.shared_prefix, None)
        concurrency: tuple[int, ...] = ()
        rate: tuple[float, ...] = ()
        if self.kind == "closed":
            concurrency = read("load.concurrency", lambda t: many(t, lambda x: whole(x, 1)), self.concurrency, (8,))
        elif self.kind == "poisson":
            rate = read("load.rate", lambda t: many(t, lambda x: decimal(x, 0.0)), self.rate, (4.0,))
        file = self.file.strip() or None
        if self.kind == "trace" and file is None:
            read("load.file", _no_file, "", None)
        preset = self.load if self.load in loads.PRESETS else None
        text: Any = self.text if self.text in ("random", "natural") else "random"
        kind: Any = self.kind
        file = file if kind == "trace" else None
        return Load(kind, concurrency, rate, prompt, output, requests, text, prefix, file, preset)

    def with_load(self, preset: str) -> Draft:
        """The draft with a preset of traffic in its fields."""
        if preset not in loads.PRESETS:
            return replace(self, load=CUSTOM)
        return replace(self, load=preset, **_load_fields(loads.PRESETS[preset][0]))

    def with_slo(self, preset: str) -> Draft:
        """The draft with a preset of goal and limits in its fields."""
        if preset not in slos.PRESETS:
            return replace(self, slo=CUSTOM)
        return replace(self, slo=preset, **_slo_fields(slos.PRESETS[preset][0]))

    def with_knob(self, knob: str) -> Draft:
        """The draft with another knob: its values are no longer those of the old one."""
        return self if knob == self.knob else replace(self, knob=knob, values="", baseline="")


def from_plan(plan: Plan, prediction: str = "") -> Draft:
    """The draft whose fields say what `plan` says."""
    return Draft(
        model=plan.model,
        fixed=write_fixed(plan.fixed),
        load=plan.load.preset if plan.load.preset in loads.PRESETS else CUSTOM,
        **_load_fields(plan.load),
        evalset=plan.evalset.name,
        items=str(plan.evalset.items),
        max_tokens=str(plan.evalset.max_tokens),
        slo=plan.slo.name,
        **_slo_fields(plan.slo),
        knob=plan.knob.name,
        values=write_values(plan.knob.values),
        baseline="" if plan.knob.baseline is UNSET else write_value(plan.knob.baseline),
        thoroughness=plan.thoroughness,
        seed=str(plan.seed),
        price=f"{plan.price.per_hour:g}" if plan.price else "",
        currency=plan.price.currency if plan.price else "USD",
        prediction=prediction,
    )


def practice() -> Draft:
    """The sweep that runs on any machine with the CPU engine: the small practice model, two values, a few minutes."""
    return Draft(
        model=PRACTICE,
        fixed=write_fixed({"max_model_len": 1024, "enforce_eager": True, "gpu_memory_utilization": 0.3}),
        requests="64",
        slo="chat",
        goal="throughput",
        ttft="5000",
        tpot="200",
        knob="max_num_seqs",
        values="2, 8",
    )


def step_of(field: str) -> str:
    """The step of the wizard in which a plan's field is changed."""
    head, _, rest = field.partition(".")
    if head == "knob":
        return "knob" if rest == "name" else "values"
    return {"model": "model", "fixed": "model", "load": "work", "evalset": "work", "slo": "slo"}.get(head, "review")


def _load_fields(load: Load) -> dict[str, str]:
    fields = {
        "kind": load.kind,
        "prompt_tokens": write_lengths(load.prompt_tokens),
        "output_tokens": write_lengths(load.output_tokens),
        "requests": str(load.requests),
        "text": load.text,
        "shared_prefix": write_prefix(load.shared_prefix),
        "file": load.file or "",
    }
    if load.kind == "closed":
        fields["concurrency"] = ", ".join(f"{level:g}" for level in load.levels())
    if load.kind == "poisson":
        fields["rate"] = ", ".join(f"{level:g}" for level in load.levels())
    return fields


def _slo_fields(slo: Slo) -> dict[str, Any]:
    limits: dict[str, dict[int, float]] = {metric: {} for metric in METRICS}
    for bound in slo.bounds():
        limits[bound.metric][bound.percentile] = bound.ms
    goal: GoalName = slo.goal
    return {"goal": goal, **{metric: write_limits(bounds) for metric, bounds in limits.items()}}


# ---- one field's text, read and written ------------------------------------------------------------------------


def whole(text: str, low: int, high: int | None = None) -> int:
    """A whole number from `low` on. Raises ValueError with a sentence."""
    try:
        number = int(text.strip().replace("_", "").replace(" ", ""))
    except ValueError:
        said = f"{text.strip()!r} is no whole number: write one from {low} on" if text.strip() else "write a number"
        raise ValueError(said) from None
    if number < low or (high is not None and number > high):
        raise ValueError(f"{number} cannot be: at least {low}" + (f", at most {high}" if high is not None else ""))
    return number


def decimal(text: str, above: float) -> float:
    """A number above `above`. Raises ValueError with a sentence."""
    try:
        number = float(text.strip())
    except ValueError:
        said = f"{text.strip()!r} is no number: write one such as 4 or 0.5" if text.strip() else "write a number"
        raise ValueError(said) from None
    if not above < number < 1e9:
        raise ValueError(f"{number:g} cannot be: it must be above {above:g}")
    return number


def many(text: str, one: Callable[[str], T]) -> tuple[T, ...]:
    """Several numbers with commas between them. Raises ValueError with a sentence."""
    parts = [part for part in re.split(r"[,\s]+", text.strip()) if part]
    if not parts:
        raise ValueError("write at least one number; several with commas between them")
    return tuple(one(part) for part in parts)


_LENGTHS = re.compile(r"^(\d+)(?:\s*(?:±|\+-|~)\s*(\d+(?:\.\d+)?)\s*%)?(?:\s+(\d+)\s*(?:\.\.|-|–)\s*(\d+))?$")


def read_lengths(text: str) -> int | Lengths:
    """Token counts: `128`, or `256 ±80% 16..1024` (mean, spread, smallest and largest). Raises ValueError."""
    match = _LENGTHS.match(text.strip())
    if not match or int(match[1]) < 1:
        raise ValueError(f"{text.strip()!r} is no length: write 128, or 256 ±80% 16..1024 for mixed ones")
    mean, spread, low, high = int(match[1]), match[2], match[3], match[4]
    if spread is None and low is None:
        return mean
    if low is not None and int(low) > int(high):
        raise ValueError(f"{low}..{high} is no range: the smaller number comes first")
    return Lengths(mean, float(spread or 0) / 100, int(low) if low else 1, int(high) if high else None)


def write_lengths(lengths: int | Lengths) -> str:
    """What `read_lengths` reads back."""
    if isinstance(lengths, int):
        return str(lengths)
    text = f"{lengths.mean} ±{lengths.spread * 100:g}%"
    if lengths.high is not None:
        text += f" {lengths.low}..{lengths.high}"
    return text


_PREFIX = re.compile(r"^(\d+)(?:\s+(\d+(?:\.\d+)?)\s*%)?(?:\s+(?:x|×)?\s*(\d+))?$")


def read_prefix(text: str) -> SharedPrefix | None:
    """A shared beginning: nothing, `512`, or `512 100% 4` (tokens, share, groups). Raises ValueError."""
    if not text.strip() or text.strip() == "0":
        return None
    match = _PREFIX.match(text.strip())
    if not match:
        raise ValueError(f"{text.strip()!r} is no prefix: write 512 (tokens), or 512 100% 4 for share and groups")
    return SharedPrefix(int(match[1]), float(match[2] or 100) / 100, max(int(match[3] or 1), 1))


def write_prefix(prefix: SharedPrefix | None) -> str:
    """What `read_prefix` reads back."""
    return "" if prefix is None else f"{prefix.tokens} {prefix.share * 100:g}% {prefix.groups}"


_LIMIT = re.compile(r"^(?:p(\d+)[\s:=]*)?(\d+(?:\.\d+)?)\s*(ms|s)?$")


def read_limits(text: str) -> dict[int, float]:
    """Limits by percentile, milliseconds: nothing, `5000` (p95), `5 s`, or `p50 200, p99 900`. Raises ValueError."""
    found: dict[int, float] = {}
    for part in text.split(","):
        if not part.strip():
            continue
        match = _LIMIT.match(part.strip().lower())
        if not match or float(match[2]) <= 0:
            raise ValueError(f"{part.strip()!r} is no limit: write milliseconds, such as 5000, or p99 900")
        percentile = int(match[1] or 95)
        if percentile not in PERCENTILES:
            raise ValueError(f"p{percentile} is not measured: use {', '.join(f'p{p}' for p in PERCENTILES)}")
        found[percentile] = float(match[2]) * (1000 if match[3] == "s" else 1)
    return found


def write_limits(limits: dict[int, float]) -> str:
    """What `read_limits` reads back."""
    if set(limits) == {95}:
        return f"{limits[95]:.15g}"
    return ", ".join(f"p{percentile} {ms:.15g}" for percentile, ms in sorted(limits.items()))


def read_value(text: str) -> Value:
    """One value of a knob, as `model.values.parse` reads it. Raises ValueError where there is none."""
    if not text.strip():
        raise ValueError("write a value")
    return parse(text)


def read_values(text: str) -> tuple[Value, ...]:
    """A knob's values with commas between them; tables in braces stay whole. Raises ValueError."""
    return tuple(read_value(part) for part in split(text, ",") if part.strip())


_MARKS = frozenset("\"'[]{}()\\, \n\t")  # what cuts a field, or keeps it from being cut


def write_value(value: Value) -> str:
    """What `read_value` reads back."""
    if isinstance(value, (dict, list, tuple)):
        return msgspec.json.encode(value).decode()
    if isinstance(value, str):
        bare = value and parse(value) == value and _MARKS.isdisjoint(value)
        return value if bare else msgspec.json.encode(value).decode()
    if isinstance(value, float):
        return repr(value)
    return label(value)


def write_values(values: tuple[Value, ...]) -> str:
    """What `read_values` reads back."""
    return ", ".join(write_value(v) for v in values)


def read_fixed(text: str) -> dict[str, Value]:
    """Engine arguments: `name=value` with spaces between them. Raises ValueError with a sentence."""
    found: dict[str, Value] = {}
    for part in split(text, " \n\t,"):
        if not part.strip():
            continue
        name, equals, value = part.partition("=")
        name = name.strip().removeprefix("--").replace("-", "_")
        if not equals or not name.isidentifier():
            raise ValueError(f"{part.strip()!r} is no setting: write name=value, such as max_model_len=4096")
        if name in found:
            raise ValueError(f"{name} stands there twice")
        found[name] = parse(value)
    return found


def write_fixed(fixed: dict[str, Value]) -> str:
    """What `read_fixed` reads back."""
    return " ".join(f"{name}={write_value(value)}" for name, value in fixed.items())


def split(text: str, at: str) -> list[str]:
    """`text` cut at any character of `at` that stands outside of quotes and brackets."""
    parts, depth, quote, part = [], 0, "", ""
    escaped = False
    for c in text:
        if quote:
            part += c
            if escaped:
                escaped = False
            elif c == "\\":
                escaped = True
            elif c == quote:
                quote = ""
            continue
        if c in at and depth == 0:
            parts.append(part)
            part = ""
            continue
        if c == '"':
            quote = c
        depth += (c in "{[") - (c in "}]")
        depth = max(depth, 0)
        part += c
    parts.append(part)
    return parts


def _no_file(_: str) -> None:
    raise ValueError("name the JSON-lines file with your requests")
