"""Two sessions side by side: what was not held alike, and then the figures of the configurations that matter.

A figure is the mean over a configuration's valid launches. A difference counts beyond the largest of 5 %, twice the
drift of either session, and the noise band of either, each for that figure, as in a quick verdict; for quality it is
exact McNemar over the items that both answered. Where the work was another, differences are shown and not judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, stdev
from typing import Any, Literal

import msgspec
from msgspec import Struct

from tui_tuner.analysis import bands, points, quality, stats, words
from tui_tuner.analysis.verdict import QUICK_FLOOR, judge
from tui_tuner.model import events as ev
from tui_tuner.model.session import Point, Session
from tui_tuner.model.values import Value, label, same

Part = Literal["speed", "quality", "limits"]
Role = Literal["decided", "best", "baseline"]


class Difference(Struct, frozen=True):
    """Something that was held fixed within each session and is not the same in both.

    `spoils` names the figures that cannot be compared because of it: the work behind them was another. A difference
    that spoils nothing (another card, another vLLM) is one that the figures may show.
    """

    what: str
    say: str
    spoils: tuple[Part, ...] = ()


class Figure(Struct, frozen=True):
    """One figure of one configuration, in its unit, with the bounds of its 95 % interval where they are known."""

    value: float
    low: float | None = None
    high: float | None = None
    launches: int = 1


class Row(Struct, frozen=True):
    """One figure of both. `change_percent` is of A's (points of accuracy for quality); `threshold` what it had to
    exceed; `choice` says which is better, or that there is no clear difference; None where it cannot be judged."""

    key: str
    name: str
    unit: str
    a: Figure | None
    b: Figure | None
    change: float | None = None
    threshold: float | None = None
    choice: Literal["A", "B", "no clear difference"] | None = None
    say: str = ""


class Side(Struct, frozen=True):
    """A configuration of one session: what it is there, the knob's value, and why its figures may not count."""

    role: Role
    knob: str
    value: Value
    launches: int
    problems: tuple[str, ...] = ()


class Pair(Struct, frozen=True):
    """A configuration of A beside one of B. `configuration` holds the engine arguments that differ, [A's, B's];
    None is an argument that was left to vLLM."""

    a: Side
    b: Side
    configuration: dict[str, list[Any]]
    rows: tuple[Row, ...]


class Comparison(Struct, frozen=True):
    """Two sessions; `say` is what must be known before the figures are read, in sentences."""

    say: tuple[str, ...]
    differences: tuple[Difference, ...]
    pairs: tuple[Pair, ...]

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def compare(a: Session, b: Session) -> Comparison:
    """B against A. Never raises for sessions that could be read."""
    found = tuple(differences(a, b))
    spoiled = {part for d in found for part in d.spoils}
    first = (_side(a, "baseline"), _side(b, "baseline"))
    chosen = (_side(a, _chosen(a)), _side(b, _chosen(b)))
    pairs = [first]
    if (chosen[0].role, chosen[1].role) != ("baseline", "baseline"):
        pairs.append(chosen)
    made = tuple(Pair(x, y, _arguments(a, x, b, y), _rows(a, x, b, y, spoiled)) for x, y in pairs)
    said = ["A and B are the same session."] if a.id == b.id and a.start.t == b.start.t else _said(found)
    return Comparison(tuple(said), found, made)


# ---- what was held fixed ----------------------------------------------------------------------------------------


