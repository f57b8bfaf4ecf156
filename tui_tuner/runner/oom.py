"""Whether the kernel's out-of-memory killer was at work: only the kernel's own counters are believed."""

from __future__ import annotations

import contextlib
from pathlib import Path


class OomCounter:
    """The counters when a point began; `since` tells what was added."""

    def __init__(self) -> None:
        self._group, self._kernel = _cgroup_kills(), _kernel_kills()

    def since(self) -> str | None:
        """What the kernel says about kills since then, as part of a sentence; None if it says none."""
        group, kernel = _cgroup_kills(), _kernel_kills()
        if group is not None and self._group is not None and group > self._group:
            return "this container's memory limit was reached (its cgroup counts an out-of-memory kill)"
        if kernel is not None and self._kernel is not None and kernel > self._kernel:
            return "the kernel counts an out-of-memory kill at that time"
        return None


def _cgroup_kills() -> int | None:
    total: int | None = None
    for file in _cgroup_files():
        with contextlib.suppress(OSError, ValueError):
            for line in file.read_text(encoding="ascii").splitlines():
                if line.startswith("oom_kill "):
                    total = (total or 0) + int(line.split()[1])
    return total


def _cgroup_files() -> list[Path]:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            number, controllers, where = line.split(":", 2)
            if number == "0" and not controllers:
                return [Path("/sys/fs/cgroup") / where.lstrip("/") / "memory.events"]
            if "memory" in controllers.split(","):
                root = Path("/sys/fs/cgroup/memory")
                return [
                    f
                    for f in (root / where.lstrip("/") / "memory.oom_control", root / "memory.oom_control")
                    if f.exists()
                ][:1]
    return []


def _kernel_kills() -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return None
