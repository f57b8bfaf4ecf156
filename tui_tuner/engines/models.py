"""The models on this disk, and what their own files tell of them.

Looked for where tools leave them: the Hugging Face cache, the ModelScope cache, plain folders named in the settings
or below the working directory. Every file here is untrusted: what cannot be read, or is not what it should be, is as
good as absent, and nothing raises.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from tui_tuner import paths
from tui_tuner.engines import practice
from tui_tuner.model.machine import ModelShape
from tui_tuner.model.plan import PRACTICE

Source = Literal["practice", "Hugging Face", "ModelScope", "folder"]
SETTING = "model_folders"  # in the settings: a list of folders that hold models
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
_NO_WEIGHTS = ("training_args", "optimizer", "scheduler", "rng_state")
_CONFIG_MAX = 4 << 20  # bytes; a real config.json has kilobytes
_INDEX_MAX = 64 << 20
_REPOSITORY = re.compile(r"^[\w.\-]+/[\w.\-]+$")
_MOST_FOLDERS = 400


class ModelOnDisk(Struct, frozen=True):
    """A model that can be served without a download. `name` is what a plan calls it, `mib` its weights."""

    name: str
    path: Path
    mib: int
    source: Source
    quantization: str | None = None


def locate(name: str) -> Path | None:
    """The folder of the model called `name`: the practice model, a folder, or a repository in a cache; else None."""
    if name == PRACTICE:
        return practice.folder() if practice.is_made() else None
    if not name or "\0" in name:
        return None
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        folder = Path(name).expanduser()
        if _is_model(folder):
            return folder.absolute()
    if not _REPOSITORY.match(name) or ".." in name.split("/"):
        return None
    for find in (_in_hugging_face, _in_modelscope):
        with contextlib.suppress(OSError, ValueError):
            found = find(name)
            if found is not None:
                return found
    return None


def on_disk() -> list[ModelOnDisk]:
    """All models found, the practice model first, each folder once."""
    found: list[ModelOnDisk] = []
    seen: set[str] = set()
    for name, folder, source in _everywhere():
        real = os.path.realpath(folder)
        if real in seen:
            continue
        seen.add(real)
        if _is_whole(folder):
            told = shape(folder)
            found.append(
                ModelOnDisk(name, folder, weight_bytes(folder) >> 20, source, told.quantization if told else None)
            )
    return found


def has_chat_template(path: Path) -> bool | None:
    """Whether the model's files bring a chat template; None where they cannot be read."""
    if any((path / name).is_file() for name in ("chat_template.jinja", "chat_template.json")):
        return True
    if (path / "additional_chat_templates").is_dir():
        return True
    told = _object(path / "tokenizer_config.json", _INDEX_MAX)
    return None if told is None else bool(told.get("chat_template"))


def same_tokenizer(a: Path, b: Path) -> bool | None:
    """Whether two checkpoints turn text into the same tokens, by their tokenizer files; None if those do not tell."""
    for name in ("tokenizer.json", "tokenizer.model", "vocab.json"):
        one, two = a / name, b / name
        with contextlib.suppress(OSError):
            if one.is_file() and two.is_file():
                return one.stat().st_size == two.stat().st_size and one.read_bytes() == two.read_bytes()
    return None


# ---- what a model is ---------------------------------------------------------------------------------------------


