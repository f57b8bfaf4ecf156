"""A running session on stderr: the phase, the live figures, what is left, and a line for each point that ends.

Leaving does not stop the sweep. The first ctrl+c asks, the second stops.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from tui_tuner.model import events as ev
from tui_tuner.model.session import Point, Session
from tui_tuner.model.text import plain
from tui_tuner.store import inbox, sessionfile

_EVERY_S = 0.5


def follow(path: Path) -> bool:
    """Shows the session until its runner lets go of it. Returns whether the person left before that."""
    follower = sessionfile.Follower(path)
    screen = Screen()
    with _Interrupts() as interrupts:
        while True:
            # The lock is asked first: what was written before it was released is then read for certain.
            locked = sessionfile.is_locked(path)
            session = follower.poll()
            if session is not None:
                screen.show(session)
            if not locked:
                screen.close()
                return False
            if interrupts.pending():
                screen.close()
                if _ask(path, interrupts):
                    return True
            time.sleep(_EVERY_S)


def _ask(path: Path, interrupts: _Interrupts) -> bool:
    """What the first ctrl+c is answered with. Returns True if the person leaves."""
    name = path.name.removesuffix(".jsonl")
    print(
        f"The sweep goes on without this window; `tui-tuner attach {name}` follows it again.\n"
        "Press ctrl+c again to stop the sweep, l and enter to leave, enter alone to keep watching.",
        file=sys.stderr,
        flush=True,
    )
    answer = ""
    if sys.stdin is not None and sys.stdin.isatty():
        answer = interrupts.line()
    else:
        # Nobody can answer: a second ctrl+c within a while stops, anything else goes on.
        until = time.monotonic() + 10
        while time.monotonic() < until and not interrupts.waiting:
            time.sleep(0.1)
    if interrupts.pending() or answer == "stop":
        with contextlib.suppress(inbox.NotSent):
            inbox.send(path, ev.Asked(time.time(), "stop"))
        print("stopping: the point that runs is ended, and what was measured is kept", file=sys.stderr, flush=True)
        return False
    return answer.strip().lower().startswith("l")


class _Interrupts:
    """Counts ctrl+c instead of raising it, so that it never tears a line of output or a decision."""

    def __init__(self) -> None:
        self.waiting = 0

    def __enter__(self) -> _Interrupts:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *exc: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.waiting += 1

    def pending(self) -> bool:
        """Whether ctrl+c was pressed since the last call."""
        found, self.waiting = self.waiting > 0, 0
        return found

    def line(self) -> str:
        """A line from the terminal, or "stop" if ctrl+c is pressed instead."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return sys.stdin.readline()
        except KeyboardInterrupt:
            return "stop"
        finally:
            signal.signal(signal.SIGINT, self._note)


class Screen:
    """One status line that is redrawn on a terminal; elsewhere a line whenever the phase changes."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._ended: set[tuple[int, int]] = set()
        self._last = ""
        self._open = False

    def show(self, session: Session) -> None:
        """Says what is new in the session."""
        from tui_tuner.analysis import report  # with the first session, not with the command

        for point in session.points:
            key = (point.n, point.attempt)
            if point.status is not None and key not in self._ended:
                self._ended.add(key)
                self._line(report.point_line(point, session))
        running = session.running_point
        if running is None or session.ended:
            return
        text = _status(running, session, report.left(session), live=self._live)
        if self._live:
            width = max(shutil.get_terminal_size().columns - 1, 20)
            print(f"\r\x1b[K{text[:width]}", end="", file=sys.stderr, flush=True)
            self._open = True
        elif text != self._last:
            print(text, file=sys.stderr, flush=True)
        self._last = text

    def _line(self, text: str) -> None:
        self.close()
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Ends the status line, if one is open."""
        if self._open:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._open = False


def _status(point: Point, session: Session, left: tuple[int, int, float | None], live: bool) -> str:
    number, total, seconds = left
    phase = point.phases[-1] if point.phases else None
    parts = [f"[{number}/{total}] {plain(point_title(point, session))}", point.phase]
    if live:
        if phase and phase.detail:
            parts.append(plain(phase.detail))
        tick = point.ticks[-1] if point.ticks else None
        if point.capacity and point.capacity.kv_blocks:
            parts.append(f"{point.capacity.kv_blocks:,} KV blocks")
        if tick and tick.tok_s is not None and point.phase in ("warmup", "speed", "quality"):
            parts.append(f"{tick.tok_s:,.0f} tok/s, {tick.running or 0} running, {tick.waiting or 0} waiting")
        if tick and tick.vram_mib is not None:
            parts.append(f"{tick.vram_mib / 1024:.1f} GiB")
    if seconds is not None:
        parts.append(f"about {max(round(seconds / 60), 1)} min left" if seconds > 45 else "under a minute left")
    return " · ".join(parts)


def point_title(point: Point, session: Session) -> str:
    """What a line calls the point: its role or its value."""
    from tui_tuner.model.values import label

    name = f"{session.start.plan.knob.name} {label(point.value)}"
    return name if point.role == "value" else f"{point.role.replace('_', ' ')} ({name})"
