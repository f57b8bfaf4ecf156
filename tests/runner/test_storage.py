"""Where sessions lie: slow, full, read-only, failing; and a session file of 50 MB."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import scripted
from conftest import FAULTS
from test_faults import in_phase, row

import tui_tuner
from tui_tuner.analysis import points, report
from tui_tuner.model import events as ev
from tui_tuner.model.slo import Slo
from tui_tuner.store import inbox, library, sessionfile

ROOT = Path(tui_tuner.__file__).parents[1]
RUN = Path(scripted.__file__).with_name("run.py")


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted.prepare(monkeypatch)


# ---- slow, or failing ------------------------------------------------------------------------------------------


def test_a_slow_disk_loses_no_point_and_no_request(folder: Path) -> None:
    """A sync takes 0.15 s, three times the time between two samples; each state change waits for one."""
    path = scripted.session(folder, values=(8, 2))
    runner = scripted.start(path, tick=0.05, storage={"slow": 0.15})
    scripted.until(path, lambda s: sum(p.status == "ok" for p in s.points) >= 1)
    inbox.send(path, ev.Asked(time.time(), "add", value=6))
    assert runner.wait(120) == 0
    session = scripted.released(path)
    assert sorted(p.value for p in session.points if p.role == "value") == [2, 6, 8]
    assert all(p.status == "ok" and p.ticks and p.attempt == 1 for p in session.points)
    row("disk slow as over a network", "any", path, session, "(nothing: the sweep takes longer)", 5)


def test_stop_works_on_a_slow_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted.scenario(monkeypatch, folder, [{"when": {"max_num_seqs": 8}, "do": {"at": {"speed": "hang"}}}])
    path = scripted.session(folder, values=(8, 2))
    runner = scripted.start(path, tick=0.05, storage={"slow": 0.15})
    session, point = in_phase(path, 8, "speed")
    before = len(point.ticks)
    session = scripted.until(path, lambda s: s.running_point is not None and len(s.running_point.ticks) > before + 5)
    inbox.send(path, ev.Asked(time.time(), "stop"))
    assert runner.wait(60) == 130
    session = scripted.released(path)
    assert session.points[0].status == "ok" and session.ended
    row("disk slow, stopped on request", "speed", path, session, session.ended.say, 1)


@pytest.mark.parametrize("sync", [4, 14, 30])
def test_a_write_that_fails_ends_the_sweep_in_order(sync: int, folder: Path) -> None:
    path = scripted.session(folder, values=(8, 2))
    runner = scripted.start(path, storage={"fails": sync})
    assert runner.wait(60) == 1
    session = scripted.released(path)
    assert session.ended and session.ended.why == "failed" and session.skipped == 0
    assert path.read_bytes().endswith(b"\n")
    measured = [p for p in session.points if p.status == "ok"]
    row(f"disk error at write {sync}", "any", path, session, session.ended.say, len(measured))
    assert scripted.start(path).wait(60) == 0
    session = scripted.released(path)
    assert all(session.point(p.n) == p for p in measured)
    row(f"disk error at write {sync}, resumed", "any", path, session, session.launches[-1].why, 4)


# ---- full, or read-only: in a mount namespace of its own -------------------------------------------------------


def _apart(command: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """A shell command where mounts can be made that nobody else sees. Skips where the kernel allows none."""
    unshare = shutil.which("unshare")
    if not unshare or subprocess.run([unshare, "-rm", "true"], capture_output=True).returncode:
        pytest.skip("this kernel lets nobody make a mount namespace")
    given = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHON": sys.executable, **env}
    return subprocess.run(
        [unshare, "-rm", "sh", "-ec", command], cwd=folder, env=given, capture_output=True, text=True, timeout=120
    )


def test_a_full_disk(folder: Path) -> None:
    path = scripted.session(folder, values=(8, 2), load=scripted.Load("closed", (8,), (), 128, 16, 256))
    (folder / "small").mkdir()
    limits = json.dumps({"quiet": dict.fromkeys(scripted.PHASES, 30.0), **scripted.SHORT})
    done = _apart(
        'mount -t tmpfs -o size=80k none small; cp "$NAME" small/; cd small; '
        'code=0; "$PYTHON" "$RUN" "$NAME" "$LIMITS" || code=$?; cp "$NAME" ../full.jsonl; exit $code',
        folder, NAME=path.name, RUN=str(RUN), LIMITS=limits,
    )  # fmt: skip
    assert done.returncode == 1 and "the disk is full" in done.stderr, done.stderr
    path.unlink()
    shutil.move(folder / "full.jsonl", path)
    session = sessionfile.read(path)
    assert session.skipped == 0 and path.read_bytes().endswith(b"\n")
    measured = [p for p in session.points if p.status == "ok"]
    assert measured, "a point was measured before the disk was full"
    told = next(line for line in done.stderr.splitlines() if "the disk is full" in line)
    row("disk full (a small file system)", "any", path, session, told, len(measured))
    assert scripted.start(path).wait(60) == 0
    session = scripted.released(path)
    assert all(session.point(p.n) == p for p in measured)
    row("disk full (a small file system), resumed", "any", path, session, session.launches[-1].why, 4)


def test_a_disk_that_is_read_only(folder: Path) -> None:
    """Everything that only reads works; all that would write says why it cannot, and leaves the file as it was."""
    path = scripted.session(folder)
    runner = scripted.start(path)
    assert runner.wait(60) == 0
    name, before = path.stem, path.read_bytes()
    done = _apart(
        'mount --bind . .; mount -o remount,bind,ro .; cd "$PWD"; '
        'for words in "list" "show $NAME" "export $NAME" "decide $NAME revert --why so" "resume $NAME" "stop $NAME" '
        '"run ../plan.toml"; do '
        'code=0; "$PYTHON" -m tui_tuner $words --sessions "$PWD" >/dev/null 2>../said || code=$?; '
        'echo "$code $(tr "\\n" " " <../said)"; done',
        folder, NAME=name, TUI_TUNER_ENGINE_PYTHON=scripted.PYTHON, HOME=str(folder.parent),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    listed, shown, exported, decided, resumed, stopped, ran = done.stdout.splitlines()
    assert [line[:2] for line in (listed, shown, exported, stopped)] == ["0 "] * 4
    assert decided.startswith("2 ") and "read-only" in decided and "Traceback" not in done.stdout
    assert resumed.startswith("2 "), "it is finished"
    assert ran[0] in "12" and "Traceback" not in ran
    assert path.read_bytes() == before
    FAULTS.append(("disk is read-only", "decide", "as it was", "nothing", decided[2:152].replace(str(folder), "")))


def test_a_folder_where_nothing_can_be_made(folder: Path) -> None:
    """Root is not held back by permissions, but nobody makes files in /proc, nor below a file."""
    (folder / "file").write_text("")
    start = sessionfile.read(scripted.session(folder)).start
    for nowhere in (Path("/proc/sessions"), folder / "file" / "sessions"):
        with pytest.raises(sessionfile.WriteFailed) as refused:
            sessionfile.create(nowhere / "s.jsonl", start)
        assert str(nowhere) in str(refused.value) and "cannot be created" in str(refused.value)
        assert library.listing(nowhere) == []
        with pytest.raises(inbox.NotSent):
            inbox.send(nowhere / "s.jsonl", ev.Asked(1.0, "stop"))
        told = str(refused.value).replace(str(folder), "")
        FAULTS.append(
            (f"folder: {'/proc' if 'proc' in str(nowhere) else 'below a file'}", "start", "-", "nothing", told)
        )


# ---- 50 MB -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session of 50 MB: 25 points with 16 levels of 400 requests, and half an hour of ticks each."""
    folder = tmp_path_factory.mktemp("large")
    path = scripted.session(folder, values=tuple(range(1, 26)))
    start = sessionfile.read(path).start
    t, count = start.t + 1, 400
    column = [round(i * 0.0123, 6) for i in range(count)]
    with path.open("ab") as file:
        file.write(ev.encode(ev.Launched(t, 1, "boot")))
        n = 0
        while file.tell() < 50 << 20:
            n += 1
            file.write(ev.encode(ev.PointStarted(t + n, n, "value" if n > 1 else "baseline", n, pgid=1, started=1)))
            for level in range(16):
                rows = ev.Requests(
                    t + n, n, float(level), "closed", 60.0, column, column, list(column), list(column), [128] * count,
                    [64] * count, ["length"] * count, [[451] * 63] * count,
                )  # fmt: skip
                file.write(ev.encode(rows))
            for i in range(3600):
                tick = ev.Tick(t + n + i / 1e5, n, 812.5, 8, 2, 0.45, 0, 18_000, 300.0, 60, 1980, 0, 1e6 + i)
                file.write(ev.encode(tick))
            file.write(ev.encode(ev.PointDone(t + n + 0.5, n, "ok", peak_mib=18_000)))
    return path


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that are read from now on, call by call."""
    read, pread = [], os.pread

    def count(fd: int, size: int, offset: int) -> bytes:
        data = pread(fd, size, offset)
        read.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", count)
    return read


def test_home_reads_little_of_50_mb(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = _counted(monkeypatch)
    (line,) = library.listing(large.parent)
    assert line.state == "interrupted" and line.bytes > 50 << 20 and line.point
    assert sum(read) < 6 << 20, "the last point's start is looked for from the end, in growing steps"


def test_50_mb_are_followed_from_where_they_were_read(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = sessionfile.Follower(large)
    session = follower.poll()
    assert session and session.skipped == 0 and len(session.points) > 10 and len(session.points[0].ticks) == 3600
    read = _counted(monkeypatch)
    assert follower.poll() is None and sum(read) == 0
    with sessionfile.Writer.open(large) as writer:
        del read[:]
        writer.append(ev.Tick(time.time(), session.points[-1].n, 1.0))
        later = follower.poll()
    assert later and len(later.points[-1].ticks) == 3601 and later.points[0] is session.points[0]
    assert sum(read) < 1000


_PEAK = """
import resource, sys
from tui_tuner import cli
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
code = cli.main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("command", [["list"], ["show"], ["export", "--to", "markdown"]])
def test_50_mb_need_memory_in_proportion(large: Path, command: list[str]) -> None:
    words = command[:1] + ([large.stem] if command[0] != "list" else []) + command[1:]
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, *words, "--sessions", str(large.parent)],
        capture_output=True, text=True, timeout=300, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout, done.stderr
    peak_mib = int(done.stderr.splitlines()[-1]) / 1024
    assert peak_mib < (60 if command[0] == "list" else 700)


def test_50_mb_are_resumed(large: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()
    path = folder / large.name
    shutil.copy(large, path)
    runner = scripted.start(path, new_segment=1e9)
    scripted.until(path, lambda s: any(p.status == "ok" and p.clean for p in s.points) or bool(s.ended), 120)
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(60) in (0, 130)
    session = scripted.released(path)
    assert session.ended and path.stat().st_size >= large.stat().st_size
    measured = sum(p.status == "ok" for p in session.points)
    FAULTS.append(("50 MB session", "resume", f"{measured} of {measured} points", "nothing", session.launches[-1].why))


def test_each_level_of_50_mb_is_computed_once(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = sessionfile.read(large)
    computed: list[int] = []
    compute = points._level_figures

    def count(rows: ev.Requests, slo: Slo) -> points.Level:
        computed.append(id(rows))
        return compute(rows, slo)

    monkeypatch.setattr(points, "_level_figures", count)
    assert report.as_dict(session, "interrupted", large)["points"]
    assert len(computed) == len(set(computed)) == sum(len(p.levels) for p in session.points)
    before = len(points._seen)
    del session
    gc.collect()
    assert len(points._seen) <= before - len(computed), "what nobody holds any more is forgotten"
