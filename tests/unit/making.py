"""Session records made in memory, for the tests of what is computed from them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tui_tuner.model import events as ev
from tui_tuner.model.load import Load
from tui_tuner.model.machine import Engine, Gpu, Machine
from tui_tuner.model.plan import EvalChoice, Plan, Price, Sweep
from tui_tuner.model.session import Point, Session
from tui_tuner.model.slo import Slo

SLO = Slo("chat", "throughput", {"ttft_p95_ms": 5000.0, "tpot_p95_ms": 200.0})
BAND = {"percent": 1.6, "sd_percent": 0.4, "upper_percent": 0.7, "pairs": 4, "figure": "throughput", "sessions": 1}


def plan(**changes: Any) -> Plan:
    made = Plan(
        "practice",
        Sweep("max_num_seqs", (2, 8)),
        "quick",
        slo=SLO,
        load=Load("closed", (8,), requests=64),
        evalset=EvalChoice("basics", 20, 64),
        price=Price(2.0, "CNY"),
    )
    return replace(made, **changes)


def start(p: Plan | None = None, baseline: Any = 1, **changes: Any) -> ev.SessionStart:
    machine = Machine("EPYC", 2, 24576, gpu=Gpu("GPU-1", "H200", vram_mib=143771, reserved_mib=615))
    made = ev.SessionStart(
        0.0, ev.FORMAT, "s-1", p or plan(), baseline, machine, Engine("python", "test", "0.26.0", "cuda")
    )
    return replace(made, **changes)


def rows(
    tok_s: float = 100.0,
    n: int = 0,
    level: float = 8.0,
    requests: int = 64,
    out: int = 32,
    ttft_ms: float = 200.0,
    tpot_ms: float = 50.0,
    **changes: Any,
) -> ev.Requests:
    """A level of equal requests: `tok_s` sets its length, the latencies stand by themselves."""
    seconds = requests * out / tok_s
    sent = [i * seconds / requests for i in range(requests)]
    first = [s + ttft_ms / 1000 for s in sent]
    last = [f + tpot_ms / 1000 * (out - 1) for f in first]
    made = ev.Requests(
        1.0, n, level, "closed", seconds, list(sent), sent, first, last, [128] * requests, [out] * requests,
        ["length"] * requests, [[round(tpot_ms * 10)] * (out - 1)] * requests, prefix_queries=requests * 128,
        prefix_hits=0, preemptions=0, running_mean=level, waiting_mean=0.0, kv_usage_max=0.3,
    )  # fmt: skip
    return replace(made, **changes)


def answers(right: int = 10, items: int = 20, n: int = 0, text: str | None = None, **changes: Any) -> ev.Answers:
    made = ev.Answers(
        2.0,
        n,
        [f"i{k}" for k in range(items)],
        [text if text is not None else f"the answer is {k}" for k in range(items)],
        [1.0 if k < right else 0.0 for k in range(items)],
        ["stop"] * items,
        [5] * items,
    )
    return replace(made, **changes)


def point(
    n: int,
    role: ev.Role,
    value: Any,
    tok_s: float | None = 100.0,
    levels: tuple[ev.Requests, ...] | None = None,
    right: int | None = 10,
    status: ev.Status = "ok",
    segment: int = 0,
    capacity: ev.Capacity | None = None,
    given: ev.Answers | None = None,
    **about: Any,
) -> Point:
    """A point that is over; `tok_s` None makes it one that failed."""
    t = 10.0 * n
    begun = ev.PointStarted(t, n, role, value, 1, segment)
    if tok_s is None and levels is None:
        failed = ev.PointFailed(t + 5, n, status, "kv_cache", "ValueError: no", "no memory is left", ev.Fix("try 0.90"))
        return Point(n, role, value, 1, segment, t, begun, failed=failed)
    found = levels if levels is not None else (rows(tok_s or 1.0, n, **about),)
    reply = given if given is not None else answers(right, n=n) if right is not None else None
    return Point(
        n,
        role,
        value,
        1,
        segment,
        t,
        begun,
        capacity=capacity or ev.Capacity(t, n, kv_blocks=1000, block_size=16, kv_tokens=16000),
        levels=tuple(replace(level, n=n) for level in found),
        answers=reply,
        done=ev.PointDone(t + 5, n, status, peak_mib=20_000),
    )


def session(*points: Point, begin: ev.SessionStart | None = None, **changes: Any) -> Session:
    made = Session(begin or start(), (ev.Launched(0.0, 1, "boot"),), tuple(sorted(points, key=lambda p: p.n)))
    return replace(made, last_t=max((p.began for p in points), default=0.0) + 5, **changes)


def quick(
    value_point: Point, *others: Point, begin: ev.SessionStart | None = None, base: Point | None = None
) -> Session:
    """Baseline, one value (and others), baseline again."""
    first = base or point(1, "baseline", 1)
    again = replace(first, n=9, role="baseline_again", began=90.0)
    return session(first, value_point, *others, again, begin=begin or start(plan(knob=Sweep("max_num_seqs", (8,)))))
