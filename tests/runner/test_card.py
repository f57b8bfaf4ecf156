"""Whole sweeps on a card that NVML tells of: heat, neighbours, memory that stays away, a card that goes away."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import scripted
from conftest import FAULTS
from msgspec.structs import replace
from test_cli import CONFIG
from test_faults import row

from tui_tuner import gpu
from tui_tuner.analysis import verdict
from tui_tuner.analysis.schedule import Slot
from tui_tuner.model import events as ev
from tui_tuner.model.machine import Machine
from tui_tuner.model.session import Session
from tui_tuner.prepare import start
from tui_tuner.runner import sweep
from tui_tuner.runner.limits import Limits
from tui_tuner.runner.point import Outcome
from tui_tuner.store import sessionfile

# What an engine does on the card: it takes memory as it loads, and runs long enough to be looked at.
LOADS = {"load": {"nvml": {"held": {"self": 9000}}}, "warmup": {"wait": 0.3}, "stop": {"nvml": {"throttle": 0}}}


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted.prepare(monkeypatch)


@pytest.fixture
def neighbour() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"], start_new_session=True) as process:
        yield process
        process.kill()


def swept(
    folder: Path, monkeypatch: pytest.MonkeyPatch, machine: Machine, at: dict[str, Any], status: int = 0, **do: Any
) -> tuple[Path, Session]:
    """A sweep over 8 and 2 in which 8 meets `at`, and is the fastest by far."""
    rules = [{"do": {"at": LOADS}}, {"when": {"max_num_seqs": 8}, "do": {"at": LOADS | at, "gain": 1.5, **do}}]
    scripted.scenario(monkeypatch, folder, rules)
    path = scripted.session(folder, values=(8, 2), machine=machine)
    runner = scripted.start(path, memory=0.6)
    assert runner.wait(60) == status
    return path, scripted.released(path)


def test_a_good_card_is_recorded_as_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, session = swept(folder, monkeypatch, scripted.nvml(monkeypatch, folder, used=300), {})
    assert [p.status for p in session.points] == ["ok"] * 4
    assert verdict.judge(session).value == 8
    for point in session.points:
        assert point.peak_mib == 9300 and point.clean and point.clean.vram_mib == point.clean.baseline_mib == 300
        (level,) = point.levels
        assert (level.throttle, level.sm_mhz, level.temp_c) == (0, 1980, 60)
        assert all(t.power_w == 300 for t in point.ticks if t.vram_mib)
    assert not session.notes


@pytest.mark.parametrize(
    ("bits", "words"),
    [(0x8, "hardware slowdown"), (0x20, "thermal slowdown"), (0x40, "hardware thermal"), (0x80, "power brake")],
)
def test_a_throttled_point_is_no_result_and_cannot_win(
    bits: int, words: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hot = {"warmup": {"nvml": {"throttle": bits | 0x4}, "wait": 0.3}}
    path, session = swept(folder, monkeypatch, scripted.nvml(monkeypatch, folder), hot)
    assert [(p.value, p.status) for p in session.points] == [(4, "ok"), (8, "throttled"), (2, "ok"), (4, "ok")]
    assert session.points[1].say and words in session.points[1].say and "power cap" in session.points[1].say
    judged = verdict.judge(session)
    assert judged.choice != "keep" and judged.value != 8
    row(f"card throttled: {words}", "speed", path, session, session.points[1].say, 4)


def test_a_card_at_its_power_limit_is_as_it_should_be(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, session = swept(
        folder, monkeypatch, scripted.nvml(monkeypatch, folder), {"warmup": {"nvml": {"throttle": 4}, "wait": 0.3}}
    )
    assert [p.status for p in session.points] == ["ok"] * 4 and verdict.judge(session).choice == "keep"


@pytest.mark.parametrize("phase", ["load", "speed"])
def test_a_card_that_falls_off_the_bus(phase: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML says nothing any more; what it said before stands, nothing is made up, and the sweep goes on."""
    path, session = swept(folder, monkeypatch, scripted.nvml(monkeypatch, folder), {phase: {"nvml": {"gone": True}}})
    assert [p.status for p in session.points] == ["ok"] * 4
    first, _, third, _ = session.points
    assert first.peak_mib == 9000 and first.levels[0].sm_mhz == 1980
    assert third.peak_mib is None and not any(t.vram_mib or t.power_w or t.throttle for t in third.ticks)
    level = third.levels[0]
    assert (level.throttle, level.sm_mhz, level.temp_c, level.energy_j) == (None, None, None, None)
    assert all(p.clean and p.clean.ok for p in session.points)
    (note,) = session.notes
    assert "NVML tells nothing of the card any more" in note.say
    row("NVML lost in the middle", phase, path, session, note.say, 4)


