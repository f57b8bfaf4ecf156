"""One worker: its private folder, its environment, its pipes, its process group.

Whether it lives is asked of `waitid`, never of the pipe: a forked engine core can hold the pipe open for ever after
the worker died. The worker is not reaped before its group is gone, so that its number stays its own.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from tui_tuner import paths
from tui_tuner.model import wire
from tui_tuner.runner import guard as guard_script
from tui_tuner.runner import processes

PREFIX = "tt-"
_OWNER = "session"  # the file in a point's folder that says whose it is
_LONGEST_LINE = 256 << 20
# The worker waits behind this gate until the guard is armed and its start is on record; then it becomes the engine's
# Python, under the same process id. If the runner dies first, the gate closes and the worker never starts.
_GATE = """import os, sys
if os.read(int(sys.argv[1]), 1) != b"g":
    sys.exit(1)
os.close(int(sys.argv[1]))
try:
    os.execv(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"the engine's Python cannot be started: {sys.argv[2]}: {error.strerror}")
"""


class Work:
    """A point's private folder: an empty working directory, a short TMPDIR, and a PYTHONPATH with our package alone."""

    def __init__(self, session_id: str) -> None:
        base = tempfile.gettempdir()
        # Sockets of the engine lie below and their paths may not be longer than 107 bytes.
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base if len(base) <= 40 else "/tmp"))
        (self.path / _OWNER).write_text(session_id, encoding="utf-8")
        for name in ("cwd", "tmp", "lib"):
            (self.path / name).mkdir(mode=0o700)
        (self.path / "lib" / "tui_tuner").symlink_to(Path(__file__).resolve().parents[1])

    def remove(self) -> str | None:
        """Takes the folder away; its path if that failed."""
        shutil.rmtree(self.path, ignore_errors=True)
        return str(self.path) if self.path.exists() else None


def own_work(path: str, session_id: str) -> Path | None:
    """The folder that an earlier runner recorded, if it is there and is one of ours and of this session.

    The path comes from a file that may be anybody's, so it is believed only as far as the folder itself says so.
    """
    work = named_as_ours(path)
    if work is None:
        return None
    try:
        if work.is_symlink() or work.stat().st_uid != os.getuid():
            return None
        return work if (work / _OWNER).read_text(encoding="utf-8") == session_id else None
    except (OSError, ValueError):
        return None


def named_as_ours(path: str) -> Path | None:
    """A recorded folder, if a point's could be called so and lie there, whether it still exists or not."""
    work = Path(paths.expanded(path))
    if not work.is_absolute() or ".." in work.parts or not work.name.startswith(PREFIX):
        return None
    return work if str(work.parent) in (tempfile.gettempdir(), "/tmp") else None


def environment(work: Path, gpu_uuid: str | None) -> dict[str, str]:
    """The person's environment, with what a point needs changed: the card pinned, reports off, folders of its own."""
    env = dict(os.environ)
    lib = str(work / "lib")
    env["PYTHONPATH"] = os.pathsep.join([lib, *filter(None, [env.get("PYTHONPATH")])])
    env["TMPDIR"] = str(work / "tmp")
    env["VLLM_NO_USAGE_STATS"] = "1"
    env["DO_NOT_TRACK"] = "1"
    env["PYTHONUNBUFFERED"] = "1"
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    env["PYTHONFAULTHANDLER"] = "1"
    for name in ("PYTHONHOME", "__PYVENV_LAUNCHER__", "VIRTUAL_ENV"):
        env.pop(name, None)
    if gpu_uuid:
        env["CUDA_VISIBLE_DEVICES"] = gpu_uuid
    return env


