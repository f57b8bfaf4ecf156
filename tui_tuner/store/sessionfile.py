"""One session file: create, append, read, follow, repair, lock.

A line is an event. A file is only ever appended to, by whoever holds its lock (flock on the file itself, which the
kernel lets go of when its holder dies). Reading needs no lock and takes any state of the file: what is readable is
read, lines that are not are counted in `Session.skipped`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tui_tuner.model import events as ev
from tui_tuner.model.secrets import Redactor
from tui_tuner.model.session import Fold, Session

LONGEST_LINE = 64 << 20  # bytes; a longer line is no event of ours and is skipped
_CHUNK = 1 << 20
_HEAD_BYTES = 1 << 14  # read first for line 1; doubled while it is not whole
_BAD = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError)


class Unreadable(Exception):
    """The file cannot be read (or written) as a session; the text is a sentence that says why."""


class Locked(Exception):
    """Another process writes to this session. `pid` is its process id where it could be told."""

    def __init__(self, path: Path, pid: int | None) -> None:
        who = f"process {pid}" if pid else "another process"
        super().__init__(f"{path.stem} is being measured by {who}: attach to it, or stop it first")
        self.pid = pid


class WriteFailed(Exception):
    """A line could not be written; what stood in the file before is whole. The text is a sentence."""


class _Head(msgspec.Struct):
    type: str = ""
    format: int = 0


def create(path: Path, start: ev.SessionStart) -> None:
    """Makes the session's file with its first line, readable by its owner alone.

    Raises FileExistsError if there is one of that name, WriteFailed with a sentence if it cannot be written.
    """
    try:
        _private_folder(path.parent)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise
    except OSError as error:
        raise WriteFailed(f"the session {path} cannot be created: {_why(error)}") from None
    try:
        _write(fd, path, _line(start), sync=True)
    except WriteFailed:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    _sync_folder(path.parent)


def as_written(start: ev.SessionStart) -> ev.SessionStart:
    """A first line as whoever reads the file finds it: without secrets, the home folder as `~`."""
    return msgspec.convert(Redactor(os.environ).value(msgspec.to_builtins(start)), ev.SessionStart)


class Writer:
    """The only one to append to a session while it lives. Use `Writer.open`, and `close` or a with block."""

    def __init__(self, path: Path, fd: int, repaired: bytes) -> None:
        self.path = path
        self.repaired = repaired  # the torn tail that was cut off, if any
        self._fd = fd
        self._redactor = Redactor(os.environ)

    @classmethod
    def open(cls, path: Path) -> Writer:
        """Takes the session's lock, and cuts off a last line that was torn.

        Raises Locked if another process holds it, Unreadable if the file is no session or cannot be written.
        """
        try:
            _regular(path)
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise Unreadable(f"{path} cannot be opened for writing: {_why(error)}") from None
        try:
            _lock(fd, path)
            _check_head(path, _first_line(fd, path))
            return cls(path, fd, _cut_torn_tail(fd))
        except OSError as error:
            os.close(fd)
            raise Unreadable(f"{path} cannot be repaired: {_why(error)}") from None
        except BaseException:
            os.close(fd)
            raise

    def append(self, event: ev.AnyEvent, sync: bool = True) -> None:
        """Writes one event as one line; on the disk when this returns, if `sync`. Raises WriteFailed."""
        line = ev.encode(event) if isinstance(event, ev.Tick) else _line(event, self._redactor)
        _write(self._fd, self.path, line, sync)

    def close(self) -> None:
        """Lets go of the lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def read(path: Path) -> Session:
    """The session in a file, whatever state the file is in. Raises Unreadable with a sentence, and nothing else."""
    follower = Follower(path)
    session = follower.poll()
    if session is None:
        raise Unreadable(follower.problem or f"{path} is not a session")
    return session


def events(path: Path) -> list[ev.AnyEvent | ev.Unknown]:
    """Every readable event of a session in its order. Raises Unreadable."""
    found: list[ev.AnyEvent | ev.Unknown] = [first_event(path)]
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {_why(error)}") from None
    try:
        lines = (line for some, _ in _whole_lines(fd, 0) for line in some)
        next(lines, None)
        for line in lines:
            with contextlib.suppress(*_BAD):
                found.append(ev.decode(line))
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {_why(error)}") from None
    finally:
        os.close(fd)
    return found


class Follower:
    """Reads a session as it grows, each line once.

    A torn tail is left for the next poll; a file that was replaced or shortened is read anew. `problem` is the
    sentence that says why there is nothing to read, or None.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem: str | None = None
        self._fold = Fold()
        self._seen: tuple[int, int, int, int] | None = None  # device, inode, size, time of change
        self._offset = 0

    def poll(self) -> Session | None:
        """The session, if there is anything new since the last call; else None. Never raises."""
        try:
            return self._poll()
        except OSError as error:
            self.problem = f"{self.path} cannot be read: {_why(error)}"
        except Unreadable as error:
            self.problem = str(error)
        except MemoryError:
            self.problem = f"{self.path} is too large to read on this machine"
        return None

    def _poll(self) -> Session | None:
        info = _regular(self.path)
        now = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)
        if now == self._seen:
            return None
        if self._seen is None or now[:2] != self._seen[:2] or info.st_size < self._offset:
            self._fold, self._offset = Fold(), 0
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if self._offset == 0:
                _check_head(self.path, _first_line(fd, self.path))
            before = self._offset
            self._feed(fd)
        finally:
            os.close(fd)
        self._seen = now
        if not self._fold.started:
            raise Unreadable(f"{self.path} is not a session: its first line cannot be read")
        self.problem = None
        return self._fold.session() if self._offset > before else None

    def _feed(self, fd: int) -> None:
        for lines, end in _whole_lines(fd, self._offset):
            try:
                events = [ev.decode(line) for line in lines]
            except _BAD:  # rare: now line by line
                events = []
                for line in lines:
                    try:
                        events.append(ev.decode(line))
                    except _BAD:
                        self._fold.skipped += 1
            self._fold.add_all(events)
            self._offset = end


def is_locked(path: Path) -> bool:
    """Whether a process holds the session's lock: "running" is that, and nothing else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False


