"""Which point comes next. A pure function of the session, so that a resumed sweep goes on where it was.

A slot's number `n` never changes once it was given: the baseline is 1, the values follow in the order in which they
are to be measured, then the repeated baseline; what comes later (added values, the baseline of a new segment,
finalist launches) takes the next free numbers, wherever it stands in the order.
"""

from __future__ import annotations

import random
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tui_tuner.analysis import points
from tui_tuner.model import events as ev
from tui_tuner.model.session import Point, Session
from tui_tuner.model.values import Value, same

NOISE_LAUNCHES = 5
MIN_LAUNCHES, MAX_LAUNCHES = 3, 8
DETECT_PERCENT = 5.0  # the difference that `decide` is laid out to find, with a power of 0.8

# The largest launch-to-launch standard deviation (percent) at which n launches of each side find a true difference
# of 5 % with a power of 0.8 by a two-sided t test at 5 %: 5 / d, where d solves
# P(|T'(2n-2, d·sqrt(n/2))| > t(0.975, 2n-2)) = 0.8 with the noncentral t distribution
# (Cohen, "Statistical Power Analysis for the Behavioral Sciences", 1988, section 2.4).
_LARGEST_SD = {3: 1.6282, 4: 2.1002, 5: 2.4698, 6: 2.7847, 7: 3.0643, 8: 3.3187}


class Slot(Struct, frozen=True):
    """A place in the sweep: what is to be measured there. `segment` is the point's, or the one it will open in."""

    n: int
    role: ev.Role
    value: Value
    segment: int = 0


def slots(session: Session) -> list[Slot]:
    """Every point of the sweep in the order of measuring: those done, the one that runs, those to come."""
    return _Plan(session).slots


def next_slot(session: Session) -> Slot | None:
    """The point to measure next; a point that was cut off comes again under its own number. None: all is done.

    Nothing follows a baseline that failed. In `decide` the finalist's launches appear once the session holds the
    `band` event that `band_event` makes.
    """
    plan = _Plan(session)
    for slot in plan.slots:
        if slot.role == "baseline" and _failed(session.point(slot.n)) and slot.segment == session.segment:
            return None
    return next((slot for slot in plan.slots if not _over(session.point(slot.n))), None)


def band_event(session: Session, t: float) -> ev.Band | None:
    """The `band` event to append before the finalist's launches, or None while or if there is none to write.

    It is due once, in `decide`, when every point of the standard part is over and a valid value was found that is
    not clearly worse than the baseline. Fixing the number of launches here, before the first of them, is what
    keeps the test at its level.
    """
    start = session.start
    if start.kind != "sweep" or start.plan.thoroughness != "decide" or session.bands or not start.band:
        return None
    if not session.points or next_slot(session) is not None:
        return None
    found = points.finalist(session)
    if found is None:
        return None
    return ev.Band(
        t=t,
        finalist_n=found.n,
        finalist=found.value,
        launches=launches_for(start.band),
        percent=float(start.band.get("percent", 0.0)),
    )


def launches_for(band: dict[str, Any]) -> int:
    """Launches of the finalist and of the baseline each, 3 to 8, that the noise asks for.

    `band` is a session's: the upper bound of the launch-to-launch standard deviation is its `upper_percent`; where
    that is missing it is computed from `percent` (the 95 % half-width of a difference of two launches) and `pairs`.
    """
    upper = band.get("upper_percent")
    if upper is None:
        df = max(int(band.get("df") or band.get("pairs") or 1), 1)
        sd = band.get("sd_percent")
        if sd is None:
            sd = float(band.get("percent", 0.0)) / (_t975(df) * 2**0.5)
        upper = float(sd) * upper_factor(df)
    for n, largest in _LARGEST_SD.items():
        if float(upper) <= largest:
            return n
    return MAX_LAUNCHES


def upper_factor(df: int) -> float:
    """How far above an estimated standard deviation of `df` degrees of freedom its 90 % upper bound lies:
    sqrt(df / chi2(0.1, df)), with the chi-square quantile by Wilson and Hilferty (1931), from three
    degrees on; below they are tabled."""
    if df <= len(_CHI2):
        return float((max(df, 1) / _CHI2[max(df, 1) - 1]) ** 0.5)
    z = -1.2815515655446004
    k = 2.0 / (9.0 * df)
    chi2: float = df * max(1.0 - k + z * k**0.5, 1e-3) ** 3
    return float((df / chi2) ** 0.5)


_CHI2 = (0.0157908, 0.2107210)  # the 0.1 quantiles of chi-square at 1 and 2 degrees of freedom
_T975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def _t975(df: int) -> float:
    """Student's t at 0.975: a table to 10 degrees of freedom, then the Cornish-Fisher expansion (to 0.001)."""
    if df <= len(_T975):
        return _T975[df - 1]
    z = 1.959963984540054
    return z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)


