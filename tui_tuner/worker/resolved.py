"""The configuration that vLLM made of its arguments, as a flat table that can be kept and compared.

One function for a CPU and a CUDA engine, before the engine starts (introspection) and after (a point's worker).
"""

from __future__ import annotations

import dataclasses
import enum
import math
import os
from collections.abc import Mapping
from typing import Any

# Fields that differ between two equal launches (ids, ports, paths, times), or are results rather than settings.
_IGNORED = frozenset(
    {
        "instance_id",
        "compilation_config.cache_dir",
        "compilation_config.compilation_time",
        "compilation_config.encoder_compilation_time",
        "compilation_config.debug_dump_path",
        "compilation_config.disabled_custom_ops",
        "compilation_config.enabled_custom_ops",
        "compilation_config.local_cache_dir",
        "compilation_config.static_all_moe_layers",
        "compilation_config.static_forward_context",
        "compilation_config.traced_files",
        "compilation_config.bs_to_padded_graph_size",
        "cache_config.num_gpu_blocks",
        "cache_config.num_cpu_blocks",
        "cache_config.num_gpu_blocks_override_resolved",
        "cache_config.kv_cache_size_tokens",
        "cache_config.kv_cache_max_concurrency",
        "kv_transfer_config.engine_id",
        "parallel_config.data_parallel_master_port",
        "parallel_config.master_port",
        "parallel_config.placement_group",
        "parallel_config.sha256",
        "model_config.hf_token",
        "model_config.hf_config",
        "model_config.hf_text_config",
        "model_config.hf_image_processor_config",
        "model_config.encoder_config",
        "model_config.model_arch_config",
        "model_config.multimodal_config",
        "quant_config",
        "speculative_config.draft_load_config",
        "speculative_config.draft_model_config",
        "speculative_config.draft_parallel_config",
        "speculative_config.target_model_config",
        "speculative_config.target_parallel_config",
        "parallel_config.data_parallel_rpc_port",
    }
)
_SECTIONS_IGNORED = ("observability_config", "additional_config", "profiler_config", "logging_config")
_HOME = os.environ.get("HOME", "").rstrip("/")
_DEEPEST = 4


def flatten(config: Any) -> dict[str, Any]:
    """`VllmConfig` as `{"section.field": JSON value}`, without what always differs; never raises."""
    found: dict[str, Any] = {}
    _add(found, "", config, 0)
    return found


def _add(found: dict[str, Any], prefix: str, section: Any, depth: int) -> None:
    for field in dataclasses.fields(section):
        key = f"{prefix}{field.name}"
        if key in _IGNORED or field.name.startswith("_") or key.startswith(_SECTIONS_IGNORED):
            continue
        try:
            value = getattr(section, field.name)
        except Exception:  # noqa: BLE001 (a field that is computed, and cannot be here)
            continue
        if dataclasses.is_dataclass(value) and not isinstance(value, type) and depth < _DEEPEST:
            _add(found, f"{key}.", value, depth + 1)
        else:
            found[key] = plain(value)


def plain(value: Any) -> Any:
    """`value` as JSON has it: an enum by its name, a type or dtype by its name, a set in order, no NaN,
    no address, and the home folder as ~."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, str):
        return "~" + value[len(_HOME) :] if _HOME and value.startswith(_HOME + os.sep) else value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, os.PathLike):
        return plain(os.fspath(value))
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((plain(v) for v in value), key=str)
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, type):
        return value.__qualname__
    if type(value).__module__ == "torch":
        return str(value).removeprefix("torch.")
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name, None)) for f in dataclasses.fields(value)}
    return f"<{type(value).__name__}>"
