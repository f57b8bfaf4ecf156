"""The way out of a failed point as a key: the value that the failure names, tried.

Where it is a value of the knob it can join a sweep that runs. A change of the fixed configuration never happens
inside a sweep, for all its points share one: that, and whatever follows an ended sweep, is a sweep of its own.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tui_tuner.model.events import PointFailed
from tui_tuner.model.plan import Plan
from tui_tuner.model.values import Value, label
from tui_tuner.tui.clean import plain


class Remedy(Struct, frozen=True):
    """`joins` tells whether it is a further value of the running sweep; else it is a new one."""

    field: str
    value: Value
    joins: bool = False

    @property
    def say(self) -> str:
        """What the key does: "try gpu_memory_utilization 0.9"."""
        return f"try {plain(self.field, 60)} {plain(label(self.value), 40)}{self._where}"

    def after(self, note: str) -> str:
        """The same behind a sentence that may have said it already."""
        known = self.field in note and label(self.value) in note
        return f"tries it{self._where}" if known else self.say

    @property
    def _where(self) -> str:
        return "" if self.joins else " in a new sweep"


def of(failed: PointFailed | None, plan: Plan, running: bool) -> Remedy | None:
    """What can be tried after a failure, or None where it names no value, or not one for now."""
    fix = failed.fix if failed else None
    if fix is None or fix.field is None or not fix.field.isidentifier() or not isinstance(fix.value, (int, float, str)):
        return None
    own = fix.field == plan.knob.name
    if running and not own:
        return None
    return Remedy(fix.field, fix.value, running)


def applied(plan: Plan, remedy: Remedy) -> Plan:
    """The plan of the new sweep: the same, with the knob at that one value, or with the fixed configuration mended."""
    if remedy.field == plan.knob.name:
        return replace(plan, knob=replace(plan.knob, values=(remedy.value,)))
    return replace(plan, fixed={**plan.fixed, remedy.field: remedy.value})
