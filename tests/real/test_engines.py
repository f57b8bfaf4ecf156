"""What a real vLLM says of its arguments, and that the catalogue knows what follows each knob."""

from __future__ import annotations

from typing import Any

import pytest

from tui_tuner import engines
from tui_tuner.engines import models
from tui_tuner.model import knobs
from tui_tuner.model.changes import compare
from tui_tuner.model.knobs import Facts
from tui_tuner.model.machine import Engine
from tui_tuner.model.values import engine_args

pytestmark = pytest.mark.engine

# A baseline with every default left alone but the length, and for each knob a change that matters on a CPU.
HELD = {"max_model_len": 1024, "gpu_memory_utilization": 0.3}
CHANGES: dict[str, list[Any]] = {
    "gpu_memory_utilization": [0.4],
    "max_num_seqs": [1, 8, 512],
    "max_num_batched_tokens": [64, 512, 4096],
    "enable_prefix_caching": [False],
    "quantization": ["fp8"],
    "kv_cache_dtype": ["fp8"],
    "max_model_len": [8, 512, 4096],
    "enforce_eager": [True],
    "enable_chunked_prefill": [False],
    "speculative_config": list(knobs.get("speculative_config").suggested),
    "tensor_parallel_size": [3],
    "long_prefill_token_threshold": [256],
    "max_cudagraph_capture_size": [8],
    "stream_interval": [4],
    "attention_backend": ["CPU_ATTN"],
    "kv_cache_memory_bytes": [1 << 30],
    "block_size": [64],
    "dtype": ["float32"],
    "watermark": [0.05],
    "max_num_active_seqs": [8],
    "cpu_offload_gb": [1.0],
}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engines.find()


@pytest.fixture(scope="module")
def facts(engine: Engine) -> Facts:
    return engines.facts(engine)


def test_facts_of_the_installed_version(engine: Engine, facts: Facts) -> None:
    assert facts.version == engine.version and facts.device == engine.device
    share = facts.fields["gpu_memory_utilization"]
    assert (share.declared_default, share.low, share.low_open, share.high, share.high_open) == (0.92, 0, True, 1, False)
    assert "--gpu-memory-utilization" in share.flags and "memory" in share.doc
    seqs = facts.fields["max_num_seqs"]
    assert (seqs.declared_default, seqs.effective_default, seqs.low, seqs.type) == (128, 128, 1, "int")
    assert facts.fields["max_num_batched_tokens"].effective_default == 2048
    caching = facts.fields["enable_prefix_caching"]
    assert caching.type == "bool" and "--no-enable-prefix-caching" in caching.flags
    assert "fp8" in (facts.fields["kv_cache_dtype"].choices or [])
    assert "CPU_ATTN" in (facts.fields["attention_backend"].choices or [])
    assert "fp8" in (facts.fields["quantization"].choices or [])
    assert facts.fields["block_size"].declared_default is None and facts.fields["block_size"].effective_default == 128
    assert "swap_space" not in facts.fields


def test_every_knob_of_the_catalogue_is_an_argument_with_its_flag(facts: Facts) -> None:
    for knob in knobs.CATALOGUE.values():
        assert knob.flag in facts.fields[knob.name].flags
        assert facts.fields[knob.name].doc


def test_only_what_the_catalogue_lists_follows_a_knob(engine: Engine) -> None:
    model = str(models.locate("practice"))
    sets, cases = [{"model": model, **HELD}], []
    for name, values in CHANGES.items():
        for value in values:
            cases.append((knobs.get(name), value))
            sets.append({"model": model, **HELD, **engine_args(name, value)})
    baseline, *others = engines.resolve(engine, sets)
    assert len(baseline.resolved) > 200
    for (knob, value), here in zip(cases, others, strict=True):
        assert here.resolved, f"{knob.name} = {value!r}: {here.problem}"
        changed = compare(baseline.resolved, here.resolved, knob, value)
        assert not changed.foreign, f"{knob.name} = {value!r} also changed {changed.foreign}"
        if knob.name not in ("max_cudagraph_capture_size",):
            assert changed.knob, f"{knob.name} = {value!r} changed nothing of its own"


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"max_num_seqs": 4096}, "max_num_seqs", "greater than or equal to max_num_seqs (4096)"),
    ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization", "less than or equal to 1"),
    ({"kv_cache_dtype": "fp3"}, "kv_cache_dtype", "Input should be 'auto'"),
    ({"max_num_seqs": "many"}, "max_num_seqs", "valid integer"),
    ({"tensor_parallel_size": 2}, "tensor_parallel_size", "divisible"),
    ({"max_model_len": 65536}, "max_model_len", "greater than the derived max_model_len"),
    ({"swap_space": 4}, "swap_space", "no argument swap_space"),
]


def test_a_complaint_names_field_and_reason(engine: Engine) -> None:
    model = str(models.locate("practice"))
    found = engines.resolve(engine, [{"model": model, **args} for args, _, _ in WRONG])
    for (args, field, word), told in zip(WRONG, found, strict=True):
        assert told.field == field and word in (told.problem or "") and not told.resolved, args
