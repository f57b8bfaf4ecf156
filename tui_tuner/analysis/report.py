"""A session as JSON, as a table of at most 80 columns, and as one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tui_tuner.analysis import bands, bottleneck, details, estimate, points, schedule, stats, words
from tui_tuner.analysis.verdict import Verdict, judge
from tui_tuner.model import events as ev
from tui_tuner.model.session import Point, Session, State
from tui_tuner.model.slo import NEEDED, PERCENTILES
from tui_tuner.model.text import plain
from tui_tuner.model.values import label

WIDTH = 80
_METRICS = ("ttft", "tpot", "itl", "gap", "e2e")

_STATUS = {
    None: ("…", "running"),
    "ok": ("✓", "ok"),
    "oom_startup": ("✗", "no memory"),
    "oom_runtime": ("✗", "no memory"),
    "config_error": ("✗", "refused"),
    "env_error": ("✗", "environment"),
    "timeout": ("✗", "timed out"),
    "crash": ("✗", "crashed"),
    "throttled": ("!", "throttled"),
    "client_limited": ("!", "late client"),
    "unclean": ("!", "not alike"),
    "aborted": ("-", "skipped"),
}
_ASCII = str.maketrans("✓✗…±−→≤–·°", "+x.~-><-|*")
_ROLE = {"baseline": "baseline", "value": "", "baseline_again": "again", "finalist": "finalist"}


def left(session: Session) -> tuple[int, int, float | None]:
    """(place of the running point, all points, seconds left): see `estimate.left`."""
    return estimate.left(session)


# ---- JSON -------------------------------------------------------------------------------------------------------


def as_dict(session: Session, state: State, path: str | Path) -> dict[str, Any]:
    """The session as `run --json` and `show --json` print it. What was not measured is null, never left out."""
    verdict = judge(session)
    start, plan = session.start, session.start.plan
    place, total, seconds = left(session)
    return {
        "id": session.id,
        "file": str(path),
        "status": state,
        "say": session.ended.say if session.ended else None,
        "kind": start.kind,
        "model": plan.model,
        "knob": plan.knob.name,
        "baseline": start.baseline,
        "goal": plan.slo.goal,
        "slo": {"name": plan.slo.name, "goal": plan.slo.goal, **plan.slo.limits},
        "thoroughness": plan.thoroughness,
        "machine": {"title": start.machine.title, "card": start.machine.card, "device": start.machine.device},
        "engine": {"version": start.engine.version, "package": start.engine.package, "device": start.engine.device},
        "points": [point_dict(p, session) for p in session.points],
        "to_come": [
            {"n": s.n, "role": s.role, "value": s.value} for s in schedule.slots(session) if session.point(s.n) is None
        ],
        "left": {
            "point": place,
            "points": total,
            "seconds": seconds if state == "running" else None,
            "price": estimate.price(seconds / 60.0, plan) if seconds is not None and state == "running" else None,
        },
        "verdict": {**verdict.as_dict(), "sentence": verdict.why},
        "next": list(bottleneck.next_knobs(session, _built_on(session, verdict))) if points.baselines(session) else [],
        "decision": _decision(session.decision),
        "prediction": start.prediction,
        "estimate": start.estimate,
        "band": start.band,
        "notes": [{"say": n.say, "level": n.level} for n in session.notes],
        "segments": sorted({p.segment for p in session.points} | {x.segment for x in session.launches}),
        "dummy_weights": start.dummy_weights,
        "skipped_lines": session.skipped,
    }


def point_dict(point: Point, session: Session) -> dict[str, Any]:
    """One point of the JSON: status, capacity, memory, quality, throughput, latency, per level."""
    here = points.figures(point, session)
    best = here.best
    capacity = point.capacity
    took = (point.ended - point.began) if point.ended is not None else None
    held = bottleneck.of(point, session) if point.levels else None
    base = points.baseline_of(point, session)
    change = difference(point, session)
    return {
        "n": point.n,
        "role": point.role,
        "value": point.value,
        "label": label(point.value),
        "status": point.status,
        "say": point.say,
        "fix": msgspec.to_builtins(point.failed.fix) if point.failed and point.failed.fix else None,
        "phase": point.failed.phase if point.failed else (point.phase if point.status is None else None),
        "cause": point.failed.cause if point.failed else None,
        "attempt": point.attempt,
        "attempts": len(point.earlier) + 1,
        "segment": point.segment,
        "seconds": took,
        "warmup": {key: getattr(point.warmed, key) for key in ("windows", "seconds", "limit_s", "steady")}
        if point.warmed
        else None,
        "startup_s": capacity.startup_s if capacity else None,
        "capacity": {
            key: getattr(capacity, key) if capacity else None
            for key in ("kv_blocks", "block_size", "kv_tokens", "max_concurrency", "weights_gib", "kv_gib", "graph_gib",
                        "activation_gib", "backend")
        }
        | {"expected_kv_tokens": _expected(session, point)},
        "changed": msgspec.to_builtins(capacity.changed) if capacity and capacity.changed else None,
        "memory": {
            "peak_mib": point.peak_mib,
            "headroom_mib": (session.start.machine.memory_mib - point.peak_mib)
            if point.peak_mib is not None and session.start.machine.memory_mib
            else None,
            "after_mib": point.clean.vram_mib if point.clean else None,
        },
        "quality": _quality(point, session),
        "throughput": _throughput(best, here, session),
        "latency": _latency(point, best),
        "levels": [_level(level, rows, point) for level, rows in zip(here.levels, point.levels, strict=True)],
        "best_level": best.level if best else None,
        "meets_slo": best.meets if best and session.start.plan.slo.limits else None,
        "limits": best.limits if best else {},
        "difference_percent": change,
        "bottleneck": {"kind": held.kind, "title": held.title, "why": held.why} if held else None,
        "problems": points.problems(point, base, session) if point.status is not None else [],
        "notes": points.notes(point),
    }  # fmt: skip


def _built_on(session: Session, verdict: Verdict) -> Point | None:
    """The point that the next sweep starts from: the decided value's, else the one to keep; None for the baseline."""
    decision = session.decision
    if decision is not None:
        return points.value_point(session, decision.value) if decision.choice == "keep" else None
    return points.value_point(session, verdict.value) if verdict.choice == "keep" else None


