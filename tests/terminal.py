"""A terminal of 80×24 with a program in it: keys go in, what its screen shows comes out."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping

import pyte

COLUMNS, LINES = 80, 24


class Terminal:
    """A pty, a program that has it as its controlling terminal, and what its screen shows."""

    def __init__(self, *command: str, env: Mapping[str, str] | None = None) -> None:
        self.screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self.screen)
        self.ended: int | None = None  # the program's status as `waitpid` gives it
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            given = {**(os.environ if env is None else env), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
            os.execve(command[0], command, given)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        os.kill(self.pid, signal.SIGWINCH)

    def text(self) -> str:
        """The screen, after whatever the program has written until now."""
        while select.select([self._fd], [], [], 0.05)[0]:
            try:
                written = os.read(self._fd, 65536)
            except OSError:  # the program has ended
                break
            if not written:
                break
            self._stream.feed(written)
        return "\n".join(self.screen.display)

    def until(self, seen: Callable[[str], bool], seconds: float, what: str) -> str:
        """The screen as soon as `seen` holds of it. Raises AssertionError with the screen if it does not in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            text = self.text()
            if seen(text):
                return text
            time.sleep(0.2)
        raise AssertionError(f"{what} was not seen in {seconds:.0f} s; the screen:\n{self.text()}")

    def press(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def restored(self) -> bool:
        """Whether what is typed is a line again, and seen: what a program that draws must leave behind."""
        local = termios.tcgetattr(self._fd)[3]
        return bool(local & termios.ICANON and local & termios.ECHO)

    def hang_up(self) -> None:
        """Takes the terminal away, as a lost connection does."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def wait(self, seconds: float = 20.0) -> int | None:
        """The program's status as `waitpid` gives it, None if it has not ended in time."""
        end = time.monotonic() + seconds
        while self.ended is None and time.monotonic() < end:
            if self._fd >= 0:
                self.text()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.ended = status
            else:
                time.sleep(0.05)
        return self.ended

    def close(self) -> None:
        """Hangs up and waits for the program to notice. Raises AssertionError, and kills it, if it does not."""
        self.hang_up()
        if self.wait() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
            raise AssertionError("the program went on without a terminal")
