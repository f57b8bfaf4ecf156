"""The engine's own statistics, added up as they come with every step."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct


class Totals(Struct, frozen=True):
    """Counters since the engine's start (tokens, except `preemptions`), at `at` seconds of a monotonic clock.

    The areas are integrals over time, so that the difference of two divided by the time between is the mean.
    """

    at: float
    generated: int
    preemptions: int
    prefix_queries: int
    prefix_hits: int
    drafted: int
    accepted: int
    running_area: float
    waiting_area: float
    kv_area: float


class Recorder:
    """Takes scheduler and iteration statistics of every step and of every engine core (data parallel).

    The statistics are no stable interface of vLLM: a field that a version does not have counts as 0.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = self._at = clock()
        self._cores: dict[int, tuple[int, int, float]] = {}
        self._generated = self._preemptions = 0
        self._queries = self._hits = self._drafted = self._accepted = 0
        self._running_area = self._waiting_area = self._kv_area = 0.0
        self._kv_max = 0.0
        self.running = self.waiting = 0
        self.kv_usage = 0.0  # 0..1

    def record(self, scheduler: Any, iteration: Any, core: int = 0) -> None:
        """One step's statistics; either may be None."""
        if iteration is not None:
            self._generated += getattr(iteration, "num_generation_tokens", 0)
            self._preemptions += getattr(iteration, "num_preempted_reqs", 0)
        if scheduler is None:
            return
        before, idle = self._at, not (self.running or self.waiting)
        self._cores[core] = (
            getattr(scheduler, "num_running_reqs", 0),
            getattr(scheduler, "num_waiting_reqs", 0) + getattr(scheduler, "num_skipped_waiting_reqs", 0),
            getattr(scheduler, "kv_cache_usage", 0.0),
        )
        cores = self._cores.values()
        self.running = sum(core[0] for core in cores)
        self.waiting = sum(core[1] for core in cores)
        self.kv_usage = sum(core[2] for core in cores) / len(cores)
        self._kv_max = max(self._kv_max, self.kv_usage)
        # What a step reports held while it ran: the time before it is its own. After idling, the step began when
        # its oldest new request came, which is as long ago as that one waited for its first token.
        if idle:
            waits = getattr(iteration, "time_to_first_tokens_iter", None)
            self._at = max(before, self._clock() - max(waits)) if waits else before
        self._advance()
        prefix = getattr(scheduler, "prefix_cache_stats", None)
        if prefix is not None:
            self._queries += getattr(prefix, "queries", 0)
            self._hits += getattr(prefix, "hits", 0)
        drafts = getattr(scheduler, "spec_decoding_stats", None)
        if drafts is not None:
            self._drafted += getattr(drafts, "num_draft_tokens", 0)
            self._accepted += getattr(drafts, "num_accepted_tokens", 0)

    def _advance(self) -> None:
        now = self._clock()
        passed = now - self._at
        self._running_area += self.running * passed
        self._waiting_area += self.waiting * passed
        self._kv_area += self.kv_usage * passed
        self._at = now

    def totals(self) -> Totals:
        """The counters now."""
        self._advance()
        return Totals(
            self._at, self._generated, self._preemptions, self._queries, self._hits, self._drafted, self._accepted,
            self._running_area, self._waiting_area, self._kv_area,
        )  # fmt: skip

    def take_kv_max(self) -> float:
        """The highest KV usage (0..1) since this was last asked."""
        highest, self._kv_max = self._kv_max, self.kv_usage
        return highest
