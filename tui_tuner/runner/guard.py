"""The guard: kills the worker's group when the runner is gone, in whatever way it went.

It runs as a script of its own in a session of its own, with nothing but the standard library, and holds one end of a
pipe whose other end only the runner has. End-of-file means that the runner died. A parent-death signal would not do:
it is lost on a stopped worker, and it follows the thread that forked, not the process.

    arm PGID STARTED WORK    guards that group from now on; answered with "ok"
    shm NAME                 a name in /dev/shm that the group owns
    disarm                   the group is gone and cleaned
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path


def _started(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(text[19])


def _members(pgid: int, work: str) -> list[int]:
    """The living processes of the group, and those that left it and still work in the folder."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
                if fields[0] not in (b"Z", b"X") and (int(fields[2]) == pgid or _inside(name, work)):
                    found.append(int(name))
    return found


def _inside(pid: str, work: str) -> bool:
    try:
        return bool(work) and str(Path(f"/proc/{pid}/cwd").readlink()).startswith(f"{work}/")
    except OSError:
        return False


def _mapped(pids: list[int]) -> set[str]:
    """Their names in /dev/shm, by inode: a semaphore is mapped under a name that it has lost since."""
    inodes = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/maps").read_bytes().decode("utf-8", "replace").splitlines():
                fields = line.split(maxsplit=5)
                if len(fields) == 6 and fields[5].startswith("/dev/shm/"):
                    inodes.add(int(fields[4]))
    names = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir("/dev/shm"):
            with contextlib.suppress(OSError):
                if entry.inode() in inodes:
                    names.add(entry.name)
    return names


def _end(pgid: int, started: int, work: str, shm: set[str]) -> None:
    leader = _started(pgid)
    if leader is not None and leader != started:
        return  # the number belongs to somebody else by now
    shm |= _mapped(_members(pgid, work))
    for _ in range(500):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pgid, signal.SIGKILL)  # reaches a stopped process too
        alive = _members(pgid, work)
        if not alive:
            break
        for pid in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    for name in shm:
        with contextlib.suppress(OSError):
            Path("/dev/shm", name).unlink()
    if work:
        shutil.rmtree(work, ignore_errors=True)


def main() -> None:
    for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(sig, signal.SIG_IGN)
    armed: tuple[int, int, str] | None = None
    shm: set[str] = set()
    with open(0, "rb", buffering=0, closefd=False) as pipe:
        held = b""
        while chunk := pipe.read(4096):
            *lines, held = (held + chunk).split(b"\n")
            for line in lines:
                word, _, rest = os.fsdecode(line).partition(" ")
                if word == "arm":
                    pgid, begun, work = rest.split(" ", 2)
                    armed, shm = (int(pgid), int(begun), work), set()
                    with contextlib.suppress(OSError):
                        os.write(1, b"ok\n")
                elif word == "shm":
                    shm.add(rest)
                elif word == "disarm":
                    armed = None
    if armed:
        _end(*armed, shm)


if __name__ == "__main__":
    main()
    sys.exit(0)
