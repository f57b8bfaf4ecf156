"""A sweep that goes well, and what it writes down."""

from __future__ import annotations

import os
import signal
import stat
import time
from pathlib import Path

import pytest
import scripted

from tui_tuner import runner
from tui_tuner.model import events as ev
from tui_tuner.store import library, sessionfile


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    scripted.prepare(monkeypatch)
    scripted.answers(monkeypatch, folder)


def test_a_launched_sweep_outlives_its_starter_and_writes_everything(folder: Path) -> None:
    path = scripted.session(folder, values=(2, 8))
    pid = runner.launch(path)
    assert os.getsid(pid) == pid, "a session of its own"
    session = scripted.finished(path)
    assert session.state(locked=False) == "finished"
    assert [(p.role, p.value) for p in session.points] == [
        ("baseline", 4), ("value", 2), ("value", 8), ("baseline_again", 4),
    ]  # fmt: skip
    assert session.launches[0].pid == pid
    for point in session.points:
        assert point.status == "ok" and point.clean and point.clean.ok
        assert point.capacity and point.capacity.kv_tokens and point.capacity.resolved
        assert point.warmed and (point.warmed.windows, point.warmed.limit_s, point.warmed.steady) == (2, 10.0, True)
        assert len(point.levels) == 1 and len(point.levels[0].sent) == 64
        assert point.answers and len(point.answers.item) == 6
        assert set(point.answers.score) == {1.0}
        assert point.start.args["max_num_seqs"] == point.value and point.start.args["model"] == "/models/scripted"
        assert point.phases[0].name == "spawn" and "quality" in [p.name for p in point.phases]
    for file in (path, *library.logs_dir(path).iterdir()):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    kinds = [type(e).__name__ for e in sessionfile.events(path) if not isinstance(e, (ev.Tick, ev.Phase))]
    first = kinds[kinds.index("PointStarted") : kinds.index("Clean") + 1]
    assert first == ["PointStarted", "Capacity", "Warmed", "Requests", "Answers", "PointDone", "Clean"]


def test_the_baseline_is_what_others_are_compared_with(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted.scenario(
        monkeypatch, folder, [{"when": {"max_num_seqs": 8}, "do": {"foreign": {"cache_config.cache_dtype": "fp8"}}}]
    )
    path = scripted.session(folder, values=(8, 2))
    scripted.start(path).wait(30)
    by_value = {p.value: p for p in scripted.released(path).points if p.role == "value"}
    assert by_value[2].status == "ok" and by_value[2].capacity and by_value[2].capacity.changed
    assert "scheduler_config.max_num_seqs" in by_value[2].capacity.changed.knob
    assert by_value[8].status == "unclean", "something else than the knob changed"


def test_a_finished_session_is_not_measured_again(folder: Path) -> None:
    path = scripted.session(folder, values=(2,))
    scripted.start(path).wait(30)
    before = path.read_bytes()
    assert scripted.start(path).wait(30) == 0
    assert path.read_bytes() == before


def test_a_value_added_after_the_end_is_measured_by_a_resume(folder: Path) -> None:
    path = scripted.session(folder, values=(2,))
    scripted.start(path).wait(30)
    from tui_tuner.store import inbox

    inbox.send(path, ev.Asked(time.time(), "add", value=16))
    assert scripted.start(path).wait(30) == 0
    session = scripted.released(path)
    assert [p.status for p in session.points if p.value == 16] == ["ok"]


def test_the_standard_order_and_a_noise_run(folder: Path) -> None:
    path = scripted.session(
        folder, values=(2, 8, 16), thoroughness="standard", evalset=scripted.EvalChoice("basics", 0, 8)
    )
    scripted.start(path).wait(30)
    session = scripted.released(path)
    roles = [p.role for p in sorted(session.points, key=lambda p: p.began)]
    assert (roles[0], roles[-1], len(roles)) == ("baseline", "baseline_again", 5)
    assert all(p.answers is None for p in session.points)


def test_a_launch_that_fails_says_why(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = scripted.session(folder, values=(2,))
    with sessionfile.Writer.open(path), pytest.raises(runner.NotLaunched, match="being measured by process"):
        runner.launch(path)


def test_nothing_listens_while_a_point_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted.scenario(monkeypatch, folder, [{"when": {"max_num_seqs": 8}, "do": {"at": {"speed": "hang"}}}])
    path = scripted.session(folder, values=(8,))
    started = scripted.start(path)
    session = scripted.until(path, lambda s: bool(s.running_point and s.running_point.phase == "speed"))
    point = session.running_point
    assert point
    for pid in (started.pid, point.start.pgid):
        sockets = [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()]
        assert not [s for s in sockets if s.startswith("socket:")]
    started.send_signal(signal.SIGTERM)
    started.wait(30)
