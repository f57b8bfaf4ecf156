"""NVML as a file tells it (`SCRIPTED_NVML`): found before the real binding by the runner of a test, and by it alone.

The file is JSON: `uuid`, `used` (MiB that nobody in particular holds), `held` {process id: MiB, while it lives},
`throttle`, `mhz`, `gone` (the card has fallen off the bus), `refused` (names of calls that are not supported).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

MIB = 1 << 20
NVML_TEMPERATURE_GPU, NVML_CLOCK_SM, NVML_CLOCK_MEM, nvmlMemory_v2 = 0, 1, 2, 2


class NVMLError(Exception):
    pass


def _state(call: str) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(Path(os.environ["SCRIPTED_NVML"]).read_text(encoding="utf-8"))
    if state.get("gone"):
        raise NVMLError("GPU is lost")
    if call in state.get("refused", ()):
        raise NVMLError("Not Supported")
    return state


def _lives(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _held(state: dict[str, Any]) -> dict[int, int]:
    return {int(pid): mib for pid, mib in state.get("held", {}).items() if _lives(pid)}


def nvmlInit() -> None:
    return None


def nvmlShutdown() -> None:
    return None


def nvmlDeviceGetCount() -> int:
    _state("count")
    return 1


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetUUID(handle: int) -> str:
    return str(_state("uuid")["uuid"])


def nvmlDeviceGetMemoryInfo(handle: int, version: int | None = None) -> SimpleNamespace:
    state = _state("memory")
    used = state.get("used", 0) + sum(_held(state).values())
    return SimpleNamespace(total=24_000 * MIB, used=used * MIB, reserved=500 * MIB)


def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[SimpleNamespace]:
    held = _held(_state("processes"))
    return [SimpleNamespace(pid=pid, usedGpuMemory=mib * MIB) for pid, mib in held.items()]


def nvmlDeviceGetGraphicsRunningProcesses(handle: int) -> list[SimpleNamespace]:
    return []


def nvmlDeviceGetPowerUsage(handle: int) -> int:
    _state("power")
    return 300_000


def nvmlDeviceGetTemperature(handle: int, kind: int) -> int:
    return int(_state("temperature").get("temp", 60))


def nvmlDeviceGetClockInfo(handle: int, kind: int) -> int:
    return int(_state("clock").get("mhz", 1980))


def nvmlDeviceGetCurrentClocksEventReasons(handle: int) -> int:
    return int(_state("reasons").get("throttle", 0))


def nvmlDeviceGetTotalEnergyConsumption(handle: int) -> int:
    import time

    _state("energy")
    return int(time.time() * 300_000) % 2**48
