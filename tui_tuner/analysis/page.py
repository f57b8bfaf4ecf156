"""A session as one web page to hand on: self-contained, without a script, and nothing in it asks the network.

The page is built as a tree and written by the standard library's serialiser, so that text from a session can never
become markup; control and direction-changing characters are taken out before. Charts are inline SVG from zero.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from xml.etree import ElementTree

from msgspec import Struct

from tui_tuner.analysis import bands, details, export, points, quality, report, stats, words
from tui_tuner.analysis.chain import Link
from tui_tuner.analysis.verdict import Verdict, judge
from tui_tuner.model.session import Point, Session, State
from tui_tuner.model.text import plain
from tui_tuner.model.values import label

Node = ElementTree.Element

_FLIPS = 40  # answers that are shown, of all values together
_LONGEST = 1000  # characters of one answer
_WIDTH, _LEFT, _RIGHT, _STEP = 640, 170, 110, 26  # of a bar chart, in its own units
_HEIGHT, _EDGE = 300, 60  # of the curve

# Blue and orange differ for everybody; what a colour says is also said by a word or a letter.
_STYLE = """
:root { color-scheme: light dark; --text: #1c1c1c; --ground: #fff; --quiet: #626262; --line: #bcbcbc;
  --panel: #eee; --blue: #005faf; --orange: #af5f00 }
@media (prefers-color-scheme: dark) { :root { --text: #d0d0d0; --ground: #121212; --quiet: #9a9a9a; --line: #444;
  --panel: #1c1c1c; --blue: #5fafff; --orange: #ffaf5f } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--ground); max-width: 64rem;
  margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
.verdict { font-weight: bold; border-left: .3rem solid var(--blue); padding-left: 1rem }
.quiet, dt { color: var(--quiet) } .bad { color: var(--orange) }
.wide { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap }
th:first-child, td:first-child, td.text { text-align: left } td.text { white-space: normal }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem } dd { margin: 0 }
dd, .answer, p, li { overflow-wrap: anywhere }
pre { background: var(--panel); padding: 1rem; white-space: pre-wrap; overflow-wrap: anywhere }
svg { width: 100%; max-width: 40rem; height: auto; display: block } svg text { font-size: 13px; fill: var(--text) }
svg .axis { stroke: var(--line); fill: none } svg .quiet { fill: var(--quiet) }
svg .limit { stroke: var(--orange); stroke-dasharray: 4 3 } svg .span { stroke: var(--text); stroke-width: 2 }
svg .a { fill: var(--blue) } svg .b { fill: var(--quiet) } svg .path { stroke: var(--line); fill: none }
"""


def html(session: Session, state: State = "finished", chain: Sequence[Link] = ()) -> str:
    """The whole session as one HTML page, with the decisions that led to it. Never raises for a session that could
    be read."""
    verdict, plan = judge(session), session.start.plan
    title = f"{plan.knob.name} on {plan.model}"
    page = ElementTree.Element("html", lang="en")
    _head(page, title)
    body = _add(page, "body")
    _add(body, "h1", title)
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(session.start.t if 0 <= session.start.t < 1e11 else 0))
    _add(body, "p", f"{session.start.machine.title} · vLLM {session.start.engine.version} · {when} · {state}", "quiet")
    _add(body, "p", verdict.why, "verdict")
    _decision(body, session)
    _figures(body, session, state)
    _details(body, session)
    _pictures(body, session)
    _answers(body, session)
    _conditions(body, session, verdict)
    if chain:
        _add(body, "h2", "The decisions that led here")
        steps = _add(body, "ol")
        for step in chain:
            _add(steps, "li", f"{step.say} ({step.id})")
    _add(body, "h2", "To serve it")
    _add(body, "pre", export.serve(session, state))
    _add(body, "pre", export.yaml(session, state), lines=True)
    return "<!doctype html>\n" + ElementTree.tostring(page, encoding="unicode", method="html") + "\n"


def _add(parent: Node, tag: str, text: str = "", kind: str = "", lines: bool = False, **attributes: str) -> Node:
    """A new element of `parent` with safe text; `_` in an attribute's name stands for `-`."""
    made = ElementTree.SubElement(parent, tag, {name.replace("_", "-"): value for name, value in attributes.items()})
    if kind:
        made.set("class", kind)
    if text:
        made.text = plain(text, 20_000, keep_lines=lines)
    return made


def _head(page: Node, title: str) -> None:
    head = _add(page, "head")
    _add(head, "meta", charset="utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'"  # a reader's browser holds the page to its promise
    _add(head, "meta", http_equiv="Content-Security-Policy", content=policy)
    _add(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    _add(head, "title", title)
    _add(head, "style").text = _STYLE


def _decision(body: Node, session: Session) -> None:
    decision = session.decision
    if decision is None:
        _add(body, "p", "Nothing has been decided yet.", "quiet")
        return
    kept = f"keep {label(decision.value)}" if decision.choice == "keep" else "back to the baseline"
    against = ", against the verdict" if decision.override else ""
    why = f": {decision.why}" if decision.why else ""
    _add(body, "p", f"Decided: {kept}{against}{why}")


# ---- figures ----------------------------------------------------------------------------------------------------


def _figures(body: Node, session: Session, state: State) -> None:
    ttft, tpot = report.shown_percentile(session, "ttft"), report.shown_percentile(session, "tpot")
    _add(body, "h2", "Quality, throughput and latency")
    table = _add(_add(body, "div", kind="wide"), "table")
    head = _add(table, "tr")
    for name in ("value", "status", "KV tokens", "peak", "accuracy", "tok/s", "difference",
                 f"TTFT p{ttft}", f"TPOT p{tpot}", "SLO"):  # fmt: skip
        _add(head, "th", name)
    for point in session.points:
        row = _add(table, "tr")
        for cell in _cells(point, session, state, ttft, tpot):
            _add(row, "td", cell)
        if point.status not in (None, "ok") and point.say:
            fix = f" {point.failed.fix.say}" if point.failed and point.failed.fix else ""
            _add(_add(table, "tr"), "td", point.say + fix, "text bad", colspan="10")


def _details(body: Node, session: Session) -> None:
    for grid in details.grids(session):
        _add(body, "h2", grid.title.capitalize())
        table = _add(_add(body, "div", kind="wide"), "table")
        head = _add(table, "tr")
        for name in ("value", *grid.head):
            _add(head, "th", name)
        for line in grid.rows:
            row = _add(table, "tr")
            for cell in (_name(line.point), *line.cells):
                _add(row, "td", cell)


def _cells(point: Point, session: Session, state: State, ttft: int, tpot: int) -> tuple[str, ...]:
    here = points.figures(point, session)
    best, change = here.best, report.difference(point, session)
    tokens = point.capacity.kv_tokens if point.capacity else None
    meets = best.meets if best and session.start.plan.slo.limits else None
    peak = point.peak_mib
    return (
        _name(point),
        " ".join(report.status_words(point, state)),
        f"{tokens:,}" if tokens is not None else "",
        f"{peak / 1024:.1f} GiB" if peak is not None else "",
        _accuracy(point, session),
        words.number(best.output_tok_s) if best else "",
        words.percent(change) if change is not None else "",
        words.duration(best.ttft.at(ttft)) if best else "",
        words.duration(best.tpot.at(tpot)) if best else "",
        "" if meets is None else "✓ meets" if meets else "✗ misses",
    )


def _name(point: Point) -> str:
    return label(point.value) + ("" if point.role == "value" else f" ({point.role.replace('_', ' ')})")


def _interval(point: Point, session: Session) -> stats.Interval | None:
    """A point's accuracy with Wilson's interval; nothing for dummy weights, whose answers mean nothing."""
    own = points.quality(point.answers)
    return stats.wilson(own.right, own.scored) if own and own.scored and not session.start.dummy_weights else None


def _accuracy(point: Point, session: Session) -> str:
    found = _interval(point, session)
    return f"{found.value * 100:.0f} % ({found.low * 100:.0f}–{found.high * 100:.0f})" if found else ""


# ---- charts -----------------------------------------------------------------------------------------------------


class _Bar(Struct, frozen=True):
    name: str
    value: float | None
    say: str
    base: bool
    low: float | None = None
    high: float | None = None


def _pictures(body: Node, session: Session) -> None:
    measured = [p for p in session.points if points.measured(p)]
    if not measured:
        return
    slo = session.start.plan.slo
    found = [(p, points.figures(p, session).best) for p in measured]

    def bars(figure: str, percentile: int) -> list[_Bar]:
        made = []
        for point, best in found:
            value = None if best is None else best.spread(figure).at(percentile)
            made.append(_Bar(_name(point), value, words.duration(value), _is_base(point)))
        return made

    accuracy = [(p, _interval(p, session)) for p in measured]
    if any(interval for _, interval in accuracy):
        _bars(body, "Accuracy, with its 95 % interval", [
            _Bar(_name(p), i.value, f"{i.value * 100:.0f} %", _is_base(p), i.low, i.high)
            if i else _Bar(_name(p), None, "", _is_base(p)) for p, i in accuracy
        ], top=1.0)  # fmt: skip
    speeds = [(p, best.output_tok_s if best else None) for p, best in found]
    _bars(body, "Output tokens a second", [_Bar(_name(p), v, words.number(v), _is_base(p)) for p, v in speeds])
    for metric in ("ttft", "tpot"):
        percentile = report.shown_percentile(session, metric)
        limit = slo.limits.get(f"{metric}_p{percentile}_ms")
        _bars(body, f"{words.METRICS[metric]} p{percentile}", bars(metric, percentile), limit=limit)
    tokens = [(p, p.capacity.kv_tokens if p.capacity else None) for p in measured]
    if any(t is not None for _, t in tokens):
        _bars(body, "KV cache, tokens", [
            _Bar(_name(p), t, f"{t:,}" if t is not None else "", _is_base(p)) for p, t in tokens
        ])  # fmt: skip
    _curve(body, session, found)


def _is_base(point: Point) -> bool:
    return point.role in ("baseline", "baseline_again")


def _share(value: float | None, top: float) -> float:
    """Where `value` lies between zero and `top`, 0..1; whatever a session says stays inside the picture."""
    if value is None or not math.isfinite(value) or not 0 < top < math.inf:
        return 0.0
    return min(max(value / top, 0.0), 1.0)


def _highest(values: Sequence[float | None]) -> float:
    return max((v for v in values if v is not None and math.isfinite(v)), default=0.0)


def _bars(body: Node, title: str, bars: Sequence[_Bar], top: float | None = None, limit: float | None = None) -> None:
    """Horizontal bars from zero, the baseline's in grey; a limit near enough to be seen is a dashed line."""
    if all(bar.value is None for bar in bars):
        return
    highest = _highest([top, *(bar.value for bar in bars), *(bar.high for bar in bars)])
    near = limit is not None and limit <= 2 * highest
    if near and limit is not None:
        highest = max(highest, limit * 1.02)
    _add(body, "h2", title + (f", limit {words.limit(limit)}" if limit is not None else ""))
    height, room = _STEP * len(bars) + 6, _WIDTH - _LEFT - _RIGHT
    chart = _svg(body, title, _WIDTH, height)
    for number, bar in enumerate(bars):
        y = 3 + number * _STEP
        _text(chart, _LEFT - 8, y + 17, plain(bar.name, 22), anchor="end")
        length = room * _share(bar.value, highest)
        _add(chart, "rect", kind="b" if bar.base else "a", x=str(_LEFT), y=str(y + 4), width=f"{length:.1f}",
             height=str(_STEP - 8))  # fmt: skip
        end = length
        if bar.low is not None and bar.high is not None:
            low, end = room * _share(bar.low, highest), room * _share(bar.high, highest)
            middle = y + _STEP / 2
            _add(chart, "path", kind="span", d=f"M{_LEFT + low:.1f} {middle}H{_LEFT + end:.1f}")
        _text(chart, _LEFT + max(end, length) + 6, y + 17, bar.say if bar.value is not None else "not measured")
    _add(chart, "path", kind="axis", d=f"M{_LEFT} 0V{height}")
    if near:
        x = _LEFT + room * _share(limit, highest)
        _add(chart, "path", kind="limit", d=f"M{x:.1f} 0V{height}")


def _curve(body: Node, session: Session, found: Sequence[tuple[Point, points.Level | None]]) -> None:
    """All load levels of every configuration: throughput upwards, the median of one latency to the right."""
    slo = session.start.plan.slo
    bounds = slo.bounds()
    metric = slo.goal if not slo.higher_is_better else bounds[0].metric if bounds else "tpot"
    lines = []
    for point, _ in found:
        levels = [x for x in points.figures(point, session).levels if x.spread(metric).p50 is not None]
        if levels and point.role != "baseline_again":
            lines.append((point, [(x, x.spread(metric).p50) for x in levels]))
    if not lines:
        return
    far = _highest([ms for _, dots in lines for _, ms in dots])
    top = _highest([x.output_tok_s for _, dots in lines for x, _ in dots])
    _add(body, "h2", f"Throughput against {words.METRICS[metric]} (median), each load level")
    chart = _svg(body, f"tok/s against {words.METRICS[metric]}", _WIDTH, _HEIGHT + 40)
    _add(chart, "path", kind="axis", d=f"M{_EDGE} 10V{_HEIGHT}H{_WIDTH - 10}")
    _text(chart, _EDGE - 6, 22, words.number(top), anchor="end")
    _text(chart, _EDGE - 6, _HEIGHT, "0", anchor="end")
    _text(chart, _EDGE - 6, 40, "tok/s", anchor="end", kind="quiet")
    _text(chart, _WIDTH - 40, _HEIGHT + 18, words.duration(far), anchor="middle")
    _text(chart, _EDGE, _HEIGHT + 18, "0", anchor="middle")
    legend = _add(body, "ul")
    for number, (point, dots) in enumerate(lines):
        letter = chr(ord("A") + number) if number < 26 else "+"
        places = [
            (_EDGE + (_WIDTH - _EDGE - 40) * _share(ms, far), _HEIGHT - (_HEIGHT - 20) * _share(x.output_tok_s, top))
            for x, ms in dots
        ]
        if len(places) > 1:
            _add(chart, "path", kind="path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places))
        for x, y in places:
            _add(chart, "circle", kind="b" if _is_base(point) else "a", cx=f"{x:.1f}", cy=f"{y:.1f}", r="4")
            _text(chart, x + 7, y - 5, letter)
        told = "; ".join(
            f"level {x.level:g}: {words.number(x.output_tok_s)} tok/s at {words.duration(ms)}" for x, ms in dots
        )
        _add(legend, "li", f"{letter}: {_name(point)}: {told}")


def _svg(body: Node, title: str, width: int, height: int) -> Node:
    chart = _add(body, "svg", viewBox=f"0 0 {width} {height}", role="img")
    _add(chart, "title", title)
    return chart


def _text(chart: Node, x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> None:
    _add(chart, "text", text, kind, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


# ---- answers and conditions -------------------------------------------------------------------------------------


def _answers(body: Node, session: Session) -> None:
    """The answers whose score changed against the baseline, each beside its twin."""
    if session.start.dummy_weights:
        return
    room = _FLIPS
    for point in session.points:
        base = points.baseline_of(point, session)
        if base is None or base.n == point.n or point.role == "baseline_again":
            continue
        twin = quality.compare(base.answers, point.answers)
        if twin is None or not twin.flips:
            continue
        _add(body, "h2", f"Answers at {_name(point)}: {twin.lost} lost, {twin.won} won of {twin.scored}")
        for flip in twin.flips[:room]:
            shown = _add(body, "details")
            _add(shown, "summary", f"{flip.item}: {'won' if flip.won else 'lost'}")
            for who, text in (("baseline", flip.before), ("here", flip.after)):
                _add(shown, "p", f"{who}: {plain(text, _LONGEST)}", "answer")
        if len(twin.flips) > room:
            _add(body, "p", f"and {len(twin.flips) - room} more", "quiet")
        room = max(room - len(twin.flips), 0)


def _conditions(body: Node, session: Session, verdict: Verdict) -> None:
    start, plan = session.start, session.start.plan
    limits = [f"{words.figure_name(b.key, plan.slo)} ≤ {words.limit(b.ms)}" for b in plan.slo.bounds()]
    gpu, chosen = start.machine.gpu, plan.evalset
    driver = f", driver {gpu.driver}" if gpu is not None and gpu.driver else ""
    asked = f"{chosen.items} items of {chosen.name}, up to {chosen.max_tokens} tokens" if chosen.items else "none"
    if start.dummy_weights:
        asked = "none: the weights are dummies, speed and memory are real, nothing is said of quality"
    rows = [
        ("session", session.id),
        ("machine", f"{start.machine.title}{driver}"),
        ("engine", f"{start.engine.package} {start.engine.version} ({start.engine.device})"),
        ("model", plan.model),
        ("knob", f"{plan.knob.name}, baseline {label(start.baseline)}"),
        ("configuration", ", ".join(f"{k} = {label(v)}" for k, v in plan.fixed.items()) or "vLLM's defaults"),
        ("load", f"{plan.load.describe()}; {plan.requests_per_level()} requests a level, seed {plan.seed}"),
        ("eval set", asked),
        ("SLO", "; ".join([f"{plan.slo.name}: goal {plan.slo.goal}", *limits])),
        ("thoroughness", f"{plan.thoroughness}; the verdict is {verdict.strength}"),
    ]
    if verdict.drift_percent is not None:
        rows.append(("drift", f"{verdict.drift_percent:.1f} % between the first baseline and the last"))
    band = bands.describe(start.band)
    if band:
        rows.append(("noise band", band))
    if start.prediction:
        rows.append(("expected before", start.prediction))
    _add(body, "h2", "What was held fixed")
    listed = _add(body, "dl")
    for name, text in rows:
        _add(listed, "dt", name)
        _add(listed, "dd", text)
    if verdict.warnings:
        _add(body, "h2", "To be known")
        notes = _add(body, "ul")
        for warning in verdict.warnings:
            _add(notes, "li", warning)