def difference(point: Point, session: Session) -> float | None:
    """The gain of a point so far against the mean of its segment's baselines, in percent of the goal's figure
    (or of the limit that the baseline misses); positive is better. None for baselines and where nothing compares."""
    if point.role in ("baseline", "baseline_again") or not points.measured(point):
        return None
    base = points.baseline_of(point, session)
    if base is None:
        return None
    slo = session.start.plan.slo
    what = points.target(points.figures(base, session), slo)
    own = [
        x
        for p in points.baselines(session, point.segment)
        if (x := points.figure(points.figures(p, session), what, slo)) is not None
    ]
    here = points.figure(points.figures(point, session), what, slo)
    return points.gain(here, sum(own) / len(own) if own else None, points.rises(what, slo))


def _expected(session: Session, point: Point) -> int | None:
    said = session.start.estimate.get(label(point.value))
    tokens = said.get("kv_tokens") if isinstance(said, dict) else None
    return int(tokens) if isinstance(tokens, (int, float)) and not isinstance(tokens, bool) else None


def _quality(point: Point, session: Session) -> dict[str, Any] | None:
    """Accuracy with its Wilson interval, and against the baseline the flips; nothing for dummy weights."""
    own = points.quality(point.answers)
    if own is None or session.start.dummy_weights:
        return None
    interval = stats.wilson(own.right, own.scored) if own.scored else None
    found: dict[str, Any] = {
        "accuracy": own.accuracy,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "items": own.items,
        "scored": own.scored,
        "right": own.right,
        "cut_off": own.cut_off,
        "mean_tokens": own.mean_tokens,
        "chat_template": own.chat_template,
        "against_baseline": None,
    }
    twin = details.against_baseline(point, session)
    if twin is not None:
        found["against_baseline"] = {
            "lost": twin.lost,
            "won": twin.won,
            "p": twin.p,
            "fell": twin.fell,
            "could_see": twin.could_see,
            "identical": twin.identical,
            "length_ratio": twin.length_ratio,
            "flips": [{"item": f.item, "won": f.won} for f in twin.flips],
        }
    return found


def _throughput(best: points.Level | None, here: points.Figures, session: Session) -> dict[str, Any] | None:
    if best is None:
        return None
    noise = bands.of(session.start.band, "throughput", session.start.plan.slo.goal)
    one = stats.t_quantile(0.975, noise.pairs) * noise.sd_percent / 100.0 if noise else None
    return {
        "output_tok_s": best.output_tok_s,
        "low": best.output_tok_s * (1 - one) if one is not None else None,
        "high": best.output_tok_s * (1 + one) if one is not None else None,
        "total_tok_s": best.total_tok_s,
        "requests_s": best.requests_s,
        "goodput": best.goodput,
        "attained": best.attained,
        "price_per_million": here.price_per_million,
        "currency": here.currency,
        "joules_per_token": here.joules_per_token,
        "prefix_hit_share": here.prefix_hit_share,
        "acceptance": here.acceptance,
        "preemptions": here.preemptions,
        "lag_p99_ms": here.lag_p99_ms,
    }


