"""The speed pass: sending a load to the engine, and what came when.

One asyncio loop carries the clients and vLLM's own output handling, as in its server. While a level runs, each
token batch costs two appends; gaps are worked out afterwards, so that the client is not what is measured.
"""

from __future__ import annotations

import asyncio
import gc
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from msgspec import Struct

from tui_tuner.model import draw, wire
from tui_tuner.model.load import Load
from tui_tuner.worker.stats import Recorder, Totals

_WINDOW_S = 0.5  # a warm-up window shorter than this measures little but its edges
ERROR = "error"  # the finish reason of a request that the engine refused


class Engine(Protocol):
    """The part of vLLM's AsyncLLM that a load needs."""

    def generate(self, prompt: Any, sampling_params: Any, request_id: str) -> AsyncIterator[Any]: ...


class Coder(Protocol):
    """How text becomes token ids: a piece of it, a whole prompt, or a conversation."""

    @property
    def has_template(self) -> bool: ...
    def encode(self, text: str) -> Sequence[int]: ...
    def plain(self, text: str) -> Sequence[int]: ...
    def chat(self, messages: Sequence[dict[str, Any]]) -> Sequence[int]: ...


class Prepared(Struct):
    """A request ready to be sent, and its sampling parameters; `arrival` in seconds since the level began, or None."""

    prompt: dict[str, Any]
    params: Any
    size: int
    arrival: float | None = None


class Row(Struct):
    """What happened to one request, by `time.perf_counter()`. `stamps` holds when each batch of tokens came and how
    many tokens it was."""

    size: int
    planned: float
    sent: float = 0.0
    stamps: list[tuple[float, int]] = []
    finish: str = ""

    @property
    def first(self) -> float | None:
        return self.stamps[0][0] if self.stamps else None

    @property
    def last(self) -> float | None:
        return self.stamps[-1][0] if self.stamps else None

    @property
    def tokens(self) -> int:
        return sum(count for _, count in self.stamps)

    def gaps(self) -> list[int]:
        """The wait before every token after the first, in tenths of a millisecond.

        Tokens that came together (speculation, or a step that the client saw late) share the wait before them: a gap
        of g with k tokens is k waits of g/k, so that their sum stays the time that passed and ITL counts tokens, not
        chunks. What came together with the first token has no wait.
        """
        waits: list[int] = []
        before = None
        for at, count in self.stamps:
            if before is None:
                waits += [0] * (count - 1)
            else:
                waits += [round((at - before) / count * 1e4)] * count
            before = at
        return waits


class Failures:
    """Requests that the engine refused: noted one by one, and an error of the whole level if nothing else came."""

    def __init__(self) -> None:
        self.first: Exception | None = None
        self.count = 0

    def add(self, error: Exception) -> None:
        self.count += 1
        if self.first is None:
            self.first = error
            traceback.print_exception(type(error), error, error.__traceback__)


def is_dead(engine: Engine, error: BaseException) -> bool:
    """Whether an exception means that the engine is gone, in any version's wording."""
    return bool(getattr(engine, "errored", False)) or any("EngineDead" in cls.__name__ for cls in type(error).__mro__)


async def closed(
    engine: Engine, prepared: Sequence[Prepared], clients: int, name: str, failures: Failures
) -> list[Row]:
    """A closed loop: `clients` clients, each sending its next request when the last one is answered.

    A request is planned at its client's previous completion, or at the beginning. Raises what the engine died of.
    """
    began = time.perf_counter()
    rows: list[Row] = [Row(item.size, began) for item in prepared]
    waiting = iter(range(len(prepared)))

    async def client() -> None:
        planned = began
        for index in waiting:  # one iterator for all: each client takes the next request
            row = rows[index]
            row.planned = planned
            await _send(engine, prepared[index], row, f"{name}-{index}", failures)
            planned = time.perf_counter()

    await _all([client() for _ in range(min(clients, len(prepared)))])
    return rows


async def open_loop(engine: Engine, prepared: Sequence[Prepared], name: str, failures: Failures) -> list[Row]:
    """Arrivals at their planned times, whatever the engine does. Raises what the engine died of."""
    began = time.perf_counter()
    rows = [Row(item.size, began + (item.arrival or 0.0)) for item in prepared]

    async def arrive(index: int) -> None:
        wait = rows[index].planned - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        await _send(engine, prepared[index], rows[index], f"{name}-{index}", failures)

    await _all([arrive(index) for index in range(len(prepared))])
    return rows


async def _send(engine: Engine, item: Prepared, row: Row, name: str, failures: Failures) -> None:
    stamps: list[tuple[float, int]] = []
    row.stamps = stamps
    clock = time.perf_counter
    row.sent = clock()
    # All clients that were answered in one step hand over their next request before the front end takes the first:
    # it takes them one by one (0.3 ms each), as a server's does, and that wait is the engine's, part of TTFT.
    await asyncio.sleep(0)
    try:
        async for output in engine.generate(item.prompt, item.params, name):
            only = output.outputs[0]
            count = len(only.token_ids)
            if count:
                stamps.append((clock(), count))
            if only.finish_reason is not None:
                row.finish = only.finish_reason
    except Exception as error:
        if is_dead(engine, error):
            raise
        row.finish = ERROR
        failures.add(error)


