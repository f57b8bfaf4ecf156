"""The engine's statistics, added up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tui_tuner.worker.stats import Recorder


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def scheduler(running: int = 0, waiting: int = 0, usage: float = 0.0, **more: Any) -> SimpleNamespace:
    return SimpleNamespace(num_running_reqs=running, num_waiting_reqs=waiting, kv_cache_usage=usage, **more)


def iteration(tokens: int, preempted: int = 0, ttfts: tuple[float, ...] = ()) -> SimpleNamespace:
    return SimpleNamespace(
        num_generation_tokens=tokens, num_preempted_reqs=preempted, time_to_first_tokens_iter=list(ttfts)
    )


def test_counters() -> None:
    recorder = Recorder(Clock())
    prefix = SimpleNamespace(queries=128, hits=16)
    drafts = SimpleNamespace(num_draft_tokens=10, num_accepted_tokens=4)
    recorder.record(scheduler(2, prefix_cache_stats=prefix, spec_decoding_stats=drafts), iteration(8, 1))
    recorder.record(scheduler(2, prefix_cache_stats=prefix, spec_decoding_stats=None), iteration(8))
    recorder.record(None, iteration(1))
    recorder.record(scheduler(1), None)
    totals = recorder.totals()
    assert (totals.generated, totals.preemptions) == (17, 1)
    assert (totals.prefix_queries, totals.prefix_hits) == (256, 32)
    assert (totals.drafted, totals.accepted) == (10, 4)


def test_means_are_over_time_and_a_steps_figures_hold_while_it_ran() -> None:
    clock = Clock()
    recorder = Recorder(clock)
    clock.now = 10.0  # idle for 9 s, then a step of 1 s
    recorder.record(scheduler(4, 2, 0.5), iteration(4, ttfts=(1.0, 0.2)))
    clock.now = 11.0
    recorder.record(scheduler(8, 0, 0.9), iteration(8))
    clock.now = 13.0
    recorder.record(scheduler(0, 0, 0.0), iteration(8))  # its requests ended with it
    totals = recorder.totals()
    assert totals.running_area == 4 * 1 + 8 * 1
    assert totals.waiting_area == 2
    assert recorder.take_kv_max() == 0.9
    assert recorder.take_kv_max() == 0.0


def test_skipped_waiting_requests_wait_too_and_cores_add_up() -> None:
    recorder = Recorder(Clock())
    recorder.record(scheduler(3, 1, 0.2, num_skipped_waiting_reqs=2), None, 0)
    recorder.record(scheduler(5, 0, 0.6), None, 1)
    assert (recorder.running, recorder.waiting) == (8, 3)
    assert abs(recorder.kv_usage - 0.4) < 1e-9
