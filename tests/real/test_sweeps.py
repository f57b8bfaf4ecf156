"""The contract's sweeps, through the command line, on a real vLLM engine on the CPU."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import FAULTS

from tui_tuner.model.session import Session
from tui_tuner.store import sessionfile

pytestmark = pytest.mark.engine

SEQS = """
model = "practice"
thoroughness = "quick"
seed = 0
fixed = { max_model_len = 1024, enforce_eager = true, gpu_memory_utilization = 0.3 }
slo = { name = "chat", goal = "throughput", ttft_p95_ms = 5000, tpot_p95_ms = 200 }
knob = { name = "max_num_seqs", values = [2, 8] }
load = { kind = "closed", concurrency = [8], prompt_tokens = 128, output_tokens = 32, requests = 64 }
evalset = { name = "basics", items = 20, max_tokens = 64 }
price = { per_hour = 2.0, currency = "CNY" }
"""

MEMORY = """
model = "practice"
fixed = { max_model_len = 1024, enforce_eager = true, max_num_seqs = 8 }
slo = { goal = "throughput" }
knob = { name = "gpu_memory_utilization", values = [0.4], baseline = 0.25 }
load = { concurrency = [8], prompt_tokens = 64, output_tokens = 16, requests = 16 }
evalset = { items = 0 }
"""


def _command(tmp_path: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "tui_tuner", *words, "--json", "--sessions", str(tmp_path / "sessions")]


def _finished(tmp_path: Path, *words: str) -> dict[str, Any]:
    """What the command prints, once it has seen the sweep to its end."""
    done = subprocess.run(_command(tmp_path, *words), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    _nothing_is_left(result)
    return result


def _plan(tmp_path: Path, plan: str) -> str:
    file = tmp_path / "plan.toml"
    file.write_text(plan)
    return str(file)


def _killed(tmp_path: Path, plan: str, when: Callable[[Session], bool]) -> Path:
    """Starts a sweep and kills its runner, whose terminal goes too, as soon as the session shows `when`."""
    with open(tmp_path / "out", "w") as out:  # noqa: PTH123
        shown = subprocess.Popen(_command(tmp_path, "run", _plan(tmp_path, plan)), stdout=out, stderr=out)
    try:
        end = time.monotonic() + 600
        while time.monotonic() < end:
            time.sleep(0.1)
            for path in (tmp_path / "sessions").glob("*.jsonl"):
                session = sessionfile.read(path)
                if session.launches and when(session):
                    os.killpg(session.launches[-1].pid, signal.SIGKILL)
                    return path
            assert shown.poll() is None, (tmp_path / "out").read_text()
        raise AssertionError("the sweep never came so far")
    finally:
        shown.kill()
        shown.wait()


def _members(groups: set[int]) -> list[psutil.Process]:
    alive = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getpgid(process.pid) in groups and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive


def _reachable(groups: set[int]) -> list[str]:
    """Where these groups listen, for others than this machine itself."""
    found = []
    for process in _members(groups):
        with contextlib.suppress(psutil.Error):
            for socket in process.net_connections("inet"):
                if socket.status == psutil.CONN_LISTEN and not ip_address(socket.laddr.ip).is_loopback:
                    found.append(f"{process.name()} {socket.laddr.ip}:{socket.laddr.port}")
    return found


def _groups(file: Path) -> set[int]:
    return {p.start.pgid for p in sessionfile.read(file).points}


def _nothing_is_left(result: dict[str, Any]) -> None:
    """No process of a point's group, and each point cleaned up after."""
    session = sessionfile.read(Path(result["file"]))
    assert session.points and not _members(_groups(Path(result["file"])))
    assert all(p.clean and p.clean.ok for p in session.points)


def _row(fault: str, phase: str, kept: str, told: str | None, session: Session) -> None:
    """A line of the fault table, with what is left of the session's points."""
    left = [str(p.pid) for p in _members({p.start.pgid for p in session.points})]
    left += [p.start.work for p in session.points if p.start.work and Path(p.start.work).exists()]
    FAULTS.append((f"{fault} (real engine)", phase, kept, ", ".join(left) or "nothing", (told or "-")[:150]))
    assert not left


@pytest.mark.long
def test_the_contracts_plan(tmp_path: Path) -> None:
    result = _finished(tmp_path, "run", _plan(tmp_path, SEQS))
    assert result["status"] == "finished" and result["knob"] == "max_num_seqs"
    points = result["points"]
    assert [(p["role"], p["value"], p["status"]) for p in points] == [
        ("baseline", 128, "ok"), ("value", 2, "ok"), ("value", 8, "ok"), ("baseline_again", 128, "ok"),
    ]  # fmt: skip
    for point in points:
        assert point["capacity"]["kv_blocks"] > 100 and point["capacity"]["block_size"] > 0
        assert point["capacity"]["kv_tokens"] == point["capacity"]["kv_blocks"] * point["capacity"]["block_size"]
        assert point["memory"]["peak_mib"] > 500
        assert point["quality"]["items"] == 20 and 0 < point["quality"]["accuracy"] < 1
        assert point["throughput"]["output_tok_s"] > 0
        assert 0 < point["latency"]["ttft_ms"]["p50"] <= point["latency"]["ttft_ms"]["p95"]
        assert point["latency"]["tpot_ms"]["p50"] > 0
        assert point["latency"]["ttft_ms"].get("p99") is None  # 64 requests do not support it
    two, eight = points[1], points[2]
    assert two["throughput"]["output_tok_s"] < eight["throughput"]["output_tok_s"]
    assert two["latency"]["ttft_ms"]["p50"] > eight["latency"]["ttft_ms"]["p50"]  # six of eight clients wait
    assert result["verdict"]["choice"] in ("keep", "revert", "no clear difference")
    assert result["verdict"]["strength"] == "indicative"


