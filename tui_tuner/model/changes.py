"""How a point's resolved configuration differs from the baseline's, and whether it may.

Only the knob, and what vLLM derives from it by itself, may differ; anything else is foreign and spoils the point.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from tui_tuner.model.events import Changed
from tui_tuner.model.knobs import CATALOGUE, Knob
from tui_tuner.model.values import Value, is_variant

# Another checkpoint is another model: these are the difference that was asked for.
_OF_A_MODEL = (
    "model_config.*", "quant_config*", "load_config.*", "cache_config.cache_dtype", "cache_config.sliding_window",
    "cache_config.is_attention_free", "cache_config.mamba_*", "kernel_config.*", "compilation_config.pass_config.*",
    "compilation_config.custom_ops", "compilation_config.splitting_ops",
)  # fmt: skip
# A model's identity: what is measured with it is this knob's value, the rest follows.
_IDENTITY = ("model_config.model", "model_config.quantization")


def compare(baseline: Mapping[str, Any], here: Mapping[str, Any], knob: Knob, value: Value = None) -> Changed:
    """The differences between two resolved configurations (`{"section.field": value}`), sorted.

    `value` is the knob's value at the point: a variant may change all that belongs to a model, and the engine
    arguments that stand in it count as the knob.
    """
    sorts: dict[str, dict[str, list[Any]]] = {"knob": {}, "derived": {}, "foreign": {}}
    own, derived = _own(knob, value), list(knob.derived)
    if is_variant(value):
        own += _IDENTITY
        derived += _OF_A_MODEL
    for field in sorted({*baseline, *here}):
        before, now = baseline.get(field), here.get(field)
        if before == now and type(before) is type(now):
            continue
        if _numbers(before, now):
            continue
        if any(field == name or field.startswith(f"{name}.") for name in own):
            kind = "knob"
        elif any(fnmatchcase(field, pattern) for pattern in derived):
            kind = "derived"
        else:
            kind = "foreign"
        sorts[kind][field] = [before, now]
    return Changed(**sorts)


def _own(knob: Knob, value: Value) -> list[str]:
    names = [knob.config_field] if knob.config_field else []
    if is_variant(value):
        for argument in value:
            other = CATALOGUE.get(argument)
            if other is not None and other.config_field:
                names.append(other.config_field)
    return names


def _numbers(before: Any, now: Any) -> bool:
    """1 and 1.0 are one setting, 1 and true are not."""
    plain = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (before, now))
    return plain and bool(before == now)