def test_an_engine_whose_card_is_gone_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = "Traceback (most recent call last):\n  File 'x'\nRuntimeError: CUDA error: GPU is lost\n"
    lost = {"speed": {"nvml": {"gone": True}, "fail": {"log": log}}}
    path, session = swept(folder, monkeypatch, scripted.nvml(monkeypatch, folder), lost)
    assert [p.status for p in session.points] == ["ok", "crash", "ok", "ok"]
    told = session.points[1].failed
    assert told and "hardware error" in told.say and told.fix and "Xid" in told.fix.say
    row("card lost, engine crashed", "speed", path, session, told.say, 3)


@pytest.mark.parametrize(
    "refused", [["memory"], ["energy", "power"], ["reasons"], ["processes"], ["clock", "temperature"]]
)
def test_a_card_that_does_not_tell_everything(
    refused: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, session = swept(folder, monkeypatch, scripted.nvml(monkeypatch, folder, refused=refused), {})
    assert [p.status for p in session.points] == ["ok"] * 4
    assert (session.points[0].peak_mib is None) == (refused == ["memory"])
    row(f"NVML does not tell {refused[0]}", "any", path, session, "(nothing: the column is empty)", 4)


def test_a_card_that_is_busy_before_the_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch, neighbour: subprocess.Popen[bytes]
) -> None:
    machine = scripted.nvml(monkeypatch, folder, held={str(neighbour.pid): 5000})
    path, session = swept(folder, monkeypatch, machine, {})
    told = session.notes[0].say
    assert "somebody else is on this card" in told and str(neighbour.pid) in told and "5,000 MiB" in told
    assert neighbour.poll() is None
    row("card busy before the start", "start", path, session, told, 4)


def test_an_engine_for_cards_where_nvml_names_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its share of memory is not checked against the machine's, no cache is estimated from it, and it is said."""
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    (model / "model.safetensors").write_bytes(b"0" * 1000)
    monkeypatch.setenv("TUI_TUNER_HOME", str(folder / "home"))
    monkeypatch.setattr(start.engines, "find", lambda _: replace(scripted.engine(), device="cuda"))
    machine = Machine("CPU", 2, 8192, 8192, "Linux")
    monkeypatch.setattr(start.gpu, "probe", lambda: gpu.Probe(machine, why="no NVIDIA driver is installed here"))
    plan = replace(scripted.plan(fixed={"max_model_len": 1024, "gpu_memory_utilization": 0.97}), model=str(model))
    examined = start.examine(plan)
    assert not examined.problems and any("no NVIDIA driver" in warning for warning in examined.warnings)
    assert examined.machine == machine and not examined.estimate.get("memory")
    assert all("kv_tokens" not in told for told in examined.estimate.values() if isinstance(told, dict))
    monkeypatch.setattr(start.engines, "find", lambda _: scripted.engine())
    monkeypatch.setattr(start.gpu, "available_mib", lambda _: 4096)
    assert "gpu_memory_utilization" in str(start.examine(plan).problems[0]), "a CPU engine's share is of this memory"


