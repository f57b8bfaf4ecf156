"""A person's own files: found beside the plan, the same ones until the end, and named without naming the person."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from test_cli import CONFIG, PLAN, Shell, shell  # noqa: F401 (the fixture)

from tests import scripted
from tui_tuner import cli
from tui_tuner.analysis import export
from tui_tuner.runner.sweep import Sweep
from tui_tuner.store import sessionfile

QUESTIONS = [{"id": f"q{n}", "prompt": f"Say {n} in words."} for n in range(6)]


def written(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


@pytest.fixture
def own(shell: Shell) -> Shell:  # noqa: F811
    """A home folder with a model, an engine, a plan and both files of a person; the shell stands elsewhere."""
    home = shell.folder / "somebody"
    work = home / "work"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").symlink_to(scripted.PYTHON)
    shell.model = shell.model.rename(home / "model")
    written(work / "mine" / "set.jsonl", QUESTIONS)
    written(work / "traffic.jsonl", [{"prompt": f"Tell me about {n}.", "output_tokens": 8} for n in range(64)])
    shell.plan = work / "plan.toml"
    text = PLAN.format(model=shell.model).replace('"basics", items = 20', '"mine/set.jsonl", items = 6')
    load = next(line for line in text.splitlines() if line.startswith("load"))
    text = text.replace(load, 'load = { kind = "trace", file = "traffic.jsonl", concurrency = [8], requests = 64 }')
    shell.plan.write_text(text.replace("fixed = {", f'fixed = {{ download_dir = "{home}/hub",'))
    shell.env |= {"HOME": str(home), "TUI_TUNER_ENGINE_PYTHON": str(home / "bin" / "python")}
    return shell


def stopped(own: Shell) -> Path:
    """A session that was stopped within its second point."""
    rules = own.folder / "rules.json"
    rules.write_text(json.dumps([{"when": {"max_num_seqs": 2}, "do": {"at": {"load": "hang"}}}]))
    own.env["SCRIPTED_SCENARIO"] = str(rules)
    run = own.start("run", str(own.plan))
    until = time.monotonic() + 60
    while not any(b'"n":2' in file.read_bytes() for file in own.sessions.glob("*.jsonl")):
        assert time.monotonic() < until and run.poll() is None, run.communicate()
        time.sleep(0.05)
    (path,) = own.sessions.glob("*.jsonl")
    assert own("stop", path.stem).returncode == 0
    run.communicate(timeout=60)
    del own.env["SCRIPTED_SCENARIO"]
    return path


def test_files_beside_the_plan_are_read_at_the_start_and_at_a_resume_from_anywhere(own: Shell) -> None:
    path = stopped(own)
    elsewhere = own.folder / "elsewhere"
    elsewhere.mkdir()
    own.folder = elsewhere
    result = own.json("resume", path.stem, "--json")
    assert result["status"] == "finished"
    assert [p["status"] for p in result["points"]] == ["ok"] * 4, "nothing but the knob has changed"
    assert {p["quality"]["items"] for p in result["points"]} == {6}


def test_a_session_names_neither_the_person_nor_the_home_folder(own: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    path = stopped(own)
    assert own("resume", path.stem).returncode == 0
    home = own.env["HOME"]
    text = path.read_text(encoding="utf-8")
    assert home not in text and "somebody" not in text
    start = sessionfile.read(path).start
    assert start.plan.evalset.name == "~/work/mine/set.jsonl" and start.plan.load.file == "~/work/traffic.jsonl"
    assert (start.plan.model, start.model_path, start.engine.python) == ("~/model", "~/model", "~/bin/python")
    monkeypatch.setenv("HOME", home)
    serve = own("export", path.stem, "--to", "serve").stdout
    assert "vllm serve ~/model " in serve and "--download-dir ~/hub" in serve, "unquoted, for the shell to expand"
    assert f'model: "{home}/model"' in export.yaml(sessionfile.read(path)), "YAML expands nothing"


def test_the_engine_is_given_whole_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "config.json").write_text(json.dumps(CONFIG))
    speculative = {"method": "draft_model", "model": str(tmp_path / "small"), "num_speculative_tokens": 3}
    variant = {"label": "AWQ", "model": str(tmp_path / "draft")}
    asked = scripted.plan(
        "quantization", (variant,), fixed={"download_dir": str(tmp_path / "hub"), "speculative_config": speculative}
    )
    path = scripted.session(tmp_path / "sessions", of=asked, baseline=None)
    session = sessionfile.read(path)
    assert session.start.plan.fixed["speculative_config"]["model"] == "~/small"
    runner = SimpleNamespace(plan=session.start.plan, start=session.start)
    args = Sweep.args(cast(Sweep, runner), session.start.plan.knob.values[0])
    assert args["model"] == variant["model"] and args["download_dir"] == str(tmp_path / "hub")
    assert args["speculative_config"] == speculative


@pytest.mark.parametrize("name", ["mine/set.jsonl", "traffic.jsonl"])
def test_a_file_that_changed_or_went_away_is_named_and_the_session_does_not_go_on(own: Shell, name: str) -> None:
    path = stopped(own)
    before = path.read_bytes()
    file = own.plan.parent / name
    kept = file.read_bytes()
    file.write_bytes(kept.replace(b"about 3", b"about 33").replace(b"Say 3", b"Say 33"))
    done = own("resume", path.stem)
    assert done.returncode == cli.BAD_INPUT
    assert f"~/work/{name} has changed since the start" in done.stderr and "tui-tuner run" in done.stderr
    file.unlink()
    done = own("resume", path.stem)
    assert done.returncode == cli.BAD_INPUT and f"~/work/{name} is gone: put it back" in done.stderr
    assert path.read_bytes() == before
    file.write_bytes(kept)
    assert own("resume", path.stem).returncode == 0


@pytest.mark.parametrize("name", ["mine/set.jsonl", "traffic.jsonl"])
def test_a_bad_line_is_named_with_its_file_before_a_start(own: Shell, name: str) -> None:
    file = own.plan.parent / name
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:2], '{"id": "x", "prompt": 3}', *lines[2:]]))
    done = own("run", str(own.plan))
    assert done.returncode == cli.BAD_INPUT and f"{file.name}, line 3: prompt is 3" in done.stderr
    file.unlink()
    done = own("run", str(own.plan))
    assert done.returncode == cli.BAD_INPUT and str(file) in done.stderr
    assert not own.sessions.exists()
