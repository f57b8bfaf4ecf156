"""One point on a real engine, spoken to over the wire as the runner does."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tui_tuner
from tui_tuner import engines
from tui_tuner.model import wire
from tui_tuner.model.load import Load

pytestmark = pytest.mark.engine


class Worker:
    """A worker in a folder of its own; everything of its process group is gone when the block ends."""

    def __init__(self, python: str, folder: Path) -> None:
        (folder / "cwd").mkdir()
        (folder / "lib").mkdir()
        (folder / "lib" / "tui_tuner").symlink_to(Path(tui_tuner.__file__).parent)
        self.log = folder / "log"
        inward, self._to = os.pipe()
        self._from, outward = os.pipe()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [python, "-m", "tui_tuner.worker", "--in", str(inward), "--out", str(outward)],
                pass_fds=(inward, outward),
                cwd=folder / "cwd",
                env={**os.environ, "PYTHONPATH": str(folder / "lib")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        os.close(inward)
        os.close(outward)

    def send(self, message: wire.ToWorker) -> None:
        os.write(self._to, wire.encode(message))

    def hang_up(self) -> None:
        os.close(self._to)
        self._to = -1

    def messages(self) -> Iterator[wire.FromWorker]:
        with os.fdopen(self._from, "rb") as lines:
            self._from = -1
            for line in lines:
                yield wire.from_worker.decode(line)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for fd in (self._to, self._from):
            if fd >= 0:
                os.close(fd)


@pytest.fixture(scope="module")
def engine() -> str:
    return engines.find().python


@pytest.fixture(scope="module")
def args(engine: str) -> dict[str, Any]:
    model = engines.practice.ensure(engines.find())
    return {"model": str(model), "max_model_len": 1024, "enforce_eager": True, "gpu_memory_utilization": 0.3}


def test_one_point(engine: str, args: dict[str, Any], tmp_path: Path) -> None:
    """Phases, capacity, rows and answers; at the runner's end of file the whole group is gone."""
    questions = [
        wire.Question("sum", prompt="What is 2 + 2? Answer with a number."),
        wire.Question("chat", messages=[{"role": "user", "content": "What is the capital of France?"}]),
    ]
    load = Load("closed", (8,), (), 128, 32)
    task = wire.Task(args=args, load=load, requests=16, seed=0, questions=questions, warmup_max_s=5)
    with Worker(engine, tmp_path) as worker:
        worker.send(task)
        seen = []
        for message in worker.messages():
            seen.append(message)
            if isinstance(message, wire.Finished):
                break
        assert isinstance(seen[-1], wire.Finished), worker.log.read_text()[-4000:]
        worker.hang_up()
        assert worker.process.wait(20) == -signal.SIGKILL
        until = time.monotonic() + 20
        while _alive(worker.process.pid) and time.monotonic() < until:
            time.sleep(0.1)
        assert not _alive(worker.process.pid)

    assert isinstance(seen[0], wire.Hello)
    phases = list(dict.fromkeys(message.phase for message in seen if isinstance(message, wire.Entered)))
    assert phases == ["spawn", "import", "load", "kv_cache", "ready", "warmup", "speed", "quality"]
    warmup = [m.detail for m in seen if isinstance(m, wire.Entered) and m.phase == "warmup" and m.detail]
    assert warmup
    assert all("tok/s" in detail for detail in warmup)

    (ready,) = (message for message in seen if isinstance(message, wire.Ready))
    assert ready.kv_blocks
    assert ready.block_size
    assert ready.kv_tokens == ready.kv_blocks * ready.block_size
    assert ready.max_concurrency == pytest.approx(ready.kv_tokens / 1024, rel=0.02)
    assert ready.kv_gib
    assert ready.backend
    assert ready.startup_s
    assert any(name.endswith("max_num_seqs") for name in ready.resolved)

    (level,) = (message for message in seen if isinstance(message, wire.Level))
    assert level.prompt_tokens == [128] * 16
    assert level.output_tokens == [32] * 16
    assert level.finish == ["length"] * 16
    assert all(len(gaps) == 31 for gaps in level.gaps)
    for sent, first, last, gaps in zip(level.sent, level.first, level.last, level.gaps, strict=True):
        assert first is not None
        assert last is not None
        assert sent < first < last
        # A gap is rounded to a tenth of a millisecond.
        assert sum(gaps) / 1e4 == pytest.approx(last - first, abs=31 * 0.6e-4)
    assert level.prefix_queries == 16 * 128
    assert level.prefix_hits == 0
    assert level.preemptions == 0
    assert level.running_mean is not None
    assert 1 < level.running_mean <= 8
    assert level.kv_usage_max

    stats = [message for message in seen if isinstance(message, wire.Stats)]
    assert stats
    assert max(message.running for message in stats) <= 8
    assert max(message.tok_s for message in stats) > 0

    (replies,) = (message for message in seen if isinstance(message, wire.Replies))
    assert replies.item == ["sum", "chat"]
    assert replies.chat_template
    assert all(replies.text)
    assert all(tokens > 0 for tokens in replies.tokens)


def test_an_unknown_argument_is_told_and_not_tried(engine: str, args: dict[str, Any], tmp_path: Path) -> None:
    with Worker(engine, tmp_path) as worker:
        worker.send(wire.Task(args={**args, "max_num_seq": 8}, load=Load(), requests=4, seed=0))
        *_, last = worker.messages()
        assert isinstance(last, wire.Failed)
        assert (last.phase, last.exception) == ("load", "TypeError")
        assert "max_num_seq" in last.message
        assert worker.process.wait(20) == 1
        assert "Traceback" in worker.log.read_text()


def test_stop_while_the_engine_starts(engine: str, args: dict[str, Any], tmp_path: Path) -> None:
    with Worker(engine, tmp_path) as worker:
        worker.send(wire.Task(args=args, load=Load(), requests=4, seed=0))
        for message in worker.messages():
            if isinstance(message, wire.Entered) and message.phase == "load":
                worker.send(wire.Stop())
        assert not isinstance(message, wire.Failed)
        assert worker.process.wait(60) == 0


def _alive(pgid: int) -> bool:
    """Whether anything of the group runs (a zombie that waits to be reaped does not)."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            except OSError:
                continue
            if int(group) == pgid and state != "Z":
                return True
    return False
