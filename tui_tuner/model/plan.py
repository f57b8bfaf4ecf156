"""A plan: all that is held fixed, the one knob that is not, and what is asked of it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from tui_tuner.model.load import Load
from tui_tuner.model.slo import Slo
from tui_tuner.model.values import Value, engine_args

Thoroughness = Literal["quick", "standard", "decide"]
PRACTICE = "practice"  # the model's name in a plan that means the small practice model


class Sweep(Struct, frozen=True):
    """The knob, its values in the order asked for, and the baseline if the plan names one."""

    name: str
    values: tuple[Value, ...]
    baseline: Value | UnsetType = UNSET


class EvalChoice(Struct, frozen=True):
    """Which eval set is asked at every point: a shipped set's name or a JSONL file, how many items of it,
    and the longest answer in tokens. No items means no quality pass."""

    name: str = "basics"
    items: int = 60
    max_tokens: int = 64


class Price(Struct, frozen=True):
    """What the machine costs per hour, in `currency`."""

    per_hour: float
    currency: str = "USD"


class Plan(Struct, frozen=True):
    """One sweep, as asked for. vLLM's own argument names throughout."""

    model: str
    knob: Sweep
    thoroughness: Thoroughness = "quick"
    seed: int = 0
    fixed: dict[str, Any] = {}
    slo: Slo = Slo()
    load: Load = Load()
    evalset: EvalChoice = EvalChoice()
    price: Price | None = None

    def requests_per_level(self) -> int:
        """Requests sent at each load level: those asked for, or what the SLO's percentiles need."""
        return max(self.load.requests, self.slo.needed_requests())

    def args(self, value: Value) -> dict[str, Any]:
        """The engine arguments of the point where the knob has `value`; `model` as the plan spells it."""
        return {"model": self.model, **self.fixed, **engine_args(self.knob.name, value)}


# The sections whose TOML tables map onto a record as they stand.
SECTIONS: dict[str, Any] = {"knob": Sweep, "load": Load, "evalset": EvalChoice, "price": Price}


def convert(section: str, table: Any, into: type[Any]) -> Any:
    """`table` as a record of type `into`; ValueError with a sentence that begins with the section's name."""
    if not isinstance(table, dict):
        raise ValueError(f"{section} is {table!r}: it must be a table, for example {section} = {{ … }}")
    known = {f.encode_name for f in msgspec.structs.fields(into)}
    for key in table:
        if key not in known:
            raise ValueError(f"{section}.{key} is not known: {section} has {', '.join(sorted(known))}")
    try:
        return msgspec.convert(table, into, strict=True)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        raise ValueError(f"{section}{where.rstrip('`')}: {what[:1].lower()}{what[1:]}") from None
