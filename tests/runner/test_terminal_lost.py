"""The terminal closes, tmux detaches, the program in it is killed: the sweep lives in none of them.

A value waits in its speed pass (its worker is stopped) until the fault has happened; then it goes on.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import scripted
from test_cli import Shell
from test_faults import row

from tests.terminal import Terminal
from tui_tuner.model.session import Session
from tui_tuner.store import sessionfile

TUNER = (sys.executable, "-m", "tui_tuner")
GOES_ON = "(nothing: the sweep goes on)"


class Held(Shell):
    """A shell in which a sweep over 2 and 8 waits in the speed pass of 2, until it is let go."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.env["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
        rules = folder / "rules.json"
        rules.write_text('[{"when": {"max_num_seqs": 2}, "launch": 1, "do": {"at": {"speed": "stop"}}}]')
        self.env["SCRIPTED_SCENARIO"] = str(rules)
        self.terminals: list[Terminal] = []

    def open(self, *command: str) -> Terminal:
        self.terminals.append(Terminal(*command, env=self.env))
        return self.terminals[-1]

    def held(self) -> Path:
        """The session, once its second point is in the speed pass."""
        until = time.monotonic() + 60
        while not (found := sorted(self.sessions.glob("*.jsonl"))):
            assert time.monotonic() < until, "no session was begun"
            time.sleep(0.05)
        scripted.until(
            found[0],
            lambda s: s.running_point is not None and s.running_point.phase == "speed" and s.running_point.value == 2,
        )
        time.sleep(0.2)
        return found[0]

    def measured(self, path: Path) -> Session:
        """Lets the point go; the session once its runner is gone, every point measured at the first attempt."""
        assert sessionfile.is_locked(path), "the sweep did not survive"
        point = sessionfile.read(path).running_point
        assert point
        os.killpg(point.start.pgid, signal.SIGCONT)
        session = scripted.finished(path)
        assert session.ended and session.ended.why == "finished"
        assert [(p.status, p.attempt) for p in session.points] == [("ok", 1)] * 4
        return session


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Held]:
    made = Held(tmp_path)
    yield made
    for terminal in made.terminals:
        terminal.hang_up()
        if terminal.wait(0.1) is None:
            os.kill(terminal.pid, signal.SIGKILL)
            terminal.wait()
    for path in made.sessions.glob("*.jsonl"):  # of a test that failed
        if sessionfile.is_locked(path):
            made("stop", path.stem)
            for point in sessionfile.read(path).points:
                if point.done is None and point.failed is None and point.start.pgid:
                    os.killpg(point.start.pgid, signal.SIGCONT)
            scripted.released(path)


def shows_the_sweep(text: str) -> bool:
    return "blocks" in text and "Stop" in text and "speed pass" in text


# ---- the command -----------------------------------------------------------------------------------------------


def test_the_terminal_of_run_closes(shell: Held) -> None:
    terminal = shell.open(*TUNER, "run", str(shell.plan))
    path = shell.held()
    terminal.hang_up()
    status = terminal.wait()
    assert status is not None and os.WTERMSIG(status) == signal.SIGHUP
    row("run: terminal closed", "speed", path, shell.measured(path), GOES_ON, 4, terminal.pid)


def test_run_under_nohup_goes_on_following(shell: Held) -> None:
    """SIGHUP is ignored and the output is a file: the result stands in it at the end."""
    said = shell.folder / "said.txt"
    nohup = shutil.which("nohup")
    assert nohup
    terminal = shell.open(
        "/bin/sh",
        "-c",
        f'exec {nohup} "$0" -m tui_tuner run "$1" >"$2" 2>&1',
        sys.executable,
        str(shell.plan),
        str(said),
    )
    path = shell.held()
    terminal.hang_up()
    assert terminal.wait(1.0) is None, "it follows on"
    session = shell.measured(path)
    assert terminal.wait() == 0
    text = said.read_text()
    assert "max_num_seqs" in text and path.stem in text and "\x1b" not in text
    row(
        "run under nohup, terminal closed",
        "speed",
        path,
        session,
        text.splitlines()[-1].replace(str(shell.folder), ""),
        4,
        terminal.pid,
    )


@pytest.mark.parametrize("sig", [signal.SIGHUP, signal.SIGTERM, signal.SIGKILL, signal.SIGQUIT])
def test_run_is_killed(sig: signal.Signals, shell: Held) -> None:
    run = shell.start("run", str(shell.plan))
    path = shell.held()
    run.send_signal(sig)
    _, told = run.communicate(timeout=30)
    assert run.returncode == -sig and "Traceback" not in told
    row(f"run gets {sig.name}", "speed", path, shell.measured(path), GOES_ON, 4, run.pid)