def test_a_neighbour_comes_in_the_middle(
    folder: Path, monkeypatch: pytest.MonkeyPatch, neighbour: subprocess.Popen[bytes]
) -> None:
    """Memory is not back after the point: the sweep stops with who holds it, and goes on once it is free."""
    comes = {"speed": {"nvml": {"held": {str(neighbour.pid): 7000}}}}
    path, session = swept(folder, monkeypatch, scripted.nvml(monkeypatch, folder), comes, status=1)
    assert session.ended and session.ended.why == "failed" and session.ended.say
    assert "7,000 MiB more" in session.ended.say and f"process {neighbour.pid}" in session.ended.say
    assert neighbour.poll() is None, "a stranger's process is nobody's to kill"
    assert [p.status for p in session.points] == ["ok", "ok"]
    row("neighbour takes memory", "speed", path, session, session.ended.say, 2)
    neighbour.kill()
    neighbour.wait()
    assert scripted.start(path).wait(60) == 0
    session = scripted.released(path)
    assert [p.status for p in session.points] == ["ok"] * 4 and all(p.attempt == 1 for p in session.points)
    row("neighbour has gone, resumed", "speed", path, session, session.launches[-1].why, 4)


class Growing:
    """A card on which somebody takes memory between two points."""

    def __init__(self, machine: Machine) -> None:
        self._asked = 0

    def sample(self, pgid: int | None) -> gpu.Sample:
        return gpu.Sample()

    def used_mib(self) -> int:
        self._asked += 1
        return 500 if self._asked == 1 else 9000

    def processes(self) -> list[gpu.Neighbour]:
        return [gpu.Neighbour(77, "python", 8500)] if self._asked > 1 else []

    def close(self) -> None:
        pass


class Done:
    """In the place of a point's run: measured at once."""

    def __init__(self, of: sweep.Sweep, slot: Slot, baseline_mib: int | None) -> None:
        self.sweep, self.slot = of, slot

    def go(self) -> Outcome:
        self.sweep.emit(ev.PointStarted(self.sweep.now(), self.slot.n, self.slot.role, self.slot.value))
        self.sweep.emit(ev.PointDone(self.sweep.now(), self.slot.n, "ok"))
        return Outcome()


def test_a_neighbour_that_comes_between_two_points(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for; then the point is measured all the same, and it is said who was there."""
    monkeypatch.setattr(sweep.gpu, "Sampler", Growing)
    monkeypatch.setattr(sweep, "PointRun", Done)
    path = scripted.session(folder, values=(8,))
    before = {number: signal.getsignal(number) for number in signal.Signals if number not in (9, 19)}
    try:
        assert sweep.run(path, lambda problem: None, Limits(busy=0.5)) == 0
    finally:
        for number, handler in before.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
    session = sessionfile.read(path)
    (note,) = session.notes
    assert "before point 2 (8) the card held 8,500 MiB more than at the start" in note.say and "process 77" in note.say
    FAULTS.append(("neighbour comes between two points", "start", "3 of 3 points", "nothing", note.say[:150]))


def test_memory_that_comes_back_late_is_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's child outlives it for a moment in the driver: here a process that ends by itself."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3)"], start_new_session=True) as late:
        comes = {"speed": {"nvml": {"held": {str(late.pid): 7000}}}}
        rules = [{"do": {"at": LOADS}}, {"when": {"max_num_seqs": 8}, "do": {"at": LOADS | comes}}]
        scripted.scenario(monkeypatch, folder, rules)
        path = scripted.session(folder, values=(8, 2), machine=scripted.nvml(monkeypatch, folder))
        assert scripted.start(path, memory=30.0).wait(60) == 0
    session = scripted.released(path)
    assert [p.status for p in session.points] == ["ok"] * 4 and sessionfile.read(path).ended
    row("memory comes back late", "clean", path, session, "(nothing: it is waited for)", 4)
