"""What the run screen shows of a session: one frozen snapshot, made beside the event loop. Pure.

Memory in MiB, power in W, temperature in °C, times in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from tui_tuner.analysis import estimate
from tui_tuner.analysis import points as pt
from tui_tuner.analysis.schedule import Slot
from tui_tuner.model import events as ev
from tui_tuner.model.session import Point, Session, State
from tui_tuner.tui import words
from tui_tuner.tui.theme import FAILED, MEETS, MISSES, RUNNING, WAITING, Mood

PHASES: dict[str, str] = {
    "spawn": "starting a process",
    "import": "importing vLLM",
    "load": "loading the weights",
    "compile": "compiling",
    "kv_cache": "sizing the KV cache",
    "graphs": "capturing CUDA graphs",
    "ready": "ready",
    "warmup": "warming up",
    "speed": "speed pass",
    "quality": "quality pass",
    "stop": "stopping the engine",
    "clean": "waiting for the memory to be free",
}
ROLES: dict[ev.Role, str] = {
    "baseline": "baseline",
    "value": "value",
    "baseline_again": "baseline again",
    "finalist": "finalist",
}
STATUS: dict[str, tuple[str, Mood]] = {
    "ok": (f"{MEETS} measured", "good"),
    "oom_startup": (f"{FAILED} out of memory", "bad"),
    "oom_runtime": (f"{FAILED} out of memory", "bad"),
    "config_error": (f"{FAILED} refused", "bad"),
    "env_error": (f"{FAILED} environment", "bad"),
    "timeout": (f"{FAILED} timed out", "bad"),
    "crash": (f"{FAILED} crashed", "bad"),
    "throttled": (f"{FAILED} throttled", "bad"),
    "client_limited": (f"{FAILED} client limited", "bad"),
    "unclean": (f"{FAILED} not comparable", "bad"),
    "aborted": ("○ skipped", "quiet"),
}
KEPT = 240  # samples of a chart that are kept: two minutes at two a second


class Series(Struct, frozen=True):
    """A chart's figures: the newest last, and the scale's upper end."""

    values: tuple[float | None, ...] = ()
    top: float = 0.0


class PointRow(Struct, frozen=True):
    """One line of the table of points."""

    n: int
    role: str
    value: str
    state: str
    mood: Mood
    tok_s: float | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    accuracy: float | None = None
    kv_tokens: int | None = None
    peak_mib: int | None = None
    change: float | None = None  # of the goal's figure against the baseline, as a share
    better: bool | None = None  # whether that change is in the goal's direction
    slo: str = ""
    say: str = ""
    started: bool = False
    over: bool = False


class RunView(Struct, frozen=True):
    """The run screen at one moment."""

    id: str
    title: str
    state: State
    gpu: bool
    at: int  # the running point's place, from 1
    of: int
    point: str = ""
    n: int | None = None
    phase: str = ""
    detail: str = ""
    kv_blocks: int | None = None
    kv_tokens: int | None = None
    kv: Series = Series()
    memory: Series = Series()
    speed: Series = Series()
    memory_now: float | None = None
    tok_s: float | None = None
    kv_usage: float | None = None
    running: int | None = None
    waiting: int | None = None
    preemptions: int | None = None
    power_w: float | None = None
    temp_c: int | None = None
    rows: tuple[PointRow, ...] = ()
    elapsed_s: float = 0.0
    left_s: float | None = None
    cost: float | None = None
    currency: str = ""
    goal: str = "throughput"
    note: str = ""
    warn: bool = False
    end: str = ""  # why it ended, in words
    decided: bool = False
    measured: int = 0  # points with figures


def snapshot(
    session: Session,
    locked: bool,
    now: float,
    slots: Sequence[Slot],
    figures_of: Callable[[Point, Session], pt.Figures] = pt.figures,
) -> RunView:
    """The session as the run screen shows it at `now` (seconds since the epoch); `figures_of` may remember."""
    start = session.start
    state = session.state(locked)
    point = session.running_point if state in ("running", "interrupted") else None
    shown = point or (session.points[-1] if session.points else None)
    known = {p.n: p for p in session.points}
    order = list(slots) or [Slot(p.n, p.role, p.value, p.segment) for p in session.points]
    figures = {n: figures_of(p, session) for n, p in known.items() if p.levels}
    rows = tuple(_row(slot, known.get(slot.n), session, figures, state) for slot in order)
    elapsed = _elapsed(session, state, now)
    price = start.plan.price
    tick = shown.ticks[-1] if shown and shown.ticks and point else None
    note = _note(session)
    capacity = shown.capacity if shown else None
    charts = _charts(session, shown)
    place, total, left = estimate.left(session)
    return RunView(
        id=session.id,
        title=f"{start.plan.knob.name} on {start.plan.model}",
        state=state,
        gpu=start.machine.gpu is not None,
        at=place if point or state == "running" else len(known),
        of=total,
        point=f"{ROLES[shown.role]} {words.value(shown.value)}" if shown else "",
        n=point.n if point else None,
        phase=_phase(point, state),
        detail=_detail(point, now, state),
        kv_blocks=capacity.kv_blocks if capacity else None,
        kv_tokens=capacity.kv_tokens if capacity else None,
        kv=charts[0],
        memory=charts[1],
        speed=charts[2],
        memory_now=tick.vram_mib if tick else None,
        tok_s=tick.tok_s if tick else None,
        kv_usage=tick.kv_usage if tick else None,
        running=tick.running if tick else None,
        waiting=tick.waiting if tick else None,
        preemptions=tick.preemptions if tick else None,
        power_w=tick.power_w if tick else None,
        temp_c=tick.temp_c if tick else None,
        rows=rows,
        elapsed_s=elapsed,
        left_s=left if state == "running" else None,
        cost=elapsed / 3600 * price.per_hour if price else None,
        currency=price.currency if price else "",
        goal=start.plan.slo.goal,
        note=note[0],
        warn=note[1],
        end=_end(session, state),
        decided=session.decision is not None,
        measured=sum(1 for f in figures.values() if f.best),
    )


def _charts(session: Session, point: Point | None) -> tuple[Series, Series, Series]:
    """KV blocks in use, memory and tokens a second of the point that is shown."""
    ticks = point.ticks[-KEPT:] if point else ()
    blocks = point.capacity.kv_blocks if point and point.capacity else None
    used = tuple(None if t.kv_usage is None or blocks is None else t.kv_usage * blocks for t in ticks)
    memory = tuple(None if t.vram_mib is None else float(t.vram_mib) for t in ticks)
    speed = tuple(t.tok_s for t in ticks)
    total = session.start.machine.memory_mib
    fastest = max((t.tok_s or 0.0 for p in session.points for t in p.ticks[-KEPT:]), default=0.0)
    most = max([float(total), *(m for m in memory if m is not None)])
    return Series(used, float(blocks or 0)), Series(memory, most), Series(speed, nice(fastest))


def nice(value: float) -> float:
    """A round number at or above `value`: 1, 2, 2.5 or 5 times a power of ten; 0 for nothing."""
    if value <= 0:
        return 0.0
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value * 0.999999)


def _row(
    slot: Slot, point: Point | None, session: Session, figures: Mapping[int, pt.Figures], state: State
) -> PointRow:
    base_row = PointRow(slot.n, ROLES[slot.role], words.value(slot.value), f"{WAITING} waiting", "quiet")
    if point is None:
        return base_row
    status = point.status
    if status is not None:
        word, mood = STATUS[status]
    elif state == "running":
        word, mood = f"{RUNNING} {PHASES[point.phase]}", "busy"
    else:
        word, mood = f"{FAILED} cut off", "bad"
    own = figures.get(slot.n)
    best = own.best if own else None
    change, better = compare(point, session, figures)
    slo = session.start.plan.slo
    meets = best.meets if best else None
    return PointRow(
        n=slot.n,
        role=base_row.role,
        value=base_row.value,
        state=word,
        mood=mood,
        tok_s=best.output_tok_s if best else None,
        ttft_ms=headline(best, "ttft", slo.limits),
        tpot_ms=headline(best, "tpot", slo.limits),
        accuracy=own.quality.accuracy if own and own.quality else None,
        kv_tokens=point.capacity.kv_tokens if point.capacity else None,
        peak_mib=point.peak_mib,
        change=change,
        better=better,
        slo="" if not slo.limits or meets is None else f"{MEETS} meets" if meets else f"{MISSES} misses",
        say=point.say or "",
        started=True,
        over=status is not None,
    )


def headline(level: pt.Level | None, metric: str, limits: Mapping[str, float]) -> float | None:
    """A latency at the percentile of its limit, else p95, else the median, milliseconds."""
    if level is None:
        return None
    spread = level.spread(metric)
    asked = [p for p in (99, 95, 90, 50) if f"{metric}_p{p}_ms" in limits]
    for percentile in (*asked, 95, 50):
        value = spread.at(percentile)
        if value is not None:
            return value
    return None


def compare(point: Point, session: Session, figures: Mapping[int, pt.Figures]) -> tuple[float | None, bool | None]:
    """The change of the goal's figure against the segment's baseline, and whether the goal likes it."""
    base = pt.baseline_of(point, session)
    own, other = figures.get(point.n), figures.get(base.n) if base else None
    if base is None or base.n == point.n or own is None or other is None or own.goal is None or not other.goal:
        return None, None
    share = own.goal / other.goal - 1
    up = session.start.plan.slo.higher_is_better
    return share, None if share == 0 else (share > 0) == up


def _phase(point: Point | None, state: State) -> str:
    if point is None or state != "running":
        return ""
    return PHASES[point.phase]


def _detail(point: Point | None, now: float, state: State) -> str:
    if point is None or state != "running":
        return ""
    last = point.phases[-1] if point.phases else None
    began = next((p.t for p in point.phases if last and p.name == last.name), point.began) if last else point.began
    parts = [words.seconds(max(now - began, 0))]
    if last and last.detail:
        parts.append(last.detail)
    return " · ".join(parts)


def _elapsed(session: Session, state: State, now: float) -> float:
    """The seconds in which the machine was used: from each launch to its last event."""
    total = 0.0
    launches = session.launches
    for i, launch in enumerate(launches):
        last = i == len(launches) - 1
        if last:
            end = now if state == "running" else session.ended.t if session.ended else session.last_t
        else:
            end = max((p.ended or p.began for p in session.points if p.began < launches[i + 1].t), default=launch.t)
        total += max(end - launch.t, 0.0)
    return total


def _note(session: Session) -> tuple[str, bool]:
    last: ev.Noted | None = session.notes[-1] if session.notes else None
    failed = max((p.failed for p in session.points if p.failed), key=lambda f: f.t, default=None)
    if failed and (last is None or failed.t >= last.t):
        return (f"{failed.say} {failed.fix.say if failed.fix else ''}".strip(), True)
    return (last.say, last.level == "warn") if last else ("", False)


def _end(session: Session, state: State) -> str:
    if state == "running":
        return ""
    if state == "interrupted":
        return "The sweep was cut off. What was measured is kept: r finishes the rest."
    return session.ended.say or "" if session.ended else ""
