"""The engine's log, by recorded ones of several versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tui_tuner.worker import logfacts
from tui_tuner.worker.logfacts import LogCapacity

LOGS = Path(__file__).parents[1] / "logs"

RECORDED = {
    "v0.26.0-h200-ready.log": LogCapacity(None, 177_968, 43.45, 12.91, 9.5, 0.89, 1.12, "FLASH_ATTN"),
    "v0.26.0-h200-ready-eager.log": LogCapacity(None, 178_032, 43.46, 12.91, 9.51, 0.0, 1.12, "FLASH_ATTN"),
    "v0.26.0-h200-ready-fp8-kv.log": LogCapacity(None, 354_768, 86.61, 12.95, 9.47, 0.91, 1.12, "FLASH_ATTN"),
    "v0.26.0-h200-ready-smollm2.log": LogCapacity(None, 620_464, 302.96, 0.26, 13.31, 0.39, 0.19, "FLASH_ATTN"),
    "v0.26.0-h200-serve-under-load.log": LogCapacity(None, 179_056, None, 12.91, 9.56, 0.89, 1.06, None),
    "v0.26.0-h200-no-kv-memory.log": LogCapacity(weights_gib=12.91, backend="FLASH_ATTN"),
    "v0.26.0-h200-gpu-already-used.log": LogCapacity(),
    "v0.26.0-h200-max-model-len-too-long.log": LogCapacity(),
    "v0.26.0-h200-batched-tokens-below-seqs.log": LogCapacity(),
    "v0.26.0-h200-utilization-out-of-range.log": LogCapacity(),
    "v0.32.0-cpu-ready-compiled.log": LogCapacity(None, 244_864, 239.12, 0.25, 5.26),
    "v0.32.0-cpu-ready-eager.log": LogCapacity(None, 93_184, 91.0, 0.25, 2.0),
}
PHASES = {
    "v0.26.0-h200-ready.log": ["compile", "kv_cache", "graphs"],
    "v0.26.0-h200-ready-eager.log": ["kv_cache"],
    "v0.26.0-h200-ready-smollm2.log": ["load", "compile", "kv_cache", "graphs"],
    "v0.32.0-cpu-ready-compiled.log": ["load", "compile", "kv_cache"],
    "v0.32.0-cpu-ready-eager.log": ["load", "kv_cache"],
    "v0.26.0-h200-batched-tokens-below-seqs.log": [],
}


def read(name: str) -> str:
    return (LOGS / name).read_text(errors="replace")


@pytest.mark.parametrize("name", sorted(path.name for path in LOGS.glob("*-ready*.log")) + sorted(RECORDED))
def test_capacity(name: str) -> None:
    assert logfacts.capacity(read(name)) == RECORDED[name]


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("INFO # GPU blocks: 27,104, # CPU blocks: 2048", "kv_blocks", 27_104),
        ("INFO # CUDA blocks: 431, # CPU blocks: 512", "kv_blocks", 431),
        ("INFO # CPU blocks: 431", "kv_blocks", 431),
        ("(EngineCore pid=7) INFO GPU KV cache size: 1,048,576 tokens, Maximum concurrency for 8,192 tokens per "
         "request: 1,280.00x", "max_concurrency", 1280.0),
        ("INFO Maximum concurrency for 131072 tokens per request: 3.05x", "max_concurrency", 3.05),
        ("INFO [gpu_model_runner.py:1] Model loading took 5.5876 GiB memory and 7.20 seconds", "weights_gib", 5.5876),
        ("INFO Loading model weights took 14.9596 GB", "weights_gib", 14.9596),
        ("Actual usage is 13.1 GiB for consumed memory (weights + non-torch), 1.4 GiB for peak activation, and 0.6 GiB "
         "for CUDAGraph memory.", "graph_gib", 0.6),
        ("INFO [cuda.py:1] Using FLASHINFER backend.", "backend", "FLASHINFER"),
        ("INFO [cuda.py:1] Using AttentionBackendEnum.TRITON_ATTN backend.", "backend", "TRITON_ATTN"),
        ("INFO [cuda.py:1] Using Flash Attention backend on V1 engine.", "backend", "Flash Attention"),
        ("INFO [cuda.py:1] Using AttentionBackendEnum.FLASH_ATTN backend for vit attention", "backend", None),
        ("INFO [cuda.py:1] Using backend FLASH_ATTN for vit attention", "backend", None),
        ("INFO [x.py:1] Using Flash Attention backend for ViT model.", "backend", None),
    ],
)  # fmt: skip
def test_forms_of_other_versions(line: str, field: str, value: object) -> None:
    assert getattr(logfacts.capacity(line), field) == value


@pytest.mark.parametrize("name", sorted(PHASES))
def test_phases_of_a_whole_log(name: str) -> None:
    assert [found.phase for found in logfacts.Reader().feed(read(name))] == PHASES[name]


@pytest.mark.parametrize("step", [1, 7, 100, 4096])
@pytest.mark.parametrize("name", sorted(PHASES))
def test_phases_do_not_depend_on_how_the_log_was_cut(name: str, step: int) -> None:
    reader, text = logfacts.Reader(), read(name)
    shown = [found for i in range(0, len(text), step) for found in reader.feed(text[i : i + step])]
    phases = list(dict.fromkeys(found.phase for found in shown))
    assert phases == PHASES[name]


def test_details_count_up() -> None:
    reader = logfacts.Reader()
    text = read("v0.26.0-h200-ready-smollm2.log")
    shown = [found for line in text.splitlines(keepends=True) for found in reader.feed(line)]
    details = [found.detail for found in shown if found.detail]
    assert details[:2] == ["0 of 1 shards", "1 of 1 shards"]
    assert "51 of 51 piecewise graphs" in details
    assert details[-1] == "51 of 51 full graphs"


def test_a_switched_off_compiler_is_no_phase() -> None:
    assert logfacts.progress("WARNING Enforce eager set, disabling torch.compile and CUDAGraphs.") is None
    assert logfacts.progress("Inductor compilation was disabled by user settings") is None
    assert (
        logfacts.progress("non-default args: {'kv_cache_dtype': 'fp8'}; Using fp8 data type to store kv cache") is None
    )