def _spread(found: points.Spread, ordered: list[float] | None = None) -> dict[str, Any]:
    """Percentiles, null where the count does not support them, with intervals from order statistics. `ordered` is
    left out for ITL, whose values are not independent of each other."""
    said: dict[str, Any] = {"count": found.count, "mean": found.mean, "max": found.max}
    intervals: dict[str, Any] = {}
    for p in PERCENTILES:
        said[f"p{p}"] = found.at(p)
        if ordered and found.count >= NEEDED[p]:
            interval = stats.percentile_interval(ordered, p)
            intervals[f"p{p}"] = list(interval) if interval else None
    if intervals:
        said["intervals"] = intervals
    return said


def _latency(point: Point, best: points.Level | None) -> dict[str, Any] | None:
    rows = next((r for r in point.levels if best is not None and r.level == best.level), None)
    if best is None or rows is None:
        return None
    raw = points.latencies(rows)
    return {f"{m}_ms": _spread(best.spread(m), raw[m] if m != "itl" else None) for m in _METRICS}


def _level(level: points.Level, rows: ev.Requests, point: Point) -> dict[str, Any]:
    held = bottleneck.of_level(rows, point)
    plain_level: dict[str, Any] = msgspec.to_builtins(level)
    spreads = {f"{m}_ms": _spread(level.spread(m)) for m in _METRICS}
    rest = {key: value for key, value in plain_level.items() if key not in _METRICS}
    return {**rest, "latency": spreads, "bottleneck": {"kind": held.kind, "title": held.title, "why": held.why}}


def _decision(decision: ev.Decision | None) -> dict[str, Any] | None:
    if decision is None:
        return None
    return {
        "choice": decision.choice,
        "value": decision.value,
        "why": decision.why,
        "override": decision.override,
        "seen": decision.seen,
        "t": decision.t,
    }


# ---- text -------------------------------------------------------------------------------------------------------


def sentence(session: Session) -> str:
    """The verdict in one sentence for a person."""
    return judge(session).why


def table(session: Session, state: State = "running", ascii: bool = False, width: int = WIDTH) -> str:
    """The points as a table, then the verdict; no line is longer than `width` columns (80 at least fit).

    `state` tells a point that still runs from one that was cut off.
    """
    plan = session.start.plan
    lines = [
        _fit(
            f"{plan.knob.name} on {plan.model} · {session.start.machine.title} · vLLM {session.start.engine.version}",
            width,
        ),
        _fit(f"{plan.load.describe()} · goal {plan.slo.goal}", width),
        "",
    ]
    ttft = shown_percentile(session, "ttft")
    tpot = shown_percentile(session, "tpot")
    lines.append(
        f"{'value':<17} {'status':<13}{'KV tok':>9}{'tok/s':>8}{'±%':>7}"
        f"{f'TTFT p{ttft}':>10}{f'TPOT p{tpot}':>10}{'acc':>5}"
    )
    for point in session.points:
        lines.append(_row(point, session, state, ttft, tpot))
        if point.status not in (None, "ok") and point.say:
            fix = f" {point.failed.fix.say}" if point.failed and point.failed.fix else ""
            lines += [_fit(f"    {part}", width) for part in _wrap(plain(point.say + fix), width - 4)]
    for slot in schedule.slots(session):
        if session.point(slot.n) is None:
            lines.append(f"{_name(slot.value, slot.role):<17} - to come")
    lines.append("")
    for grid in details.grids(session):
        lines += [*_grid(grid, width), ""]
    verdict = judge(session)
    lines += _wrap(plain(verdict.why), width)
    lines += _footnotes(session, verdict, width)
    text = "\n".join(line.rstrip() for line in lines)
    return text.translate(_ASCII).encode("ascii", "replace").decode() if ascii else text


def point_line(point: Point, session: Session) -> str:
    """One ended point on one line: what it was, what came of it, the difference to the baseline so far."""
    symbol, word = _STATUS.get(point.status, ("?", str(point.status)))
    name = plain(f"{session.start.plan.knob.name} {label(point.value)}")
    title = name if point.role == "value" else f"{name} ({point.role.replace('_', ' ')})"
    if point.failed:
        return f"{symbol} {title}: {word} in {point.failed.phase}: {plain(point.failed.say)}"
    here = points.figures(point, session)
    parts = [f"{symbol} {title}"] + ([word] if point.status != "ok" else [])
    if point.capacity and point.capacity.kv_tokens:
        parts.append(f"{point.capacity.kv_tokens:,} KV tokens")
    if here.best:
        parts.append(f"{words.number(here.best.output_tok_s)} tok/s")
        change = difference(point, session)
        if change is not None:
            parts.append(f"{words.percent(change)}")
        parts.append(f"TTFT {words.duration(_latency_at(here.best, 'ttft', shown_percentile(session, 'ttft')))}")
        parts.append(f"TPOT {words.duration(_latency_at(here.best, 'tpot', shown_percentile(session, 'tpot')))}")
    if here.quality and here.quality.accuracy is not None and not session.start.dummy_weights:
        parts.append(f"accuracy {here.quality.right:.0f}/{here.quality.scored}")
    return ", ".join(parts)


