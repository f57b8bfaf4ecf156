"""Models on this disk: the practice model, plain folders, and what Hugging Face and ModelScope have downloaded.

Every file looked at here came from outside: nothing is executed, nothing raises, what makes no sense is None.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from tui_tuner.engines import practice
from tui_tuner.model.machine import ModelShape
from tui_tuner.model.plan import PRACTICE

Source = Literal["practice", "folder", "Hugging Face", "ModelScope"]
_LARGEST_JSON = 16 << 20
_MIB = 1 << 20
_HUB_ID = re.compile(r"^[\w.-]+/[\w.-]+$")


class ModelOnDisk(Struct, frozen=True):
    """A model that can be served without a download; `mib` is the size of its weight files."""

    name: str  # what a plan would write
    path: Path
    mib: int
    source: Source
    quantization: str | None = None


def locate(name: str) -> Path | None:
    """The folder of a model that is on this disk, by the name that a plan writes; None if it is not here."""
    if not name or "\0" in name:
        return None
    if name == PRACTICE:
        return _practice()
    with contextlib.suppress(OSError, RuntimeError):
        folder = Path(name).expanduser()
        if _is_model(folder):
            return folder.absolute()
        if _HUB_ID.match(name):
            return _from_hub(name) or _from_modelscope(name)
    return None


def on_disk() -> list[ModelOnDisk]:
    """All models found in the usual places, the practice model first, then by name."""
    found: list[ModelOnDisk] = []
    own = _practice()
    if own:
        found.append(ModelOnDisk(PRACTICE, own, weight_bytes(own) // _MIB, "practice"))
    others: list[ModelOnDisk] = []
    for name, path, source in [*_hub_models(), *_modelscope_models(), *_folders()]:
        shape_ = shape(path)
        others.append(
            ModelOnDisk(name, path, weight_bytes(path) // _MIB, source, shape_.quantization if shape_ else None)
        )
    seen: set[Path] = set()
    for model in sorted(others, key=lambda m: m.name.lower()):
        real = model.path.resolve()
        if real not in seen:
            seen.add(real)
            found.append(model)
    return found


def shape(path: Path) -> ModelShape | None:
    """The numbers of config.json that memory estimates need; None where they are not told.

    A multimodal model keeps them in `text_config`. `head_dim` defaults to hidden size over heads, and
    `num_key_value_heads` to the number of heads, as transformers has it.
    """
    top = _json(path / "config.json")
    if top is None:
        return None
    nested = top.get("text_config")
    config: dict[str, Any] = {**top, **nested} if isinstance(nested, dict) else top
    heads, hidden, layers = (_whole(config, k) for k in ("num_attention_heads", "hidden_size", "num_hidden_layers"))
    vocab = _whole(config, "vocab_size")
    if not heads or not hidden or not layers or not vocab:
        return None
    quantization = top.get("quantization_config")
    method = quantization.get("quant_method") if isinstance(quantization, dict) else None
    architectures = top.get("architectures")
    dtype = config.get("torch_dtype") or config.get("dtype") or "bfloat16"
    return ModelShape(
        layers=layers,
        hidden=hidden,
        intermediate=_whole(config, "intermediate_size") or 4 * hidden,
        heads=heads,
        kv_heads=_whole(config, "num_key_value_heads") or heads,
        head_dim=_whole(config, "head_dim") or hidden // heads,
        vocab=vocab,
        max_position=_whole(config, "max_position_embeddings"),
        dtype=str(dtype),
        quantization=str(method) if method else None,
        weight_bytes=weight_bytes(path) or None,
        kv_lora_rank=_whole(config, "kv_lora_rank"),
        qk_rope_head_dim=_whole(config, "qk_rope_head_dim"),
        architecture=str(architectures[0]) if isinstance(architectures, list) and architectures else "",
    )


def weight_bytes(path: Path) -> int:
    """The bytes of the weights: by the safetensors index, else by the files; 0 where there are none."""
    index = _json(path / "model.safetensors.index.json")
    metadata = index.get("metadata") if index else None
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, int) and not isinstance(total, bool) and total > 0:
        return total
    for pattern in ("*.safetensors", "*.bin", "*.gguf"):
        size = 0
        with contextlib.suppress(OSError):
            size = sum(file.stat().st_size for file in path.glob(pattern) if file.is_file())
        if size:
            return size
    return 0


def has_chat_template(path: Path) -> bool | None:
    """Whether the model's files bring a chat template; None where they cannot be read."""
    if (path / "chat_template.jinja").is_file() or (path / "chat_template.json").is_file():
        return True
    tokenizer = _json(path / "tokenizer_config.json")
    return None if tokenizer is None else bool(tokenizer.get("chat_template"))


