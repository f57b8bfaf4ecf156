"""Plans as TOML: what a person writes, and what `tui-tuner plan` writes for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import tomllib
from msgspec.structs import replace

from tui_tuner import evals, paths
from tui_tuner.model.load import Load
from tui_tuner.model.plan import EvalChoice, Plan, Price, Sweep, convert
from tui_tuner.model.slo import slo_from_flat

THOROUGHNESS = ("quick", "standard", "decide")
_KEYS = ("model", "knob", "thoroughness", "seed", "fixed", "slo", "load", "evalset", "price")


class BadPlan(Exception):
    """The plan cannot be used; the text names the field and what would be right."""


def read(path: Path) -> Plan:
    """The plan in a TOML file. Raises BadPlan with a sentence that names the field."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadPlan(f"there is no file {path}: `tui-tuner plan` writes one") from None
    except IsADirectoryError:
        raise BadPlan(f"{path} is a folder: name a plan file in it, such as {path / 'plan.toml'}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadPlan(f"{path} cannot be read: {error}") from None
    return rooted(parse(text), path.parent)


def rooted(plan: Plan, folder: Path) -> Plan:
    """The plan with its own files, an eval set or traffic, as absolute paths; relative ones are meant from `folder` on.

    The sweep runs elsewhere, and a resume may come from anywhere. So does a model that is written as `./…` or `../…`.
    A word that is neither a shipped set nor a file stays as it was written: most likely a set's name, misspelt.
    """

    def at(name: str) -> str:
        return str((folder / paths.expanded(name)).absolute())

    named = plan.evalset.name
    if named not in evals.shipped() and (os.sep in named or Path(named).suffix or Path(at(named)).is_file()):
        plan = replace(plan, evalset=replace(plan.evalset, name=at(named)))
    if plan.load.file:
        plan = replace(plan, load=replace(plan.load, file=at(plan.load.file)))
    if plan.model.startswith(("./", "../")):
        plan = replace(plan, model=at(plan.model))
    return plan


def parse(text: str) -> Plan:
    """The plan in a TOML text. Raises BadPlan."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadPlan(f"the plan is not valid TOML: {error}") from None
    try:
        return from_table(table)
    except ValueError as error:
        raise BadPlan(str(error)) from None


def from_table(table: dict[str, Any]) -> Plan:
    """A plan from its decoded table. Raises ValueError with a sentence that names the field."""
    for key in table:
        if key not in _KEYS:
            raise ValueError(f"{key} is not known: a plan has {', '.join(_KEYS)}")
    model = table.get("model")
    if not isinstance(model, str) or not model.strip():
        raise ValueError('model is missing: name a Hugging Face id, a folder, or "practice" for the practice model')
    if "knob" not in table:
        raise ValueError('knob is missing: for example knob = { name = "max_num_seqs", values = [64, 128] }')
    thoroughness = table.get("thoroughness", "quick")
    if thoroughness not in THOROUGHNESS:
        raise ValueError(f"thoroughness is {thoroughness!r}: it must be one of {', '.join(THOROUGHNESS)}")
    seed = table.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**31:
        raise ValueError(f"seed is {seed!r}: it must be a whole number from 0 to 2147483647")
    fixed = table.get("fixed", {})
    if not isinstance(fixed, dict):
        raise ValueError(f"fixed is {fixed!r}: it must be a table of vLLM's argument names")
    slo = table.get("slo", {})
    if not isinstance(slo, dict):
        raise ValueError(f'slo is {slo!r}: it must be a table, for example slo = {{ goal = "throughput" }}')
    return Plan(
        model=model,
        knob=convert("knob", table["knob"], Sweep),
        thoroughness=thoroughness,
        seed=seed,
        fixed=fixed,
        slo=slo_from_flat(slo),
        load=convert("load", table.get("load", {}), Load),
        evalset=convert("evalset", table.get("evalset", {}), EvalChoice),
        price=convert("price", table["price"], Price) if "price" in table else None,
    )


def to_table(plan: Plan) -> dict[str, Any]:
    """The table that `from_table` reads back as the same plan. TOML has no null: absent means the default."""
    table: dict[str, Any] = msgspec.to_builtins(plan)
    slo = table.pop("slo")
    table["slo"] = {"name": slo["name"], "goal": slo["goal"], **slo["limits"]}
    for section, default in (("load", Load()), ("evalset", EvalChoice())):
        plain = msgspec.to_builtins(default)
        table[section] = {k: v for k, v in table[section].items() if v != plain.get(k) or k in ("kind", "name")}
    return {k: v for k, v in _no_null(table).items() if k == "model" or v != {}}


def write(plan: Plan) -> str:
    """The plan as TOML. Raises ValueError for a value that TOML cannot hold (none)."""
    if any(value is None for value in plan.knob.values):
        raise ValueError("a plan file cannot hold the value none: leave the knob out of `fixed` and use its default")
    import tomli_w  # only `plan` writes one

    return tomli_w.dumps(to_table(plan))


def _no_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _no_null(v) for k, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [_no_null(v) for v in value]
    return value