def test_run_is_stopped_and_continued(shell: Held) -> None:
    """ctrl+z, and fg: the sweep waits for nobody."""
    run = shell.start("run", str(shell.plan))
    path = shell.held()
    run.send_signal(signal.SIGSTOP)
    session = shell.measured(path)
    run.send_signal(signal.SIGCONT)
    out, _ = run.communicate(timeout=30)
    assert run.returncode == 0 and "max_num_seqs" in out
    row("run stopped (ctrl+z), continued", "speed", path, session, GOES_ON, 4, run.pid)


# ---- the app ---------------------------------------------------------------------------------------------------


def watched(shell: Held, *how: str) -> tuple[Path, Terminal]:
    """A sweep that another program began, and the app that shows it."""
    run = shell.start("run", str(shell.plan))
    path = shell.held()
    run.kill()
    run.communicate()
    terminal = shell.open(*how, *TUNER)
    terminal.until(shows_the_sweep, 60, "the running sweep")
    return path, terminal


@pytest.mark.parametrize(
    ("sig", "status"),
    [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, None), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_the_app_is_killed(sig: signal.Signals, status: int | None, shell: Held) -> None:
    """And opened again, it shows the same sweep. Whoever asked it to leave gets the terminal back as it was."""
    path, terminal = watched(shell)
    os.kill(terminal.pid, sig)
    if status is None:  # what ctrl+c is in a terminal in raw mode: a key like any other
        terminal.until(shows_the_sweep, 10, "the same screen")
        os.kill(terminal.pid, signal.SIGTERM)
        status = 143
    ended = terminal.wait()
    assert ended is not None and os.waitstatus_to_exitcode(ended) == status
    assert sig not in (signal.SIGTERM, signal.SIGINT) or terminal.restored()
    again = shell.open(*TUNER)
    again.until(shows_the_sweep, 60, "the running sweep, again")
    session = shell.measured(path)
    again.until(lambda text: "Decide" in text, 60, "the results")
    again.close()
    row(f"app gets {sig.name}, opened again", "speed", path, session, "(the same screen)", 4, terminal.pid, again.pid)


def test_the_app_is_stopped_and_continued(shell: Held) -> None:
    """Meanwhile the sweep has ended: that is what it shows then."""
    path, terminal = watched(shell)
    os.kill(terminal.pid, signal.SIGSTOP)
    session = shell.measured(path)
    os.kill(terminal.pid, signal.SIGCONT)
    terminal.until(lambda text: "Decide" in text, 60, "the results")
    terminal.close()
    row("app stopped (ctrl+z), continued", "speed", path, session, "(the results)", 4, terminal.pid)


def test_the_terminal_of_the_app_closes(shell: Held) -> None:
    path, terminal = watched(shell)
    terminal.close()
    row("app: terminal closed", "speed", path, shell.measured(path), GOES_ON, 4, terminal.pid)


def test_the_app_notices_a_lost_terminal_where_sighup_is_ignored(shell: Held) -> None:
    """As under `nohup` or `sudo su`: it must leave by itself, not spin on the machine that is being measured."""
    path, terminal = watched(shell, "/bin/sh", "-c", 'trap "" HUP; exec "$@"', "sh")
    terminal.close()
    row("app: terminal closed, SIGHUP ignored", "speed", path, shell.measured(path), GOES_ON, 4, terminal.pid)


# ---- tmux ------------------------------------------------------------------------------------------------------


@pytest.fixture
def tmux(shell: Held) -> Iterator[Callable[..., str]]:
    found = shutil.which("tmux")
    if not found:
        pytest.skip("tmux is not installed")
    server = f"tt-{uuid.uuid4().hex[:8]}"

    def tell(*words: str) -> str:
        done = subprocess.run(
            [found, "-L", server, "-f", "/dev/null", *words], env={**shell.env, "LC_ALL": "C.UTF-8"},
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        return done.stdout

    yield tell
    tell("kill-server")


def test_tmux_is_detached_and_attached_again(shell: Held, tmux: Callable[..., str]) -> None:
    found = shutil.which("tmux")
    assert found
    server = "the-app"
    tmux("new-session", "-d", "-s", server, "-x", "80", "-y", "24", *TUNER, "run", str(shell.plan))
    path = shell.held()
    tmux("new-window", "-t", server, *TUNER)
    for _ in range(2):
        until = time.monotonic() + 60
        while not shows_the_sweep(text := tmux("capture-pane", "-p", "-t", server)):
            assert time.monotonic() < until, text
            time.sleep(0.2)
        terminal = shell.open(found, "-L", _socket(tmux), "attach", "-t", server)
        terminal.until(shows_the_sweep, 30, "the sweep in tmux")
        tmux("detach-client", "-s", server)
        assert terminal.wait() is not None
    tmux("kill-server")
    row("tmux detached, attached, killed", "speed", path, shell.measured(path), "(the same screen)", 4)


def _socket(tmux: Callable[..., str]) -> str:
    return Path(tmux("display-message", "-p", "#{socket_path}").strip()).name
