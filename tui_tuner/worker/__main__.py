"""`python -m tui_tuner.worker --in FD --out FD`: one point's work in the engine's Python.

vLLM's children import this module again when they are spawned, so that nothing may happen at import.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time
import traceback
from typing import Any, NoReturn

import msgspec

from tui_tuner.model import wire
from tui_tuner.worker.channel import Channel, kill_own_group


class Stopped(BaseException):
    """The runner wants an end."""


def root(error: BaseException) -> BaseException:
    """The exception that began it: the far end of the chain of causes and contexts."""
    seen = {id(error)}
    while True:
        before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if before is None or id(before) in seen:
            return error
        seen.add(id(before))
        error = before


def main() -> NoReturn:
    """Does the work and leaves: 0 when stopped, 1 after `Failed`, by a signal when the runner is gone."""
    began = time.perf_counter()
    parser = argparse.ArgumentParser(
        prog="tui_tuner.worker", description="One point of a sweep; started by the runner."
    )
    parser.add_argument("--in", dest="inward", type=int, required=True, metavar="FD")
    parser.add_argument("--out", dest="outward", type=int, required=True, metavar="FD")
    options = parser.parse_args()
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    # On CUDA vLLM forks its core by default; a spawned one shares nothing of this process.
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    os.environ["VLLM_NO_USAGE_STATS"] = os.environ["DO_NOT_TRACK"] = "1"
    channel = Channel(options.inward, options.outward)
    channel.send(wire.Hello(pid=os.getpid(), python=sys.version.split()[0]))
    channel.enter("spawn")
    try:
        task = channel.receive()
    except msgspec.DecodeError as error:
        channel.send(wire.Failed(phase="spawn", exception=type(error).__name__, message=str(error)))
        sys.exit(1)
    if task is None:
        kill_own_group()
    if not isinstance(task, wire.Task):
        sys.exit(0)
    signal.signal(signal.SIGTERM, _raise_stopped)
    channel.listen(on_stop=lambda: os.kill(os.getpid(), signal.SIGTERM), on_end=kill_own_group)
    code = 0
    try:
        asyncio.run(_point(task, channel, began))
    except Stopped:
        pass
    except BaseException as error:  # noqa: BLE001 (whatever ended the point is told, a SystemExit too)
        traceback.print_exc()
        first = root(error)
        channel.send(wire.Failed(phase=channel.phase, exception=type(first).__name__, message=str(first)))
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: threads and exit handlers of the libraries may hang, and nothing is left that needs them.
    os._exit(code)


def _raise_stopped(*_: object) -> None:
    raise Stopped


async def _point(task: wire.Task, channel: Channel, began: float) -> None:
    """All phases of a point, then waiting for the runner's end. Raises Stopped when that comes as a word, and whatever
    ended the point early."""
    from tui_tuner.worker import engine as engines
    from tui_tuner.worker.stats import Recorder

    recorder, log = Recorder(), engines.Log()
    channel.enter("import")
    import vllm.v1.engine.async_llm  # noqa: F401

    with engines.Watch(log, channel):
        channel.enter("load", "starting the engine")
        engine = engines.start(task.args, recorder)
    loop, this = asyncio.get_running_loop(), asyncio.current_task()
    assert this is not None
    # From here on the loop runs, and a stop is a cancellation; before, only an exception could break the start off.
    loop.add_signal_handler(signal.SIGTERM, this.cancel)
    ticker: asyncio.Task[None] | None = None
    try:
        channel.send(engines.ready(engine, log.text(), time.perf_counter() - began))
        channel.enter("ready")
        ticker = asyncio.create_task(_tick(channel, recorder, task.tick_s))
        await _work(task, channel, engine, recorder)
        ticker.cancel()
        channel.send(wire.Finished())
        await asyncio.Event().wait()  # the runner kills us: quicker than the engine's own end
    except asyncio.CancelledError:
        if ticker is not None:
            ticker.cancel()
        channel.enter("stop")
        engine.shutdown()
        raise Stopped from None


async def _work(task: wire.Task, channel: Channel, engine: Any, recorder: Any) -> None:
    from tui_tuner.model import draw
    from tui_tuner.worker import engine as engines
    from tui_tuner.worker import load, quality

    words = await engines.tokenizer(engine)
    allowed = engines.allowed_ids(engine, words)
    coder = quality.Prompts(words) if words is not None else engines.NoTokenizer()

    def prepare(level: int, count: int) -> list[load.Prepared]:
        drawn = draw.requests(task.load, level, task.seed, count, allowed, task.trace)
        return load.prepare(drawn, coder, engines.exact_length)

    if task.requests > 0:
        channel.enter("warmup")
        levels = task.load.levels()
        warmed = await load.warm_up(
            engine,
            prepare,
            load.warmup_clients(task.load),
            task.requests * len(levels),
            task.warmup_agree,
            (task.warmup_least_s, task.warmup_max_s),
            lambda words: channel.enter("warmup", words),
        )
        channel.send(warmed)
        own_words = any(row.get("prompt") or row.get("messages") for row in task.trace)
        for index, value in enumerate(levels):
            prepared = prepare(index, task.requests)
            if index and own_words:  # the person's own prompts come again at every level: they must be new to the cache
                await engine.reset_prefix_cache()
            channel.enter("speed", f"level {index + 1} of {len(levels)}: {value:g}" if len(levels) > 1 else None)
            channel.send(await load.level(engine, task.load, index, prepared, recorder))
    if task.questions:
        channel.enter("quality", f"{len(task.questions)} questions")
        channel.send(await quality.ask(engine, task.questions, coder, engines.to_the_end(task.max_tokens)))


async def _tick(channel: Channel, recorder: Any, every_s: float) -> None:
    """The engine's statistics, every `every_s` seconds."""
    before = recorder.totals()
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(every_s)
            now = recorder.totals()
            channel.send(
                wire.Stats(
                    tok_s=round((now.generated - before.generated) / max(now.at - before.at, 1e-9), 2),
                    running=recorder.running,
                    waiting=recorder.waiting,
                    kv_usage=round(recorder.kv_usage, 6),
                    preemptions=now.preemptions,
                )
            )
            before = now


if __name__ == "__main__":
    main()
