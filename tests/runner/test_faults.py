"""Whatever happens: measured points are kept, nothing is left behind, and the person is told.

Each case adds a row to the table at the end of the tests' output. "Kept" is checked as the points measured after the
fault (and a resume, where there was one), "left" as processes, device memory locks, shared memory and files.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import scripted
from conftest import FAULTS

from tui_tuner import runner as runners
from tui_tuner.model import events as ev
from tui_tuner.model.session import Point, Session
from tui_tuner.runner import processes
from tui_tuner.store import inbox, library, sessionfile

OOM_LOG = (
    "INFO 11-30 12:00:00 [model_runner.py:1] Capturing CUDA graphs (decode, FULL)\n"
    "Traceback (most recent call last):\n"
    '  File "x.py", line 1, in capture\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB.\n"
)


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    scripted.prepare(monkeypatch)
    before = processes.shared_memory()
    yield
    assert not {n for n in processes.shared_memory() - before if f"psm_tt_{os.getpid()}_" in n}


def own_name() -> str:
    """A name that no other run of the tests on this machine uses."""
    return f"{os.getpid()}_{uuid.uuid4().hex[:8]}"


def left(path: Path, *pids: int) -> list[str]:
    """What is still there of a session: processes of its groups and folders, the folders, the lock, given processes."""
    found: list[str] = []
    for event in sessionfile.events(path):
        if isinstance(event, ev.PointStarted) and event.pgid:
            found += [f"process {p.pid}" for p in processes.group(event.pgid)]
            found += [f"stray {p.pid}" for p in processes.strays(Path(event.work))]
            found += [event.work] if event.work and Path(event.work).exists() else []
    found += [f"pid {pid}" for pid in pids if scripted.pid_alive(pid)]
    found += ["the lock"] if sessionfile.is_locked(path) else []
    found += ["requests"] if inbox.folder_of(path).exists() else []
    return found


def row(fault: str, phase: str, path: Path, session: Session, told: str | None, wanted: int, *pids: int) -> None:
    """Checks that `wanted` points have figures and nothing is left, and adds the row."""
    measured = [p for p in session.points if p.done and p.levels and p.done.status != "aborted"]
    deadline = time.monotonic() + 5
    while (rest := left(path, *pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    kept = f"{len(measured)} of {wanted} points" if len(measured) >= wanted else f"{wanted - len(measured)} lost"
    FAULTS.append((fault, phase, kept, ", ".join(rest) or "nothing", (told or "-")[:150]))
    assert len(measured) == wanted, [(p.n, p.value, p.status, p.say) for p in session.points]
    assert not rest
    assert told, "the person is told nothing"
    assert session.skipped == 0 or "unknown" in fault or "damaged" in fault


def faulty(session: Session, value: Any = 8) -> Point:
    return next(p for p in session.points if p.value == value)


# ---- the worker ------------------------------------------------------------------------------------------------

CHILD = {"ignore_term": True, "shm": "psm_tt_NAME", "semaphore": "psm_tt_NAME", "temp": True}
WORKER: list[tuple[str, str, dict[str, Any], str, str, float]] = [
    # fault, phase, what the engine does, status, words, quiet limit
    *[(f"worker killed by {s}", phase, {"at": {phase: {"die": s}}}, "crash", s, 30.0) for s, phase in (
        ("SIGKILL", "spawn"), ("SIGKILL", "import"), ("SIGKILL", "load"), ("SIGKILL", "kv_cache"),
        ("SIGKILL", "graphs"), ("SIGKILL", "ready"),
        ("SIGKILL", "warmup"), ("SIGKILL", "speed"), ("SIGKILL", "quality"), ("SIGTERM", "load"), ("SIGINT", "speed"),
        ("SIGHUP", "speed"), ("SIGSEGV", "graphs"), ("SIGBUS", "speed"), ("SIGABRT", "load"),
    )],
    *[("hangs", phase, {"at": {phase: "hang"}}, "timeout", "nothing moved", 0.8)
      for phase in ("import", "load", "kv_cache", "graphs", "ready", "warmup", "speed", "quality")],
    ("hangs, ignores TERM", "speed", {"at": {"speed": "hang"}, "ignore_term": True, "children": {"ignore_term": True}},
     "timeout", "nothing moved", 0.8),
    ("worker stopped (SIGSTOP)", "load", {"at": {"load": "stop"}}, "timeout", "stopped by a signal", 0.8),
    ("worker stopped (SIGSTOP)", "speed", {"at": {"speed": "stop"}}, "timeout", "stopped by a signal", 0.8),
    ("worker stopped (SIGSTOP)", "quality", {"at": {"quality": "stop"}}, "timeout", "stopped by a signal", 0.8),
    ("no token while requests wait", "speed", {"at": {"speed": "no_token"}}, "timeout", "no token", 30.0),
    *[("engine core killed", phase, {"at": {phase: "core_dies"}}, "crash", "core process died", 30.0)
      for phase in ("load", "graphs", "warmup", "speed", "quality")],
    ("engine core stopped (SIGSTOP)", "speed", {"at": {"speed": "core_stops"}}, "timeout", "stopped by a signal", 30.0),
    ("ends without a word, status 0", "load", {"at": {"load": {"exit": 0}}}, "crash", "without a word", 30.0),
    ("ends with status 137", "speed", {"at": {"speed": {"exit": 137}}}, "crash", "signal 9", 30.0),
    ("half a message, then silence", "speed", {"at": {"speed": "half"}}, "timeout", "nothing moved", 0.8),
    ("killed, child holds shm and files", "speed", {"at": {"speed": {"die": "SIGKILL"}}, "children": CHILD},
     "crash", "SIGKILL", 30.0),
    ("killed, child has left the group", "speed",
     {"at": {"speed": {"die": "SIGKILL"}}, "children": {**CHILD, "setsid": True}}, "crash", "SIGKILL", 30.0),
    ("log without end", "load", {"log_bytes": 300_000, "at": {"load": "hang"}}, "timeout", "log grew", 30.0),
    ("out of memory capturing graphs", "graphs", {"at": {"graphs": {"fail": {"log": OOM_LOG}}}},
     "oom_startup", "0.28", 30.0),
    ("out of memory under load", "speed", {"at": {"speed": {"fail": {"log": OOM_LOG}}}}, "oom_runtime", "0.28", 30.0),
    *[(f"log: {log.split('-', 2)[2][:-4]}", "import", {"at": {"import": {"fail": {"log": log}}}}, status, words, 30.0)
      for log, status, words in (
        ("v0.26.0-h200-batched-tokens-below-seqs.log", "config_error", "1024"),
        ("v0.26.0-h200-gpu-already-used.log", "oom_startup", "0.99"),
        ("v0.26.0-h200-max-model-len-too-long.log", "config_error", "32768"),
        ("v0.26.0-h200-no-kv-memory.log", "oom_startup", "KV cache"),
        ("v0.26.0-h200-utilization-out-of-range.log", "config_error", "0.95"),
    )],
]  # fmt: skip


@pytest.mark.parametrize("case", WORKER, ids=[f"{c[0]}-{c[1]}".replace(" ", "_") for c in WORKER])
def test_one_point_fails_and_the_others_are_measured(
    case: tuple[str, str, dict[str, Any], str, str, float], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault, phase, do, status, words, quiet = case
    do = json.loads(json.dumps(do).replace("NAME", own_name()))
    scripted.scenario(monkeypatch, folder, [{"when": {"max_num_seqs": 8}, "do": do}])
    path = scripted.session(folder, values=(8, 2))
    patience = {"no_token": 0.6} if "core stopped" in fault or "no token" in fault else {}
    runner = scripted.start(path, quiet, phase, log_bytes=200_000, **patience)
    session = scripted.finished(path)
    point = faulty(session)
    assert runner.wait(10) == 0 and session.ended and session.ended.why == "finished"
    assert point.failed and (point.failed.status, point.failed.phase) == (status, expected_phase(fault, phase))
    told = f"{point.failed.say}" + (f" → {point.failed.fix.say}" if point.failed.fix else "")
    assert words in f"{told} {point.failed.cause}"
    assert point.clean and point.clean.ok and not point.clean.left
    row(fault, phase, path, session, told, 3)


@pytest.mark.parametrize(("how", "phase"), [("log", "load"), ("bytes", "load"), ("words", "compile")])
def test_what_goes_on_slowly_is_no_hang(how: str, phase: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk, a download, a long compilation: much longer than the limit, and seen to go on."""
    rule = {"when": {"max_num_seqs": 8}, "do": {"at": {phase: {"slowly": how}}}}
    scripted.scenario(monkeypatch, folder, [rule])
    path = scripted.session(folder, values=(8, 2), fixed={"max_model_len": 1024, "enforce_eager": False})
    assert scripted.start(path, 1.2, phase).wait(60) == 0
    session = scripted.released(path)
    row(f"slow, with progress ({how})", phase, path, session, "(nothing: it is waited for)", 4)