def same_tokenizer(a: Path, b: Path) -> bool | None:
    """Whether two checkpoints turn text into the same tokens, by their tokenizer files; None if untold."""
    for name in ("tokenizer.json", "tokenizer.model", "vocab.json"):
        one, two = a / name, b / name
        with contextlib.suppress(OSError):
            if one.is_file() and two.is_file():
                return one.stat().st_size == two.stat().st_size and one.read_bytes() == two.read_bytes()
    return None


def _practice() -> Path | None:
    return practice.folder() if practice.is_made() else None


# ---- where models are -----------------------------------------------------------------------------------------


def _hub_cache() -> Path:
    """Hugging Face's cache, by the variables that huggingface_hub reads."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(name):
            return Path(os.environ[name]).expanduser()
    home = os.environ.get("HF_HOME")
    base = (
        Path(home).expanduser()
        if home
        else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "huggingface"
    )
    return base / "hub"


def _from_hub(name: str) -> Path | None:
    return _snapshot(_hub_cache() / f"models--{name.replace('/', '--')}")


def _snapshot(repo: Path) -> Path | None:
    """The snapshot of a cached repository that `main` points to, else the newest that is a model."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        revision = (repo / "refs" / "main").read_text().strip()
        if re.fullmatch(r"[0-9a-f]{4,64}", revision) and _is_model(repo / "snapshots" / revision):
            return repo / "snapshots" / revision
    with contextlib.suppress(OSError):
        found = [p for p in (repo / "snapshots").iterdir() if _is_model(p)]
        return max(found, key=lambda p: p.stat().st_mtime, default=None)
    return None


def _hub_models() -> Iterator[tuple[str, Path, Source]]:
    with contextlib.suppress(OSError):
        for repo in sorted(_hub_cache().glob("models--*--*")):
            snapshot = _snapshot(repo)
            if snapshot and weight_bytes(snapshot):
                yield repo.name.removeprefix("models--").replace("--", "/", 1), snapshot, "Hugging Face"


def _modelscope_roots() -> list[Path]:
    given = os.environ.get("MODELSCOPE_CACHE")
    base = Path(given).expanduser() if given else Path("~/.cache/modelscope").expanduser()
    return [base / "hub" / "models", base / "hub", base / "models"]


def _from_modelscope(name: str) -> Path | None:
    owner, _, model = name.partition("/")
    for root in _modelscope_roots():
        for folder in (root / owner / model, root / owner / model.replace(".", "___")):
            if _is_model(folder):
                return folder
    return None


def _modelscope_models() -> Iterator[tuple[str, Path, Source]]:
    for root in _modelscope_roots():
        with contextlib.suppress(OSError):
            for folder in sorted(root.glob("*/*")):
                if not folder.parent.name.startswith((".", "_")) and _is_model(folder) and weight_bytes(folder):
                    yield f"{folder.parent.name}/{folder.name.replace('___', '.')}", folder, "ModelScope"


def _folders() -> Iterator[tuple[str, Path, Source]]:
    """Plain folders below the working directory and `./models`, one level deep."""
    for root in (Path.cwd(), Path.cwd() / "models"):
        with contextlib.suppress(OSError):
            for folder in sorted(root.iterdir())[:200]:
                if folder.is_dir() and not folder.name.startswith(".") and _is_model(folder) and weight_bytes(folder):
                    yield str(folder), folder, "folder"


def _is_model(folder: Path) -> bool:
    return (folder / "config.json").is_file()


# ---- untrusted JSON -------------------------------------------------------------------------------------------


def _json(path: Path) -> dict[str, Any] | None:
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_JSON:
            return None
        value = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _whole(config: dict[str, Any], key: str) -> int | None:
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 40 else None