def differences(a: Session, b: Session) -> list[Difference]:
    """What was fixed within each session and differs between the two, what spoils figures first."""
    x, y = a.start, b.start
    p, q = x.plan, y.plan
    found: list[Difference] = []

    def add(what: str, said: Iterable[str], *spoils: Part) -> None:
        one, other = said
        if one != other:
            found.append(Difference(what, f"the {what} differs: {one} in A, {other} in B", spoils))

    add("load", (p.load.describe(), q.load.describe()), "speed")
    if p.load != q.load and not found:
        found.append(Difference("load", "the load differs in its details: lengths, prefixes or text", ("speed",)))
    add("number of requests a level", (str(p.requests_per_level()), str(q.requests_per_level())), "speed")
    add("eval set", (_evalset(a), _evalset(b)), "quality")
    add("seed", (str(p.seed), str(q.seed)), "quality")
    add("kind of weights", ("dummy weights" if s.dummy_weights else "real weights" for s in (x, y)), "quality")
    add("SLO", (_limits(a), _limits(b)), "limits")
    add("model", (p.model, q.model))
    add("card", _cards(x, y))
    gpus = [s.machine.gpu for s in (x, y) if s.machine.gpu is not None]
    if len(gpus) == 2:
        add("driver", (gpu.driver or "not told" for gpu in gpus))
    add("vLLM", (f"{s.engine.version} ({s.engine.device})" for s in (x, y)))
    knobs = {p.knob.name, q.knob.name}
    for name in sorted({*p.fixed, *q.fixed} - knobs):
        one, other = (f.fixed.get(name) for f in (p, q))
        if not same(one, other):
            add(f"value of {name}", (label(v) if v is not None else "vLLM's default" for v in (one, other)))
    return sorted(found, key=lambda d: not d.spoils)


def _evalset(session: Session) -> str:
    chosen = session.start.plan.evalset
    return f"{chosen.items} items of {chosen.name}, up to {chosen.max_tokens} tokens" if chosen.items else "none"


def _limits(session: Session) -> str:
    slo = session.start.plan.slo
    return ", ".join([f"goal {slo.goal}", *(f"{words.figure_name(b.key, slo)} {b.ms:g} ms" for b in slo.bounds())])


def _cards(x: ev.SessionStart, y: ev.SessionStart) -> tuple[str, str]:
    one, other = x.machine.title, y.machine.title
    if one == other and x.machine.card != y.machine.card:
        return f"{one} {x.machine.card}", f"{other} {y.machine.card}"
    if one == other and x.machine.gpu is None:
        return f"{one}, {x.machine.cores} cores", f"{other}, {y.machine.cores} cores"
    return one, other


def _said(found: Sequence[Difference]) -> list[str]:
    """What must be said first: the differences, and what follows from them."""
    if not found:
        return ["Both held the same: model, card, driver, vLLM, configuration, load, eval set, seed and SLO."]
    lines = [f"{d.say[:1].upper()}{d.say[1:]}." for d in found]
    for part, name in (("speed", "Speed"), ("quality", "Quality")):
        causes = [d.what for d in found if part in d.spoils]
        if causes:
            lines.append(f"{name} is not comparable, for the work was another ({', '.join(causes)}).")
    if any("limits" in d.spoils for d in found):
        lines.append("Each session's load level was chosen by its own SLO, and met or missed its own limits.")
    moving = [d.what for d in found if not d.spoils]
    if len(moving) == 1:
        lines.append(f"Of what can move the figures only the {moving[0]} differs, beside the configurations below.")
    elif moving:
        lines.append(f"{len(moving)} things that can move the figures differ: which of them did cannot be told.")
    return lines


# ---- configurations ---------------------------------------------------------------------------------------------


def _chosen(session: Session) -> Role:
    if session.decision is not None:
        return "decided" if session.decision.choice == "keep" else "baseline"
    return "best" if judge(session).choice == "keep" else "baseline"


def _side(session: Session, role: Role) -> Side:
    value: Value = session.start.baseline
    if role == "decided" and session.decision is not None:
        value = session.decision.value
    elif role == "best":
        value = judge(session).value
    launches = _launches(session, role, value)
    invalid: list[str] = []
    for point in launches or _failed(session, role, value):
        invalid += points.problems(point, points.baseline_of(point, session), session)
    return Side(role, session.start.plan.knob.name, value, len(launches), tuple(dict.fromkeys(invalid)))