def test_more_memory_is_more_kv_blocks_though_the_runner_is_killed(tmp_path: Path) -> None:
    """The runner dies in the second of three points and the file's tail is torn; each value is measured once."""

    def loading(session: Session) -> bool:
        point = session.running_point
        return point is not None and point.n == 2 and any(p.name == "load" for p in point.phases)

    file = _killed(tmp_path, MEMORY, loading)
    end = time.monotonic() + 15
    while (alive := _members(_groups(file))) and time.monotonic() < end:
        time.sleep(0.1)
    assert not alive, "the guard ends what the runner can no longer end"
    before = sessionfile.read(file)
    with file.open("ab") as torn:
        torn.write(b'{"type":"tick","t":17')
    result = _finished(tmp_path, "resume", str(file))
    points = result["points"]
    assert [(p["role"], p["value"], p["status"]) for p in points] == [
        ("baseline", 0.25, "ok"), ("value", 0.4, "ok"), ("baseline_again", 0.25, "ok"),
    ]  # fmt: skip
    assert points[1]["capacity"]["kv_blocks"] > 1.3 * points[0]["capacity"]["kv_blocks"]
    assert result["verdict"]["choice"] in ("no clear difference", "revert", "keep")
    after = sessionfile.read(file)
    assert after.points[0].began == before.points[0].began and after.points[0].attempt == 1, "measured once"
    assert after.points[1].attempt == 2 and after.points[0].levels == before.points[0].levels
    assert any("torn" in n.say for n in after.notes)
    _row("runner killed, tail torn, resumed", "load", "3 of 3 points", after.launches[-1].why, after)


def _shot(tmp_path: Path, at: str, shoot: Callable[[Session], None]) -> Session:
    """A sweep of three points whose second one meets `shoot` in the phase `at`; the command ends by itself."""
    path: Path | None = None
    with open(tmp_path / "out", "w") as out:  # noqa: PTH123
        shown = subprocess.Popen(_command(tmp_path, "run", _plan(tmp_path, MEMORY)), stdout=out, stderr=out)
    end, done = time.monotonic() + 600, False
    while shown.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
        for path in (tmp_path / "sessions").glob("*.jsonl"):
            session = sessionfile.read(path)
            point = session.running_point
            if not done and point is not None and point.n == 2 and any(p.name == at for p in point.phases):
                assert not _reachable({_worker(session), session.launches[-1].pid, shown.pid})
                shoot(session)
                done = True
    assert done and path is not None and shown.poll() is not None, (tmp_path / "out").read_text()
    assert not _members(_groups(path))
    return sessionfile.read(path)


def _worker(session: Session) -> int:
    assert session.running_point is not None
    return session.running_point.start.pgid


def _core(session: Session) -> psutil.Process:
    (core,) = [p for p in _members({_worker(session)}) if p.name().startswith("VLLM::Engine")]
    return core


@pytest.mark.long
def test_the_worker_is_killed_in_the_second_point(tmp_path: Path) -> None:
    session = _shot(tmp_path, "kv_cache", lambda s: os.kill(_worker(s), signal.SIGKILL))
    assert [p.status for p in session.points] == ["ok", "crash", "ok"]
    assert session.points[1].failed is not None
    _row("worker killed by SIGKILL", "kv_cache", "2 of 2 other points", session.points[1].failed.say, session)


@pytest.mark.long
def test_the_engine_core_is_killed(tmp_path: Path) -> None:
    session = _shot(tmp_path, "warmup", lambda s: _core(s).kill())
    assert [p.status for p in session.points] == ["ok", "crash", "ok"]
    assert session.points[1].failed is not None
    _row("engine core killed by SIGKILL", "warmup", "2 of 2 other points", session.points[1].failed.say, session)


@pytest.mark.long
def test_the_runner_is_killed_while_the_worker_is_stopped(tmp_path: Path) -> None:
    """A stopped process acts on no parent-death signal: the guard has to end it."""

    def both(session: Session) -> None:
        os.killpg(_worker(session), signal.SIGSTOP)
        os.kill(session.launches[-1].pid, signal.SIGKILL)
        end = time.monotonic() + 15
        while _members({_worker(session)}) and time.monotonic() < end:
            time.sleep(0.1)

    session = _shot(tmp_path, "load", both)
    assert [p.status for p in session.points][:2] == ["ok", None]
    _row("runner killed, worker stopped", "load", "1 of 1 measured point", "interrupted: resume goes on", session)


@pytest.mark.long
def test_the_runner_gets_sigterm(tmp_path: Path) -> None:
    session = _shot(tmp_path, "speed", lambda s: os.kill(s.launches[-1].pid, signal.SIGTERM))
    assert session.ended is not None and session.ended.why == "stopped"
    assert session.points[0].status == "ok" and session.points[1].status in ("aborted", None)
    _row("runner gets SIGTERM", "speed", "1 of 1 measured point", session.ended.say or session.ended.why, session)
