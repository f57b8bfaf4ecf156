"""The runner's parts one by one: memory of the device, progress, the card's lock, the device's columns, the folder."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tui_tuner import gpu
from tui_tuner.gpu import Neighbour, Sample
from tui_tuner.runner import clean, logs, processes
from tui_tuner.runner.card import CardBusy, CardLock
from tui_tuner.runner.child import Guard, Work, environment, own_work
from tui_tuner.runner.limits import Limits, Watch
from tui_tuner.runner.point import over


class Meter:
    """A card whose memory goes through the given amounts."""

    def __init__(self, *mib: int | None, neighbours: tuple[Neighbour, ...] = ()) -> None:
        self._mib, self._neighbours = list(mib), neighbours

    def used_mib(self) -> int | None:
        return self._mib.pop(0) if len(self._mib) > 1 else self._mib[0]

    def processes(self) -> list[Neighbour]:
        return list(self._neighbours)


def test_memory_that_comes_back_is_waited_for() -> None:
    assert clean.memory_back(Meter(25_383, 9_000, 620), 615, 30.0) == (620, None)


def test_memory_that_stays_away_ends_the_sweep_with_who_holds_it() -> None:
    meter = Meter(25_383, neighbours=(Neighbour(77, "VLLM::EngineCore", 24_768), Neighbour(5, "Xorg", None)))
    used, say = clean.memory_back(meter, 615, 0.0)
    assert used == 25_383 and say and "24,768 MiB" in say and "process 77" in say and "resume" in say
    _, unknown = clean.memory_back(Meter(9_000), 615, 0.0)
    assert unknown and "does not say who" in unknown


def test_a_card_that_tells_nothing_holds_nothing_up() -> None:
    assert clean.memory_back(Meter(None), 615, 30.0) == (None, None)
    assert clean.memory_back(Meter(9_000), None, 30.0) == (9_000, None)


def test_progress_is_what_moves() -> None:
    limits = Limits(quiet={"load": 10.0, "speed": 10.0}, no_token=5.0, longest=100.0, tick=1.0)
    watch = Watch(limits, 0.0)
    watch.enter("load", 0.0)
    for second in range(1, 60):
        watch.io(second * 200_000, second)  # a slow download: a megabyte in six seconds
        assert watch.overdue(second) is None
    for second in range(60, 64):
        assert watch.overdue(second) is None
    assert "nothing moved" in (watch.overdue(70) or "")
    watch.log(100, 70)
    assert watch.overdue(71) is None
    assert "nothing moved" in (watch.overdue(75) or watch.overdue(81) or "")


def test_no_token_is_only_a_fault_while_requests_wait() -> None:
    limits = Limits(quiet={"speed": 1000.0}, no_token=5.0, tick=1.0)
    watch = Watch(limits, 0.0)
    watch.enter("speed", 0.0)
    for second in range(1, 30):
        watch.stats(0.0, 0, 0, second)  # an open loop between two arrivals
        assert watch.overdue(second) is None
    for second in range(30, 35):
        watch.stats(0.0, 0, 3, second)
    assert "no token came" in (watch.overdue(36) or "")


def test_a_pause_of_the_runner_is_nobodys_fault() -> None:
    watch = Watch(Limits(quiet={"load": 10.0}, tick=0.5), 0.0)
    watch.enter("load", 0.0)
    assert watch.overdue(1.0) is None
    assert watch.overdue(3600.0) is None, "stopped, or the machine slept"
    assert watch.overdue(3605.0) is None
    assert watch.overdue(3609.5) is not None


def test_a_phase_has_an_end_whatever_it_shows() -> None:
    watch = Watch(Limits(longest=50.0, tick=100.0), 0.0)
    watch.enter("compile", 0.0)
    watch.log(5, 49.0)
    assert watch.overdue(49.0) is None
    watch.log(6, 51.0)
    assert "hours" in (watch.overdue(51.0) or "")


def test_the_cards_lock_names_its_holder(tmp_path: Path) -> None:
    first = CardLock("GPU-../../x", "session-a", tmp_path / "locks")
    assert (tmp_path / "locks").stat().st_mode & 0o7777 == 0o1777
    with pytest.raises(CardBusy) as busy:
        CardLock("GPU-../../x", "session-b", tmp_path / "locks")
    assert "session-a" in str(busy.value) and str(os.getpid()) in str(busy.value)
    other = CardLock("GPU-y", "session-b", tmp_path / "locks")
    first.close()
    CardLock("GPU-../../x", "session-b", tmp_path / "locks").close()
    other.close()


def test_what_a_lock_file_says_is_text(tmp_path: Path) -> None:
    lock = CardLock("cpu", "s", tmp_path)
    (tmp_path / "cpu.lock").write_text('{"session":"\\u001b[31mx","pid":1,"user":"[b]"}')
    with pytest.raises(CardBusy) as busy:
        CardLock("cpu", "b", tmp_path)
    assert "\x1b" not in str(busy.value) and "[b]" not in str(busy.value)
    lock.close()


def test_a_links_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cpu.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        CardLock("cpu", "s", tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_the_devices_columns_of_a_level() -> None:
    samples = [
        (100.0, Sample(energy_j=1000.0, sm_mhz=100, temp_c=40, throttle=0x1)),
        (101.0, Sample(energy_j=1100.0, sm_mhz=1900, temp_c=50, throttle=0x4)),
        (102.0, Sample(energy_j=1800.0, sm_mhz=1980, temp_c=60, throttle=0x20)),
        (103.0, Sample(energy_j=2500.0, sm_mhz=1980, temp_c=61, throttle=0x4)),
    ]
    device = over(samples, 100.5, 102.5)
    assert device.energy_j == pytest.approx(2150.0 - 1050.0)
    assert (device.throttle, device.sm_mhz, device.temp_c) == (0x24, 1940.0, 60)
    assert gpu.spoils(device.throttle)
    assert over([], 0.0, 1.0).energy_j is None
    assert over(samples, 90.0, 102.0).energy_j is None, "nothing is made up for a time that was not sampled"


def test_a_points_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror")
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setenv("VIRTUAL_ENV", "/ours")
    work = Work("s1")
    try:
        env = environment(work.path, "GPU-1")
        assert env["CUDA_VISIBLE_DEVICES"] == "GPU-1" and env["HF_ENDPOINT"] == "https://mirror"
        assert env["PYTHONPATH"] == f"{work.path}/lib:/mine" and "VIRTUAL_ENV" not in env
        assert [p.name for p in (work.path / "lib").iterdir()] == ["tui_tuner"]
        assert not list((work.path / "cwd").iterdir()) and len(env["TMPDIR"]) < 60
        assert env["VLLM_NO_USAGE_STATS"] == "1"
        assert own_work(str(work.path), "s1") == work.path
        assert own_work(str(work.path), "another") is None
    finally:
        assert work.remove() is None


@pytest.mark.parametrize(
    "path", ["", "/", "/home/somebody", "/tmp", "/tmp/tt-x/../../home", "tt-relative", "/tmp/tt-none"]
)
def test_a_folder_named_by_a_session_from_elsewhere_is_not_believed(path: str) -> None:
    assert own_work(path, "s1") is None


def test_the_guard_survives_signals_and_ends_by_itself() -> None:
    guard = Guard()
    for sig in (1, 2, 15):
        os.kill(guard.pid, sig)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True) as sleeper:
        found = processes.process(sleeper.pid)
        assert found
        guard.arm(sleeper.pid, found.started, Path("/tmp/tt-nothing"))
        pid = guard.pid
        guard.close()  # as if the runner had died: the end of its pipe
        assert sleeper.wait(10) == -9
    assert not Path(f"/proc/{pid}").exists() or processes.process(pid) is None


def test_a_guard_that_was_disarmed_kills_nobody() -> None:
    guard = Guard()
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True) as sleeper:
        found = processes.process(sleeper.pid)
        assert found
        guard.arm(sleeper.pid, found.started, Path("/tmp/tt-nothing"))
        guard.disarm()
        guard.close()
        time.sleep(0.1)
        assert sleeper.poll() is None
        guard = Guard()
        guard.arm(sleeper.pid, found.started + 1, Path("/tmp/tt-nothing"))  # the number is somebody else's by now
        guard.close()
        assert sleeper.poll() is None
        sleeper.kill()


def test_a_log_is_redacted_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "a-word-of-mine")
    log = tmp_path / "point.log"
    log.write_bytes(b"one a-word-of-mine two\r\n\xff\xfe three\n")
    logs.redact(log)
    assert log.read_bytes() == b"one *** two\r\n\xff\xfe three\n"
    assert [p.name for p in tmp_path.iterdir()] == ["point.log"]
    logs.redact(tmp_path / "none.log")


def test_what_a_killed_group_leaves_is_reaped_here() -> None:
    """In a process of its own: a subreaper stays one."""
    code = """
import os, signal, subprocess, sys, time
from pathlib import Path
from tui_tuner.runner import processes

def dead(pgid):
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        p = processes.process(int(entry.name))
        if p and p.pgid == pgid and not p.alive:
            found.append(p.pid)
    return found

assert processes.adopt_orphans()
worker = subprocess.Popen(["sh", "-c", "sleep 600 & echo ready; wait"], start_new_session=True, stdout=subprocess.PIPE)
worker.stdout.readline()
processes.kill_group(worker.pid, signal.SIGKILL)
assert not processes.wait_gone(worker.pid, 10)
worker.wait()
assert len(dead(worker.pid)) == 1, "the orphan came here"
processes.reap(-worker.pid)
assert not dead(worker.pid)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