def _launches(session: Session, role: Role, value: Value) -> list[Point]:
    """The measured launches of a configuration, the valid ones if there are any."""
    if role == "baseline":
        found = points.baselines(session)
    else:
        found = [
            p for p in session.points if p.role in ("value", "finalist") and same(p.value, value) and points.measured(p)
        ]
    valid = [p for p in found if not points.problems(p, points.baseline_of(p, session), session)]
    return valid or found


def _failed(session: Session, role: Role, value: Value) -> list[Point]:
    roles = ("baseline", "baseline_again") if role == "baseline" else ("value", "finalist")
    return [p for p in session.points if p.role in roles and p.status is not None and same(p.value, value)]


def _arguments(a: Session, x: Side, b: Session, y: Side) -> dict[str, list[Any]]:
    """The engine arguments that differ. A knob of the one that the other leaves alone is None there."""
    one, other = (s.start.plan.args(side.value) for s, side in ((a, x), (b, y)))
    return {n: [one.get(n), other.get(n)] for n in sorted({*one, *other}) if not same(one.get(n), other.get(n))}


# ---- figures ----------------------------------------------------------------------------------------------------


class _What(Struct, frozen=True):
    """A figure that is compared: where it comes from, and which way is better."""

    key: str
    name: str
    unit: str
    of: Callable[[points.Figures], float | None]
    up: bool | None  # None: neither way is better
    rows: tuple[str, int] | None = None  # latency and percentile, whose interval comes from the rows


def _rows(a: Session, x: Side, b: Session, y: Side, spoiled: set[Part]) -> tuple[Row, ...]:
    ours, theirs = _launches(a, x.role, x.value), _launches(b, y.role, y.value)
    rows = [_quality(a, ours, b, theirs, spoiled)]
    for what in _whats(a):
        one, other = _figure(a, ours, what), _figure(b, theirs, what)
        if one is not None or other is not None:
            rows.append(_row(what, a, one, b, other, bool(x.problems or y.problems), spoiled))
    return tuple(row for row in rows if row is not None)


def _whats(session: Session) -> list[_What]:
    slo = session.start.plan.slo

    def at(metric: str, percentile: int) -> Callable[[points.Figures], float | None]:
        return lambda f: f.best.spread(metric).at(percentile) if f.best else None

    found = [_What("throughput", "tok/s", "tok/s", lambda f: f.best.output_tok_s if f.best else None, True)]
    if slo.goal == "goodput":
        found.append(_What("goodput", "goodput", "requests/s", lambda f: f.best.goodput if f.best else None, True))
    shown = {b.metric: b.percentile for b in slo.bounds()}
    if not slo.higher_is_better:
        shown[slo.goal] = slo.goal_percentile
    for metric in ("ttft", "tpot", *(m for m in ("itl", "e2e") if m in shown)):
        p = shown.get(metric, 50)
        found.append(
            _What(f"{metric}_p{p}_ms", f"{words.METRICS[metric]} p{p}", "ms", at(metric, p), False, (metric, p))
        )
    price = session.start.plan.price
    if price is not None:
        unit = f"{price.currency} per million"
        found.append(
            _What("price", "price", unit, lambda f: f.price_per_million if f.currency == price.currency else None, None)
        )
    return found


def _figure(session: Session, launches: list[Point], what: _What) -> Figure | None:
    values = [v for p in launches if (v := what.of(points.figures(p, session))) is not None and math.isfinite(v)]
    if not values:
        return None
    mean = fmean(values)
    if len(values) >= 3:
        half = stats.t_quantile(0.975, len(values) - 1) * stdev(values) / math.sqrt(len(values))
        return Figure(mean, mean - half, mean + half, len(values))
    noise = bands.of(session.start.band, what.key, session.start.plan.slo.goal)
    if noise is not None:
        half = stats.t_quantile(0.975, noise.pairs) * noise.sd_percent / 100.0 * mean / math.sqrt(len(values))
        return Figure(mean, mean - half, mean + half, len(values))
    if what.rows is not None and len(values) == 1:
        best = points.figures(launches[0], session).best
        raw = next((r for r in launches[0].levels if best is not None and r.level == best.level), None)
        interval = stats.percentile_interval(points.latencies(raw)[what.rows[0]], what.rows[1]) if raw else None
        if interval is not None and what.rows[0] != "itl":  # the gaps of one request are not independent
            return Figure(mean, *interval)
    return Figure(mean, launches=len(values))