async def _all(work: Sequence[Any]) -> None:
    """Runs everything at once; the first exception cancels the rest and is raised."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def no_collection() -> Iterator[None]:
    """No garbage collection while a level runs: a full one stops all clients for tens of milliseconds."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


async def level(engine: Engine, load: Load, index: int, prepared: Sequence[Prepared], recorder: Recorder) -> wire.Level:
    """Sends one level and gives its rows. Raises the first refusal if every request was refused, and what the engine
    died of."""
    value = load.levels()[index]
    failures = Failures()
    recorder.take_kv_max()
    before = recorder.totals()
    with no_collection():
        began, zero = time.time(), time.perf_counter()
        if prepared and prepared[0].arrival is not None:
            rows = await open_loop(engine, prepared, f"level{index}", failures)
        else:
            rows = await closed(engine, prepared, max(1, int(value)), f"level{index}", failures)
        ended = time.time()
    if failures.first is not None and failures.count == len(rows):
        raise failures.first
    # The engine's statistics of the last step are recorded just after its tokens are handed out.
    await asyncio.sleep(0.01)
    return _table(rows, zero, value, load.kind, (began, ended), before, recorder)


def _table(
    rows: Sequence[Row],
    zero: float,
    value: float,
    kind: str,
    when: tuple[float, float],
    before: Totals,
    recorder: Recorder,
) -> wire.Level:
    def since(at: float | None) -> float | None:
        return None if at is None else round(at - zero, 6)

    after = recorder.totals()
    seconds = max(after.at - before.at, 1e-9)
    drafted = after.drafted - before.drafted
    return wire.Level(
        level=value,
        kind=kind,
        began=when[0],
        ended=when[1],
        planned=[round(row.planned - zero, 6) for row in rows],
        sent=[round(row.sent - zero, 6) for row in rows],
        first=[since(row.first) for row in rows],
        last=[since(row.last) for row in rows],
        prompt_tokens=[row.size for row in rows],
        output_tokens=[row.tokens for row in rows],
        finish=[row.finish for row in rows],
        gaps=[row.gaps() for row in rows],
        prefix_queries=after.prefix_queries - before.prefix_queries,
        prefix_hits=after.prefix_hits - before.prefix_hits,
        preemptions=after.preemptions - before.preemptions,
        draft_tokens=drafted or None,
        accepted_tokens=after.accepted - before.accepted if drafted else None,
        running_mean=round((after.running_area - before.running_area) / seconds, 3),
        waiting_mean=round((after.waiting_area - before.waiting_area) / seconds, 3),
        kv_usage_max=round(recorder.take_kv_max(), 6),
    )


def warmup_clients(load: Load) -> int:
    """How many clients warm the engine: the first level's, or about as many as arrive in a second."""
    first = load.levels()[0]
    return max(1, min(int(-(-first // 1)), 1024 if load.kind == "closed" else 64))


async def warm_up(
    engine: Engine,
    prepare: Callable[[int, int], Sequence[Prepared]],
    clients: int,
    work: int,
    agree: float,
    limits: tuple[float, float],
    tell: Callable[[str], None],
) -> wire.Warmed:
    """Windows of equal work until the output tok/s of two in a row differ by no more than `agree` (a share), or time
    is up; at least one. `prepare(level, count)` makes requests.

    Time is up after as long as the speed pass, `work` requests, will take at the last window's rate, within `limits`
    (seconds): a warm-up that never agrees costs no more than what it is for.

    A window is one request a client; while it takes less than half a second it is doubled. Raises the refusal if a
    window had no output, and what the engine died of.
    """
    began = time.perf_counter()
    count, before, windows = clients, None, 0
    while True:
        prepared = prepare(draw.WARMUP - windows, count)
        failures = Failures()
        start = time.perf_counter()
        rows = await closed(engine, prepared, clients, f"warmup{windows}", failures)
        seconds = max(time.perf_counter() - start, 1e-9)
        windows += 1
        tokens = sum(row.tokens for row in rows)
        if not tokens:
            raise failures.first or RuntimeError("the engine answered the warm-up without a single token")
        speed = tokens / seconds
        limit = max(limits[0], min(limits[1], work * seconds / count))
        tell(f"window {windows}: {speed:,.0f} tok/s, {limit:.0f} s at most")
        agreed = before is not None and abs(speed - before) <= agree * before
        took = time.perf_counter() - began
        ahead = seconds if seconds >= _WINDOW_S else 2 * seconds
        if agreed or draw.WARMUP - windows <= draw.LAST_WARMUP or took + ahead > limit:
            return wire.Warmed(windows=windows, seconds=round(took, 3), limit_s=round(limit, 3), steady=agreed)
        before = speed
        if seconds < _WINDOW_S:
            count, before = count * 2, None


def prepare(requests: Sequence[draw.Request], coder: Coder, params: Callable[[int], Any]) -> list[Prepared]:
    """Requests as the engine takes them: token ids, and sampling parameters for exactly their output length."""
    prepared = []
    for request in requests:
        if request.messages:
            ids = list(coder.chat(request.messages))
        elif request.text is not None and request.prompt_tokens is None:
            ids = list(coder.plain(request.text))
        else:
            ids = draw.prompt_ids(request, coder.encode)
        prepared.append(Prepared({"prompt_token_ids": ids}, params(request.output_tokens), len(ids), request.arrival))
    return prepared
