"""The card through a scripted NVML: what it tells, what it refuses, and a card that falls off the bus."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tui_tuner import gpu
from tui_tuner.gpu import host, nvml
from tui_tuner.model.machine import Gpu, Machine

MIB = 1 << 20


class NVMLError(Exception):
    pass


class NVMLErrorNotSupported(NVMLError):
    pass


class NVMLErrorLibraryNotFound(NVMLError):
    pass


def _library(cards: int = 1) -> ModuleType:
    """A pynvml of H200s, by the figures of a real one."""
    lib: Any = ModuleType("pynvml")
    lib.nvmlMemory_v2 = 2
    lib.NVML_CLOCK_SM, lib.NVML_CLOCK_MEM, lib.NVML_TEMPERATURE_GPU = 1, 2, 0
    lib.nvmlInit = lib.nvmlShutdown = lambda: None
    lib.nvmlDeviceGetCount = lambda: cards
    lib.nvmlDeviceGetHandleByIndex = lambda i: i
    lib.nvmlDeviceGetUUID = lambda h: f"GPU-{h}"
    lib.nvmlDeviceGetName = lambda h: b"NVIDIA H200"

    def memory(h: int, version: int | None = None) -> SimpleNamespace:
        if version is None:
            return SimpleNamespace(total=143771 * MIB, used=615 * MIB)
        return SimpleNamespace(total=143771 * MIB, used=0, reserved=615 * MIB)

    lib.nvmlDeviceGetMemoryInfo = memory
    lib.nvmlDeviceGetCudaComputeCapability = lambda h: (9, 0)
    lib.nvmlDeviceGetMigMode = lambda h: [0, 0]
    lib.nvmlDeviceGetEnforcedPowerLimit = lambda h: 700_000
    lib.nvmlSystemGetDriverVersion = lambda: "580.159.04"
    lib.nvmlSystemGetCudaDriverVersion_v2 = lambda: 13000
    lib.nvmlDeviceGetMaxClockInfo = lambda h, kind: {1: 1980, 2: 3201}[kind]
    lib.nvmlDeviceGetMemoryBusWidth = lambda h: 6016
    lib.nvmlDeviceGetPowerUsage = lambda h: 612_500
    lib.nvmlDeviceGetTemperature = lambda h, kind: 61
    lib.nvmlDeviceGetClockInfo = lambda h, kind: 1980
    lib.nvmlDeviceGetCurrentClocksEventReasons = lambda h: 0x4
    lib.nvmlDeviceGetTotalEnergyConsumption = lambda h: 5_000_000
    lib.nvmlDeviceGetComputeRunningProcesses = lambda h: [SimpleNamespace(pid=2**30, usedGpuMemory=40 << 30)]
    lib.nvmlDeviceGetGraphicsRunningProcesses = lambda h: []
    return lib


@pytest.fixture
def lib(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = _library()
    monkeypatch.setitem(sys.modules, "pynvml", made)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return made


def test_a_card_is_described_with_its_reserved_memory_apart(lib: Any) -> None:
    card = gpu.probe().machine.gpu
    assert card == Gpu("GPU-0", "NVIDIA H200", 0, (9, 0), 143771, 615, "580.159.04", "13.0", 700.0, 1980, 4814.3, False)
    assert gpu.probe().machine.memory_mib == 143771 - 615  # what CUDA calls 139.80 GiB
    assert gpu.available_mib(gpu.probe().machine) == 143771 - 615 - gpu.CONTEXT_MIB


def test_an_idle_card_uses_nothing(lib: Any) -> None:
    assert gpu.Sampler(gpu.probe().machine).sample() == gpu.Sample(0, 612.5, 61, 1980, 0x4, 5000.0)


def test_an_old_library_without_the_second_memory_record(lib: Any) -> None:
    del lib.nvmlMemory_v2
    assert gpu.Sampler(gpu.probe().machine).used_mib() == 615


_CALLS = [name for name in vars(_library()) if name.startswith("nvml") and name not in ("nvmlInit", "nvmlMemory_v2")]


@pytest.mark.parametrize("name", _CALLS)
def test_any_one_call_may_be_refused(lib: Any, name: str) -> None:
    def refuse(*args: object, **named: object) -> None:
        raise NVMLErrorNotSupported(name)

    setattr(lib, name, refuse)
    probe = gpu.probe()
    machine = probe.machine
    if name in ("nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID"):
        assert machine.gpu is None and probe.why
    else:
        assert machine.gpu is not None and machine.gpu.uuid == "GPU-0"
    sampler = gpu.Sampler(machine)
    told = sampler.sample(None)
    fields = ("vram_mib", "power_w", "temp_c", "sm_mhz", "throttle", "energy_j")
    missing = [f for f in fields if getattr(told, f) is None]
    assert len(missing) <= (6 if machine.gpu is None else 1)
    sampler.processes()
    sampler.close()


def test_a_card_that_falls_off_the_bus_tells_nothing_more(lib: Any) -> None:
    sampler = gpu.Sampler(gpu.probe().machine)
    assert sampler.sample().temp_c == 61

    def lost(*args: object, **named: object) -> None:
        raise NVMLError("GPU is lost")

    for name in _CALLS:
        setattr(lib, name, lost)
    assert sampler.sample() == gpu.Sample()
    assert sampler.processes() == [] and sampler.used_mib() is None
    assert gpu.available_mib(Machine(gpu=Gpu("GPU-0", "NVIDIA H200", vram_mib=143771))) is None


def _divided(lib: Any) -> None:
    """The card is divided into two MIG slices, of which the second place is empty."""
    lib.nvmlDeviceGetMigMode = lambda h: [1, 1]
    lib.nvmlDeviceGetMaxMigDeviceCount = lambda h: 3
    slices = {0: "MIG-a", 2: "MIG-b"}

    def by_index(h: object, i: int) -> str:
        if i not in slices:
            raise NVMLError("Not Found")
        return slices[i]

    def supported(answer: Any) -> Any:
        def ask(h: object, *args: object) -> Any:
            if isinstance(h, str):
                raise NVMLErrorNotSupported()
            return answer(h, *args)

        return ask

    def whole(h: object) -> int:
        if not isinstance(h, str):
            raise NVMLError("Invalid Argument")
        return 0

    lib.nvmlDeviceGetMigDeviceHandleByIndex = by_index
    lib.nvmlDeviceGetDeviceHandleFromMigDeviceHandle = whole
    lib.nvmlDeviceGetUUID = lambda h: h if isinstance(h, str) else f"GPU-{h}"
    lib.nvmlDeviceGetName = lambda h: "NVIDIA H200 MIG 1g.18gb" if isinstance(h, str) else "NVIDIA H200"
    lib.nvmlDeviceGetMemoryInfo = lambda h, version=None: SimpleNamespace(
        total=(16384 if isinstance(h, str) else 143771) * MIB, used=100 * MIB, reserved=0
    )
    for name in ("PowerUsage", "Temperature", "ClockInfo", "TotalEnergyConsumption", "CurrentClocksEventReasons"):
        setattr(lib, f"nvmlDeviceGet{name}", supported(getattr(lib, f"nvmlDeviceGet{name}")))


def test_a_slice_is_a_card_of_its_own(lib: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _divided(lib)
    probe = gpu.probe()
    assert [c.uuid for c in probe.cards] == ["MIG-a", "MIG-b"] and probe.machine.gpus == 2
    card = probe.machine.gpu
    assert card and card.mig and (card.vram_mib, card.power_limit_w, card.memory_gb_s) == (16384, None, None)
    assert "1g.18gb" in card.name and card.compute_capability == (9, 0)
    sampler = gpu.Sampler(probe.machine)
    told = sampler.sample()
    assert told == gpu.Sample(vram_mib=100, temp_c=61, sm_mhz=1980, throttle=0x4), (
        "its neighbours' power is not its own"
    )
    assert gpu.available_mib(probe.machine) == 16384 - 100 - gpu.CONTEXT_MIB
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-b")
    chosen = gpu.probe().machine.gpu
    assert chosen and chosen.uuid == "MIG-b" and gpu.Sampler(gpu.probe().machine).used_mib() == 100


def test_a_slice_that_goes_away_tells_nothing_more(lib: Any) -> None:
    _divided(lib)
    sampler = gpu.Sampler(gpu.probe().machine)
    for name in [n for n in vars(lib) if n.startswith("nvmlDevice")]:
        setattr(lib, name, _gone)
    assert sampler.sample() == gpu.Sample() and sampler.processes() == []


def _gone(*args: object, **named: object) -> None:
    raise NVMLError("GPU is lost")


def test_a_neighbour_is_named_as_far_as_it_is_told(lib: Any) -> None:
    (neighbour,) = gpu.Sampler(gpu.probe().machine).processes()
    assert neighbour == gpu.Neighbour(2**30, "a process outside this container", 40 * 1024)


@pytest.mark.parametrize(
    ("visible", "chosen"), [("1", "GPU-1"), ("GPU-2,0", "GPU-2"), ("2,9,1", "GPU-2"), ("", None), ("-1", None)]
)
def test_cuda_visible_devices_is_respected(monkeypatch: pytest.MonkeyPatch, visible: str, chosen: str | None) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", _library(3))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    card = gpu.probe().machine.gpu
    assert (card.uuid if card else None) == chosen


def test_a_card_is_chosen_by_uuid_or_index_and_a_wrong_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", _library(2))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name in ("GPU-1", "1"):
        card = gpu.probe(name).machine.gpu
        assert card is not None and card.uuid == "GPU-1"
    probe = gpu.probe("GPU-7")
    assert probe.machine.gpu is None and "no card GPU-7" in (probe.why or "")


@pytest.mark.parametrize(
    ("error", "word"),
    [(NVMLErrorLibraryNotFound(), "no NVIDIA driver"), (OSError("broken"), "does not answer")],
)
def test_without_a_driver_the_machine_is_described_all_the_same(lib: Any, error: Exception, word: str) -> None:
    def fail() -> None:
        raise error

    lib.nvmlInit = fail
    probe = gpu.probe()
    assert probe.machine.gpu is None and word in (probe.why or "")
    assert probe.machine.cores >= 1 and probe.machine.ram_mib > 0 and probe.machine.cpu
    assert 0 < (gpu.available_mib(probe.machine) or 0) <= probe.machine.memory_mib


def test_the_power_cap_alone_spoils_nothing() -> None:
    assert not gpu.spoils(0x4) and not gpu.spoils(0) and not gpu.spoils(None)
    assert gpu.spoils(0x4 | 0x20) and gpu.spoils(0x8) and gpu.spoils(0x40) and gpu.spoils(0x80)
    assert gpu.throttle_words(0x24) == ["power cap", "thermal slowdown"]
    assert gpu.throttle_words(0x400) == ["reason 0x400"]


def test_a_share_of_the_group_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    assert (host.group_mib(os.getpgrp()) or 0) > 5
    assert host.group_mib(2**22 - 3) is None


def test_a_cgroup_limit_bounds_the_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "memory.max").write_text(str(2 << 30))
    (tmp_path / "memory.current").write_text(str(1 << 30))
    monkeypatch.setattr(host, "_CGROUP", tmp_path)
    total, available = host.node_memory()
    assert total == 2048 and available <= 1024
    (tmp_path / "memory.max").write_text("max")
    assert host.node_memory()[0] > 2048


def test_bits_and_words_come_from_one_table() -> None:
    assert len({bit for bit, _, _ in nvml.REASONS}) == len(nvml.REASONS)
