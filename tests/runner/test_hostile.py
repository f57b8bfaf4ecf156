"""Text that somebody else wrote is text, wherever it is shown; secrets are nowhere.

One sweep in which everything that can come from outside is hostile: the model's folder, eval items, the engine's
output, its exceptions, its answers, the person's own words. Then every command and every screen that shows it.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import unicodedata
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import scripted
from test_cli import CONFIG, PLAN, Shell
from test_faults import in_phase, row

from tests.tui import fake, scenes
from tui_tuner.analysis import export
from tui_tuner.model.text import UNSAFE
from tui_tuner.store import library, sessionfile
from tui_tuner.tui.app import TunerApp
from tui_tuner.tui.services import Services

NAME = "[red]m\x1b[31mo\x07d\u202eel<b>\x9b2J$(touch pwned)`touch pwned`'\"; touch pwned; 模型 -x"
HOSTILE = f"{NAME}[/red]</td><script>alert(1)</script>\r\n| a | \u2028 ![x](javascript:x) \x1b]0;title\x07 {{{{x}}}} %s"
LONG = HOSTILE + "x" * 1_000_000


def secrets() -> dict[str, str]:
    """An environment's secrets: a hub's token, a key that looks like words, a proxy's password in its URL."""
    some = uuid.uuid4().hex
    return {
        "HF_TOKEN": f"hf_{some}",
        "MY_PROVIDER_API_KEY": f"plain words {some}",
        "HTTPS_PROXY": f"http://me:{some}@proxy.example:3128",
        "SOME": some,  # what is common to all: it must be nowhere
    }


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shell, Path, str]]:
    """The shell, the session's file, and the text that all its secrets hold. Tests must not change it."""
    shell = Shell(tmp_path_factory.mktemp("hostile"))
    given = secrets()
    secret = given.pop("SOME")
    shell.env |= {**given, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    model = shell.folder / NAME
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    (model / "model.safetensors").write_bytes(b"0" * 1000)
    items = [{"id": f"{HOSTILE} {i}", "prompt": f"{HOSTILE * 20} {i}"} for i in range(3)]
    evals = shell.folder / "[bold]set[bold].jsonl"
    evals.write_text("".join(json.dumps(item) + "\n" for item in items))
    text = PLAN.replace(
        '"{model}"', json.dumps(str(model), ensure_ascii=False).replace("\x9b", "\\u009b").replace("\x7f", "")
    )
    text = text.replace('"basics", items = 20', f"{json.dumps(str(evals))}, items = 3").replace("[2, 8]", "[2, 6, 8]")
    text = text.replace("{{", "{").replace("}}", "}").replace('"CNY"', '"<b>¤"')
    shell.plan.write_text(text)
    said = (
        f"{HOSTILE}\n{LONG}\n"
        + "\n".join(f"{name}={value}" for name, value in given.items())
        + f"\nBearer {given['HF_TOKEN']}"
    )
    key = given["MY_PROVIDER_API_KEY"]
    failing = {"log": f"Traceback (most recent call last):\n  File 'x'\nValueError: {HOSTILE} {key}\n",
               "exception": "ValueError", "message": f"{LONG} {given['HF_TOKEN']}"}  # fmt: skip
    foreign = {f"model_config.{HOSTILE}": f"{HOSTILE} {given['HTTPS_PROXY']}"}
    rules = [
        {"do": {"hostile": True, "print": said}},
        {"when": {"max_num_seqs": 6}, "do": {"foreign": foreign}},
        {"when": {"max_num_seqs": 8}, "do": {"at": {"speed": {"fail": failing}}}},
    ]  # fmt: skip
    (shell.folder / "rules.json").write_text(json.dumps(rules))
    shell.env["SCRIPTED_SCENARIO"] = str(shell.folder / "rules.json")
    done = shell("run", str(shell.plan), "--predict", f"{HOSTILE} {given['MY_PROVIDER_API_KEY']}")
    assert done.returncode == 0, done.stderr
    assert_safe(done.stdout + done.stderr)
    assert secret not in done.stdout + done.stderr
    (path,) = shell.sessions.glob("*.jsonl")
    decided = shell("decide", path.stem, "revert", "--why", f"{HOSTILE} {given['HF_TOKEN']}")
    assert decided.returncode == 0, decided.stderr
    assert_safe(decided.stdout + decided.stderr)
    yield shell, path, secret


def assert_safe(text: str) -> None:
    """No character that a terminal obeys, and no line end but a line feed."""
    found = {c for c in text if c not in "\n\t" and unicodedata.category(c) in UNSAFE}
    assert not found, [f"U+{ord(c):04X}" for c in found]


def test_the_sweep_is_measured_and_its_files_hold_no_secret(measured: tuple[Shell, Path, str]) -> None:
    shell, path, secret = measured
    session = sessionfile.read(path)
    assert [p.status for p in session.points] == ["ok", "ok", "unclean", "crash", "ok"]
    files = [file for file in (shell.folder / "home").rglob("*") if file.is_file()]
    assert {path, library.log_of(path, 1), library.logs_dir(path) / "runner.log"} <= set(files)
    for file in files:
        assert secret not in file.read_text(encoding="utf-8", errors="replace"), file
        assert file.stat().st_mode & 0o77 == 0 or path.parent not in file.parents, file
    for inside in (path.parent, library.logs_dir(path)):
        assert inside.stat().st_mode & 0o77 == 0
    assert not any(file.name == "pwned" for file in shell.folder.rglob("*"))
    failed = session.points[3].failed
    assert failed and len(failed.say) < 2000
    row("everything from outside is hostile", "any", path, session, failed.say, 4)
    row("secrets in environment, log, exception", "any", path, session, "(nothing: *** stands there)", 4)


COMMANDS = [
    ("list",), ("list", "--json"), ("show", "ID"), ("show", "ID", "--json"), ("attach", "ID"), ("compare", "ID", "ID"),
    ("compare", "ID", "ID", "--json"), ("replay", "ID", "--speed", "0"), ("resume", "ID"), ("stop", "ID"),
    ("decide", "ID", "keep", HOSTILE), ("decide", "ID", "keep", "9"),
    ("show", HOSTILE), ("run", HOSTILE), ("check", HOSTILE),
    *[("export", "ID", "--to", to) for to in export.TO],
]  # fmt: skip


@pytest.mark.parametrize(
    "command", COMMANDS, ids=[" ".join(c)[:24].encode("ascii", "replace").decode() for c in COMMANDS]
)
def test_every_command_shows_it_as_text(measured: tuple[Shell, Path, str], command: tuple[str, ...]) -> None:
    shell, path, secret = measured
    done = shell(*[path.stem if word == "ID" else word for word in command])
    said = done.stdout + done.stderr
    assert said and done.returncode in (0, 2)
    assert_safe(said)
    assert secret not in said and "Traceback" not in said
    assert len(said) < 2_000_000
    if "--json" in command:
        json.loads(done.stdout)


def test_the_serve_line_is_one_command_with_the_model_as_one_word(measured: tuple[Shell, Path, str]) -> None:
    shell, path, _ = measured
    line = shell("export", path.stem).stdout
    told = subprocess.check_output(
        ["sh", "-c", f'vllm() {{ printf "%s\\0" "$@"; }}; {line}'], text=True, cwd=shell.folder
    ).split("\0")
    assert told[:2] == ["serve", shlex.split(line)[2]] and "touch pwned" in told[1] and "--max-num-seqs" in told
    assert not (shell.folder / "pwned").exists()
    yaml = shell("export", path.stem, "--to", "yaml").stdout.splitlines()
    assert json.loads(next(entry for entry in yaml if entry.startswith("model: "))[7:]) == str(shell.folder / NAME)


def test_markup_in_reports_is_no_markup(measured: tuple[Shell, Path, str]) -> None:
    shell, path, _ = measured
    assert "<script" not in shell("export", path.stem, "--to", "html").stdout
    report = shell("export", path.stem, "--to", "markdown").stdout
    fenced = report[report.index("```sh") :]
    for piece in ("<script", "<b>", "](javascript"):
        assert piece not in report.replace(fenced, "").replace("\\<", "").replace("\\]", "")


@pytest.mark.parametrize("size", [(80, 24), (200, 60)], ids=["80x24", "200x60"])
async def test_every_screen_shows_it_as_text(
    measured: tuple[Shell, Path, str], size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    shell, path, secret = measured
    for name in ("TUI_TUNER_HOME", "SCRIPTED_INTERPRETER"):
        monkeypatch.setenv(name, shell.env[name])
    app = TunerApp(Services(str(path.parent), scripted.PYTHON), look="dark")
    seen = ""

    def look() -> None:
        nonlocal seen
        text = fake.text_of(app)
        assert_safe(text)
        assert secret not in text
        seen += text

    async with app.run_test(size=size) as pilot:
        await scenes.settle(pilot)
        look()
        app.show_results(path)
        for key in (
            "",
            "down",
            "down",
            "down",
            "space",
            "space",
            "space",
            "space",
            "l",
            "end",
            "home",
            "escape",
            "enter",
            "escape",
        ):
            await (pilot.press(key) if key else pilot.pause())
            await scenes.settle(pilot)
            look()
        app.show_run(path)
        await scenes.until(pilot, lambda: getattr(app.screen, "view", None) is not None)
        for key in (
            "down",
            "enter",
            "pagedown",
            "escape",
            "down",
            "down",
            "enter",
            "escape",
            "l",
            "escape",
            "f1",
            "escape",
        ):
            await pilot.press(key)
            await scenes.settle(pilot)
            look()
        app.start_wizard(app.services.draft_of(path))
        for key in ("", "enter", "enter", "enter", "f4"):
            await (pilot.press(key) if key else pilot.pause())
            await scenes.settle(pilot)
            look()
    assert "[red]m" in seen and "touch pwned" in seen, "markup is shown as the text that it is"
    assert not (shell.folder / "pwned").exists()


def test_the_log_of_a_running_engine_is_shown_without_secrets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And if the runner dies before it could take them out of the file, the next one does."""
    scripted.prepare(monkeypatch)
    secret = f"plain words {uuid.uuid4().hex}"
    monkeypatch.setenv("MY_API_KEY", secret)
    said = f"the key is {secret} and hf_{uuid.uuid4().hex}"
    do = {"print": f"{said}\r{said} and on", "at": {"load": "hang"}}
    scripted.scenario(monkeypatch, folder, [{"when": {"max_num_seqs": 8}, "launch": 1, "do": do}])
    path = scripted.session(folder, values=(8,))
    runner = scripted.start(path)
    _, point = in_phase(path, 8, "load")
    name, lines = Services(str(folder)).log(path, point.n)
    assert name == library.log_of(path, point.n).name and "the key is *** and hf_*** and on" in lines
    os.killpg(runner.pid, signal.SIGKILL)
    runner.wait()
    assert scripted.start(path).wait(60) == 0
    session = scripted.released(path)
    for file in (path, *library.logs_dir(path).iterdir()):
        assert secret not in file.read_text(), file
    row("runner killed, secrets in the log", "load", path, session, session.launches[-1].why, 3)


def test_a_secret_in_a_plan_is_refused_before_it_is_written(measured: tuple[Shell, Path, str]) -> None:
    shell, path, _ = measured
    token = f"hf_{uuid.uuid4().hex}"
    for fixed in (f'hf_token = "{token}"', f'speculative_config = {{ model = "https://me:{token}@example.org/m" }}'):
        plan = shell.folder / "secret.toml"
        plan.write_text(shell.plan.read_text().replace("fixed = {", f"fixed = {{ {fixed},"))
        done = shell("run", str(plan))
        assert done.returncode == 2 and "environment" in done.stderr and token not in done.stderr + done.stdout
        assert list(path.parent.glob("*.jsonl")) == [path]
