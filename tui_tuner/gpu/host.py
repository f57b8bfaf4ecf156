"""The machine without a card: its processor and memory, as vLLM's CPU engine counts them."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path

import psutil

from tui_tuner.model.machine import Machine

MIB = 1 << 20
_CGROUP = Path("/sys/fs/cgroup")
_NODES = Path("/sys/devices/system/node")


def describe() -> Machine:
    """Processor, cores that may be used, RAM, and the memory of the NUMA node that a CPU engine takes its share of."""
    total, _ = node_memory()
    return Machine(
        cpu=_cpu_name(),
        cores=len(os.sched_getaffinity(0)),
        ram_mib=psutil.virtual_memory().total // MIB,
        numa_mib=total,
        os=f"{platform.system()} {platform.release()}",
    )


def node_memory() -> tuple[int, int]:
    """Total and available MiB of the first NUMA node that may be used, no more than the cgroup allows.

    As vLLM's CPU worker counts it (vllm/utils/cpu_resource_utils.py, get_memory_node_info): available is free
    memory, file pages and reclaimable slabs.
    """
    memory = psutil.virtual_memory()
    total, available = memory.total, memory.available
    try:
        lines = (_NODES / f"node{_first_node()}" / "meminfo").read_text().splitlines()
        kib = {parts[2].rstrip(":"): int(parts[3]) for parts in (line.split() for line in lines) if len(parts) > 3}
        total = kib["MemTotal"] * 1024
        available = sum(kib[k] for k in ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")) * 1024
    except (OSError, KeyError, ValueError, IndexError):
        pass  # no NUMA here: the whole machine is the node
    limit, used = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    if limit is not None and limit < total:
        total = limit
        available = min(available, limit - (used or 0))
    return total // MIB, max(available, 0) // MIB


def _first_node() -> int:
    """The lowest NUMA node of the processors this process may use."""
    allowed = os.sched_getaffinity(0)
    for node in sorted(_NODES.glob("node[0-9]*"), key=lambda p: int(p.name[4:])):
        with contextlib.suppress(OSError, ValueError):
            for part in (node / "cpulist").read_text().strip().split(","):
                low, _, high = part.partition("-")
                if part and allowed & set(range(int(low), int(high or low) + 1)):
                    return int(node.name[4:])
    return 0


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # absent, or "max"
        return None


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.processor() or platform.machine()


def group_mib(pgid: int) -> int | None:
    """Memory that a process group holds, in MiB: each process's proportional share, so that shared pages count once.

    None where no process of the group is left or none may be read.
    """
    total, seen = 0, False
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            if os.getpgid(process.pid) == pgid:
                total += _proportional(process.pid)
                seen = True
    return total // MIB if seen else None


def _proportional(pid: int) -> int:
    """PSS in bytes; where the kernel does not tell it, resident memory without the shared part."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    memory = psutil.Process(pid).memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))
