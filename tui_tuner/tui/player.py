"""What the keys of a replay and the thread that follows it share: the pace, kept by a clock that only goes forward."""

from __future__ import annotations

import time
from collections.abc import Callable

from tui_tuner.model import replay
from tui_tuner.model.replay import Pace


class Player:
    """A replay's pace; `begin` starts it once the recording has been read.

    The pace is replaced as a whole, so that another thread never sees half a change.
    """

    def __init__(self, speed: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._speed, self._clock = speed, clock
        self.pace = Pace(0.0)
        self.began = False

    def begin(self, length: float) -> None:
        self.pace = replay.pace(length, self._speed, self._clock())
        self.began = True

    @property
    def position(self) -> float:
        """The place that has been reached, in recorded seconds."""
        return self.pace.position(self._clock())

    @property
    def over(self) -> bool:
        return self.began and self.pace.over(self._clock())

    def toggle(self) -> None:
        """Pauses, or goes on."""
        self.pace = self.pace.toggled(self._clock())

    def faster(self) -> None:
        self.pace = self.pace.faster(self._clock())

    def slower(self) -> None:
        self.pace = self.pace.slower(self._clock())

    def to_end(self) -> None:
        self.pace = self.pace.to_end(self._clock())
