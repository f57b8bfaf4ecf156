"""After a point: nothing of its group alive, the device's memory back, its shared memory and its folder gone.

What belonged to a point is known by what was recorded of it (group id with start time and boot, the private folder,
the names its processes had mapped), never by the name of a process.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from tui_tuner.model import events as ev
from tui_tuner.model.session import Session
from tui_tuner.runner import processes
from tui_tuner.runner.child import Child, Guard, remove_left_work
from tui_tuner.runner.limits import Limits

TOLERANCE_MIB = 128  # a driver's context comes and goes by less than that


class Holder(Protocol):
    """A process on the card, as gpu.Neighbour has it."""

    @property
    def pid(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def mib(self) -> int | None: ...


class Meter(Protocol):
    """The part of gpu.Sampler that is needed here."""

    def used_mib(self) -> int | None: ...
    def processes(self) -> list[Holder]: ...


class Outcome(Struct, frozen=True):
    """What the `clean` event says, without time and point."""

    ok: bool
    seconds: float
    vram_mib: int | None = None
    baseline_mib: int | None = None
    left: list[str] = []
    say: str | None = None


class SharedNames:
    """Which names in /dev/shm a group made: new since the start, and mapped by one of its processes when seen."""

    def __init__(self) -> None:
        self._before = processes.shared_memory()
        self._looked: dict[str, int] = {}
        self.owned: set[str] = set()

    def look(self, pgid: int) -> set[str]:
        """Looks for new names; those that are the group's so far. A stranger's name is looked at a few times only."""
        new = [n for n in processes.shared_memory() - self._before - self.owned if self._looked.get(n, 0) < 20]
        if new:
            for name in new:
                self._looked[name] = self._looked.get(name, 0) + 1
            self.owned |= processes.mapped(processes.group(pgid)).intersection(new)
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
    names.look(child.pid)
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


def leftovers(session: Session, boot: str) -> list[str]:
    """Ends what an earlier runner of this session left behind; what was found, in words.

    A group is believed to be the recorded one if its leader has the recorded start time, or, where the leader is
    gone, if its members work in the recorded folder; all this only within the boot in which it was recorded.
    """
    said: list[str] = []
    for point in session.points:
        for launch in (*point.earlier, point):
            start = launch.start
            if launch.clean is not None or not start.pgid or _boot_of(session, start.t) != boot:
                continue
            members = _ours(start)
            names = processes.mapped(members)
            if members:
                processes.kill_group(start.pgid, 9)
                processes.wait_gone(start.pgid, 10.0)
            work = Path(start.work)
            strays = processes.strays(work) if start.work and work.name.startswith("tt-") else []
            processes.kill(strays, 9)
            processes.unlink_shared(names)
            removed = bool(start.work) and remove_left_work(start.work, session.id)
            count = len({p.pid for p in (*members, *strays)})
            if count:
                said.append(
                    f"an earlier runner was killed during point {start.n} and left {count} "
                    f"process{'es' if count > 1 else ''} of group {start.pgid}: ended"
                )
            elif removed:
                said.append(
                    f"an earlier runner was killed during point {start.n} and left its temporary files: removed"
                )
    return said


def _ours(start: ev.PointStarted) -> list[processes.Process]:
    leader = processes.process(start.pgid)
    if leader is not None and leader.started != start.started:
        return []
    members = processes.group(start.pgid)
    if leader is not None:
        return members
    inside = {p.pid for p in processes.strays(Path(start.work))} if start.work else set()
    return members if any(p.pid in inside for p in members) else []


def _boot_of(session: Session, t: float) -> str | None:
    before = [launch for launch in session.launches if launch.t <= t]
    return before[-1].boot_id if before else None