class Guard:
    """The runner's side of the guard; started anew if somebody killed it."""

    def __init__(self) -> None:
        self._armed: str | None = None
        self._shm: set[str] = set()
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard_script.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            bufsize=0,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def arm(self, pgid: int, started: int, work: Path) -> None:
        """Guards a group; returns when the guard has said so. Raises OSError if no guard can be started."""
        self._armed, self._shm = f"arm {pgid} {started} {work}", set()
        self._say(self._armed)

    def shm(self, names: set[str]) -> None:
        """Tells which names in /dev/shm are the group's."""
        for name in names - self._shm:
            self._shm.add(name)
            self._say(f"shm {name}")

    def disarm(self) -> None:
        """The group is gone."""
        self._armed, self._shm = None, set()
        with contextlib.suppress(OSError):
            self._write("disarm")

    def check(self) -> bool:
        """Starts a new guard if the old one died; True if that happened."""
        if self._process.poll() is None:
            return False
        self.close()
        self._start()
        if self._armed:
            self._say(self._armed)
            for name in self._shm:
                self._say(f"shm {name}")
        return True

    def close(self) -> None:
        """Lets the guard go: with nothing armed it just ends."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)

    def _say(self, line: str) -> None:
        for last in (False, True):
            try:
                self._write(line)
                if line.startswith("arm ") and self._process.stdout and self._process.stdout.readline() != b"ok\n":
                    raise BrokenPipeError("the guard did not answer")
                return
            except OSError:
                if last:
                    raise
                self.close()
                self._start()

    def _write(self, line: str) -> None:
        if self._process.stdin:
            self._process.stdin.write(os.fsencode(line) + b"\n")


class Child:
    """A worker behind its gate; `go` lets it start."""

    def __init__(self, python: str, session_id: str, log: Path, gpu_uuid: str | None) -> None:
        """Raises OSError if the folder, the log or the process cannot be made."""
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.work = Work(session_id)
        self.log_path = log
        self.garbage = 0  # lines on the pipe that were no message
        self._strays: list[int] = []
        self._held = bytearray()
        self._unsent = bytearray()
        gate, self._gate = os.pipe2(os.O_CLOEXEC)
        theirs_in, self._to = os.pipe2(os.O_CLOEXEC)
        self._from, theirs_out = os.pipe2(os.O_CLOEXEC)
        log_fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        command = [python, "-m", "tui_tuner.worker", "--in", str(theirs_in), "--out", str(theirs_out)]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _GATE, str(gate), *command],
                stdin=subprocess.DEVNULL,
                stdout=log_fd,
                stderr=subprocess.STDOUT,
                cwd=self.work.path / "cwd",
                env=environment(self.work.path, gpu_uuid),
                pass_fds=(gate, theirs_in, theirs_out),
                start_new_session=True,
            )
        except OSError:
            for fd in (self._gate, self._to, self._from):
                os.close(fd)
            self.work.remove()
            raise
        finally:
            for fd in (gate, theirs_in, theirs_out, log_fd):
                os.close(fd)
        self.pid = self._process.pid
        found = processes.process(self.pid)
        self.started = found.started if found else 0
        for fd in (self._to, self._from):
            os.set_blocking(fd, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._from, selectors.EVENT_READ)
        self._pidfd = -1
        with contextlib.suppress(OSError):  # a kernel older than 5.3: death is then noticed at the next look
            self._pidfd = os.pidfd_open(self.pid)
            self._selector.register(self._pidfd, selectors.EVENT_READ)

    def go(self, task: wire.Task) -> None:
        """Opens the gate and sends the task."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._gate, b"g")
        os.close(self._gate)
        self._gate = -1
        self.send(task)

    def send(self, message: wire.ToWorker) -> None:
        """Sends a message, as far as the pipe takes it now; `poll` sends the rest."""
        self._unsent += wire.encode(message)
        self._flush()

    def poll(self, seconds: float) -> list[wire.FromWorker]:
        """Messages that came within `seconds`; returns earlier when something came. Never raises."""
        for key, events in self._selector.select(max(seconds, 0.0)):
            if key.fd == self._from and events & selectors.EVENT_READ:
                self._read()
            elif key.fd == self._to:
                self._flush()
        return self._messages()

    def drain(self) -> list[wire.FromWorker]:
        """What still lies in the pipe, after the worker died."""
        self._read()
        return self._messages()

    def exit_code(self) -> int | None:
        """As subprocess has it: the exit status, or minus the signal. The worker stays a zombie, its number taken."""
        if self._process.returncode is not None:
            return self._process.returncode
        try:
            info = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return 0
        if info is None:
            return None
        return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status

    def end(self, grace: float) -> list[processes.Process]:
        """Ends the whole group: at once if `grace` is 0, else TERM first. What still lives, if anything does."""
        if grace > 0:
            left = processes.terminate(self.pid, grace)
        else:
            processes.kill_group(self.pid, signal.SIGKILL)
            left = processes.wait_gone(self.pid, 10.0)
        if strays := processes.strays(self.work.path):
            processes.kill(strays, signal.SIGKILL)
            self._strays += [p.pid for p in strays]
            left = left + [p for p in processes.strays(self.work.path) if p not in left]
        return left

    def close(self) -> None:
        """Reaps the worker and what it left behind, and closes the pipes, once its group is gone."""
        self._selector.close()
        for fd in (self._to, self._from, self._gate, self._pidfd):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self._to = self._from = self._gate = self._pidfd = -1
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        processes.reap(-self.pid, *self._strays)

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: os.write(self._to, self._unsent[: 1 << 16])]
        except BlockingIOError:
            with contextlib.suppress(KeyError):
                self._selector.register(self._to, selectors.EVENT_WRITE)
            return
        except OSError:  # it reads no more: waitid will tell why
            self._unsent.clear()
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(self._to)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._from, 1 << 16):
                self._held += chunk
                if len(self._held) > _LONGEST_LINE:
                    self._held.clear()
                    self.garbage += 1
            with contextlib.suppress(KeyError, ValueError):  # end-of-file: do not spin on it
                self._selector.unregister(self._from)

    def _messages(self) -> list[wire.FromWorker]:
        *lines, rest = self._held.split(b"\n")
        self._held = rest
        found: list[wire.FromWorker] = []
        for line in lines:
            try:
                found.append(wire.from_worker.decode(line))
            except (msgspec.MsgspecError, ValueError, RecursionError):
                self.garbage += 1
        return found
