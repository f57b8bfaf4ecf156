"""What held a point back, by the engine's own signals, and which knob to try next.

Requests wait and the KV cache is full: KV memory. Requests wait and the cache has room: max_num_seqs. Nobody waits and
fewer run than there are clients: the client, or the processor that feeds the engine. None of these: the card's
arithmetic and memory bandwidth.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from tui_tuner.analysis import points
from tui_tuner.model import events as ev
from tui_tuner.model import knobs
from tui_tuner.model.session import Point, Session

Kind = Literal["kv", "sequences", "client", "compute", "unknown"]
WAITING = 0.5  # requests, mean over a level, from which a queue counts as one
FULL = 0.95
BUSY = 0.9  # share of the clients that run when nothing else holds them back

TITLES: dict[Kind, str] = {
    "kv": "bound by KV memory",
    "sequences": "bound by the number of sequences",
    "client": "bound by the client",
    "compute": "bound by compute and bandwidth",
    "unknown": "not known",
}

# What to try, in order, for a goal under a bottleneck: what costs nothing first, then a trade within one resource,
# capacity only where it is short, and last what may touch the answers.
_NEXT: dict[tuple[str, Kind], tuple[str, ...]] = {
    ("ttft", "kv"): ("gpu_memory_utilization", "kv_cache_dtype", "quantization"),
    ("ttft", "sequences"): ("max_num_seqs", "max_num_batched_tokens"),
    ("ttft", "compute"): ("enable_prefix_caching", "max_num_batched_tokens", "quantization"),
    ("latency", "kv"): ("max_num_seqs", "gpu_memory_utilization", "kv_cache_dtype"),
    ("latency", "sequences"): ("max_num_seqs", "max_num_batched_tokens"),
    ("latency", "compute"): ("enforce_eager", "quantization", "speculative_config", "max_num_batched_tokens"),
    ("itl", "compute"): ("max_num_batched_tokens", "max_num_seqs", "enable_chunked_prefill"),
    ("throughput", "kv"): ("gpu_memory_utilization", "kv_cache_dtype", "quantization"),
    ("throughput", "sequences"): ("max_num_seqs", "max_num_batched_tokens"),
    ("throughput", "compute"): ("max_num_batched_tokens", "enforce_eager", "quantization"),
    ("throughput", "client"): ("max_num_seqs", "max_num_batched_tokens"),
}
_CLASS = {"tpot": "latency", "e2e": "latency", "goodput": "throughput"}


class Bottleneck(Struct, frozen=True):
    """`why` is a sentence with the numbers; `level` the load level they were read at."""

    kind: Kind
    why: str
    level: float | None = None

    @property
    def title(self) -> str:
        return TITLES[self.kind]


def of(point: Point, session: Session) -> Bottleneck:
    """The bottleneck of a point at the level that counts."""
    best = points.figures(point, session).best
    rows = next((r for r in point.levels if best is not None and r.level == best.level), None)
    return of_level(rows, point) if rows is not None else Bottleneck("unknown", "no load level was measured")


def of_level(rows: ev.Requests, point: Point) -> Bottleneck:
    """The bottleneck of one load level, from the engine's statistics over it; the point's ticks stand in for them."""
    running, waiting, usage = rows.running_mean, rows.waiting_mean, rows.kv_usage_max
    if running is None or waiting is None:
        ticks = _speed_ticks(point)
        running = _mean([t.running for t in ticks]) if running is None else running
        waiting = _mean([t.waiting for t in ticks]) if waiting is None else waiting
        known = [t.kv_usage for t in ticks if t.kv_usage is not None]
        usage = max(known, default=None) if usage is None else usage
    if running is None or waiting is None:
        return Bottleneck("unknown", "the engine's statistics were not recorded", rows.level)
    full = f"{usage:.0%} of the KV cache in use at most" if usage is not None else "KV usage not recorded"
    lost = f", {rows.preemptions} preemptions" if rows.preemptions else ""
    queue = f"{waiting:.1f} requests waiting, {running:.1f} running, {full}{lost}"
    if rows.preemptions or (waiting > WAITING and usage is not None and usage >= FULL):
        return Bottleneck("kv", f"{queue}: the KV cache is too small for this load", rows.level)
    if waiting > WAITING:
        return Bottleneck("sequences", f"{queue}: max_num_seqs keeps them waiting, not memory", rows.level)
    if rows.kind == "closed" and running < BUSY * min(rows.level, len(rows.sent) or rows.level):
        return Bottleneck(
            "client",
            f"{running:.1f} of {rows.level:.0f} clients' requests run and none waits: the load is too small, or the "
            "processor is slow to feed the engine",
            rows.level,
        )
    return Bottleneck("compute", f"{queue}: the card's arithmetic and bandwidth set the pace", rows.level)


def next_knobs(session: Session, point: Point | None = None) -> tuple[str, ...]:
    """The knobs to try next for the session's goal, best first, without the one that was just swept.

    `point` is what will be built on (the kept value's); the baseline by default.
    """
    slo = session.start.plan.slo
    base = point or next(iter(points.baselines(session)), None)
    kind: Kind = of(base, session).kind if base is not None else "compute"
    goal = slo.goal
    if base is not None:
        missed = points.target(points.figures(base, session), slo)
        goal = missed.split("_")[0] if missed in slo.limits else goal  # type: ignore[assignment]
    group = _CLASS.get(goal, goal)
    order = (
        _NEXT.get((group, kind)) or _NEXT.get((_CLASS.get(group, "latency"), kind)) or _NEXT[("throughput", "compute")]
    )
    catalogue: Any = getattr(knobs, "CATALOGUE", {})
    return tuple(
        name for name in order if name != session.start.plan.knob.name and (not catalogue or name in catalogue)
    )


def _speed_ticks(point: Point) -> list[ev.Tick]:
    begun = next((p.t for p in point.phases if p.name == "speed"), None)
    ended = next(
        (p.t for p in point.phases if p.name in ("quality", "stop") and begun is not None and p.t > begun), None
    )
    if begun is None:
        return []
    return [t for t in point.ticks if t.t >= begun and (ended is None or t.t <= ended)]


def _mean(values: list[int | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None