def expected_phase(fault: str, phase: str) -> str:
    """A log may tell the phase better than the worker could."""
    return {"log: gpu-already-used": "load", "log: no-kv-memory": "kv_cache"}.get(fault, phase)


def test_the_worker_of_the_baseline_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted.scenario(monkeypatch, folder, [{"launch": 1, "do": {"at": {"load": {"die": "SIGKILL"}}}}])
    path = scripted.session(folder)
    assert scripted.start(path).wait(30) == 4
    session = scripted.released(path)
    assert session.ended and (session.ended.why, session.ended.exit) == ("failed", 4)
    row("baseline killed", "load", path, session, session.ended.say, 0)
    assert scripted.start(path).wait(30) == 0  # a resume measures a baseline anew, in a segment of its own
    session = scripted.released(path)
    assert [p.role for p in session.points if p.status == "ok"].count("value") == 2
    row("baseline killed, then resumed", "load", path, session, session.launches[-1].why, 4)


def test_a_value_that_cannot_start_names_the_highest_that_can(folder: Path) -> None:
    path = scripted.session(folder, knob="gpu_memory_utilization", values=(0.99, 0.5), baseline=0.3)
    scripted.start(path).wait(30)
    failed = faulty(scripted.released(path), 0.99).failed
    assert failed and failed.fix and (failed.fix.field, failed.fix.value) == ("gpu_memory_utilization", 0.97)


