"""The worker as a process: its first words, its pipe, and how it ends. This Python has no vLLM, and needs none here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tui_tuner.model import wire
from tui_tuner.model.load import Load
from tui_tuner.worker.__main__ import root

ROOT = Path(__file__).parents[2]
TASK = wire.Task(args={"model": "/nowhere"}, load=Load(), requests=4, seed=0)


def start(code: list[str], folder: Path) -> tuple[subprocess.Popen[bytes], int, int]:
    """A process in a session of its own, the end to write to it and the end to read from it; {in} and {out} in `code`
    stand for its own ends."""
    inward, to = os.pipe()
    back, outward = os.pipe()
    arguments = [word.replace("{in}", str(inward)).replace("{out}", str(outward)) for word in code]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            pass_fds=(inward, outward),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    os.close(inward)
    os.close(outward)
    return process, to, back


def read_all(fd: int) -> list[wire.FromWorker]:
    with os.fdopen(fd, "rb") as lines:
        return [wire.from_worker.decode(line) for line in lines]


WORKER = ["-m", "tui_tuner.worker", "--in", "{in}", "--out", "{out}"]


@pytest.fixture
def no_vllm() -> None:
    if subprocess.run([sys.executable, "-c", "import vllm"], capture_output=True).returncode == 0:
        pytest.skip("this interpreter has vLLM")


@pytest.mark.usefixtures("no_vllm")
def test_without_vllm_it_says_so(tmp_path: Path) -> None:
    process, to, back = start(WORKER, tmp_path)
    os.write(to, wire.encode(TASK))
    messages = read_all(back)
    assert process.wait() == 1
    os.close(to)
    hello, *entered, failed = messages
    assert isinstance(hello, wire.Hello)
    assert hello.pid == process.pid
    assert [m.phase for m in entered if isinstance(m, wire.Entered)] == ["spawn", "import"]
    assert isinstance(failed, wire.Failed)
    assert (failed.phase, failed.exception) == ("import", "ModuleNotFoundError")
    assert "vllm" in failed.message
    assert "Traceback" in (tmp_path / "log").read_text()


def test_a_line_that_is_no_message(tmp_path: Path) -> None:
    process, to, back = start(WORKER, tmp_path)
    os.write(to, b'{"type":"task","args":3}\n')
    *_, failed = read_all(back)
    assert process.wait() == 1
    os.close(to)
    assert isinstance(failed, wire.Failed)
    assert failed.phase == "spawn"
    assert "args" in failed.message


def test_a_stop_before_the_task(tmp_path: Path) -> None:
    process, to, back = start(WORKER, tmp_path)
    os.write(to, wire.encode(wire.Stop()))
    assert process.wait() == 0
    os.close(to)
    assert not [m for m in read_all(back) if isinstance(m, wire.Failed)]


def test_with_the_runner_gone_nothing_stays(tmp_path: Path) -> None:
    process, to, back = start(WORKER, tmp_path)
    os.close(to)
    assert process.wait() == -signal.SIGKILL
    os.close(back)


# Stands for a worker at work: it listens, starts a child in its group and forks another, and would sleep for ever.
BUSY = """
import os, subprocess, sys, time
from tui_tuner.model import wire
from tui_tuner.worker.channel import Channel, kill_own_group
channel = Channel(int(sys.argv[1]), int(sys.argv[2]))
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], close_fds=False)
forked = os.fork()
if forked == 0:
    time.sleep(600)
channel.listen(on_stop=lambda: os._exit(7), on_end=kill_own_group)
channel.send(wire.Hello(pid=os.getpid(), python=f"{child.pid} {forked}"))
time.sleep(600)
"""


def test_end_of_file_ends_the_whole_group(tmp_path: Path) -> None:
    process, to, back = start(["-c", BUSY, "{in}", "{out}"], tmp_path)
    with os.fdopen(back, "rb") as lines:
        hello = wire.from_worker.decode(lines.readline())
        assert isinstance(hello, wire.Hello)
        os.close(to)
        assert process.wait() == -signal.SIGKILL
        # Neither child holds the pipe: its end comes although nobody has reaped them.
        assert lines.read() == b""
    for pid in map(int, hello.python.split()):
        assert _gone(pid)


def test_the_pipe_ends_with_the_worker_although_its_children_live(tmp_path: Path) -> None:
    process, to, back = start(["-c", BUSY, "{in}", "{out}"], tmp_path)
    try:
        with os.fdopen(back, "rb") as lines:
            lines.readline()
            os.write(to, wire.encode(wire.Stop()))
            assert process.wait() == 7
            assert lines.read() == b""
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        os.close(to)


def test_a_message_larger_than_the_pipe_arrives_whole(tmp_path: Path) -> None:
    code = (
        "import sys; from tui_tuner.model import wire; from tui_tuner.worker.channel import Channel\n"
        "message = wire.Failed(phase='load', exception='x', message='y' * 3_000_000)\n"
        "Channel(int(sys.argv[1]), int(sys.argv[2])).send(message)"
    )
    process, to, back = start(["-c", code, "{in}", "{out}"], tmp_path)
    (message,) = read_all(back)
    assert process.wait() == 0
    os.close(to)
    assert isinstance(message, wire.Failed)
    assert len(message.message) == 3_000_000


def test_an_unknown_message_is_passed_over(tmp_path: Path) -> None:
    process, to, back = start(["-c", BUSY, "{in}", "{out}"], tmp_path)
    os.write(to, json.dumps({"type": "novelty"}).encode() + b"\n" + wire.encode(wire.Stop()))
    assert process.wait() == 7
    os.killpg(process.pid, signal.SIGKILL)
    os.close(to)
    os.close(back)


def test_the_root_of_an_exception() -> None:
    def chained() -> BaseException:
        try:
            try:
                raise KeyError("first")
            except KeyError:
                raise ValueError("second")  # noqa: B904 (a context, not a cause)
        except ValueError as error:
            try:
                raise RuntimeError("third") from error
            except RuntimeError as last:
                return last

    assert repr(root(chained())) == "KeyError('first')"
    plain = OSError("alone")
    assert root(plain) is plain
    hidden = RuntimeError("said instead")
    hidden.__context__, hidden.__suppress_context__ = KeyError("hidden"), True
    assert root(hidden) is hidden
    ring = ValueError("a")
    ring.__context__ = KeyError("b")
    ring.__context__.__context__ = ring
    assert isinstance(root(ring), KeyError)


def _gone(pid: int) -> bool:
    """Whether a process ends within 10 s (killed already, it may wait for its parent's death to be noticed)."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    import select

    ready, _, _ = select.select([descriptor], [], [], 10)
    os.close(descriptor)
    return bool(ready)