def shape(path: Path) -> ModelShape | None:
    """The model's shape from its config.json, or None where that cannot be read or tells too little.

    A multimodal model keeps the language part's numbers in `text_config` (some in `llm_config`).
    """
    whole = _json(path / "config.json", _CONFIG_MAX)
    inner = [whole[key] for key in ("text_config", "llm_config", "language_config") if isinstance(whole.get(key), dict)]
    text: dict[str, Any] = inner[0] if inner else {}
    told = {**whole, **{key: value for key, value in text.items() if value is not None}}
    layers = _whole(told, "num_hidden_layers", "n_layer", "num_layers", "n_layers")
    hidden = _whole(told, "hidden_size", "n_embd", "d_model")
    heads = _whole(told, "num_attention_heads", "n_head", "num_heads", "n_heads")
    if not layers or not hidden or not heads:
        return None
    lora = _whole(told, "kv_lora_rank")
    return ModelShape(
        layers=layers,
        hidden=hidden,
        intermediate=_whole(told, "intermediate_size", "n_inner", "ffn_dim", "moe_intermediate_size") or 4 * hidden,
        heads=heads,
        kv_heads=_whole(told, "num_key_value_heads", "multi_query_group_num", "num_kv_heads") or heads,
        head_dim=_whole(told, "head_dim", "kv_channels") or max(1, hidden // heads),
        vocab=_whole(told, "vocab_size", "padded_vocab_size") or 32_000,
        max_position=_whole(
            told, "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length"
        ),
        dtype=_dtype(told),
        quantization=_quantization(whole, told, path),
        weight_bytes=weight_bytes(path) or None,
        kv_lora_rank=lora,
        qk_rope_head_dim=_whole(told, "qk_rope_head_dim") if lora else None,
        architecture=_architecture(whole),
    )


def weight_bytes(path: Path) -> int:
    """The weights in bytes: the index's total where it tells one, else the files' sizes; 0 if there are none."""
    index = _json(path / "model.safetensors.index.json", _INDEX_MAX)
    about = index.get("metadata")
    total = about.get("total_size") if isinstance(about, dict) else None
    if isinstance(total, (int, float)) and not isinstance(total, bool) and 0 < total < 1 << 50:
        return int(total)
    return sum(_weight_files(path).values())


def _is_whole(path: Path) -> bool:
    """Whether the weights are all there: an index may have come before a download was cut off."""
    files = _weight_files(path)
    mapped = _json(path / "model.safetensors.index.json", _INDEX_MAX).get("weight_map")
    if isinstance(mapped, dict) and not all(isinstance(name, str) and name in files for name in mapped.values()):
        return False
    return bool(files)


def _weight_files(path: Path) -> dict[str, int]:
    """Names and sizes of the files that an engine would load: safetensors where there are any."""
    for pattern in _WEIGHTS:
        found = {}
        with contextlib.suppress(OSError):
            for file in path.glob(pattern):
                with contextlib.suppress(OSError):
                    if file.is_file() and not file.name.startswith((".", *_NO_WEIGHTS)):
                        found[file.name] = file.stat().st_size
        consolidated = [name for name in found if name.startswith("consolidated")]
        if len(consolidated) < len(found):  # the same weights in another layout
            for name in consolidated:
                del found[name]
        if found:
            return found
    return {}


def _dtype(told: dict[str, Any]) -> str:
    dtype = told.get("dtype") or told.get("torch_dtype")
    text = str(dtype).removeprefix("torch.") if isinstance(dtype, str) else "bfloat16"
    return {"half": "float16", "float": "float32"}.get(text, text)[:20]


def _quantization(whole: dict[str, Any], told: dict[str, Any], path: Path) -> str | None:
    for holder in (whole, told):
        config = holder.get("quantization_config") or holder.get("compression_config")
        if isinstance(config, dict):
            method = config.get("quant_method") or config.get("quant_algo") or config.get("format")
            if isinstance(method, str):
                return method[:40]
    named = _json(path / "hf_quant_config.json", _CONFIG_MAX).get("quantization")
    if isinstance(named, dict) and isinstance(named.get("quant_algo"), str):
        return f"modelopt {named['quant_algo']}"[:40]
    return "gguf" if any(name.endswith(".gguf") for name in _weight_files(path)) else None


def _architecture(whole: dict[str, Any]) -> str:
    names = whole.get("architectures")
    return names[0][:80] if isinstance(names, list) and names and isinstance(names[0], str) else ""


def _whole(told: dict[str, Any], *names: str) -> int | None:
    """The first of `names` that holds a whole number above 0 that a model can have."""
    for name in names:
        value = told.get(name)
        if isinstance(value, list) and value and all(isinstance(v, int) for v in value):
            value = max(value)  # models whose layers differ
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 32:
            return value
    return None


def _json(path: Path, most: int) -> dict[str, Any]:
    """A JSON object from a file of a stranger, or an empty one."""
    return _object(path, most) or {}


def _constant(text: str) -> None:
    """Infinity stands in configurations of real models; NaN in none."""
    if text == "NaN":
        raise ValueError("NaN")


def _object(path: Path, most: int) -> dict[str, Any] | None:
    try:
        if not path.is_file() or path.stat().st_size > most:
            return None
        told = json.loads(path.read_bytes(), parse_constant=_constant)
    except (OSError, ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


# ---- where models lie --------------------------------------------------------------------------------------------


def _is_model(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def hugging_face_cache() -> Path:
    """The folder of repositories, by the variables that huggingface_hub reads."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return Path(os.environ[variable]).expanduser()
    if os.environ.get("HF_HOME"):
        return Path(os.environ["HF_HOME"]).expanduser() / "hub"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def modelscope_cache() -> Path:
    """The folder of ModelScope's models; `MODELSCOPE_CACHE` moves it."""
    base = os.environ.get("MODELSCOPE_CACHE") or "~/.cache/modelscope"
    folder = Path(base).expanduser()
    return folder if folder.name == "hub" else folder / "hub"


def _in_hugging_face(name: str) -> Path | None:
    return _snapshot(hugging_face_cache() / ("models--" + name.replace("/", "--")))


def _snapshot(repository: Path) -> Path | None:
    """The snapshot that `main` points to, else the newest that is whole enough to have a configuration and weights."""
    snapshots = repository / "snapshots"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        revision = (repository / "refs" / "main").read_text(encoding="ascii")[:80].strip()
        if revision and os.sep not in revision and revision not in (".", ".."):
            main = snapshots / revision
            if _is_model(main) and _is_whole(main):
                return main
    with contextlib.suppress(OSError):
        for folder in sorted(snapshots.iterdir(), key=lambda f: f.stat().st_mtime, reverse=True):
            if _is_model(folder) and _is_whole(folder):
                return folder
    return None


def _in_modelscope(name: str) -> Path | None:
    """ModelScope writes a dot in a name as three underscores on disk."""
    owner, _, model = name.partition("/")
    spelled = model.replace(".", "___")
    for folder in (
        modelscope_cache() / "models" / owner / spelled,
        modelscope_cache() / "models" / owner / model,
        modelscope_cache() / owner / spelled,
        modelscope_cache() / owner / model,
    ):
        if _is_model(folder) and _is_whole(folder):
            return folder.absolute()
    return None


def _everywhere() -> Iterator[tuple[str, Path, Source]]:
    if practice.is_made():
        yield PRACTICE, practice.folder(), "practice"
    for repository in _folders(hugging_face_cache()):
        if repository.name.startswith("models--"):
            snapshot = _snapshot(repository)
            if snapshot is not None:
                yield repository.name.removeprefix("models--").replace("--", "/", 1), snapshot, "Hugging Face"
    for base in (modelscope_cache() / "models", modelscope_cache()):
        for owner in _folders(base):
            if owner.name not in ("models", "datasets", "temp", "._____temp"):
                for folder in _folders(owner):
                    if _is_model(folder):
                        yield f"{owner.name}/{folder.name.replace('___', '.')}", folder, "ModelScope"
    for folder in _named_folders():
        yield str(folder), folder, "folder"


def _named_folders() -> Iterator[Path]:
    """Folders of the settings, and the working directory's: themselves a model, or holding models."""
    told = _json(paths.settings_file(), _CONFIG_MAX).get(SETTING)
    named = [Path(text).expanduser() for text in told if isinstance(text, str)] if isinstance(told, list) else []
    here = [Path.cwd()] if _cwd_exists() else []
    for base in [*named, *here, *(folder / "models" for folder in here)]:
        with contextlib.suppress(OSError, ValueError):
            if _is_model(base):
                yield base.absolute()
            for folder in _folders(base):
                if _is_model(folder):
                    yield folder.absolute()


def _cwd_exists() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True


def _folders(base: Path) -> list[Path]:
    """The visible folders of `base` in order, links to folders included; none where it cannot be read."""
    try:
        return sorted(f for f in base.iterdir() if not f.name.startswith(".") and f.is_dir())[:_MOST_FOLDERS]
    except (OSError, ValueError):
        return []