def measured_oddly(
    folder: Path, monkeypatch: pytest.MonkeyPatch, do: dict[str, Any], **plan: Any
) -> tuple[Path, Session]:
    scripted.scenario(monkeypatch, folder, [{"when": {"max_num_seqs": 8}, "do": do}])
    path = scripted.session(folder, values=(8, 2), **plan)
    assert scripted.start(path).wait(30) == 0
    return path, scripted.released(path)


def test_garbage_on_the_pipe(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, session = measured_oddly(folder, monkeypatch, {"at": {"load": "garbage"}})
    assert faulty(session).status == "ok"
    row("garbage on the pipe", "load", path, session, session.notes[-1].say if session.notes else None, 4)


def test_a_late_client(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, session = measured_oddly(folder, monkeypatch, {"late": True})
    assert faulty(session).status == "client_limited"
    row("late client", "speed", path, session, faulty(session).say, 4)


def test_levels_that_never_came(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, session = measured_oddly(
        folder, monkeypatch, {"levels": 1}, load=scripted.Load("closed", (2, 8), (), 128, 16, 32)
    )
    assert faulty(session).status == "unclean"
    row("a load level is missing", "speed", path, session, faulty(session).say, 4)


def test_hostile_answers_are_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, session = measured_oddly(folder, monkeypatch, {"hostile": True})
    answers = faulty(session).answers
    assert answers and answers.text[0].startswith("\x1b[31m[bold]") and len(answers.text[0]) > 100_000
    assert b"\x1b" not in path.read_bytes()
    row("hostile answers", "quality", path, session, "(nothing: the answers are kept as text)", 4)


def test_secrets_in_log_and_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "hf_" + uuid.uuid4().hex
    monkeypatch.setenv("HF_TOKEN", secret)
    fail = {"log": f"Traceback (most recent call last):\n  File 'x'\nValueError: with {secret} in it\n"}
    path, session = measured_oddly(folder, monkeypatch, {"secret": secret, "at": {"speed": {"fail": fail}}})
    for file in [path, *library.logs_dir(path).iterdir()]:
        assert secret not in file.read_text()
    assert "***" in library.log_of(path, faulty(session).n).read_text()
    row("secret in log and message", "speed", path, session, faulty(session).say, 3)


# ---- the runner ------------------------------------------------------------------------------------------------


def in_phase(path: Path, value: Any, phase: str) -> tuple[Session, Point]:
    """Waits until the point of `value` is in `phase`."""

    def there(session: Session) -> bool:
        point = session.running_point
        return point is not None and point.value == value and point.phase == phase

    session = scripted.until(path, there)
    point = session.running_point
    assert point
    time.sleep(0.1)
    return session, point


def guard_of(runner: int) -> int:
    """The guard that a runner started."""
    for entry in Path("/proc").iterdir():
        if (name := entry.name).isdigit():
            try:
                parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
                if parent == runner and b"guard.py" in Path(f"/proc/{name}/cmdline").read_bytes():
                    return int(name)
            except (OSError, IndexError):
                continue
    raise AssertionError("the runner has no guard")


RUNNER_KILLED: list[tuple[str, str, dict[str, Any]]] = [
    ("runner killed (SIGKILL)", "import", {"at": {"import": "hang"}}),
    ("runner killed (SIGKILL)", "load", {"at": {"load": "hang"}}),
    ("runner killed (SIGKILL)", "graphs", {"at": {"graphs": "hang"}}),
    ("runner killed (SIGKILL)", "speed", {"at": {"speed": "hang"}}),
    ("runner killed (SIGKILL)", "quality", {"at": {"quality": "hang"}}),
    ("runner killed, worker stopped", "load", {"at": {"load": "stop"}}),
    ("runner killed, worker stopped", "speed", {"at": {"speed": "stop"}}),
    ("runner killed, worker ignores TERM", "speed", {"at": {"speed": "hang"}, "ignore_term": True}),
    ("runner killed, child holds shm", "speed", {"at": {"speed": "hang"}, "children": CHILD}),
]


@pytest.mark.parametrize("case", RUNNER_KILLED, ids=[f"{c[0]}-{c[1]}".replace(" ", "_") for c in RUNNER_KILLED])
@pytest.mark.parametrize("torn", [False, True], ids=["whole", "torn"])
def test_the_runner_is_killed(
    case: tuple[str, str, dict[str, Any]], torn: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault, phase, do = case
    if torn and phase not in ("speed", "load"):
        pytest.skip("the file's tail is torn in two phases only")
    do = json.loads(json.dumps(do).replace("NAME", own_name()))
    scripted.scenario(monkeypatch, folder, [{"when": {"max_num_seqs": 8}, "launch": 1, "do": do}])
    path = scripted.session(folder, values=(8, 2))
    runner = scripted.start(path)
    _, point = in_phase(path, 8, phase)
    guard = guard_of(runner.pid)
    os.killpg(runner.pid, signal.SIGKILL)
    runner.wait()
    for _ in range(250):
        if not (rest := left(path, guard)):
            break
        time.sleep(0.02)
    assert not rest, "the guard did not end the engine"
    if torn:
        with path.open("ab") as file:
            file.write(b'{"type":"requests","t":17')
    session = sessionfile.read(path)
    assert session.state(locked=False) == "interrupted"
    assert scripted.start(path).wait(30) == 0
    session = scripted.released(path)
    again = session.point(point.n)
    assert again and again.attempt == 2 and again.status == "ok" and len(again.earlier) == 1
    assert [p.attempt for p in session.points if p.n != point.n] == [1, 1, 1]
    told = (
        session.notes[-1].say
        if session.notes
        else f"interrupted; {session.launches[-1].why}: the cut point comes again"
    )
    assert not torn or any("torn" in n.say for n in session.notes)
    row(fault + (", tail torn" if torn else ""), phase, path, session, told, 4, guard)


def test_runner_and_guard_are_killed_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"psm_tt_{own_name()}"
    do = {"at": {"speed": "stop"}, "children": {"ignore_term": True, "shm": name}}
    scripted.scenario(monkeypatch, folder, [{"when": {"max_num_seqs": 8}, "launch": 1, "do": do}])
    path = scripted.session(folder, values=(8, 2))
    runner = scripted.start(path)
    _, point = in_phase(path, 8, "speed")
    guard = guard_of(runner.pid)
    os.kill(runner.pid, signal.SIGSTOP)
    os.kill(guard, signal.SIGKILL)
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()
    assert processes.group(point.start.pgid), "something is left for the next runner to find"
    assert scripted.start(path).wait(30) == 0
    session = scripted.released(path)
    assert any("was killed during point" in n.say for n in session.notes)
    assert name not in processes.shared_memory()
    row("runner and guard killed", "speed", path, session, session.notes[0].say, 4)


@pytest.mark.parametrize("known", [False, True], ids=["number", "number-and-start"])
@pytest.mark.parametrize("work", ["", "/", "/tmp/tt-none", "FOLDER"])
def test_a_strangers_group_is_let_alone_whatever_a_file_says(known: bool, work: str, folder: Path) -> None:
    """A number that was given again; or a file from elsewhere that names somebody's processes, even rightly."""
    path = scripted.session(folder)
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(sleep, start_new_session=True, cwd="/") as stranger:
        try:
            found = processes.process(stranger.pid)
            assert found
            start = ev.PointStarted(
                time.time(), 1, "baseline", 4, pgid=stranger.pid, started=found.started if known else 5,
                work=work.replace("FOLDER", str(folder)),
            )  # fmt: skip
            with sessionfile.Writer.open(path) as writer:
                writer.append(ev.Launched(start.t, 1, processes.boot_id()))
                writer.append(start)
            assert scripted.start(path).wait(30) == 0
            assert stranger.poll() is None and folder.is_dir()
        finally:
            stranger.kill()
    session = scripted.released(path)
    assert session.points[0].attempt == 2


def test_the_guard_is_killed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted.scenario(monkeypatch, folder, [{"when": {"max_num_seqs": 8}, "launch": 1, "do": {"at": {"load": "hang"}}}])
    path = scripted.session(folder, values=(8, 2))
    runner = scripted.start(path)
    _, point = in_phase(path, 8, "load")
    os.kill(guard_of(runner.pid), signal.SIGKILL)
    session = scripted.until(path, lambda s: bool(s.notes))
    told = session.notes[-1].say
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()
    for _ in range(250):
        if not processes.group(point.start.pgid):
            break
        time.sleep(0.02)
    assert not processes.group(point.start.pgid), "the second guard did its work"
    assert scripted.start(path).wait(30) == 0
    row("guard killed, then the runner", "load", path, scripted.released(path), told, 4)


@pytest.mark.parametrize(
    ("sig", "phase"),
    [*[(signal.SIGTERM, p) for p in ("import", "load", "graphs", "speed", "quality")], (signal.SIGINT, "speed")],
)
def test_a_signal_stops_the_sweep_in_order(
    sig: signal.Signals, phase: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.scenario(monkeypatch, folder, [{"when": {"max_num_seqs": 8}, "launch": 1, "do": {"at": {phase: "hang"}}}])
    path = scripted.session(folder, values=(2, 8))
    runner = scripted.start(path)
    in_phase(path, 8, phase)
    runner.send_signal(sig)
    assert runner.wait(30) == 130
    session = scripted.released(path)
    assert session.ended and (session.ended.why, session.ended.exit) == ("stopped", 130)
    row(f"runner gets {sig.name}", phase, path, session, session.ended.say, 2)
    assert scripted.start(path).wait(30) == 0
    session = scripted.released(path)
    assert session.state(False) == "finished"
    row(f"runner gets {sig.name}, resumed", phase, path, session, session.launches[-1].why, 4)


def test_sighup_changes_nothing(folder: Path) -> None:
    path = scripted.session(folder)
    runner = scripted.start(path)
    for sig in (signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT):
        runner.send_signal(sig)
    assert runner.wait(30) == 0
    row("runner gets SIGHUP (terminal closed)", "any", path, scripted.released(path), "(nothing: the sweep goes on)", 4)


def test_the_runner_is_stopped_and_continued(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = scripted.session(folder)
    runner = scripted.start(path, quiet=5.0, tick=0.02)
    scripted.until(path, lambda s: bool(s.points))
    runner.send_signal(signal.SIGSTOP)
    time.sleep(6.0)
    runner.send_signal(signal.SIGCONT)
    assert runner.wait(30) == 0
    row("runner stopped, continued", "any", path, scripted.released(path), "(nothing: the sweep goes on)", 4)


def test_the_worker_is_killed_from_outside_in_the_second_of_three_points(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.scenario(monkeypatch, folder, [{"when": {"max_num_seqs": 8}, "do": {"at": {"speed": "hang"}}}])
    path = scripted.session(folder, values=(8,))
    runner = scripted.start(path)
    _, point = in_phase(path, 8, "speed")
    os.kill(point.start.pgid, signal.SIGKILL)
    assert runner.wait(30) == 0
    session = scripted.released(path)
    assert [p.status for p in session.points] == ["ok", "crash", "ok"]
    row("worker killed from outside", "speed", path, session, session.points[1].say, 2)


def test_another_boot_opens_a_segment(folder: Path) -> None:
    path = scripted.session(folder, values=(2, 8))
    with sessionfile.Writer.open(path) as writer:
        now = time.time()
        writer.append(ev.Launched(now, 1, "another-boot"))
        writer.append(
            ev.PointStarted(now, 1, "baseline", 4, pgid=os.getpid(), started=processes.process(os.getpid()).started)
        )  # type: ignore[union-attr]
    assert scripted.start(path).wait(30) == 0
    session = scripted.released(path)
    assert session.segment == 1 and session.points[0].segment == 1 and session.points[0].attempt == 2
    row("machine rebooted", "load", path, session, session.launches[-1].why, 4)


def test_a_long_pause_opens_a_segment_with_its_own_baseline(folder: Path) -> None:
    path = scripted.session(folder, values=(2, 8))
    runner = scripted.start(path)
    scripted.until(path, lambda s: sum(p.status == "ok" for p in s.points) >= 2)
    os.killpg(runner.pid, signal.SIGKILL)
    runner.wait()
    time.sleep(0.2)
    kept = {p.n: p for p in sessionfile.read(path).points if p.clean}
    before = sum(p.status is not None for p in sessionfile.read(path).points)
    assert scripted.start(path, new_segment=0.05).wait(30) == 0
    session = scripted.released(path)
    assert session.segment == 1
    assert kept and all(session.point(n) == point for n, point in kept.items())
    if before < 3:  # a value was left to measure
        assert [p.role for p in session.points if p.segment == 1].count("baseline") == 1
    row("resumed after a long pause", "any", path, session, session.launches[-1].why, len(session.points))


# ---- requests, locks, files ------------------------------------------------------------------------------------


def test_requests_of_the_person(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted.scenario(monkeypatch, folder, [{"when": {"max_num_seqs": 8}, "do": {"at": {"speed": "hang"}}}])
    path = scripted.session(folder, values=(8, 2, 3))
    runner = scripted.start(path)
    in_phase(path, 8, "speed")
    (inbox.folder_of(path)).mkdir(exist_ok=True)
    (inbox.folder_of(path) / "0-rubbish").write_bytes(b"\xff\0")
    inbox.send(path, ev.Asked(time.time(), "add", value=6))
    inbox.send(path, ev.Asked(time.time(), "add", value=2))
    inbox.send(path, ev.Asked(time.time(), "drop", value=3))
    inbox.send(path, ev.Asked(time.time(), "skip"))
    assert runner.wait(30) == 0
    session = scripted.released(path)
    assert {p.value: p.status for p in session.points} == {4: "ok", 8: "aborted", 2: "ok", 6: "ok"}
    assert any("already in the sweep" in n.say for n in session.notes)
    row("skipped on request", "speed", path, session, faulty(session).say, 4)


def test_stop_on_request_and_an_old_request(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted.scenario(monkeypatch, folder, [{"when": {"max_num_seqs": 8}, "launch": 1, "do": {"at": {"load": "hang"}}}])
    path = scripted.session(folder, values=(8, 2))
    inbox.send(path, ev.Asked(time.time() - 60, "stop"))
    runner = scripted.start(path)
    in_phase(path, 8, "load")
    inbox.send(path, ev.Asked(time.time(), "stop"))
    assert runner.wait(30) == 130
    session = scripted.released(path)
    row("stopped on request", "load", path, session, session.ended.say if session.ended else None, 1)


def test_two_runners_and_two_tuners(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted.scenario(monkeypatch, folder, [{"when": {"max_num_seqs": 8}, "launch": 1, "do": {"at": {"load": "hang"}}}])
    machine = scripted.card()
    path = scripted.session(folder, values=(8,), machine=machine)
    runner = scripted.start(path)
    in_phase(path, 8, "load")
    with pytest.raises(runners.NotLaunched) as second:
        runners.launch(path)
    assert str(runner.pid) in str(second.value)
    (folder / "b").mkdir()
    other = scripted.session(folder / "b", machine=machine)
    with pytest.raises(runners.NotLaunched) as neighbour:
        runners.launch(other)
    assert path.stem in str(neighbour.value) and str(runner.pid) in str(neighbour.value)
    runner.send_signal(signal.SIGTERM)
    runner.wait(30)
    session = scripted.released(path)
    row("second runner of a session", "load", path, session, str(second.value), 1)
    row("second tuner on a card", "load", path, session, str(neighbour.value), 1)
    assert scripted.start(other).wait(30) == 0


def test_the_disk_is_full(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = scripted.session(folder, values=(2, 8))
    size = path.stat().st_size

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 30_000, size + 30_000))

    runner = subprocess.run(
        [sys.executable, "-m", "tui_tuner.runner", str(path)],
        preexec_fn=full, capture_output=True, text=True, timeout=60, cwd=Path(runners.__file__).parents[2],
    )  # fmt: skip
    assert runner.returncode == 1 and "largest size" in runner.stderr
    session = sessionfile.read(path)
    assert session.skipped == 0 and path.read_bytes().endswith(b"\n")
    assert session.ended and session.ended.why == "failed"
    before = {p.n: p for p in session.points if p.status == "ok"}
    assert before, "a point was measured before the disk was full"
    row("disk full", "speed", path, session, session.ended.say, len(before))
    assert scripted.start(path).wait(30) == 0
    session = scripted.released(path)
    assert all(session.point(n) == point for n, point in before.items()), "what was measured is as it was"
    row("disk full, then resumed", "speed", path, session, session.launches[-1].why, 4)


def test_unknown_events_and_damaged_lines_do_not_hinder_a_resume(folder: Path) -> None:
    path = scripted.session(folder, values=(2, 8))
    runner = scripted.start(path)
    scripted.until(path, lambda s: any(p.status == "ok" for p in s.points))
    os.killpg(runner.pid, signal.SIGKILL)
    runner.wait()
    time.sleep(0.1)
    with path.open("ab") as file:
        file.write(b'{"type":"from_the_future","t":1}\n\xff\xfe\xfd\n{"type":"point_done","n":\n')
    assert scripted.start(path).wait(30) == 0
    session = scripted.released(path)
    assert session.skipped == 3
    row("unknown and damaged lines", "any", path, session, f"{session.skipped} lines could not be read", 4)


@pytest.mark.parametrize(
    "fault", ["zero bytes", "newer format", "no session", "a folder", "nothing there", "first line torn"]
)
def test_a_file_that_cannot_be_measured_is_refused(fault: str, folder: Path) -> None:
    path = scripted.session(folder)
    content = path.read_bytes()
    made = {
        "zero bytes": b"",
        "newer format": content.replace(b'"format":1', b'"format":99'),
        "no session": b"hello\n",
        "first line torn": content[:100],
    }
    path.unlink()
    if fault == "a folder":
        path.mkdir()
    elif fault in made:
        path.write_bytes(made[fault])
    with pytest.raises(runners.NotLaunched) as refused:
        runners.launch(path)
    assert str(path) in str(refused.value)
    if fault in made:
        assert path.read_bytes() == made[fault]
    FAULTS.append(
        (f"file: {fault}", "start", "as it was", "nothing", str(refused.value).replace(str(folder) + "/", "")[:150])
    )


def test_a_folder_that_cannot_be_written(folder: Path) -> None:
    path = scripted.session(folder)
    path.chmod(0o400)
    logs = library.logs_dir(path)
    logs.write_text("a file where the folder of logs should be")
    with pytest.raises(runners.NotLaunched) as refused:
        runners.launch(path)
    FAULTS.append(
        ("logs cannot be written", "start", "as it was", "nothing", str(refused.value).replace(str(folder), "")[:150])
    )


def test_the_engine_is_gone(folder: Path) -> None:
    path = scripted.session(folder, python=str(folder / "no" / "python"))
    assert scripted.start(path).wait(30) == 4
    session = scripted.released(path)
    failed = session.points[0].failed
    assert failed and failed.status == "env_error"
    row("the engine's Python is gone", "spawn", path, session, failed.say, 0)


def test_the_eval_set_is_gone(folder: Path) -> None:
    path = scripted.session(folder, evalset=scripted.EvalChoice(str(folder / "none.jsonl"), 3, 8))
    with pytest.raises(runners.NotLaunched) as refused:
        runners.launch(path)
    assert "none.jsonl" in str(refused.value)
    row("eval set is gone", "start", path, sessionfile.read(path), str(refused.value), 0)
