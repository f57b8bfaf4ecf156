"""The pipe to the runner: messages out from any thread, and in a thread of their own, one JSON message a line."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable

import msgspec

from tui_tuner.model import wire
from tui_tuner.model.events import PhaseName


def kill_own_group() -> None:
    """SIGKILL for the whole process group, this process included: the runner is gone, nothing may stay behind.

    A process that does not lead its group (a debugger's, a shell's) kills itself only.
    """
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class Channel:
    """Both ends of the pipe. `phase` is the phase last entered.

    The descriptors stay in this process: they are closed on exec, and in a forked child too, because an engine
    core that held the pipe open would hide this process's death from the runner.
    """

    def __init__(self, inward: int, outward: int) -> None:
        self._in, self._out = inward, outward
        self._lock = threading.Lock()
        self._buffer = bytearray()
        self.phase: PhaseName = "spawn"
        for fd in (inward, outward):
            os.set_inheritable(fd, False)
        os.register_at_fork(after_in_child=self._close)

    def _close(self) -> None:
        for fd in (self._in, self._out):
            with contextlib.suppress(OSError):
                os.close(fd)

    def send(self, message: wire.FromWorker) -> None:
        """Writes the whole message. With the runner gone the process group ends here."""
        data = memoryview(wire.encode(message))
        with self._lock:
            while data:
                try:
                    data = data[os.write(self._out, data) :]
                except BrokenPipeError:
                    kill_own_group()

    def enter(self, phase: PhaseName, detail: str | None = None) -> None:
        """Tells that a phase began, or how far it is."""
        self.phase = phase
        self.send(wire.Entered(phase=phase, detail=detail))

    def receive(self) -> wire.ToWorker | None:
        """The next message, or None at end of file. Raises msgspec.DecodeError for a line that is none."""
        while (end := self._buffer.find(b"\n")) < 0:
            data = os.read(self._in, 1 << 16)
            if not data:
                return None
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return wire.to_worker.decode(line)

    def listen(self, on_stop: Callable[[], None], on_end: Callable[[], None]) -> threading.Thread:
        """Reads on in a daemon thread: `on_stop` when the runner wants an end, `on_end` when it is gone."""

        def run() -> None:
            while True:
                try:
                    message = self.receive()
                except msgspec.DecodeError:
                    continue  # a newer runner's message that this worker does not know
                if message is None:
                    return on_end()
                if isinstance(message, wire.Stop):
                    on_stop()

        thread = threading.Thread(target=run, name="runner", daemon=True)
        thread.start()
        return thread
