"""After a point: nothing of its group alive, the device's memory back, its shared memory and its folder gone.

What belonged to a point is known by what was recorded of it (group id with start time and boot, the private folder,
the names its processes had mapped), never by the name of a process.
"""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from tui_tuner.gpu import Neighbour
from tui_tuner.model import events as ev
from tui_tuner.model.session import Session
from tui_tuner.runner import processes
from tui_tuner.runner.child import Child, Guard, named_as_ours, own_work
from tui_tuner.runner.limits import Limits

TOLERANCE_MIB = 128  # a driver's context comes and goes by less than that


class Meter(Protocol):
    """The part of gpu.Sampler that is needed here."""

    def used_mib(self) -> int | None: ...
    def processes(self) -> list[Neighbour]: ...


class Outcome(Struct, frozen=True):
    """What the `clean` event says, without time and point."""

    ok: bool
    seconds: float
    vram_mib: int | None = None
    baseline_mib: int | None = None
    left: list[str] = []
    say: str | None = None


class SharedNames:
    """Which names in /dev/shm a worker's processes made: new since the start, and mapped by one of them when seen."""

    def __init__(self, pgid: int, work: Path) -> None:
        self._pgid, self._work = pgid, work
        self._before = processes.shared_memory()
        self._looked: dict[str, int] = {}
        self.owned: set[str] = set()

    def look(self) -> set[str]:
        """Looks for new names; those that are the group's so far. A stranger's name is looked at a few times only."""
        new = [n for n in processes.shared_memory() - self._before - self.owned if self._looked.get(n, 0) < 20]
        if new:
            for name in new:
                self._looked[name] = self._looked.get(name, 0) + 1
            members = [*processes.group(self._pgid), *processes.strays(self._work)]
            self.owned |= processes.mapped(members).intersection(new)
        return self.owned

    def unlink(self) -> list[str]:
        """Takes the group's names away; those that stay in spite of it."""
        return processes.unlink_shared(self.owned & processes.shared_memory())


def after(
    child: Child,
    guard: Guard,
    names: SharedNames,
    meter: Meter | None,
    baseline_mib: int | None,
    limits: Limits,
    grace: float,
) -> Outcome:
    """Ends the group (at once, or after `grace` seconds for it to go in order), and cleans up after it."""
    began = time.monotonic()
    names.look()
    living = child.end(grace)
    left = [f"process {p.pid} ({p.name})" for p in living]
    left += [f"/dev/shm/{name}" for name in names.unlink()]
    if not living:
        child.close()
        if folder := child.work.remove():
            left.append(folder)
        guard.disarm()
    used, say = (None, None) if meter is None else memory_back(meter, baseline_mib, limits.memory)
    if living:
        say = (
            f"{left[0]} cannot be killed, it is most likely waiting for the driver: "
            "restart the machine, or its container, before going on"
        )
    return Outcome(
        ok=not living and say is None,
        seconds=round(time.monotonic() - began, 3),
        vram_mib=used,
        baseline_mib=baseline_mib,
        left=left,
        say=say,
    )


def memory_back(meter: Meter, baseline_mib: int | None, seconds: float) -> tuple[int | None, str | None]:
    """Waits until the device's memory is back at the baseline: what is in use now, and a sentence if it is not back."""
    deadline = time.monotonic() + seconds
    used = meter.used_mib()
    while used is not None and baseline_mib is not None and used > baseline_mib + TOLERANCE_MIB:
        if time.monotonic() >= deadline:
            return used, (
                f"the card holds {used - baseline_mib:,} MiB more than before the point, {seconds:.0f} s after its "
                f"end: {holders(meter)}; free it, then resume"
            )
        time.sleep(0.1)
        used = meter.used_mib()
    return used, None


def holders(meter: Meter) -> str:
    """Who holds memory on the card, as far as NVML tells."""
    found = sorted(meter.processes(), key=lambda h: -(h.mib or 0))[:3]
    if not found:
        return "the driver does not say who holds it (in a container it often cannot)"
    return "held by " + ", ".join(f"{h.name} (process {h.pid}{f', {h.mib:,} MiB' if h.mib else ''})" for h in found)


class Leftover(Struct, frozen=True):
    """What an earlier runner of the session, killed during a point, left behind."""

    start: ev.PointStarted
    members: tuple[processes.Process, ...]
    folder: bool  # its private folder is still there

    @property
    def say(self) -> str:
        """What was found, as a sentence."""
        if not self.members:
            return (
                f"an earlier runner was killed during point {self.start.n} and left its temporary files: removing them"
            )
        count = f"{len(self.members)} process{'es' if len(self.members) > 1 else ''}"
        return (
            f"an earlier runner was killed during point {self.start.n} and left {count} of group {self.start.pgid}: "
            "ending them"
        )


def leftovers(session: Session, boot: str) -> list[Leftover]:
    """What earlier runners of this session left behind on this machine.

    A group is believed to be the recorded one if its leader, where there still is one, has the recorded start time,
    and one of its members works in the recorded folder; all this only within the boot in which it was recorded. The
    file may be anybody's: without that folder it could name any group of processes.
    """
    found: list[Leftover] = []
    for point in session.points:
        for launch in (*point.earlier, point):
            start = launch.start
            if launch.clean is not None or not start.pgid or _boot_of(session, start.t) != boot:
                continue
            work = own_work(start.work, session.id)
            members = {p.pid: p for p in (*_ours(start), *(processes.strays(work) if work else ()))}
            if members or work:
                found.append(Leftover(start, tuple(members.values()), work is not None))
    return found


def end_leftover(leftover: Leftover, session_id: str) -> list[str]:
    """Ends the processes and removes the names and the folder; what is still there, in words."""
    names = processes.mapped(leftover.members)
    for _ in range(3):
        processes.kill(leftover.members, signal.SIGKILL)
        processes.wait_gone(leftover.start.pgid, 3.0)
        if not (alive := [p for p in leftover.members if _alive(p)]):
            break
    left = [f"process {p.pid} ({p.name})" for p in alive]
    left += [f"/dev/shm/{name}" for name in processes.unlink_shared(names)]
    if (work := own_work(leftover.start.work, session_id)) is not None:
        shutil.rmtree(work, ignore_errors=True)
    return left


def _alive(p: processes.Process) -> bool:
    now = processes.process(p.pid)
    return now is not None and now.started == p.started and now.alive


def _ours(start: ev.PointStarted) -> list[processes.Process]:
    leader, work = processes.process(start.pgid), named_as_ours(start.work)
    if work is None or (leader is not None and leader.started != start.started):
        return []
    members, inside = processes.group(start.pgid), {p.pid for p in processes.strays(work)}
    return members if any(p.pid in inside for p in members) else []


def _boot_of(session: Session, t: float) -> str | None:
    before = [launch for launch in session.launches if launch.t <= t]
    return before[-1].boot_id if before else None
