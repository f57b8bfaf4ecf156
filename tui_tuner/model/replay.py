"""A recorded session played back: its events on a timeline, and how fast it is gone through. Pure; no clock of its own.

Places on the timeline are seconds from the first launch, as recorded, but for the waits in which nothing was
measured (an interruption, the night before the decision): those count `LONGEST_WAIT` seconds.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from tui_tuner.model import events as ev
from tui_tuner.model.session import Fold, Session

LONGEST_WAIT = 30.0  # seconds; while a runner lives, two events are half a second apart
ABOUT = 60.0  # seconds that a replay takes unless a speed is asked for
SLOWEST, FASTEST = 0.25, 4096.0


class Timeline:
    """The events of one session by their places. `length` is the place of the last one."""

    def __init__(self, events: Sequence[ev.AnyEvent | ev.Unknown]) -> None:
        self._events = list(events)
        self._places: list[float] = []
        place, before = 0.0, None
        for event in self._events:
            if isinstance(event, ev.SessionStart):
                self._places.append(place)
                continue
            if before is not None:
                place += min(max(event.t - before, 0.0), LONGEST_WAIT)  # a clock that was set back stands still
            before = event.t
            self._places.append(place)
        self.length = place
        self._fold, self._taken = Fold(), 0

    def until(self, at: float) -> Session:
        """The session as it was at that place. Raises ValueError if the events hold no session line.

        Going on costs only what is new; going back begins anew.
        """
        count = max(bisect.bisect_right(self._places, at), 1)
        if count < self._taken:
            self._fold, self._taken = Fold(), 0
        self._fold.add_all(self._events[self._taken : count])
        self._taken = count
        return self._fold.session()

    def moment(self, at: float) -> float:
        """The recorded time (seconds since the epoch) at a place."""
        index = max(bisect.bisect_right(self._places, at) - 1, 0)
        return self._events[index].t + max(min(at, self.length) - self._places[index], 0.0) if self._events else 0.0

    def marks(self) -> list[float]:
        """The places at which something other than a tick happened, each once."""
        found = [p for p, e in zip(self._places, self._events, strict=True) if not isinstance(e, ev.Tick)]
        return sorted(set(found))


class Pace(Struct, frozen=True):
    """How far a replay has come: `at` is the place it had at `since`, by whatever clock the caller has (seconds)."""

    length: float
    speed: float = 1.0  # recorded seconds a second
    at: float = 0.0
    since: float = 0.0
    paused: bool = False

    def position(self, now: float) -> float:
        """The place at `now`."""
        gone = 0.0 if self.paused else max(now - self.since, 0.0) * self.speed
        return min(self.at + gone, self.length)

    def over(self, now: float) -> bool:
        """Whether the end has been reached."""
        return self.position(now) >= self.length

    def toggled(self, now: float) -> Pace:
        """Paused, or going on."""
        return replace(self, at=self.position(now), since=now, paused=not self.paused)

    def faster(self, now: float) -> Pace:
        return replace(self, at=self.position(now), since=now, speed=min(self.speed * 2, FASTEST))

    def slower(self, now: float) -> Pace:
        return replace(self, at=self.position(now), since=now, speed=max(self.speed / 2, SLOWEST))

    def to_end(self, now: float) -> Pace:
        return replace(self, at=self.length, since=now)


def pace(length: float, speed: float | None, now: float) -> Pace:
    """A replay that begins at `now`; without a speed, the power of two that makes it take about a minute; 0 is at
    once."""
    if speed == 0:
        return Pace(length, 1.0, length, now)
    return Pace(length, speed if speed is not None else usual_speed(length), 0.0, now)


def usual_speed(length: float) -> float:
    """The power of two, from 1 on, at which `length` recorded seconds take about a minute."""
    speed = 1.0
    while length / speed > ABOUT * 1.5:
        speed *= 2
    return speed


def label(start: ev.SessionStart, day: str) -> str:
    """What a replay is called all the time, so that nobody takes it for a measurement; `day` is the day in words."""
    return f"replay of a recorded session ({start.machine.title}, {day})"