def refusal(session: Session, asked: ev.Asked) -> str | None:
    """Why adding or dropping a value would have no effect, as a sentence; None if it has one."""
    plan = _Plan(session)
    if asked.what == "add":
        if session.start.kind == "noise":
            return "a noise run launches nothing but the baseline: a value cannot be added to it"
        if session.bands:
            return "the finalist has been chosen: a value added now could no longer be compared, start a new sweep"
        if any(s.role == "value" and same(s.value, asked.value) for s in plan.slots):
            return "this value is already in the sweep"
    if asked.what == "drop":
        open_ = [s for s in plan.slots if s.role == "value" and session.point(s.n) is None]
        if not any(s.n == asked.n if asked.n is not None else same(s.value, asked.value) for s in open_):
            return "only a value that has not started can be dropped; to end the running one, skip it"
    return None


def _over(point: Point | None) -> bool:
    return point is not None and point.status is not None


def _failed(point: Point | None) -> bool:
    """Whether the point gave no figures: it failed, or the person skipped it."""
    return point is not None and (point.failed is not None or point.status == "aborted")


class _Plan:
    """Builds the slots by going through the requests and launches in the order of their times."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.slots: list[Slot] = []
        self._next = 1
        start = session.start
        if start.kind == "noise":
            self._append("baseline", start.baseline)
            for _ in range(NOISE_LAUNCHES - 1):
                self._append("baseline_again", start.baseline)
            self._settle_segments()
            return
        self._append("baseline", start.baseline)
        values = list(start.plan.knob.values)
        if start.plan.thoroughness != "quick":
            random.Random(f"order {start.plan.seed}").shuffle(values)
        for value in values:
            self._append("value", value)
        self.closes = start.plan.thoroughness != "quick" or start.band is None
        if self.closes:
            self._append("baseline_again", start.baseline)
        changes: list[ev.Asked | ev.Launched | ev.Band] = [*session.asked, *session.launches, *session.bands]
        segment = 0
        chosen = False
        for change in sorted(changes, key=lambda e: e.t):
            if isinstance(change, ev.Launched):
                if change.segment > segment:
                    segment = change.segment
                    self._open_segment(segment)
            elif isinstance(change, ev.Band):
                if not chosen:
                    chosen = True
                    for _ in range(change.launches):
                        self._append("finalist", change.finalist)
                        self._append("baseline_again", start.baseline)
            elif change.what == "add" and not chosen:
                self._add(change.value, change.t)
            elif change.what in ("drop", "skip"):
                self._drop(change)
        self._settle_segments()

    def _append(self, role: ev.Role, value: Value) -> None:
        self._insert(len(self.slots), role, value)

    def _insert(self, at: int, role: ev.Role, value: Value) -> None:
        self.slots.insert(at, Slot(self._next, role, value))
        self._next += 1

    def _add(self, value: Value, t: float) -> None:
        if any(s.role == "value" and same(s.value, value) for s in self.slots):
            return
        closing = [i for i, s in enumerate(self.slots) if s.role == "baseline_again"]
        if not closing:
            self._append("value", value)
            return
        last = self.session.point(self.slots[closing[-1]].n)
        if last is not None and _first_began(last) < t:  # the sweep had been closed: it is closed again afterwards
            self._append("value", value)
            self._append("baseline_again", self.session.start.baseline)
        else:
            self._insert(closing[-1], "value", value)

    def _drop(self, asked: ev.Asked) -> None:
        """Leaves out a value that has not started; a skip of a point that had started is the runner's to record."""
        if asked.what == "skip" and asked.n is None:
            return
        for slot in self.slots:
            hit = slot.n == asked.n if asked.n is not None else same(slot.value, asked.value)
            if hit and slot.role == "value" and self.session.point(slot.n) is None:
                self.slots.remove(slot)
                return

    def _open_segment(self, segment: int) -> None:
        """A new segment begins with its own baseline, if a value is still to be compared with one."""

        def outstanding(slot: Slot) -> bool:
            point = self.session.point(slot.n)
            return point is None or point.status is None or point.segment >= segment

        waiting = [i for i, s in enumerate(self.slots) if outstanding(s)]
        if any(self.slots[i].role == "baseline" for i in waiting):
            return  # the baseline itself was cut off, and comes again
        if any(self.slots[i].role in ("value", "finalist") for i in waiting):
            self._insert(waiting[0], "baseline", self.session.start.baseline)

    def _settle_segments(self) -> None:
        now = self.session.segment
        for i, slot in enumerate(self.slots):
            point = self.session.point(slot.n)
            over = point is not None and point.status is not None
            self.slots[i] = replace(slot, segment=point.segment if point is not None and over else now)


def _first_began(point: Point) -> float:
    return point.earlier[0].began if point.earlier else point.began
