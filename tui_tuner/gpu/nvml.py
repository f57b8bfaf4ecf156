"""NVML through nvidia-ml-py, where every single call may be refused.

MIG slices, vGPUs, containers and old drivers each leave out other things, and a card can fall off the bus between two
calls. So each figure is asked for by itself, and what is not told is None: nothing here raises but `Unavailable`.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from msgspec.structs import replace

from tui_tuner.model.machine import Gpu

MIB = 1 << 20

# NVML's clock event reasons ("throttle reasons" before driver 535), bit and word; the last column tells whether it
# spoils a measurement. A card that is busy at its power limit has SwPowerCap set, which is normal.
# Source: nvml.h, nvmlClocksEventReason*.
REASONS: tuple[tuple[int, str, bool], ...] = (
    (0x1, "idle", False),
    (0x2, "application clocks", False),
    (0x4, "power cap", False),
    (0x8, "hardware slowdown", True),
    (0x10, "sync boost", False),
    (0x20, "thermal slowdown", True),
    (0x40, "hardware thermal slowdown", True),
    (0x80, "power brake", True),
    (0x100, "display clocks", False),
)


def throttle_words(mask: int | None) -> list[str]:
    """The clock event reasons of a mask, in words; an unknown bit by its number."""
    words = [word for bit, word, _ in REASONS if (mask or 0) & bit]
    rest = (mask or 0) & ~sum(bit for bit, _, _ in REASONS)
    return [*words, f"reason {rest:#x}"] if rest else words


def spoils(mask: int | None) -> bool:
    """Whether a reason in the mask slowed the card by heat or fault, so that the figures are not the knob's."""
    return any((mask or 0) & bit for bit, _, bad in REASONS if bad)


class Unavailable(Exception):
    """There is no NVML here; the text says why, in words."""


