"""What the results screen shows of a session: the sentence, the triple of every value, the curve, the answers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tui_tuner.analysis import bottleneck, details, stats
from tui_tuner.analysis import points as pt
from tui_tuner.analysis import quality as ql
from tui_tuner.analysis.verdict import ValueVerdict, Verdict
from tui_tuner.model.session import Point, Session, State
from tui_tuner.model.slo import Limit
from tui_tuner.model.values import Value, same
from tui_tuner.tui import remedy as remedies
from tui_tuner.tui import words
from tui_tuner.tui.remedy import Remedy
from tui_tuner.tui.theme import MEETS, MISSES, Mood
from tui_tuner.tui.view import ROLES, STATUS, compare


class Judged(Struct, frozen=True):
    """The verdict, in words ready for the screen."""

    choice: str  # keep, revert, no clear difference
    value: Value
    sentence: str
    strength: str
    measured: bool = True  # whether there is anything to judge yet
    notes: tuple[str, ...] = ()


class Held(Struct, frozen=True):
    """One limit at one point."""

    name: str  # "TTFT p95"
    ms: float | None
    limit: float
    meets: bool | None


class Measure(Struct, frozen=True):
    """One point's line in the results."""

    n: int
    label: str
    role: str
    value: Value
    state: str
    mood: Mood
    over: bool
    baseline: bool
    accuracy: float | None = None
    low: float | None = None  # of the accuracy's 95 % interval (Wilson)
    high: float | None = None
    items: int = 0
    lost: int = 0
    won: int = 0
    tok_s: float | None = None
    requests_s: float | None = None
    goodput: float | None = None
    change: float | None = None
    better: bool | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    held: tuple[Held, ...] = ()
    meets: bool | None = None
    kv_tokens: int | None = None
    expected_kv: int | None = None
    peak_mib: int | None = None
    per_million: float | None = None
    joules: float | None = None
    say: str = ""
    invalid: tuple[str, ...] = ()
    why: str = ""
    bound: str = ""  # what held it back, in words
    between: str = ""  # what happened between tokens, where the load or the knob is about it
    interval: tuple[float, float] | None = None  # of the gain between launches, percent
    remedy: Remedy | None = None  # what its failure says to try


class Dot(Struct, frozen=True):
    """One load level of one value in the picture: latency (milliseconds) against tokens a second."""

    value: str
    level: float
    tok_s: float
    ms: float
    meets: bool | None


class Flipped(Struct, frozen=True):
    """An answer that changed its score, beside its twin of the baseline."""

    value: str
    item: str
    won: bool
    before: str
    after: str


class Outcome(Struct, frozen=True):
    """The results screen."""

    id: str
    title: str
    knob: str
    state: State
    judged: Judged
    goal: str
    limits: tuple[str, ...]
    rows: tuple[Measure, ...]
    percentiles: tuple[int, int]  # of the TTFT and TPOT columns
    dots: tuple[Dot, ...] = ()
    picture: str = ""  # which latency the picture shows
    flips: tuple[Flipped, ...] = ()
    compared: tuple[tuple[str, str], ...] = ()  # per value: what the answers say
    prediction: str = ""
    baseline: Value = None
    decision: str = ""
    decided: bool = False
    currency: str = ""
    asked: bool = True  # an eval set was asked


def of(session: Session, locked: bool, verdict: Verdict) -> Outcome:
    """The session as the results screen shows it, with what `analysis.verdict` says of it."""
    plan = session.start.plan
    figures = {p.n: pt.figures(p, session) for p in session.points if p.levels or p.answers}
    again = next((p for p in reversed(session.points) if p.role == "baseline_again" and p.answers), None)
    ttft, tpot = (shown_percentile(plan.slo.bounds(), m) for m in ("ttft", "tpot"))
    rows, flips, compared = [], [], []
    told = details.levels(session)
    running = session.state(locked) == "running"
    for point in session.points:
        base = pt.baseline_of(point, session)
        twin = None
        if base is not None and base.n != point.n and base.answers is not None:
            twin = ql.compare(base.answers, point.answers, again.answers if again and again.n != point.n else None)
        own = next((v for v in verdict.per_value if v.n == point.n), None)
        row = _measure(point, base, session, figures, twin, (ttft, tpot), own, running)
        best = figures[point.n].best if point.n in figures else None
        rows.append(replace(row, between=_between(told, point, best)) if told and best else row)
        if twin is not None and point.role in ("value", "finalist"):
            name = words.value(point.value)
            flips += [Flipped(name, f.item, f.won, f.before, f.after) for f in twin.flips]
            compared.append((name, said(twin)))
        elif twin is not None and point is again:
            compared.append((row.role, said(twin)))  # the yardstick: nothing but the launch had changed
    metric = plan.slo.goal if plan.slo.goal in ("ttft", "tpot", "itl", "e2e") else _first_metric(plan.slo.bounds())
    decision = session.decision
    return Outcome(
        id=session.id,
        title=f"{plan.knob.name} on {plan.model}",
        knob=plan.knob.name,
        state=session.state(locked),
        judged=Judged(
            verdict.choice, verdict.value, verdict.why, verdict.strength, bool(verdict.per_value), verdict.warnings
        ),
        goal=plan.slo.goal,
        limits=tuple(f"{b.metric.upper()} p{b.percentile} ≤ {words.ms(b.ms)}" for b in plan.slo.bounds()),
        rows=tuple(rows),
        percentiles=(ttft, tpot),
        dots=tuple(_dots(session, figures, metric)),
        picture=f"{metric.upper()} median, ms",
        flips=tuple(flips),
        compared=tuple(compared),
        prediction=session.start.prediction or "",
        baseline=session.start.baseline,
        decision=""
        if decision is None
        else f"kept {words.value(decision.value)}"
        if decision.choice == "keep"
        else f"went back to {words.value(session.start.baseline)}",
        decided=decision is not None,
        currency=plan.price.currency if plan.price else "",
        asked=plan.evalset.items > 0 and not session.start.dummy_weights,
    )


