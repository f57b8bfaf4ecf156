"""The command line as a contract: JSON, exit codes, what goes where. The engine is the scripted one."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests import scripted
from tui_tuner import cli
from tui_tuner.store import library, sessionfile

PLAN = """
model = "{model}"
thoroughness = "quick"
seed = 0
fixed = {{ max_model_len = 1024, enforce_eager = true, gpu_memory_utilization = 0.3 }}
slo = {{ name = "chat", goal = "throughput", ttft_p95_ms = 5000, tpot_p95_ms = 200 }}
knob = {{ name = "max_num_seqs", values = [2, 8] }}
load = {{ kind = "closed", concurrency = [8], prompt_tokens = 128, output_tokens = 32, requests = 64 }}
evalset = {{ name = "basics", items = 20, max_tokens = 64 }}
price = {{ per_hour = 2.0, currency = "CNY" }}
"""
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536,
    "num_attention_heads": 9, "num_key_value_heads": 3, "num_hidden_layers": 30, "vocab_size": 49152,
    "max_position_embeddings": 8192,
}  # fmt: skip


class Shell:
    """`tui-tuner` with the scripted engine, in a home and a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = folder / "model"
        self.model.mkdir()
        (self.model / "config.json").write_text(json.dumps(CONFIG))
        (self.model / "model.safetensors").write_bytes(b"0" * 1000)
        self.plan = folder / "plan.toml"
        self.plan.write_text(PLAN.format(model=self.model))
        self.env = {
            **os.environ, "TUI_TUNER_HOME": str(folder / "home"), "SCRIPTED_INTERPRETER": sys.executable,
            "TUI_TUNER_ENGINE_PYTHON": scripted.PYTHON, "NO_COLOR": "1",
        }  # fmt: skip
        self.sessions = folder / "home" / "sessions"

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tui_tuner", *arguments],
            env=self.env, cwd=self.folder, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def __call__(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tui_tuner", *arguments],
            env=self.env, cwd=self.folder, text=True, input=stdin, capture_output=True, timeout=120,
        )  # fmt: skip

    def slow(self) -> None:
        """Every point from here on waits for its model to load until it is ended."""
        rules = self.folder / "rules.json"
        rules.write_text(json.dumps([{"do": {"at": {"load": "hang"}}}]))
        self.env["SCRIPTED_SCENARIO"] = str(rules)

    def json(self, *arguments: str) -> Any:
        done = self(*arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    return Shell(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A home with one finished session; tests must not change it."""
    shell = Shell(tmp_path_factory.mktemp("finished"))
    shell.env["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    done = shell("run", str(shell.plan), "--json", "--predict", "eight <b>helps</b>")
    assert done.returncode == 0, done.stderr
    return shell


def test_run_prints_the_contracts_json(finished: Shell) -> None:
    (summary,) = finished.json("list", "--json")
    result = finished.json("show", summary["id"], "--json")
    assert {"id", "file", "status", "knob", "points", "verdict"} <= set(result)
    assert (result["status"], result["knob"]) == ("finished", "max_num_seqs")
    assert [p["role"] for p in result["points"]] == ["baseline", "value", "value", "baseline_again"]
    assert [p["value"] for p in result["points"]][1:3] == [2, 8]
    for point in result["points"]:
        assert point["status"] == "ok"
        assert point["capacity"]["kv_blocks"] > 0 and point["capacity"]["kv_tokens"] > 0
        assert point["throughput"]["output_tok_s"] > 0
        assert point["latency"]["ttft_ms"]["p50"] > 0 and point["latency"]["tpot_ms"]["p50"] > 0
        assert point["quality"]["items"] == 20 and 0 <= point["quality"]["accuracy"] <= 1
        assert point["memory"]["peak_mib"] is not None
    assert result["verdict"]["choice"] in ("keep", "revert", "no clear difference")
    assert result["verdict"]["strength"] == "indicative" and result["verdict"]["why"]
    assert result["prediction"] == "eight <b>helps</b>"


def test_show_takes_an_id_a_beginning_and_a_file(finished: Shell) -> None:
    (summary,) = finished.json("list", "--json")
    texts = {finished("show", name).stdout for name in (summary["id"], summary["id"][:8], summary["file"])}
    assert len(texts) == 1
    (text,) = texts
    assert "max_num_seqs" in text and all(len(line) <= 80 for line in text.splitlines())


def test_replay_prints_the_phases_then_the_table_and_writes_nothing(finished: Shell) -> None:
    (summary,) = finished.json("list", "--json")
    before = Path(summary["file"]).read_bytes()
    for speed in ("0", "5000"):
        done = finished("replay", summary["id"], "--speed", speed)
        assert done.returncode == 0, done.stderr
        assert done.stderr.startswith("replay of a recorded session (")
        assert "baseline (max_num_seqs 128) · load" in done.stderr and "✓ max_num_seqs 8" in done.stderr
        assert done.stdout == finished("show", summary["id"]).stdout
    assert Path(summary["file"]).read_bytes() == before
    assert finished("replay", summary["id"], "--speed", "-1").returncode == cli.BAD_INPUT
    assert finished("replay", "none").returncode == cli.BAD_INPUT


def test_recorded_sessions_are_listed_shown_and_replayed_by_name(finished: Shell) -> None:
    found = finished.json("list", "--recorded", "--json")
    assert [Path(s["file"]).parent for s in found] == [library.recorded_dir()] * len(found)
    lines = finished("list", "--recorded").stdout.splitlines()
    assert len(lines) == len(found) and all("recorded on" in line for line in lines)
    for session in found:
        shown = finished("show", session["id"])
        assert shown.returncode == 0 and session["card"] in shown.stdout
        assert finished("replay", session["id"], "--speed", "0").stdout == shown.stdout
        assert finished("decide", session["file"], "revert").returncode == cli.BAD_INPUT


def test_compare_says_first_what_was_not_held_alike(finished: Shell) -> None:
    other = finished.folder / "other"
    plan = finished.folder / "other.toml"
    plan.write_text(finished.plan.read_text().replace("prompt_tokens = 128", "prompt_tokens = 64"))
    assert finished("run", str(plan), "--sessions", str(other)).returncode == 0
    (b,), (summary,) = other.glob("*.jsonl"), finished.json("list", "--json")
    done = finished("compare", summary["id"][:8], str(b))
    assert done.returncode == 0, done.stderr
    assert "Speed is not comparable, for the work was another (load)." in " ".join(done.stdout.split())
    assert done.stdout.index("The load differs") < done.stdout.index("tok/s")
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    found = finished.json("compare", summary["id"], str(b), "--json")
    assert [d["what"] for d in found["differences"]] == ["load"]
    assert {r["key"] for r in found["pairs"][0]["rows"]} >= {"accuracy", "throughput", "ttft_p95_ms", "tpot_p95_ms"}
    assert finished("compare", summary["id"], "none").returncode == cli.BAD_INPUT


@pytest.mark.parametrize("to", ["serve", "yaml", "markdown", "html", "csv"])
def test_export(finished: Shell, to: str) -> None:
    (summary,) = finished.json("list", "--json")
    done = finished("export", summary["id"], "--to", to)
    assert done.returncode == 0
    if to == "serve":
        words = shlex.split(done.stdout)
        assert words[:3] == ["vllm", "serve", str(finished.model)]
        assert words[3:5] == ["--max-num-seqs", "128"] and "--enforce-eager" in words
    if to == "yaml":
        assert "max-num-seqs: 128" in done.stdout
    if to == "csv":
        assert len(done.stdout.splitlines()) == 1 + 4 * 64


def test_schema_and_the_file_agree(finished: Shell) -> None:
    document = finished.json("schema")
    types = set(re.findall(r'"const": ?"([a-z_]+)"|"enum": ?\["([a-z_]+)"\]', json.dumps(document)))
    known = {a or b for a, b in types}
    (summary,) = finished.json("list", "--json")
    lines = [json.loads(line) for line in Path(summary["file"]).read_text().splitlines()]
    assert {line["type"] for line in lines} <= known
    assert all(list(line)[:2] == ["type", "t"] for line in lines)


def test_knobs_doctor_and_plan(finished: Shell) -> None:
    rows = finished.json("knobs", "--json")
    assert {"name", "flag", "group", "declared_default", "effective_default", "directions", "trades"} <= set(rows[0])
    ttft = finished.json("knobs", "--for", "ttft", "--json")
    assert ttft[0]["name"] != "enforce_eager"
    assert finished("knobs", "--for", "speed").returncode == cli.BAD_INPUT
    marks = {c["name"]: c["mark"] for c in finished.json("doctor", "--json")}
    assert marks["engine"] == "ok"
    for arguments in (("plan",), ("plan", "--knob", "enable_prefix_caching", "--values", "off", "on")):
        made = finished(*arguments)
        assert made.returncode == 0 and "[knob]" in made.stdout
    assert finished("plan", "--knob", "swap_space").returncode == cli.BAD_INPUT


def test_check_tells_each_flag_and_refuses_what_cannot_be(finished: Shell) -> None:
    line = f"vllm serve {finished.model} --max-num-seqs 8 --no-enable-prefix-caching --port 1 --api-key hidden"
    done = finished("check", line)
    assert done.returncode == cli.OK, done.stderr
    assert "✓ --max-num-seqs = 8" in done.stdout and "How many sequences may run in one batch" in done.stdout
    assert "hidden" not in done.stdout and all(
        len(x) <= 80 or str(finished.model) in x for x in done.stdout.split("\n")
    )
    found = finished.json("check", line, "--json")
    assert [(a["name"], a["value"], a["declared_default"]) for a in found["arguments"]] == [
        ("max_num_seqs", 8, 128), ("enable_prefix_caching", False, True),
    ]  # fmt: skip
    assert found["server"] == ["port", "api_key"] and found["problems"] == []
    config = finished.folder / "engine.yaml"
    config.write_text(f"model: {finished.model}\ngpu-memory-utilization: 0.5\n")
    assert finished("check", str(config)).returncode == cli.OK
    image = f"docker run --gpus all --name vllm vllm/vllm-openai:v0.26.0 --model {finished.model} --max-num-seqs 4"
    assert "--max-num-seqs = 4" in finished("check", "-", stdin=image).stdout
    for wrong, says in [
        ("--max-num-sequences 8", "did you mean max_num_seqs"),
        ("--max-num-seqs 0", "max_num_seqs must be"),
        ("--max-num-seqs many", "whole number"),
        ("--kv-cache-dtype fp9", "choices"),
    ]:
        done = finished("check", f"vllm serve {finished.model} {wrong}")
        assert done.returncode == cli.BAD_INPUT and says in done.stderr and "Traceback" not in done.stderr
    assert finished("check", "none.yaml").returncode == cli.BAD_INPUT
    assert finished("check", "x", "--engine-python", "/nowhere").returncode == cli.NO_ENGINE


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("max_num_seqs", "max_num_sequences"), "max_num_seqs"),
        (("[2, 8]", "[0, 8]"), "knob.values"),
        (("[2, 8]", '["two"]'), "knob.values"),
        (("fixed = {", "fixed = { max_num_seqs = 4,"), None),
        (("fixed = {", "fixed = { max_num_batched_tokens = 4,"), "max_num_batched_tokens"),
        (("gpu_memory_utilization = 0.3", "gpu_memory_utilization = 0.999"), "gpu_memory_utilization"),
        (('"basics"', '"nowhere"'), "evalset.name"),
        (('model = "/', 'model = "/nowhere/'), "model"),
        (("items = 20", "items = twenty"), "TOML"),
    ],
)  # fmt: skip
def test_a_wrong_plan_is_refused_before_anything_is_written(
    shell: Shell, change: tuple[str, str], says: str | None
) -> None:
    shell.plan.write_text(shell.plan.read_text().replace(*change))
    if says is None:
        shell.plan.write_text(shell.plan.read_text().replace("values = [2, 8]", "values = [2, 8], baseline = 8"))
        says = "fixed.max_num_seqs"
    done = shell("run", str(shell.plan), "--json")
    assert done.returncode == cli.BAD_INPUT
    assert says in done.stderr and done.stdout == "" and "Traceback" not in done.stderr
    assert not shell.sessions.exists()


def test_a_broken_eval_set_is_named_by_line_and_field(shell: Shell) -> None:
    own = shell.folder / "own.jsonl"
    own.write_text('{"id": "a", "prompt": "1+1?", "answer": "2", "scorer": "number"}\n{"id": "b", "prompt": 3}\n')
    shell.plan.write_text(shell.plan.read_text().replace('"basics", items = 20', f'"{own}", items = 1'))
    done = shell("run", str(shell.plan))
    assert done.returncode == cli.BAD_INPUT and "line 2" in done.stderr and "prompt" in done.stderr


def test_without_an_engine(shell: Shell) -> None:
    done = shell("run", str(shell.plan), "--engine-python", "/nowhere/python")
    assert done.returncode == cli.NO_ENGINE and "/nowhere/python" in done.stderr
    assert not shell.sessions.exists()


def test_decide_needs_a_known_value_and_a_reason_for_an_override(shell: Shell) -> None:
    assert shell("run", "-", stdin=shell.plan.read_text()).returncode == 0
    (summary,) = shell.json("list", "--json")
    name = summary["id"]
    for arguments, says in [
        (("keep",), "keep what?"),
        (("revert", "8"), "takes no value"),
        (("keep", "16"), "was not measured"),
        (("keep", "2"), "--why"),
    ]:
        done = shell("decide", name, *arguments)
        assert done.returncode == cli.BAD_INPUT and says in done.stderr
    done = shell("decide", name, "keep", "2", "--why", "a quiet machine")
    assert done.returncode == 0 and "--max-num-seqs 2" in done.stdout and "override" in done.stderr
    decision = shell.json("show", name, "--json")["decision"]
    assert (decision["choice"], decision["value"], decision["override"]) == ("keep", 2, True)
    assert "--max-num-seqs 2" in shell("export", name).stdout
    assert shell("decide", name, "revert").returncode == 0
    assert "--max-num-seqs 128" in shell("export", name).stdout


def _running(shell: Shell) -> Path:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for file in shell.sessions.glob("*.jsonl"):
            if sessionfile.is_locked(file) and b'"point_started"' in file.read_bytes():
                return file
        time.sleep(0.05)
    raise AssertionError("no session is running")


def test_leaving_does_not_stop_and_a_second_interrupt_does(shell: Shell) -> None:
    shell.slow()
    run = shell.start("run", str(shell.plan), "--json")
    path = _running(shell)
    assert shell("decide", path.stem, "revert").returncode == cli.BAD_INPUT  # while it runs
    run.kill()
    run.wait()
    assert sessionfile.is_locked(path)
    attach = shell.start("attach", path.stem, "--json")
    time.sleep(1.0)
    attach.send_signal(signal.SIGINT)
    assert attach.stderr is not None
    for line in attach.stderr:
        if "ctrl+c again" in line:
            break
    time.sleep(0.3)
    attach.send_signal(signal.SIGINT)
    out, _ = attach.communicate(timeout=60)
    assert attach.returncode == cli.STOPPED
    assert json.loads(out)["status"] == "stopped"
    assert not sessionfile.is_locked(path)


def test_stop_then_resume_to_the_end(shell: Shell) -> None:
    shell.slow()
    run = shell.start("run", str(shell.plan), "--json")
    path = _running(shell)
    assert shell("stop", path.stem).returncode == 0
    run.communicate(timeout=60)
    assert run.returncode == cli.STOPPED
    assert shell("stop", path.stem).returncode == 0  # nothing runs: said, and no fault
    del shell.env["SCRIPTED_SCENARIO"]
    result = shell.json("resume", path.stem, "--json")
    assert result["status"] == "finished"
    assert [p["status"] for p in result["points"]] == ["ok"] * 4
    again = shell("resume", path.stem)
    assert again.returncode == cli.BAD_INPUT and "finished" in again.stderr


def test_a_baseline_that_fails_ends_with_its_own_code(shell: Shell) -> None:
    rules = shell.folder / "rules.json"
    rules.write_text(json.dumps([{"do": {"at": {"load": "die"}}}]))
    shell.env["SCRIPTED_SCENARIO"] = str(rules)
    done = shell("run", str(shell.plan), "--json")
    assert done.returncode == cli.NO_BASELINE
    result = json.loads(done.stdout)
    assert result["status"] == "failed" and result["points"][0]["status"] == "crash"


def test_decide_without_a_band_names_noise_and_noise_makes_one(shell: Shell) -> None:
    shell.plan.write_text(shell.plan.read_text().replace('"quick"', '"decide"'))
    done = shell("run", str(shell.plan))
    assert done.returncode == cli.BAD_INPUT and "tui-tuner noise" in done.stderr
    assert shell.json("noise", str(shell.plan), "--json")["kind"] == "noise"
    result = shell.json("run", str(shell.plan), "--json")
    assert result["status"] == "finished" and result["band"] is not None


@pytest.mark.parametrize(
    "arguments", [("show", "nothing"), ("attach", "x"), ("stop", "x"), ("decide", "x", "revert"), ("run", "none.toml")]
)
def test_what_is_not_there_is_said(shell: Shell, arguments: tuple[str, ...]) -> None:
    done = shell(*arguments)
    assert done.returncode == cli.BAD_INPUT
    assert done.stderr.startswith("tui-tuner: ") and "Traceback" not in done.stderr


def test_a_reader_that_leaves_is_no_fault(finished: Shell) -> None:
    show = finished.start("export", library.listing(finished.sessions)[0].id, "--to", "csv")
    assert show.stdout is not None
    show.stdout.close()
    assert show.stderr is not None and "Traceback" not in show.stderr.read()
    show.wait(timeout=60)


ROOT = Path(__file__).resolve().parents[2]
DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "tui_tuner/tui/help").rglob("*.md"))]


def _commands() -> list[str]:
    found = []
    for file in DOCS:
        text = file.read_text(encoding="utf-8")
        spans = re.findall(r"`([^`\n]+)`", text) + re.findall(r"^ {4}(.+)$", text, re.MULTILINE)
        found += [s.split("  #")[0].strip() for s in spans if re.match(r"(\.venv/bin/)?tui-tuner( |$)", s.strip())]
    return sorted(set(found))


def test_every_command_is_run_by_a_test_of_this_file() -> None:
    (commands,) = (a for a in cli.parser()._actions if isinstance(a, argparse._SubParsersAction))
    source = Path(__file__).read_text(encoding="utf-8")
    elsewhere = {"setup"}  # tests/unit/test_setup.py, and `make test` itself
    run = {name for name in commands.choices if re.search(rf'\("{name}"[,)]', source)}
    assert set(commands.choices) - run == elsewhere


@pytest.mark.parametrize("command", _commands())
def test_every_documented_command_works(finished: Shell, command: str) -> None:
    """Run as it is written, with the placeholders filled in, where it neither opens a screen nor changes the home."""
    (name,) = [s.id for s in library.listing(finished.sessions) if s.state == "finished"][-1:]
    line = command.replace("sessions/FILE.jsonl", str(finished.sessions / f"{name}.jsonl"))
    line = re.sub(r"\bPLAN(\.toml)?\b|\bplan\.toml\b", str(finished.plan), line)
    line = re.sub(r"\bID\|FILE\b|\b(?:OTHER_)?ID\b", name, line)
    words = shlex.split(line.split(" > ")[0].replace("…", ""))[1:]
    parsed = cli.parser().parse_args([w for w in words if w])
    reads = ("show", "list", "export", "knobs", "schema", "plan", "doctor", "attach", "check", "compare", "replay")
    if parsed.command in reads and "/opt/" not in line:
        done = finished(*words)
        assert done.returncode == 0, done.stderr


def test_an_output_that_cannot_take_it_is_answered_without_a_traceback() -> None:
    session = str(Path(__file__).parents[2] / "sessions" / "h200-gpu_memory_utilization.jsonl")
    command = [sys.executable, "-m", "tui_tuner", "show", session]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    shown = subprocess.run(command, capture_output=True, text=True, env=ascii_only)
    assert shown.returncode == 0 and "dummy-7b ? NVIDIA H200" in shown.stdout and not shown.stderr
    with open("/dev/full", "w") as full:  # noqa: PTH123
        shown = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert shown.returncode == 1 and shown.stderr == "tui-tuner: the output: No space left on device\n"
