"""A session is what its events add up to: `fold(events)`.

Every screen, `show`, `resume` and the verdict read the same `Session`. Folding never raises: an event that
makes no sense where it stands (a tick of a point that was never started) is counted in `skipped`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from tui_tuner.model import events as ev
from tui_tuner.model.values import Value

State = Literal["finished", "running", "interrupted", "stopped", "failed"]


class Point(Struct, frozen=True):
    """One value's latest attempt; `earlier` holds the attempts before it, oldest first."""

    n: int
    role: ev.Role
    value: Value
    attempt: int
    segment: int
    began: float
    start: ev.PointStarted
    phases: tuple[ev.Phase, ...] = ()
    capacity: ev.Capacity | None = None
    warmed: ev.Warmed | None = None
    ticks: tuple[ev.Tick, ...] = ()
    levels: tuple[ev.Requests, ...] = ()
    answers: ev.Answers | None = None
    done: ev.PointDone | None = None
    failed: ev.PointFailed | None = None
    clean: ev.Clean | None = None
    earlier: tuple[Point, ...] = ()

    @property
    def status(self) -> ev.Status | None:
        """The outcome, or None while there is none: the point runs, or was cut off."""
        if self.failed:
            return self.failed.status
        if self.done:
            if self.done.status == "ok" and self.capacity and self.capacity.changed and self.capacity.changed.foreign:
                return "unclean"
            return self.done.status
        return None

    @property
    def ended(self) -> float | None:
        last = self.done or self.failed
        return last.t if last else None

    @property
    def phase(self) -> ev.PhaseName:
        return self.phases[-1].name if self.phases else "spawn"

    @property
    def peak_mib(self) -> int | None:
        last = self.failed or self.done
        if last and last.peak_mib is not None:
            return last.peak_mib
        return max((t.vram_mib for t in self.ticks if t.vram_mib is not None), default=None)

    @property
    def say(self) -> str | None:
        if self.failed:
            return self.failed.say
        return self.done.say if self.done else None


class Session(Struct, frozen=True):
    """The state of a session after the events read so far."""

    start: ev.SessionStart
    launches: tuple[ev.Launched, ...] = ()
    points: tuple[Point, ...] = ()  # by n
    asked: tuple[ev.Asked, ...] = ()
    notes: tuple[ev.Noted, ...] = ()
    bands: tuple[ev.Band, ...] = ()
    ended: ev.SweepEnded | None = None
    decisions: tuple[ev.Decision, ...] = ()
    skipped: int = 0  # lines of unknown type, or that made no sense
    last_t: float = 0.0

    @property
    def id(self) -> str:
        return self.start.id

    @property
    def segment(self) -> int:
        return self.launches[-1].segment if self.launches else 0

    @property
    def running_point(self) -> Point | None:
        """The point that has started and not ended, if any."""
        return next((p for p in reversed(self.points) if p.status is None), None)

    @property
    def decision(self) -> ev.Decision | None:
        return self.decisions[-1] if self.decisions else None

    def point(self, n: int) -> Point | None:
        return next((p for p in self.points if p.n == n), None)

    def state(self, locked: bool) -> State:
        """What the session is; `locked` tells whether a runner holds its lock ("running" is not stored)."""
        if self.ended and not (self.launches and self.launches[-1].t > self.ended.t):
            return self.ended.why
        return "running" if locked else "interrupted"