def shown_percentile(bounds: Sequence[Limit], metric: str) -> int:
    """The percentile that a latency column shows: its limit's, else p95."""
    return max((b.percentile for b in bounds if b.metric == metric), default=95)


def _first_metric(bounds: Sequence[Limit]) -> str:
    return bounds[0].metric if bounds else "tpot"


def _measure(
    point: Point,
    base: Point | None,
    session: Session,
    figures: dict[int, pt.Figures],
    twin: ql.Comparison | None,
    percentiles: tuple[int, int],
    verdict: ValueVerdict | None,
    running: bool,
) -> Measure:
    own = figures.get(point.n)
    best = own.best if own else None
    status = point.status
    state, mood = STATUS[status] if status else ("… running", "busy")
    change, better = compare(point, session, figures)
    if verdict and verdict.here is not None and verdict.base and verdict.figure == session.start.plan.slo.goal:
        change = verdict.here / verdict.base - 1  # against all baselines of the segment, as the verdict has it
    quality = own.quality if own and not session.start.dummy_weights else None
    low = high = None
    if quality and quality.scored and quality.accuracy is not None:
        interval = stats.wilson(quality.right, quality.scored)
        low, high = interval.low, interval.high
    ttft = best.ttft.at(percentiles[0]) if best else None
    tpot = best.tpot.at(percentiles[1]) if best else None
    expected = session.start.estimate.get(words.value(point.value))
    role = ROLES[point.role]
    return Measure(
        n=point.n,
        label=words.value(point.value)
        if point.role in ("value", "finalist")
        else f"{words.value(point.value)} {_short(role)}",
        role=role,
        value=point.value,
        state=state,
        mood=mood,
        over=status is not None,
        baseline=point.role in ("baseline", "baseline_again"),
        accuracy=quality.accuracy if quality else None,
        low=low,
        high=high,
        items=quality.scored if quality else 0,
        lost=twin.lost if twin else 0,
        won=twin.won if twin else 0,
        tok_s=best.output_tok_s if best else None,
        requests_s=best.requests_s if best else None,
        goodput=best.goodput if best else None,
        change=change,
        better=better,
        ttft_ms=ttft if ttft is not None or best is None else best.ttft.p50,
        tpot_ms=tpot if tpot is not None or best is None else best.tpot.p50,
        held=tuple(_held(b, best) for b in session.start.plan.slo.bounds()) if best else (),
        meets=best.meets if best and session.start.plan.slo.limits else None,
        kv_tokens=point.capacity.kv_tokens if point.capacity else None,
        expected_kv=_expected(expected),
        peak_mib=point.peak_mib,
        per_million=own.price_per_million if own else None,
        joules=own.joules_per_token if own else None,
        say=point.say or "",
        invalid=verdict.problems if verdict else (),
        why=verdict.why if verdict else "",
        bound=_bound(point, session) if best else "",
        interval=verdict.interval if verdict else None,
        remedy=remedies.of(point.failed, session.start.plan, running),
    )


def _bound(point: Point, session: Session) -> str:
    found = bottleneck.of(point, session)
    return "" if found.kind == "unknown" else f"{found.title}: {found.why}"


def _between(told: details.Grid, point: Point, best: pt.Level) -> str:
    """The waits between tokens at the level that counts, drafts accepted and prompt tokens cached."""
    cells = next((r.cells for r in told.rows if r.point.n == point.n and r.cells[0] == f"{best.level:g}"), None)
    if cells is None:
        return ""
    names = {"longest": "longest gap {}", "accepted": "{} of drafts accepted", "cached": "{} of prompt tokens cached"}
    pairs = zip(told.head[3:], cells[3:], strict=True)
    return ", ".join(names.get(head, head + " {}").format(cell) for head, cell in pairs if cell != details.NOTHING)


