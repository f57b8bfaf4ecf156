"""The noise band: how far two launches of one configuration lie apart, on this card, engine, model and load.

It is pooled from baselines that were launched more than once: a `noise` run's five, and the first and last of
earlier sessions. Each group (one session, one segment, one baseline) adds the squares of its relative deviations
and its launches less one; what is left is one standard deviation with that many degrees of freedom, which the
product calls pairs (a pair of launches has one).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tui_tuner.analysis import points, stats
from tui_tuner.model import events as ev
from tui_tuner.model.session import Point, Session

MIN_PAIRS = 3  # below, Student's t makes a band so wide that it says nothing
_NEWEST = 50
UPPER = 0.9  # the confidence of `upper_percent`


class Noise(Struct, frozen=True):
    """The launch-to-launch noise of one figure, in percent of it.

    `percent` is the half-width that holds 95 % of the differences between two single launches (Student's t times
    sd · sqrt 2), `sd_percent` the standard deviation of one launch, `upper_percent` its 90 % upper bound.
    """

    percent: float
    sd_percent: float
    upper_percent: float
    pairs: int


class Band(Struct, frozen=True):
    """The noise of the goal, and of every limit by its key in `figures`; as a session's first line keeps it."""

    percent: float
    sd_percent: float
    upper_percent: float
    pairs: int
    figure: str
    sessions: int
    figures: dict[str, Noise] = {}

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def noise(groups: Iterable[Iterable[float]]) -> Noise | None:
    """The pooled noise of groups of equal launches; None below `MIN_PAIRS` degrees of freedom."""
    squares, pairs = 0.0, 0
    for group in groups:
        logs = [math.log(x) for x in group if x > 0 and math.isfinite(x)]
        if len(logs) < 2:
            continue
        middle = math.fsum(logs) / len(logs)
        squares += math.fsum((x - middle) ** 2 for x in logs)
        pairs += len(logs) - 1
    if pairs < MIN_PAIRS:
        return None
    sd = 100.0 * math.sqrt(squares / pairs)
    return Noise(
        percent=stats.t_quantile(0.975, pairs) * sd * math.sqrt(2),
        sd_percent=sd,
        upper_percent=sd * math.sqrt(pairs / stats.chi2_quantile(1 - UPPER, pairs)),
        pairs=pairs,
    )


def pool(sessions: Iterable[Session], start: ev.SessionStart) -> Band | None:
    """The band that `sessions` know for the session that `start` begins; None where they tell too little.

    Only sessions of the same card, engine version, model and load count, and only valid baseline points. The order
    of `sessions` does not matter; `start`'s own session may be among them.
    """
    slo = start.plan.slo
    wanted = [slo.goal, *(b.key for b in slo.bounds())]
    groups: dict[str, list[list[float]]] = {what: [] for what in wanted}
    used = 0
    for session in sessions:
        if not comparable(session.start, start):
            continue
        hit = False
        for group in launched_alike(session):
            found = [points.figures(p, start.plan) for p in group]
            for what in wanted:
                values = [v for f in found if (v := points.figure(f, what, slo)) is not None]
                groups[what].append(values)
            hit = True
        used += hit
    known = {what: n for what in wanted if (n := noise(groups[what])) is not None}
    goal = known.get(slo.goal)
    if goal is None:
        return None
    return Band(goal.percent, goal.sd_percent, goal.upper_percent, goal.pairs, slo.goal, used, known)


def known(start: ev.SessionStart, folder: Path) -> ev.SessionStart:
    """`start` with the band that the sessions of `folder` tell, if they tell one. A noise run takes none: it makes one.

    Only files whose first line fits are read whole, the newest 50 of them; unreadable ones are passed over.
    """
    from tui_tuner.store import library, sessionfile

    if start.kind == "noise":
        return start
    found: list[Session] = []
    for summary in library.listing(folder):
        if summary.start is None or summary.id == start.id or not comparable(summary.start, start):
            continue
        with contextlib.suppress(sessionfile.Unreadable, OSError):
            found.append(sessionfile.read(summary.path))
        if len(found) >= _NEWEST:
            break
    band = pool(found, start)
    return replace(start, band=band.as_dict()) if band is not None else start


def comparable(a: ev.SessionStart, b: ev.SessionStart) -> bool:
    """Whether noise seen in one session holds for another: same card, engine, model and work."""
    return (
        a.machine.card == b.machine.card
        and a.machine.title == b.machine.title
        and (a.engine.version, a.engine.device) == (b.engine.version, b.engine.device)
        and a.plan.model == b.plan.model
        and a.dummy_weights == b.dummy_weights
        and a.plan.load == b.plan.load
        and a.plan.requests_per_level() == b.plan.requests_per_level()
    )


def launched_alike(session: Session) -> list[list[Point]]:
    """The valid baseline launches of each segment in which there is more than one."""
    groups: dict[int, list[Point]] = {}
    for point in points.baselines(session):
        base = points.baseline_of(point, session)
        if not points.problems(point, base, session):
            groups.setdefault(point.segment, []).append(point)
    return [group for group in groups.values() if len(group) > 1]


def of(band: dict[str, Any] | None, what: str, goal: str) -> Noise | None:
    """The noise of the figure `what` in a session's `band`; None where the band says nothing of it."""
    if not band:
        return None
    own = (band.get("figures") or {}).get(what)
    if own is None:
        if what != goal or not band.get("percent"):
            return None
        own = band
    percent = float(own["percent"])
    pairs = max(int(own.get("pairs") or MIN_PAIRS), 1)
    sd = float(own.get("sd_percent") or percent / (stats.t_quantile(0.975, pairs) * math.sqrt(2)))
    upper = float(own.get("upper_percent") or sd * math.sqrt(pairs / stats.chi2_quantile(1 - UPPER, pairs)))
    return Noise(percent, sd, upper, pairs)


def describe(band: dict[str, Any] | None) -> str | None:
    """ "±1.1 % from 4 pairs", or None without a band."""
    if not band or not band.get("percent"):
        return None
    pairs = band.get("pairs")
    return f"±{float(band['percent']):.1f} %" + (f" from {pairs} pairs" if pairs else "")