class Fold:
    """Adds events one by one; `session()` is a snapshot that later events do not touch."""

    def __init__(self) -> None:
        self._start: ev.SessionStart | None = None
        self._launches: list[ev.Launched] = []
        self._asked: list[ev.Asked] = []
        self._notes: list[ev.Noted] = []
        self._bands: list[ev.Band] = []
        self._decisions: list[ev.Decision] = []
        self._ended: ev.SweepEnded | None = None
        self._points: dict[int, Point] = {}
        self._ticks: dict[int, list[ev.Tick]] = {}
        self._last_t = 0.0
        self.skipped = 0

    def add(self, event: ev.AnyEvent | ev.Unknown) -> None:
        """Takes one event; never raises."""
        if event.t > self._last_t:
            self._last_t = event.t
        if type(event) is ev.Tick:  # nearly all events: the short way, frozen when a snapshot is asked for
            try:
                self._ticks[event.n].append(event)
            except KeyError:
                self.skipped += 1
        elif isinstance(event, ev.SessionStart):
            if self._start is None:
                self._start = event
            else:
                self.skipped += 1
        elif isinstance(event, ev.PointStarted):
            before = self._freeze(event.n) if event.n in self._points else None
            earlier = (*before.earlier, replace(before, earlier=())) if before else ()
            self._points[event.n] = Point(
                event.n, event.role, event.value, event.attempt, event.segment, event.t, event, earlier=earlier
            )
            self._ticks[event.n] = []
        elif isinstance(
            event, (ev.Phase, ev.Capacity, ev.Warmed, ev.Requests, ev.Answers, ev.PointDone, ev.PointFailed, ev.Clean)
        ):
            point = self._points.get(event.n)
            if point is None:
                self.skipped += 1
            else:
                self._points[event.n] = _with(point, event)
        elif isinstance(event, ev.Launched):
            self._launches.append(event)
        elif isinstance(event, ev.SweepEnded):
            self._ended = event
        elif isinstance(event, ev.Decision):
            self._decisions.append(event)
        elif isinstance(event, ev.Asked):
            self._asked.append(event)
        elif isinstance(event, ev.Noted):
            self._notes.append(event)
        elif isinstance(event, ev.Band):
            self._bands.append(event)
        else:
            self.skipped += 1

    def add_all(self, events: Iterable[ev.AnyEvent | ev.Unknown]) -> None:
        """Takes events in order, as `add` does; quicker for the long runs of ticks that a session is made of."""
        n, append, last_t = None, None, 0.0
        for event in events:
            if type(event) is ev.Tick and event.n == n and append is not None:
                append(event)
                if event.t > last_t:
                    last_t = event.t
                continue
            self.add(event)
            n, append = None, None
            if type(event) is ev.Tick and event.n in self._ticks:
                n, append = event.n, self._ticks[event.n].append
        self._last_t = max(self._last_t, last_t)

    def _freeze(self, n: int) -> Point:
        point, ticks = self._points[n], self._ticks[n]
        if len(point.ticks) != len(ticks):
            point = self._points[n] = replace(point, ticks=tuple(ticks))
        return point

    @property
    def started(self) -> bool:
        """Whether line 1 has been seen: only then is there a session."""
        return self._start is not None

    def session(self) -> Session:
        """The session so far. Raises ValueError if no `session` event has been added."""
        if self._start is None:
            raise ValueError("this file does not begin with a session line")
        return Session(
            start=self._start,
            launches=tuple(self._launches),
            points=tuple(self._freeze(n) for n in sorted(self._points)),
            asked=tuple(self._asked),
            notes=tuple(self._notes),
            bands=tuple(self._bands),
            ended=self._ended,
            decisions=tuple(self._decisions),
            skipped=self.skipped,
            last_t=self._last_t,
        )


def _with(point: Point, event: ev.AnyEvent) -> Point:
    if isinstance(event, ev.Phase):
        return replace(point, phases=(*point.phases, event))
    if isinstance(event, ev.Capacity):
        return replace(point, capacity=event)
    if isinstance(event, ev.Warmed):
        return replace(point, warmed=event)
    if isinstance(event, ev.Requests):
        return replace(point, levels=(*point.levels, event))
    if isinstance(event, ev.Answers):
        return replace(point, answers=event)
    if isinstance(event, ev.PointDone):
        return replace(point, done=event)
    if isinstance(event, ev.PointFailed):
        return replace(point, failed=event)
    if isinstance(event, ev.Clean):
        return replace(point, clean=event)
    return point


def fold(events: Iterable[ev.AnyEvent | ev.Unknown]) -> Session:
    """The session that `events` add up to. Raises ValueError if there is no `session` event among them."""
    folding = Fold()
    for event in events:
        folding.add(event)
    return folding.session()