def _short(role: str) -> str:
    return {"baseline": "base", "baseline again": "again"}.get(role, role)


def _expected(said: Any) -> int | None:
    tokens = said.get("kv_tokens") if isinstance(said, dict) else None
    return int(tokens) if isinstance(tokens, (int, float)) and not isinstance(tokens, bool) else None


def _held(bound: Limit, level: pt.Level) -> Held:
    value = level.limits.get(bound.key)
    return Held(
        f"{bound.metric.upper()} p{bound.percentile}", value, bound.ms, None if value is None else value <= bound.ms
    )


def _dots(session: Session, figures: dict[int, pt.Figures], metric: str) -> list[Dot]:
    found = []
    for point in session.points:
        own = figures.get(point.n)
        if own is None or point.role == "baseline_again":
            continue
        for level in own.levels:
            ms = level.spread(metric).p50
            if ms is not None and level.output_tok_s > 0:
                found.append(Dot(words.value(point.value), level.level, level.output_tok_s, ms, level.meets))
    return found


def said(c: ql.Comparison) -> str:
    """What a comparison of answers says, in a sentence."""
    if c.agreement:
        return f"nothing is scored: {words.percent(c.identical)} of {c.items} answers are the baseline's, word for word"
    seen = (
        f"drops of {c.could_see * 100:.0f} points and more would have been seen"
        if c.could_see
        else "too few to see a drop"
    )
    if c.fell:
        head = f"answers got worse: {c.lost} lost, {c.won} won of {c.scored} (p {c.p:.3f})"
    elif c.lost or c.won:
        head = f"{c.lost} lost, {c.won} won of {c.scored}: no drop seen; {seen}"
    else:
        head = f"the same score for all {c.scored}; {seen}"
    beside = [f"{words.percent(c.identical)} read the same"]
    if c.cut_off or c.base_cut_off:
        beside.append(f"{c.cut_off} cut off (baseline {c.base_cut_off})")
    if c.length_ratio is not None and abs(c.length_ratio - 1) >= 0.005:
        beside.append(f"{c.length_ratio:.2f} times as long")
    return f"{head}; {', '.join(beside)}" + (f"; {c.unlike}" if c.unlike else "")


def slo_word(row: Measure) -> tuple[str, Mood]:
    """Whether a point meets the SLO, as symbol and word."""
    if row.meets is None:
        return "", "plain"
    return (f"{MEETS} meets", "good") if row.meets else (f"{MISSES} misses", "bad")


def choices(outcome: Outcome) -> tuple[tuple[str, Value, str, bool], ...]:
    """What can be decided: keep or revert, the value, a label, and whether it goes against the verdict."""
    judged = outcome.judged
    kept = judged.choice == "keep"
    rows: list[tuple[str, Value, str, bool]] = []
    seen: list[Value] = []
    for row in outcome.rows:
        if (
            row.baseline
            or row.mood == "bad"
            or not row.over
            or row.tok_s is None
            or any(same(row.value, v) for v in seen)
        ):
            continue
        seen.append(row.value)
        rows.append(("keep", row.value, f"Keep {words.value(row.value)}", not (kept and same(row.value, judged.value))))
    back = ("revert", outcome.baseline, f"Go back to the baseline, {words.value(outcome.baseline)}", kept)
    return tuple(sorted([back, *rows], key=lambda c: c[3]))


def plot(dots: Sequence[Dot], width: int, height: int) -> list[str]:
    """Throughput (upwards) against latency (to the right), both from zero; each value has a letter.

    Lines of text, `height` of them and an axis; nothing where there is nothing to show.
    """
    if not dots or width < 12 or height < 3:
        return []
    top = max(d.tok_s for d in dots)
    far = max(d.ms for d in dots)
    left = len(f"{top:,.0f}")
    room = width - left - 2
    grid = [[" "] * room for _ in range(height)]
    letters = legend(dots)
    for dot in dots:
        x = min(round(dot.ms / far * (room - 1)), room - 1)
        y = height - 1 - min(round(dot.tok_s / top * (height - 1)), height - 1)
        taken = grid[y][x]
        grid[y][x] = letters[dot.value] if taken in (" ", letters[dot.value]) else "*"
    lines = []
    for number, row in enumerate(grid):
        label = f"{top:,.0f}" if number == 0 else "0" if number == height - 1 else ""
        lines.append(f"{label:>{left}} │{''.join(row)}".rstrip())
    lines.append(" " * left + " └" + "─" * room)
    end = f"{far:,.1f}" if far < 100 else f"{far:,.0f}"
    lines.append(" " * left + "  0" + " " * max(room - 1 - len(end), 1) + end)
    return lines


def legend(dots: Sequence[Dot]) -> dict[str, str]:
    """Each value's letter."""
    names = list(dict.fromkeys(d.value for d in dots))
    return {name: chr(ord("A") + i) if i < 26 else "+" for i, name in enumerate(names)}
