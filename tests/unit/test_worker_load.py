"""The speed and quality passes against an engine made of sleeps: what is sent when, and what is written down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tui_tuner.model import draw, wire
from tui_tuner.model.load import Load
from tui_tuner.worker import load, quality
from tui_tuner.worker.load import Prepared, Row
from tui_tuner.worker.stats import Recorder


class EngineDeadError(Exception):
    pass


class FakeEngine:
    """Answers in chunks of `chunk` tokens, `step_s` apart; keeps what it was asked, and how much of it at once."""

    def __init__(self, chunk: int = 1, step_s: float = 0.001) -> None:
        self.chunk, self.step_s = chunk, step_s
        self.asked: list[tuple[int, ...]] = []
        self.names: list[str] = []
        self.now = self.most = 0
        self.refuse: set[int] = set()
        self.dies_after: int | None = None

    async def generate(self, prompt: Any, sampling_params: Any, request_id: str) -> AsyncIterator[Any]:
        place = len(self.asked)
        self.asked.append(tuple(prompt["prompt_token_ids"]))
        self.names.append(request_id)
        if self.dies_after is not None and place >= self.dies_after:
            raise EngineDeadError("the core is gone")
        if place in self.refuse:
            raise ValueError("too long")
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            left = sampling_params
            while left:
                await asyncio.sleep(self.step_s)
                count = min(self.chunk, left)
                left -= count
                done = not left
                yield SimpleNamespace(
                    outputs=[
                        SimpleNamespace(token_ids=[1] * count, finish_reason="length" if done else None, text="four")
                    ],
                    finished=done,
                )
        finally:
            self.now -= 1


class Words:
    """A tokenizer of one token a character."""

    has_template = False
    chat_template: str | None = None

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [1] * add_special_tokens + [ord(c) for c in text]

    def apply_chat_template(
        self, messages: Sequence[dict[str, Any]], tokenize: bool, add_generation_prompt: bool
    ) -> str:
        assert not tokenize
        assert add_generation_prompt
        if any(m["role"] == "system" for m in messages) and self.chat_template == "no system":
            raise ValueError("system role not supported")
        return "".join(f"<{m['role']}>{m['content']}" for m in messages) + "<assistant>"


def prepared(spec: Load, level: int, count: int) -> list[Prepared]:
    drawn = draw.requests(spec, level, 0, count, range(500))
    return load.prepare(drawn, quality.Prompts(Words()), lambda tokens: tokens)


async def run(engine: FakeEngine, spec: Load, count: int) -> wire.Level:
    return await load.level(engine, spec, 0, prepared(spec, 0, count), Recorder())


async def test_closed_loop() -> None:
    engine = FakeEngine()
    found = await run(engine, Load("closed", (3,), (), 16, 5), 10)
    assert engine.most == 3
    assert found.kind == "closed"
    assert found.level == 3.0
    assert found.output_tokens == [5] * 10
    assert found.prompt_tokens == [16] * 10
    assert found.finish == ["length"] * 10
    assert all(len(gaps) == 4 for gaps in found.gaps)
    assert len(set(engine.asked)) == 10
    assert found.ended >= found.began
    for planned, sent, first, last in zip(found.planned, found.sent, found.first, found.last, strict=True):
        assert first is not None
        assert last is not None
        assert planned <= sent <= first <= last
    # Three are planned at the beginning, every other one after one more request was answered.
    planned_at, answered_at = sorted(found.planned), sorted(last or 0.0 for last in found.last)
    assert len(set(planned_at[:3])) == 1
    assert all(planned >= end for planned, end in zip(planned_at[3:], answered_at, strict=False))


async def test_fewer_requests_than_clients() -> None:
    engine = FakeEngine()
    assert len((await run(engine, Load("closed", (64,), (), 8, 2), 5)).sent) == 5
    assert engine.most == 5


async def test_open_arrivals_do_not_wait_for_answers() -> None:
    engine = FakeEngine(step_s=0.05)
    found = await run(engine, Load("poisson", (), (400.0,), 8, 2), 20)
    assert found.planned == sorted(found.planned)
    assert engine.most > 5
    assert all(sent >= planned for sent, planned in zip(found.sent, found.planned, strict=True))
    expected = [r.arrival or 0.0 for r in draw.requests(Load("poisson", (), (400.0,), 8, 2), 0, 0, 20, range(500))]
    late = found.planned[0] - expected[0]
    assert [planned - late for planned in found.planned] == pytest.approx(expected, abs=1e-5)


async def test_tokens_are_counted_not_chunks() -> None:
    found = await run(FakeEngine(chunk=4, step_s=0.02), Load("closed", (1,), (), 8, 10), 1)
    assert found.output_tokens == [10]
    gaps = found.gaps[0]
    assert len(gaps) == 9
    assert gaps[:3] == [0, 0, 0]  # they came with the first
    assert len(set(gaps[3:7])) == 1  # a chunk's tokens share the wait before it
    assert len(set(gaps[7:])) == 1


def test_gaps_add_up_to_the_time_that_passed() -> None:
    row = Row(4, 0.0, 0.0, [(1.0, 1), (1.01, 1), (1.05, 4), (1.052, 2)])
    assert row.gaps() == [100, 100, 100, 100, 100, 10, 10]
    assert sum(row.gaps()) == round((1.052 - 1.0) * 1e4)
    assert (row.first, row.last, row.tokens) == (1.0, 1.052, 8)
    assert Row(4, 0.0).gaps() == []


async def test_a_refused_request_is_a_row_and_the_rest_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
    engine = FakeEngine()
    engine.refuse = {2}
    found = await run(engine, Load("closed", (1,), (), 8, 3), 6)
    assert found.finish[2] == "error"
    assert found.first[2] is None
    assert found.output_tokens == [3, 3, 0, 3, 3, 3]
    assert "too long" in capfd.readouterr().err


async def test_all_refused_is_a_failure() -> None:
    engine = FakeEngine()
    engine.refuse = set(range(6))
    with pytest.raises(ValueError, match="too long"):
        await run(engine, Load("closed", (2,), (), 8, 3), 6)


@pytest.mark.parametrize("spec", [Load("closed", (2,), (), 8, 3), Load("poisson", (), (500.0,), 8, 3)])
async def test_a_dead_engine_ends_the_level_at_once(spec: Load) -> None:
    engine = FakeEngine(step_s=0.01)
    engine.dies_after = 3
    with pytest.raises(EngineDeadError):
        await run(engine, spec, 500)
    assert len(engine.asked) < 500
    assert engine.now == 0


async def test_figures_of_the_level_come_from_the_engines_statistics() -> None:
    class Counting(FakeEngine):
        async def generate(self, prompt: Any, sampling_params: Any, request_id: str) -> AsyncIterator[Any]:
            async for output in super().generate(prompt, sampling_params, request_id):
                recorder.record(
                    SimpleNamespace(
                        num_running_reqs=2,
                        num_waiting_reqs=1,
                        kv_cache_usage=0.25,
                        prefix_cache_stats=SimpleNamespace(queries=8, hits=2),
                        spec_decoding_stats=SimpleNamespace(num_draft_tokens=3, num_accepted_tokens=1),
                    ),
                    SimpleNamespace(num_generation_tokens=1, num_preempted_reqs=1),
                )
                yield output

    recorder = Recorder()
    recorder.record(SimpleNamespace(num_running_reqs=9, num_waiting_reqs=9, kv_cache_usage=0.9), None)
    recorder.record(SimpleNamespace(num_running_reqs=0, num_waiting_reqs=0, kv_cache_usage=0.0), None)
    spec = Load("closed", (1,), (), 8, 4)
    found = await load.level(Counting(), spec, 0, prepared(spec, 0, 5), recorder)
    assert (found.prefix_queries, found.prefix_hits) == (160, 40)
    assert (found.draft_tokens, found.accepted_tokens) == (60, 20)
    assert found.preemptions == 20
    assert found.kv_usage_max == 0.25
    assert found.running_mean == pytest.approx(2.0, rel=0.2)


async def warm(
    engine: FakeEngine, agree: float, limit_s: float, least_s: float | None = None, work: int = 10_000
) -> tuple[wire.Warmed, list[str]]:
    told: list[str] = []
    spec = Load("closed", (2,), (), 8, 4)
    limits = (limit_s if least_s is None else least_s, limit_s)
    warmed = await load.warm_up(engine, lambda level, n: prepared(spec, level, n), 2, work, agree, limits, told.append)
    return warmed, told


async def test_warm_up_ends_when_two_windows_agree() -> None:
    engine = FakeEngine(step_s=0.14)  # a window takes over half a second, so that its work stays the same
    warmed, told = await warm(engine, 10.0, 60)
    assert (warmed.windows, warmed.steady, warmed.limit_s) == (2, True, 60)
    assert warmed.seconds >= 2 * 4 * 0.14 * 0.9
    assert told[0].startswith("window 1: ")
    assert told[0].endswith(" tok/s, 60 s at most")
    assert len(set(engine.asked)) == len(engine.asked) == 4


async def test_short_windows_grow_and_are_not_compared_with_smaller_ones() -> None:
    engine = FakeEngine(step_s=0.02)
    windows = (await warm(engine, 10.0, 60))[0].windows  # on an idle machine 0.08 s, 0.16, 0.32, 0.64, 0.64
    sizes = [sum(name.startswith(f"warmup{window}-") for name in engine.names) for window in range(windows)]
    assert windows >= 3
    assert sizes[:-1] == [2 * 2**window for window in range(windows - 1)]
    assert sizes[-1] == sizes[-2]
    assert len(set(engine.asked)) == len(engine.asked)


async def test_warm_up_has_one_window_at_least_and_a_limit() -> None:
    warmed, _ = await warm(FakeEngine(), 0.0, 0.0)
    assert (warmed.windows, warmed.steady, warmed.limit_s) == (1, False, 0.0)


async def test_a_warm_up_that_never_agrees_takes_no_longer_than_the_speed_pass() -> None:
    engine = FakeEngine(step_s=0.02)  # four tokens: 0.08 s a request of two clients, a window of two 0.08 s
    warmed, told = await warm(engine, -1.0, 60, least_s=0.0, work=12)
    assert not warmed.steady
    assert 12 / 2 * 0.08 <= warmed.limit_s < 60, "the time of twelve requests by two clients"
    assert len(told) == warmed.windows < 20
    short, _ = await warm(FakeEngine(step_s=0.001), -1.0, 60, least_s=0.3, work=1)
    assert short.limit_s == 0.3, "a short speed pass has a warm-up all the same"


async def test_warm_up_prompts_are_not_the_measured_ones() -> None:
    engine = FakeEngine()
    spec = Load("closed", (2,), (), 8, 4)
    await load.warm_up(engine, lambda level, n: prepared(spec, level, n), 2, 99, 0.0, (0.2, 0.2), lambda _: None)
    warmed = set(engine.asked)
    await run(engine, spec, 20)
    assert warmed.isdisjoint(engine.asked[len(warmed) :])


async def test_warm_up_of_an_engine_that_refuses() -> None:
    engine = FakeEngine()
    engine.refuse = set(range(100))
    with pytest.raises(ValueError, match="too long"):
        await warm(engine, 0.03, 60)


@pytest.mark.parametrize(
    ("spec", "clients"),
    [
        (Load("closed", (16, 32)), 16),
        (Load("poisson", (), (0.5,)), 1),
        (Load("poisson", (), (4.2,)), 5),
        (Load("poisson", (), (1000.0,)), 64),
        (Load("trace", (3,)), 3),
    ],
)
def test_warm_up_clients(spec: Load, clients: int) -> None:
    assert load.warmup_clients(spec) == clients


QUESTIONS = [wire.Question("a", prompt="1+1?"), wire.Question("b", messages=[{"role": "user", "content": "hi"}])]


async def test_questions_without_a_template_are_plain_text() -> None:
    engine = FakeEngine(chunk=9)
    replies = await quality.ask(engine, QUESTIONS, quality.Prompts(Words()), 3)
    assert replies.item == ["a", "b"]
    assert replies.text == ["four", "four"]
    assert replies.tokens == [3, 3]
    assert replies.finish == ["length", "length"]
    assert not replies.chat_template
    assert engine.asked == [(1, *map(ord, "1+1?")), (1, *map(ord, "hi"))]


async def test_questions_go_through_the_chat_template() -> None:
    words = Words()
    words.chat_template = "yes"
    engine = FakeEngine(chunk=9)
    replies = await quality.ask(engine, QUESTIONS, quality.Prompts(words), 3)
    assert replies.chat_template
    assert engine.asked == [tuple(map(ord, f"<user>{text}<assistant>")) for text in ("1+1?", "hi")]


def test_a_template_without_a_system_role() -> None:
    words = Words()
    words.chat_template = "no system"
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert quality.Prompts(words).chat(messages) == [ord(c) for c in "<user>Be brief.\n\nhi<assistant>"]
    assert messages[1]["content"] == "hi"


async def test_a_refused_question_has_an_empty_answer() -> None:
    engine = FakeEngine(chunk=9)
    engine.refuse = {0}
    replies = await quality.ask(engine, QUESTIONS, quality.Prompts(Words()), 3)
    assert replies.finish == ["error", "length"]
    assert replies.text == ["", "four"]


async def test_quality_of_a_dead_engine_is_a_failure() -> None:
    engine = FakeEngine()
    engine.dies_after = 1
    with pytest.raises(EngineDeadError):
        await quality.ask(engine, QUESTIONS, quality.Prompts(Words()), 3)


async def test_questions_are_answered_together_in_a_fixed_number() -> None:
    engine = FakeEngine()
    questions = [wire.Question(str(i), prompt=str(i)) for i in range(80)]
    replies = await quality.ask(engine, questions, quality.Prompts(Words()), 3)
    assert engine.most == quality.TOGETHER
    assert replies.item == [str(i) for i in range(80)]


def test_natural_and_own_requests_are_encoded() -> None:
    drawn = [
        draw.Request(4, 20, text="abcdefgh" * 4, ending="xyz"),
        draw.Request(4, text="own words"),
        draw.Request(4, messages=[{"role": "user", "content": "hi"}]),
        draw.Request(4, 2, token_ids=[5, 6]),
    ]
    sizes = [item.size for item in load.prepare(drawn, quality.Prompts(Words()), lambda n: n)]
    assert sizes == [20, 1 + len("own words"), 1 + len("hi"), 2]
