"""Drawing requests: distinct within a point, the same at each point, of the lengths asked for."""

from __future__ import annotations

import itertools
import math
import statistics
import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui_tuner.model import draw
from tui_tuner.model.load import Lengths, Load, SharedPrefix

VOCABULARY = range(5, 1000)

lengths = st.one_of(
    st.integers(1, 80),
    st.builds(Lengths, mean=st.integers(8, 60), spread=st.floats(0, 1.5), low=st.integers(4, 8), high=st.just(90)),
)
prefixes = st.one_of(
    st.none(), st.builds(SharedPrefix, tokens=st.integers(1, 60), share=st.floats(0, 1), groups=st.integers(1, 4))
)
loads = st.builds(
    Load,
    kind=st.sampled_from(["closed", "poisson"]),
    concurrency=st.just((1, 4)),
    rate=st.just((2.0, 8.0)),
    prompt_tokens=lengths,
    output_tokens=lengths,
    shared_prefix=prefixes,
)


def encode(text: str) -> Sequence[int]:
    """A tokenizer of four characters a token."""
    return [int.from_bytes(text[i : i + 4].encode()[:6], "big") for i in range(0, len(text), 4)]


@given(loads, st.integers(0, 2**40), st.integers(1, 24))
@settings(deadline=None)
def test_lengths_and_ids(load: Load, seed: int, count: int) -> None:
    drawn = draw.requests(load, 0, seed, count, VOCABULARY)
    assert len(drawn) == count
    for request in drawn:
        assert request.token_ids is not None
        assert len(request.token_ids) == request.prompt_tokens
        assert all(token in VOCABULARY for token in request.token_ids)
        for size, wanted in ((request.prompt_tokens, load.prompt_tokens), (request.output_tokens, load.output_tokens)):
            if isinstance(wanted, int):
                assert size == wanted
            else:
                assert wanted.low <= size <= 90
        assert request.prompt_tokens + request.output_tokens <= load.longest()


@given(loads, st.integers(0, 2**40))
@settings(deadline=None)
def test_the_same_at_each_point(load: Load, seed: int) -> None:
    assert draw.requests(load, 1, seed, 9, VOCABULARY) == draw.requests(load, 1, seed, 9, VOCABULARY)


@given(
    st.integers(0, 2**40), prefixes, st.sampled_from([2, 3, 17, 995, 49_152]), st.sampled_from(["random", "natural"])
)
@settings(deadline=None, max_examples=60)
def test_no_prompt_twice_within_a_point(seed: int, shared: SharedPrefix | None, size: int, text: str) -> None:
    """Across levels and from the warm-up's windows, whatever the vocabulary."""
    load = Load("closed", (1, 4), prompt_tokens=64, shared_prefix=shared, text=text)  # type: ignore[arg-type]
    prompts = [
        tuple(draw.prompt_ids(request, encode))
        for level in (0, 1, draw.WARMUP, draw.WARMUP - 1, draw.LAST_WARMUP)
        for request in draw.requests(load, level, seed, 20, range(size))
    ]
    assert len(set(prompts)) == len(prompts)
    assert all(len(prompt) == 64 for prompt in prompts)


@given(st.integers(0, 2**40), st.sampled_from([40, 995, 49_152]))
@settings(deadline=None)
def test_prompts_differ_within_their_first_block(seed: int, size: int) -> None:
    """Nothing of one is in the prefix cache because of another: vLLM's smallest block has 16 tokens."""
    load = Load("closed", (1, 4), prompt_tokens=48)
    heads = [
        tuple((request.token_ids or [])[:16])
        for level in (0, 1, draw.WARMUP)
        for request in draw.requests(load, level, seed, 50, range(size))
    ]
    assert len(set(heads)) == len(heads)


def test_levels_do_the_same_work_and_push_differently() -> None:
    load = Load("poisson", (), (2.0, 8.0), Lengths(100, 0.8), Lengths(30, 0.5))
    slow, fast = (draw.requests(load, level, 7, 50, VOCABULARY) for level in (0, 1))
    assert [r.prompt_tokens for r in slow] == [r.prompt_tokens for r in fast]
    assert [r.output_tokens for r in slow] == [r.output_tokens for r in fast]
    for a, b in zip(slow, fast, strict=True):
        assert a.arrival == pytest.approx((b.arrival or 0) * 4)


def test_poisson_arrivals_have_the_rate_and_the_spread() -> None:
    load = Load("poisson", (), (5.0,), prompt_tokens=4)
    arrivals = [request.arrival or 0.0 for request in draw.requests(load, 0, 3, 4000, VOCABULARY)]
    assert arrivals == sorted(arrivals)
    gaps = [b - a for a, b in itertools.pairwise(arrivals)]
    # The mean of 4000 exponential gaps is within 5 standard errors; an exponential's deviation is its mean.
    assert statistics.fmean(gaps) == pytest.approx(0.2, abs=5 * 0.2 / math.sqrt(4000))
    assert statistics.stdev(gaps) == pytest.approx(0.2, rel=0.1)


def test_lognormal_lengths_have_the_mean_and_the_spread() -> None:
    sizes = draw.lengths(Lengths(200, 0.5, 1, 100_000), 20_000, draw.stream("test"))
    assert statistics.fmean(sizes) == pytest.approx(200, rel=0.03)
    assert statistics.stdev(sizes) / statistics.fmean(sizes) == pytest.approx(0.5, rel=0.06)