def _row(
    what: _What, a: Session, one: Figure | None, b: Session, other: Figure | None, invalid: bool, spoiled: set[Part]
) -> Row:
    if one is None or other is None:
        return Row(what.key, what.name, what.unit, one, other, say="not measured in " + ("A" if one is None else "B"))
    change = (other.value / one.value - 1) * 100.0 if one.value > 0 else None
    made = Row(what.key, what.name, what.unit, one, other, change)
    if change is None or what.up is None:
        return made
    if "speed" in spoiled:
        return msgspec.structs.replace(made, say="not comparable")
    if invalid:
        return msgspec.structs.replace(made, say="not judged: see below")
    threshold, cause = _threshold(a, b, what)
    if abs(change) <= threshold:
        say = f"no clear difference: {cause}"
        return msgspec.structs.replace(made, threshold=threshold, choice="no clear difference", say=say)
    better = (change > 0) == what.up
    say = f"{'B' if better else 'A'} is better, beyond {threshold:.1f} %"
    return msgspec.structs.replace(made, threshold=threshold, choice="B" if better else "A", say=say)


def _threshold(a: Session, b: Session, what: _What) -> tuple[float, str]:
    """What a difference must exceed, in percent, and what made it so large."""
    found = [(QUICK_FLOOR, f"below {QUICK_FLOOR:g} %")]
    for name, session in (("A", a), ("B", b)):
        drift = _drift(session, what)
        if drift is not None:
            found.append((2 * drift, f"{name}'s baseline drifted {drift:.1f} %"))
        noise = bands.of(session.start.band, what.key, session.start.plan.slo.goal)
        if noise is not None:
            found.append((noise.percent, f"{name}'s noise is ±{noise.percent:.1f} %"))
    return max(found, key=lambda pair: pair[0])


def _drift(session: Session, what: _What) -> float | None:
    """How far the last baseline lies from the first, in percent of their mean."""
    found = [what.of(points.figures(p, session)) for p in points.baselines(session)]
    known = [v for v in found if v is not None and v > 0]
    return abs(known[-1] - known[0]) / fmean((known[0], known[-1])) * 100.0 if len(known) > 1 else None


def _quality(a: Session, ours: list[Point], b: Session, theirs: list[Point], spoiled: set[Part]) -> Row | None:
    """Accuracy with Wilson's intervals; judged by the items that were lost and won between the two."""
    sides: list[Figure | None] = []
    answers: list[ev.Answers | None] = []
    for session, launches in ((a, ours), (b, theirs)):
        point = next((p for p in launches if p.answers is not None), None)
        own = points.quality(point.answers) if point and not session.start.dummy_weights else None
        answers.append(point.answers if point and own else None)
        if own is None or own.accuracy is None:
            sides.append(None)
            continue
        interval = stats.wilson(own.right, own.scored)
        sides.append(Figure(interval.value * 100, interval.low * 100, interval.high * 100))
    one, other = sides
    if one is None and other is None:
        return None
    made = Row("accuracy", "accuracy", "%", one, other)
    if one is None or other is None:
        return msgspec.structs.replace(made, say="not measured in " + ("A" if one is None else "B"))
    made = msgspec.structs.replace(made, change=other.value - one.value)
    twin = quality.compare(answers[0], answers[1])
    if "quality" in spoiled or twin is None:
        return msgspec.structs.replace(made, say="not comparable")
    flips = f"{twin.lost} lost, {twin.won} won of {twin.scored} (p {twin.p:.2f})"
    if twin.fell or twin.rose:
        return msgspec.structs.replace(
            made, choice="A" if twin.fell else "B", say=f"{'A' if twin.fell else 'B'} is better: {flips}"
        )
    return msgspec.structs.replace(made, choice="no clear difference", say=f"no clear difference: {flips}")
