"""A knob's value: a plain one, or a variant that names another checkpoint."""

from __future__ import annotations

from typing import Any

import msgspec

# bool, int, float, str, None, or a table: a variant {label, model} or a configuration such as speculative_config's.
Value = Any


def is_variant(value: Value) -> bool:
    """Whether `value` stands for another checkpoint: a table with `label` and `model`."""
    return isinstance(value, dict) and "label" in value and "model" in value


def label(value: Value) -> str:
    """What a table, a screen or a sentence calls the value."""
    if isinstance(value, dict):
        if "label" in value:
            return str(value["label"])
        if "method" in value:
            count = value.get("num_speculative_tokens")
            return f"{value['method']} k={count}" if count is not None else str(value["method"])
        return msgspec.json.encode(value).decode()
    if value is True:
        return "on"
    if value is False:
        return "off"
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def same(a: Value, b: Value) -> bool:
    """Whether two values are one setting: 1 and 1.0 are, 1 and true are not."""
    if isinstance(a, bool) != isinstance(b, bool):
        return False
    return bool(a == b)


def engine_args(knob: str, value: Value) -> dict[str, Any]:
    """The engine arguments that set `knob` to `value`.

    A variant sets the model, and whatever other engine arguments stand beside its label.
    """
    if is_variant(value):
        return {key: v for key, v in value.items() if key != "label"}
    if isinstance(value, dict):
        return {knob: {key: v for key, v in value.items() if key != "label"}}
    return {knob: value}


def parse(text: str) -> Value:
    """A value as typed on a command line or in a form: JSON if it is JSON, else on/off/none, else the text.

    >>> parse("0.9"), parse("on"), parse("fp8")
    (0.9, True, 'fp8')
    """
    words: dict[str, Value] = {"on": True, "off": False, "none": None, "true": True, "false": False}
    stripped = text.strip()
    if stripped.lower() in words:
        return words[stripped.lower()]
    try:
        return msgspec.json.decode(stripped.encode())
    except msgspec.DecodeError:
        return stripped
