"""What an engine says of its arguments, asked in its own Python and remembered.

Asking costs an import of vLLM (six seconds and up), so answers are kept per package, version, device, cards and
vLLM's own environment variables.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tui_tuner import paths
from tui_tuner.engines import child
from tui_tuner.engines.interpreter import NoEngine
from tui_tuner.model.knobs import Facts, Resolution
from tui_tuner.model.machine import Engine
from tui_tuner.model.wire import Findings, Inquiry

_FORM = 2  # of what is kept; another number forgets all
_SECONDS = 300.0  # a first import may compile, or read gigabytes from a slow disk
_MOST = 300  # answers kept
_MODEL_FILES = ("config.json", "generation_config.json", "hf_quant_config.json")


def facts(engine: Engine) -> Facts:
    """Types, ranges, choices, flags, documentation, declared and effective defaults of every engine argument.

    Effective defaults are a server's on this machine; without the device that vLLM was built for, they are the
    declared ones and `device` is empty. Raises NoEngine where the engine's vLLM cannot be imported.
    """
    key = _key(engine, None, "facts")
    kept = _recall(key, Facts)
    if isinstance(kept, Facts):
        return kept
    found = _ask(engine, Inquiry(facts=True), None, offline=True).facts
    if found is None:
        raise NoEngine(f"{engine.python} did not say what its vLLM knows")
    _keep(key, found)
    return found


def resolve(engine: Engine, sets: Sequence[dict[str, Any]], card: str | None = None) -> list[Resolution]:
    """What the engine makes of each set of arguments, in their order, all in one process on `card` (a UUID).

    A model that is no folder on this disk may be looked up by vLLM, as a server would. Raises NoEngine.
    """
    keys = [_key(engine, card, "resolve", args) for args in sets]
    answers: list[Resolution | None] = [_recall(key, Resolution) for key in keys]
    missing = [index for index, answer in enumerate(answers) if answer is None]
    if missing:
        asked = [dict(sets[index]) for index in missing]
        offline = all(Path(str(args.get("model", ""))).is_dir() for args in asked)
        found = _ask(engine, Inquiry(resolve=asked), card, offline).resolutions
        if len(found) != len(missing):
            raise NoEngine(f"{engine.python} answered {len(found)} of {len(missing)} questions about its configuration")
        for index, resolution in zip(missing, found, strict=True):
            answers[index] = resolution
            if resolution.resolved:  # a complaint may be about what is only now so: it is asked again
                _keep(keys[index], resolution)
    return [answer for answer in answers if answer is not None]


def _ask(engine: Engine, inquiry: Inquiry, card: str | None, offline: bool) -> Findings:
    extra = {"VLLM_LOGGING_LEVEL": "WARNING"}
    if card:
        extra["CUDA_VISIBLE_DEVICES"] = card
    if offline:
        extra["HF_HUB_OFFLINE"] = "1"
    try:
        with child.private_folder() as folder:
            answer = child.run(
                [engine.python, "-m", "tui_tuner.worker.introspect"],
                folder=folder,
                seconds=_SECONDS,
                request=msgspec.json.encode(inquiry),
                extra_env=extra,
            )
        found = msgspec.json.decode(answer, type=Findings)
    except child.ChildFailed as error:
        raise NoEngine(f"the vLLM of {engine.python} cannot be used: {error}") from None
    except msgspec.MsgspecError as error:
        raise NoEngine(f"{engine.python} gave an answer that cannot be read: {error}") from None
    if found.problem:
        raise NoEngine(f"the vLLM of {engine.python} cannot be used: {found.problem}{_way_out(found.problem)}")
    return found


def _way_out(problem: str) -> str:
    if "torchvision" in problem:
        return ". Take torchvision, torchaudio and torchcodec out of that environment: text models need none of them"
    return ". `tui-tuner setup` makes an environment that works"


# ---- remembering -------------------------------------------------------------------------------------------------


def _key(engine: Engine, card: str | None, what: str, args: dict[str, Any] | None = None) -> str:
    """A name for an answer, from everything that it depends on."""
    environment = sorted(
        (name, value)
        for name, value in os.environ.items()
        if name.startswith("VLLM_") or name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
    )
    parts: list[Any] = [
        _FORM, what, engine.package, engine.version, engine.torch, engine.device, _installed(engine), _own_source(),
        _cards() if engine.device == "cuda" else os.cpu_count(), card, environment, args, _model(args),
    ]  # fmt: skip
    digest = hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:24]
    return f"{what}-{engine.package}-{engine.version}-{digest}.json"


def _installed(engine: Engine) -> list[Any]:
    """The environment and when its Python was put there: two environments are two engines."""
    with contextlib.suppress(OSError):
        return [engine.python, os.lstat(engine.python).st_mtime_ns]
    return [engine.python]


def _own_source() -> int:
    """What asks is part of the answer."""
    folder = Path(__file__).resolve().parents[1] / "worker"
    newest = 0
    for name in ("introspect.py", "resolved.py"):
        with contextlib.suppress(OSError):
            newest = max(newest, (folder / name).stat().st_mtime_ns)
    return newest


def _cards() -> list[str]:
    """The cards of this machine as the driver lists them, without loading NVML."""
    found = []
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        with contextlib.suppress(OSError):
            found.append(path.read_text(encoding="utf-8", errors="replace"))
    return found


def _model(args: dict[str, Any] | None) -> list[Any]:
    """When the configuration files of the model folder in `args` were written."""
    folder = Path(str((args or {}).get("model", "")))
    found: list[Any] = []
    for name in _MODEL_FILES:
        with contextlib.suppress(OSError, ValueError):
            about = (folder / name).stat()
            found.append([name, about.st_mtime_ns, about.st_size])
    return found


def _recall(key: str, into: type[Any]) -> Any:
    try:
        return msgspec.json.decode((paths.facts_dir() / key).read_bytes(), type=into)
    except (OSError, msgspec.MsgspecError):
        return None


def _keep(key: str, answer: Facts | Resolution) -> None:
    """Keeps an answer, if the cache can be written; and not more than a few hundred."""
    with contextlib.suppress(OSError):
        folder = paths.facts_dir()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = folder / f".{key}.{os.getpid()}"
        fresh.write_bytes(msgspec.json.encode(answer))
        fresh.replace(folder / key)
        kept = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for old in kept[_MOST:]:
            old.unlink(missing_ok=True)