def status_words(point: Point, state: State) -> tuple[str, str]:
    """A point's outcome as symbol and word; without one it runs while its session does, and was cut off after."""
    if point.status is None and state != "running":
        return "-", "cut off"
    return _STATUS.get(point.status, ("?", str(point.status)))


def _row(point: Point, session: Session, state: State, ttft: int, tpot: int) -> str:
    here = points.figures(point, session)
    symbol, word = status_words(point, state)
    best = here.best
    kv = f"{point.capacity.kv_tokens:,}" if point.capacity and point.capacity.kv_tokens is not None else ""
    change = difference(point, session)
    accuracy = ""
    if here.quality and here.quality.accuracy is not None and not session.start.dummy_weights:
        accuracy = f"{here.quality.accuracy * 100:.0f}%"
    return (
        f"{_name(point.value, point.role):<17} {f'{symbol} {word}':<13}{kv:>9}"
        f"{words.number(best.output_tok_s) if best else '':>8}"
        f"{words.percent(change).replace(' %', '') if change is not None else '':>7}"
        f"{words.duration(_latency_at(best, 'ttft', ttft)) if best else '':>10}"
        f"{words.duration(_latency_at(best, 'tpot', tpot)) if best else '':>10}"
        f"{accuracy:>5}"
    )


def _grid(grid: details.Grid, width: int) -> list[str]:
    """A table beneath the main one, its columns as wide as they need."""
    cells = [grid.head, *(row.cells for row in grid.rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(grid.head))]
    space = 2 if 17 + sum(widths) + 2 * len(widths) <= width else 1
    names = ["value", *(_name(row.point.value, row.point.role) for row in grid.rows)]
    lines = [
        f"{name:<17}" + "".join(f"{cell:>{room + space}}" for cell, room in zip(line, widths, strict=True))
        for name, line in zip(names, cells, strict=True)
    ]
    return [_fit(grid.title, width), *(_fit(line, width) for line in lines)]


def _name(value: object, role: str) -> str:
    suffix = _ROLE.get(role, role)
    name = plain(label(value))
    room = 17 - (len(suffix) + 1 if suffix else 0)
    short = name if len(name) <= room else name[: room - 1] + "…"
    return f"{short} {suffix}".strip()


def shown_percentile(session: Session, metric: str) -> int:
    """The percentile of a latency column: the limit's, else the median."""
    return max((b.percentile for b in session.start.plan.slo.bounds() if b.metric == metric), default=50)


def _latency_at(level: points.Level, metric: str, percentile: int) -> float | None:
    return level.spread(metric).at(percentile)


def _footnotes(session: Session, verdict: Verdict, width: int) -> list[str]:
    lines: list[str] = []
    said = []
    if verdict.drift_percent is not None:
        said.append(f"drift {verdict.drift_percent:.1f} %")
    band = bands.describe(session.start.band)
    if band:
        said.append(f"noise band {band}")
    costs = [
        (label(p.value), f.price_per_million, f.currency)
        for p in session.points
        if (f := points.figures(p, session)).price_per_million is not None
    ]
    if costs:
        said.append(
            f"{min(c for _, c, _ in costs if c is not None):.2f} {costs[0][2]} per million output tokens at best"
        )
    if said:
        lines += _wrap(plain("; ".join(said)), width)
    for warning in verdict.warnings:
        lines += _wrap(plain(f"! {warning}"), width)
    if session.start.prediction:
        lines += _wrap(plain(f"predicted: {session.start.prediction}"), width)
    if session.decision:
        kept = f" {label(session.decision.value)}" if session.decision.choice == "keep" else ""
        why = f" ({session.decision.why})" if session.decision.why else ""
        lines += _wrap(plain(f"decided: {session.decision.choice}{kept}{why}"), width)
    return lines


def _fit(text: str, width: int) -> str:
    shown = plain(text)
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def _wrap(text: str, width: int) -> list[str]:
    """Lines of whole words; a word longer than a line is cut into pieces."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        while len(word) > width:
            if line:
                lines.append(line)
                line = ""
            lines.append(word[:width])
            word = word[width:]
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*lines, line] if line else lines
