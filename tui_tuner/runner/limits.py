"""How long each phase may go without a sign of life, and what counts as one.

A phase is not timed by the clock alone: a download that advances, a log that grows, a step that is named anew are
progress. While requests wait, only tokens are: an engine that says it is busy and gives none hangs.
"""

from __future__ import annotations

import time

import msgspec
from msgspec import Struct

from tui_tuner.model.events import PhaseName

# Seconds without progress. Compiling and capturing graphs of a large model are silent for minutes; a load may wait
# for a slow disk. None of it is a speed figure, so waiting costs only time.
_QUIET: dict[PhaseName, float] = {
    "spawn": 60.0,
    "import": 300.0,
    "load": 600.0,
    "compile": 1200.0,
    "kv_cache": 600.0,
    "graphs": 900.0,
    "ready": 120.0,
    "warmup": 300.0,
    "speed": 300.0,
    "quality": 300.0,
    "stop": 60.0,
}
_MOVED = 1 << 20  # bytes read or written by the group that count as progress


class Limits(Struct, frozen=True):
    """Every wait of the runner, in seconds."""

    quiet: dict[PhaseName, float] = msgspec.field(default_factory=_QUIET.copy)
    longest: float = 4 * 3600.0  # of any phase, whatever it shows
    no_token: float = 180.0  # with requests in the engine
    term: float = 20.0  # between TERM and KILL
    memory: float = 60.0  # until the device's memory must be back
    busy: float = 30.0  # to wait for a neighbour on the card before a point
    tick: float = 0.5
    new_segment: float = 1800.0  # since the last event, after which a resumed sweep opens a new segment
    log_bytes: int = 1 << 30


class Watch:
    """Watches one point's progress. Times are of a monotonic clock, and a pause of the runner itself does not count."""

    def __init__(self, limits: Limits, now: float | None = None) -> None:
        self._limits = limits
        now = time.monotonic() if now is None else now
        self.phase: PhaseName = "spawn"
        self._entered = self._moved = self._token = self._seen = now
        self._log = self._io = 0
        self._waiting = 0

    def enter(self, phase: PhaseName, now: float) -> None:
        """A phase began, or said anew what it does."""
        if phase != self.phase:
            self.phase, self._entered, self._waiting = phase, now, 0
        self._moved = self._token = now

    def log(self, size: int, now: float) -> None:
        """The size of the engine's log."""
        if size != self._log:
            self._log, self._moved = size, now

    def io(self, total: int, now: float) -> None:
        """What the group has read and written so far."""
        if abs(total - self._io) >= _MOVED:
            self._io, self._moved = total, now

    def stats(self, tok_s: float, running: int, waiting: int, now: float) -> None:
        """The engine's own word on tokens and requests."""
        self._moved = now
        self._waiting = running + waiting
        if tok_s > 0 or not self._waiting:
            self._token = now

    def results(self, now: float) -> None:
        """Rows came in."""
        self._moved = self._token = now

    def overdue(self, now: float) -> str | None:
        """Why the point must end, as a part of a sentence; None while all is well."""
        gap = now - self._seen
        self._seen = now
        if gap > 10 * self._limits.tick + 5.0:  # the runner was stopped, or the machine slept
            self._entered, self._moved, self._token = self._entered + gap, self._moved + gap, self._token + gap
        quiet = self._limits.quiet.get(self.phase, 300.0)
        if self.phase in ("warmup", "speed", "quality") and self._waiting and now - self._token > self._limits.no_token:
            return f"no token came for {now - self._token:.0f} s while {self._waiting} requests waited"
        if now - self._moved > quiet:
            seen = "no line in the log, no data read, no word from the engine"
            return f"nothing moved for {now - self._moved:.0f} s: {seen}"
        if now - self._entered > self._limits.longest:
            return f"it was still not over after {(now - self._entered) / 3600:.1f} hours"
        return None