@pytest.mark.parametrize(("share", "groups"), [(1.0, 1), (0.5, 2), (0.0, 3), (1.0, 4)])
def test_shared_prefix(share: float, groups: int) -> None:
    load = Load("closed", (4,), prompt_tokens=64, shared_prefix=SharedPrefix(32, share, groups))
    prompts = [tuple(r.token_ids or ()) for r in draw.requests(load, 0, 1, 40, VOCABULARY)]
    heads = [prompt[:32] for prompt in prompts]
    shared = [head for head in heads if heads.count(head) > 1]
    assert len(shared) == round(share * 40)
    assert len(set(shared)) == (groups if share else 0)
    assert {head for head in heads if heads.count(head) > 1}.isdisjoint(
        tuple(r.token_ids or ())[:32] for r in draw.requests(load, draw.WARMUP, 1, 40, VOCABULARY)
    )


def test_a_prefix_longer_than_the_prompt_leaves_it_its_own_tokens() -> None:
    load = Load("closed", (4,), prompt_tokens=20, shared_prefix=SharedPrefix(512))
    prompts = [tuple(r.token_ids or ()) for r in draw.requests(load, 0, 1, 30, VOCABULARY)]
    assert {len(prompt) for prompt in prompts} == {20}
    assert len(set(prompts)) == 30


def test_natural_text_shares_a_prefix_and_ends_with_its_continuation() -> None:
    load = Load("closed", (4,), prompt_tokens=200, text="natural", shared_prefix=SharedPrefix(48))
    drawn = draw.requests(load, 0, 1, 12, VOCABULARY)
    ids = [draw.prompt_ids(request, encode) for request in drawn]
    assert len({tuple(one[:48]) for one in ids}) == 1
    for request, one in zip(drawn, ids, strict=True):
        ending = list(encode(request.ending))
        assert one[-len(ending) :] == ending
        # It repeats itself: many of its four-character pieces' pairs occur again, as no random prompt's would.
        assert len(request.text or "") > 200 * 4


def test_natural_text_repeats_phrases() -> None:
    load = Load("closed", (4,), prompt_tokens=512, text="natural")
    for request in draw.requests(load, 0, 5, 20, VOCABULARY):
        words = (request.text or "").split()
        triples = [tuple(words[i : i + 3]) for i in range(len(words) - 2)]
        assert len(set(triples)) < 0.9 * len(triples)


TRACE = [
    {"prompt": "one two three four five", "output_tokens": 7, "arrival_s": 3.0},
    {"messages": [{"role": "user", "content": "hello"}], "arrival_s": 1.0},
    {"prompt_tokens": 50, "output_tokens": 9, "arrival_s": 2.0},
]


def test_a_trace_is_replayed_at_its_times() -> None:
    drawn = draw.requests(Load("trace", output_tokens=5), 0, 1, 10, VOCABULARY, TRACE)
    assert [r.arrival for r in drawn] == [0.0, 1.0, 2.0]
    assert [r.output_tokens for r in drawn] == [5, 9, 7]
    assert drawn[0].messages == [{"role": "user", "content": "hello"}]
    assert len(drawn[1].token_ids or ()) == 50
    assert drawn[2].text == "one two three four five"
    twice = draw.requests(Load("trace", rate=(2.0,)), 0, 1, 10, VOCABULARY, TRACE)
    assert [r.arrival for r in twice] == [0.0, 0.5, 1.0]


def test_a_trace_without_times_arrives_by_rate_and_with_clients_in_a_closed_loop() -> None:
    rows = [{"prompt_tokens": 20}] * 5
    paced = draw.requests(Load("trace", rate=(3.0,), output_tokens=4), 0, 1, 10, VOCABULARY, rows)
    assert len(paced) == 5
    assert all(r.arrival for r in paced)
    assert len({tuple(r.token_ids or ()) for r in paced}) == 5
    closed = draw.requests(Load("trace", concurrency=(2,)), 0, 1, 10, VOCABULARY, TRACE)
    assert [r.arrival for r in closed] == [None] * 3


def test_the_warm_up_of_a_trace_has_its_lengths_and_not_its_words() -> None:
    warm = draw.requests(Load("trace", output_tokens=5), draw.WARMUP, 1, 4, VOCABULARY, TRACE)
    assert [len(r.token_ids or ()) for r in warm] == [23 // 4, 1, 50, 23 // 4]
    assert [r.output_tokens for r in warm] == [7, 5, 9, 7]
    assert all(r.arrival is None and r.text is None for r in warm)


def test_the_same_in_another_process() -> None:
    """No salted hash() takes part."""
    code = (
        "from tui_tuner.model import draw; from tui_tuner.model.load import Load\n"
        "print([r.token_ids for r in draw.requests(Load(), 0, 11, 3, range(900))])\n"
        "print([r.text for r in draw.requests(Load(text='natural'), 0, 11, 3, range(900))])"
    )
    outputs = {
        subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": s}, capture_output=True, check=True).stdout
        for s in ("1", "2")
    }
    assert len(outputs) == 1


def test_an_empty_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match="vocabulary"):
        draw.requests(Load(), 0, 0, 1, [])
