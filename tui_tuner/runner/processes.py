"""Processes and groups as /proc tells of them: who is in a group, since when, and what of /dev/shm it has mapped."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

SHM = Path("/dev/shm")
_PR_SET_CHILD_SUBREAPER = 36  # prctl(2), Linux 3.4


class Process(Struct, frozen=True):
    """One line of /proc/PID/stat. `started` is in clock ticks since boot: with the pid it names a process for good."""

    pid: int
    name: str
    state: str
    pgid: int
    started: int

    @property
    def alive(self) -> bool:
        """Whether it can still hold anything: a zombie cannot."""
        return self.state not in ("Z", "X", "x")


def adopt_orphans() -> bool:
    """Makes this process the parent of whatever its descendants leave behind; whether the kernel agreed.

    What a killed worker had started would otherwise go to process 1, and that of many containers reaps nothing:
    every point would leave its dead in the process table.
    """
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def reap(*pids: int) -> None:
    """Takes the dead out of the process table, where they are this process's children; a negative one is a group."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(pid, os.WNOHANG)[0]:
                pass


def boot_id() -> str:
    """The kernel's name for this boot, or "" where it has none."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def process(pid: int) -> Process | None:
    """The process with that id, zombies included; None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes().decode("utf-8", "replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")  # the name may hold anything, brackets too
    fields = rest.split()
    if len(fields) < 20:
        return None
    return Process(pid, name, fields[0], int(fields[2]), int(fields[19]))


def group(pgid: int) -> list[Process]:
    """The living members of a process group."""
    return [p for p in _all() if p.pgid == pgid and p.alive]


def strays(work: Path) -> list[Process]:
    """Living processes that work in `work`, whatever group they have moved to."""
    found = []
    for p in _all():
        with contextlib.suppress(OSError):
            cwd = str(Path(f"/proc/{p.pid}/cwd").readlink()).removesuffix(" (deleted)")
            if p.alive and (cwd == str(work) or cwd.startswith(f"{work}/")):
                found.append(p)
    return found


def kill_group(pgid: int, sig: int) -> None:
    """Signals a group; nothing happens if it is gone."""
    if pgid > 1:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pgid, sig)


def kill(members: Iterable[Process], sig: int) -> None:
    """Signals single processes, each only if it is still the same one."""
    for p in members:
        now = process(p.pid)
        if now and now.started == p.started:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(p.pid, sig)


def wait_gone(pgid: int, seconds: float) -> list[Process]:
    """Waits until nothing of the group lives; what still does after `seconds`."""
    deadline = time.monotonic() + seconds
    while members := group(pgid):
        if time.monotonic() >= deadline:
            return members
        time.sleep(0.02)
    return []


def stopped(pgid: int) -> bool:
    """Whether one of the group was stopped by a signal: the worker, or its engine core."""
    return any(p.state in ("T", "t") for p in group(pgid))


def shared_memory() -> set[str]:
    """The names in /dev/shm."""
    try:
        return {entry.name for entry in SHM.iterdir()}
    except OSError:
        return set()


def mapped(members: Iterable[Process]) -> set[str]:
    """The names in /dev/shm that these processes have mapped or open.

    Compared by inode: a semaphore is mapped under a first, temporary name and only then linked to the one it keeps.
    """
    prefix = f"{SHM}/"
    inodes: set[int] = set()
    for p in members:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{p.pid}/maps").read_bytes().decode("utf-8", "replace").splitlines():
                fields = line.split(maxsplit=5)
                if len(fields) == 6 and fields[5].startswith(prefix):
                    inodes.add(int(fields[4]))
        with contextlib.suppress(OSError):
            for fd in Path(f"/proc/{p.pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(fd.readlink()).startswith(prefix):
                        inodes.add(fd.stat().st_ino)
    found = set()
    for name in shared_memory() if inodes else ():
        with contextlib.suppress(OSError):
            if (SHM / name).lstat().st_ino in inodes:
                found.add(name)
    return found


def unlink_shared(names: Iterable[str]) -> list[str]:
    """Removes names from /dev/shm; those that could not be removed."""
    left = []
    for name in names:
        try:
            (SHM / name).unlink(missing_ok=True)
        except OSError:
            left.append(name)
    return left


def io_bytes(members: Iterable[Process]) -> int:
    """Bytes that these processes have read and written so far: a download or a load that goes on moves it."""
    total = 0
    for p in members:
        with contextlib.suppress(OSError, ValueError):
            for line in Path(f"/proc/{p.pid}/io").read_text(encoding="ascii").splitlines():
                if line.startswith(("rchar:", "wchar:")):
                    total += int(line.split()[1])
    return total


def terminate(pgid: int, seconds: float) -> list[Process]:
    """TERM to the group, `seconds` to go in order, then KILL. A stopped one is woken to hear it. What lives on."""
    kill_group(pgid, signal.SIGTERM)
    kill_group(pgid, signal.SIGCONT)
    if wait_gone(pgid, seconds):
        kill_group(pgid, signal.SIGKILL)
    return wait_gone(pgid, 10.0)


def _all() -> list[Process]:
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 (a thousand Paths a call)
    except OSError:
        return []
    return [p for pid in pids if (p := process(pid))]