class Nvml:
    """An initialised NVML. Raises Unavailable where there is none."""

    def __init__(self) -> None:
        try:
            import pynvml
        except ImportError:
            raise Unavailable("the package nvidia-ml-py is not installed") from None
        self.lib: ModuleType = pynvml
        try:
            pynvml.nvmlInit()
        except Exception as error:  # noqa: BLE001 (a broken library raises more than NVMLError)
            raise Unavailable(_why_not(pynvml, error)) from None

    def ask(self, name: str, *args: Any, **named: Any) -> Any:
        """One NVML call by its name; None where it is refused, unknown to this library, or the card is gone."""
        try:
            return getattr(self.lib, name)(*args, **named)
        except Exception:  # noqa: BLE001
            return None

    def handles(self) -> list[Any]:
        """The cards that can be spoken to, in NVML's order."""
        count = self.ask("nvmlDeviceGetCount") or 0
        return [h for h in (self.ask("nvmlDeviceGetHandleByIndex", i) for i in range(count)) if h is not None]

    def handle(self, uuid: str) -> Any:
        """The card, or the slice of one, of that UUID; None if it is not there (any more)."""
        cards = self.handles()
        return next((h for h in (*cards, *(s for c in cards for s in self.slices(c))) if self.uuid(h) == uuid), None)

    def slices(self, handle: Any) -> list[Any]:
        """The MIG devices that a card is divided into; none if it is not."""
        mode = self.ask("nvmlDeviceGetMigMode", handle)
        count = self.ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0 if mode and mode[0] else 0
        found = (self.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, i) for i in range(count))
        return [h for h in found if h is not None]

    def whole(self, handle: Any) -> Any:
        """The card that a MIG device is a slice of; None for a card."""
        return self.ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)

    def uuid(self, handle: Any) -> str | None:
        return _text(self.ask("nvmlDeviceGetUUID", handle))

    def memory(self, handle: Any) -> tuple[int | None, int | None, int | None]:
        """Total, used and reserved MiB. The first version counts the driver's reserved memory as used."""
        version = getattr(self.lib, "nvmlMemory_v2", None)
        info = self.ask("nvmlDeviceGetMemoryInfo", handle, version=version) if version is not None else None
        if info is None:
            info = self.ask("nvmlDeviceGetMemoryInfo", handle)
        if info is None:
            return None, None, None
        reserved = getattr(info, "reserved", None)
        return _mib(info.total), _mib(info.used), _mib(reserved) if reserved is not None else None

    def card(self, handle: Any, index: int) -> Gpu | None:
        """One card as a record, or None if not even its UUID is told."""
        uuid = self.uuid(handle)
        if uuid is None:
            return None
        total, _, reserved = self.memory(handle)
        capability = self.ask("nvmlDeviceGetCudaComputeCapability", handle)
        mig = self.ask("nvmlDeviceGetMigMode", handle)
        limit = self.ask("nvmlDeviceGetEnforcedPowerLimit", handle)
        return Gpu(
            uuid=uuid,
            name=_text(self.ask("nvmlDeviceGetName", handle)) or "NVIDIA GPU",
            index=index,
            compute_capability=(int(capability[0]), int(capability[1])) if capability else None,
            vram_mib=total,
            reserved_mib=reserved,
            driver=_text(self.ask("nvmlSystemGetDriverVersion")),
            cuda=_cuda(self.ask("nvmlSystemGetCudaDriverVersion_v2") or self.ask("nvmlSystemGetCudaDriverVersion")),
            power_limit_w=limit / 1000 if limit else None,
            max_sm_mhz=self.ask("nvmlDeviceGetMaxClockInfo", handle, getattr(self.lib, "NVML_CLOCK_SM", 1)),
            memory_gb_s=self._bandwidth(handle),
            mig=bool(mig and mig[0]),
        )

    def cards(self) -> list[Gpu]:
        """Every device that an engine can be given: the cards, and of a divided one its slices instead."""
        found: list[Gpu] = []
        for index, handle in enumerate(self.handles()):
            card = self.card(handle, index)
            parts = [p for p in (self._part(s, card) for s in self.slices(handle)) if p] if card else []
            found += parts or ([card] if card else [])
        return found

    def _part(self, handle: Any, card: Gpu) -> Gpu | None:
        """A slice: memory and identity are its own; what only the whole card has is left out."""
        uuid = self.uuid(handle)
        if uuid is None:
            return None
        total, _, reserved = self.memory(handle)
        name = _text(self.ask("nvmlDeviceGetName", handle)) or f"{card.name} MIG"
        return replace(
            card, uuid=uuid, name=name, vram_mib=total, reserved_mib=reserved, power_limit_w=None, memory_gb_s=None
        )

    def _bandwidth(self, handle: Any) -> float | None:
        """Peak memory bandwidth in GB/s: twice the memory clock times the bus width in bytes."""
        mhz = self.ask("nvmlDeviceGetMaxClockInfo", handle, getattr(self.lib, "NVML_CLOCK_MEM", 2))
        bits = self.ask("nvmlDeviceGetMemoryBusWidth", handle)
        return round(2 * mhz * bits / 8 / 1000, 1) if mhz and bits else None

    def close(self) -> None:
        self.ask("nvmlShutdown")


def _why_not(lib: ModuleType, error: Exception) -> str:
    name = type(error).__name__
    if "LibraryNotFound" in name:
        return "no NVIDIA driver is installed here"
    if "DriverNotLoaded" in name:
        return "the NVIDIA driver is installed but not loaded"
    if "LibRmVersionMismatch" in name:
        return "the NVIDIA driver was updated and not reloaded: reboot, or reload the kernel module"
    if "NoPermission" in name:
        return "there is no permission to speak to the NVIDIA driver"
    return f"NVML does not answer ({error})"


def _text(value: Any) -> str | None:
    """Old libraries answer with bytes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value) if value else None


def _mib(value: Any) -> int | None:
    return int(value) // MIB if value is not None else None


def _cuda(number: int | None) -> str | None:
    """13000 is 13.0."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else None
