"""The card through NVML, and the machine without one."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import psutil
from msgspec import Struct
from msgspec.structs import replace

from tui_tuner.gpu import host
from tui_tuner.gpu.nvml import Nvml, Unavailable, spoils, throttle_words
from tui_tuner.model.machine import Gpu, Machine

__all__ = ["Neighbour", "Probe", "Sample", "Sampler", "available_mib", "probe", "spoils", "throttle_words"]

# What a CUDA context takes before vLLM looks at the free memory (0.5 GiB on an H200 under CUDA 13).
CONTEXT_MIB = 520


class Probe(Struct, frozen=True):
    """The machine with the chosen card, all cards, and why there is none, in words."""

    machine: Machine
    cards: tuple[Gpu, ...] = ()
    why: str | None = None


class Sample(Struct, frozen=True):
    """One look at the device; what is not told is None. MiB, W, °C, MHz, J."""

    vram_mib: int | None = None
    power_w: float | None = None
    temp_c: int | None = None
    sm_mhz: int | None = None
    throttle: int | None = None
    energy_j: float | None = None


class Neighbour(Struct, frozen=True):
    """A process on the card. In a container its id may be the host's, and its name unknown."""

    pid: int
    name: str
    mib: int | None = None


def probe(card: str | None = None) -> Probe:
    """The machine as it is now. `card` chooses one by UUID or index; else the first that CUDA_VISIBLE_DEVICES allows.

    Never raises: without a card, or where `card` is not there, `why` tells.
    """
    described = host.describe()
    try:
        lib = Nvml()
    except Unavailable as error:
        return Probe(described, why=str(error))
    try:
        cards = tuple(lib.cards())
    finally:
        lib.close()
    described = replace(described, gpus=len(cards))
    if not cards:
        return Probe(described, why="the NVIDIA driver answers and names no card")
    visible = _visible(cards)
    if not visible:
        return Probe(replace(described, gpus=0), cards, "CUDA_VISIBLE_DEVICES hides every card")
    chosen = _named(visible, card) if card else visible[0]
    if chosen is None:
        return Probe(described, cards, f"there is no card {card}: there are {', '.join(c.uuid for c in visible)}")
    return Probe(replace(described, gpus=len(visible), gpu=chosen), cards)


def _visible(cards: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """The cards that CUDA_VISIBLE_DEVICES leaves, in its order; as CUDA does, it ends at the first unknown entry."""
    text = os.environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return cards
    found: list[Gpu] = []
    for entry in text.split(","):
        chosen = _named(cards, entry.strip())
        if chosen is None:
            break
        found.append(chosen)
    return tuple(found)


def _named(cards: tuple[Gpu, ...], name: str) -> Gpu | None:
    for card in cards:
        prefix = name.startswith(("GPU-", "MIG-")) and card.uuid.startswith(name)
        if str(card.index) == name or prefix or card.uuid == name:
            return card
    return None


def available_mib(machine: Machine) -> int | None:
    """The memory that an engine started now would find free, in MiB; None where it is not told."""
    if machine.gpu is None:
        return host.node_memory()[1]
    sampler = Sampler(machine)
    try:
        used = sampler.used_mib()
    finally:
        sampler.close()
    total = machine.gpu.vram_mib
    if used is None or total is None:
        return None
    return max(total - (machine.gpu.reserved_mib or 0) - used - CONTEXT_MIB, 0)


class Sampler:
    """Looks at the chosen card, or at the memory of a process group where there is none. Never raises.

    A card that falls off the bus gives empty samples from then on. Of a MIG slice the memory is its own, temperature
    and clock are the whole card's; power and energy would be its neighbours' too, and are left out.
    """

    def __init__(self, machine: Machine) -> None:
        self._nvml: Nvml | None = None
        self._handle: Any = None
        self._whole: Any = None  # the card, where the handle is a slice of one
        self._cuda = machine.gpu is not None
        if machine.gpu is not None:
            with contextlib.suppress(Unavailable):
                self._nvml = Nvml()
                self._handle = self._nvml.handle(machine.gpu.uuid)
                self._whole = self._nvml.whole(self._handle)

    def sample(self, pgid: int | None = None) -> Sample:
        """One look. Without a card `vram_mib` is the memory of the process group `pgid`."""
        lib, card = self._nvml, self._handle
        if not self._cuda:
            return Sample(vram_mib=host.group_mib(pgid) if pgid else None)
        if lib is None or card is None:
            return Sample()
        power = energy = None
        if self._whole is None:
            power = lib.ask("nvmlDeviceGetPowerUsage", card)
            energy = lib.ask("nvmlDeviceGetTotalEnergyConsumption", card)
        else:
            card = self._whole
        reasons = lib.ask("nvmlDeviceGetCurrentClocksEventReasons", card)
        if reasons is None:
            reasons = lib.ask("nvmlDeviceGetCurrentClocksThrottleReasons", card)
        return Sample(
            vram_mib=self.used_mib(),
            power_w=power / 1000 if power is not None else None,
            temp_c=lib.ask("nvmlDeviceGetTemperature", card, getattr(lib.lib, "NVML_TEMPERATURE_GPU", 0)),
            sm_mhz=lib.ask("nvmlDeviceGetClockInfo", card, getattr(lib.lib, "NVML_CLOCK_SM", 1)),
            throttle=reasons,
            energy_j=energy / 1000 if energy is not None else None,
        )

    def used_mib(self) -> int | None:
        """The card's memory in use, without what the driver reserves; None without a card."""
        if self._nvml is None or self._handle is None:
            return None
        return self._nvml.memory(self._handle)[1]

    def processes(self) -> list[Neighbour]:
        """Who is on the card, as far as NVML tells."""
        if self._nvml is None or self._handle is None:
            return []
        found: dict[int, Neighbour] = {}
        for kind in ("Compute", "Graphics"):
            for process in self._nvml.ask(f"nvmlDeviceGet{kind}RunningProcesses", self._handle) or []:
                used = getattr(process, "usedGpuMemory", None)
                mib = int(used) >> 20 if used is not None else None
                found[process.pid] = Neighbour(process.pid, _name(process.pid), mib)
        return list(found.values())

    def close(self) -> None:
        if self._nvml is not None:
            self._nvml.close()
            self._nvml = self._handle = None


def _name(pid: int) -> str:
    try:
        return str(psutil.Process(pid).name())
    except (psutil.Error, OSError, ValueError):
        return "a process outside this container"