def holder(path: Path) -> int | None:
    """The process that holds the session's lock, where the kernel tells."""
    try:
        info = path.stat()
        table = Path("/proc/locks").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    for line in table.splitlines():
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[3] == "WRITE" and fields[5].endswith(f":{info.st_ino}"):
            pid = int(fields[4]) if fields[4].isdigit() else 0
            return pid or None
    return None


def _whole_lines(fd: int, offset: int) -> Iterator[tuple[list[bytes], int]]:
    """Lists of whole lines from `offset` on, each with the offset behind its last; a torn tail is left out."""
    parts: list[bytes] = []  # of a line longer than a chunk
    held, dropping = 0, False
    while chunk := os.pread(fd, _CHUNK, offset + held):
        cut = chunk.rfind(b"\n")
        if cut < 0:
            held += len(chunk)
            dropping = dropping or held > LONGEST_LINE
            if dropping:
                parts.clear()
            else:
                parts.append(chunk)
            continue
        lines = (b"".join(parts) + chunk[:cut]).split(b"\n")
        if dropping:
            lines[0] = b"!"  # counted as a line that is not readable
        offset += held + cut + 1
        parts.clear()
        held, dropping = 0, False
        yield [line for line in lines if line], offset


def first_event(path: Path) -> ev.SessionStart:
    """The first line alone. Raises Unreadable."""
    try:
        _regular(path)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {_why(error)}") from None
    try:
        line = _first_line(fd, path)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {_why(error)}") from None
    finally:
        os.close(fd)
    return _check_head(path, line)


def _first_line(fd: int, path: Path) -> bytes:
    head = b""
    while b"\n" not in head:
        chunk = os.pread(fd, max(_HEAD_BYTES, len(head)), len(head))
        if not chunk:
            if not head:
                raise Unreadable(f"{path} is empty: this session never began, it can be deleted")
            raise Unreadable(f"{path} is not a session, or its first line was cut off")
        head += chunk
        if b"\0" in chunk or len(head) > LONGEST_LINE:
            raise Unreadable(f"{path} is not a session file: it holds something else than lines of text")
    return head.partition(b"\n")[0]


def _check_head(path: Path, line: bytes) -> ev.SessionStart:
    try:
        head = msgspec.json.decode(line, type=_Head)
    except _BAD:
        raise Unreadable(f"{path} is not a session: its first line is not one of tui-tuner's") from None
    if head.type != "session":
        raise Unreadable(f"{path} is not a session: its first line is not one of tui-tuner's")
    if head.format > ev.FORMAT:
        raise Unreadable(
            f"{path} was written by a newer tui-tuner (format {head.format}, this one reads up to {ev.FORMAT}): "
            "update tui-tuner to open it"
        )
    try:
        event = ev.decode(line)
    except _BAD as error:
        raise Unreadable(
            f"{path}: the first line is damaged ({error}), and without it nothing else has a meaning"
        ) from None
    if not isinstance(event, ev.SessionStart):
        raise Unreadable(f"{path} is not a session: its first line is not one of tui-tuner's")
    return event


def _regular(path: Path) -> os.stat_result:
    info = path.stat()
    if stat.S_ISDIR(info.st_mode):
        raise Unreadable(f"{path} is a folder: name a session file in it, such as ID.jsonl")
    if not stat.S_ISREG(info.st_mode):
        raise Unreadable(f"{path} is not a file that can hold a session")
    return info


def _lock(fd: int, path: Path) -> None:
    # Somebody who only asks whether the lock is held holds it for a moment: try for longer than that.
    for wait in (0.01, 0.02, 0.05, 0.1, None):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if wait is None:
                raise Locked(path, holder(path)) from None
            time.sleep(wait)


def _cut_torn_tail(fd: int) -> bytes:
    size = os.fstat(fd).st_size
    tail = b""
    start = size
    while start > 0 and b"\n" not in tail:
        step = min(_CHUNK, start)
        start -= step
        tail = os.pread(fd, step, start) + tail
    torn = tail[tail.rfind(b"\n") + 1 :]
    if torn:
        os.ftruncate(fd, size - len(torn))
        os.fsync(fd)
    return torn


def _line(event: ev.AnyEvent, redactor: Redactor | None = None) -> bytes:
    plain: Any = (redactor or Redactor(os.environ)).value(msgspec.to_builtins(event))
    return msgspec.json.encode(plain) + b"\n"


def _write(fd: int, path: Path, line: bytes, sync: bool) -> None:
    before = os.fstat(fd).st_size
    try:
        written = os.write(fd, line)
        while written < len(line):  # only where space ends: the next write says which
            written += os.write(fd, line[written:])
        if sync:
            os.fsync(fd)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, before)  # no half line stays behind
        raise WriteFailed(f"{path} cannot be written any further: {_why(error)}") from None


def _private_folder(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _why(error: OSError) -> str:
    """The operating system's reason as part of a sentence."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full"
    if error.errno == errno.EFBIG:
        return "the file has reached the largest size that is allowed here"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "there is no permission for it"
    if error.errno == errno.EROFS:
        return "this disk is read-only"
    if error.errno == errno.ENOENT:
        return "there is no such file"
    return error.strerror or str(error)
