"""From a point's raw rows to its figures. Pure Python: nothing here is stored, all of it can be computed again.

Percentiles are nearest-rank: the p-th of n sorted values is the one at ceil(p/100 · n), so that each is a value that
was measured. One is given only where the number of requests supports it (`model.slo.NEEDED`). Latencies are in
milliseconds, rates per second, memory in MiB, shares 0..1.

TTFT  first token − sent              TPOT  (last − first) / (output tokens − 1), one per request
ITL   wait between two tokens         E2E   last token − sent          gap   the longest ITL of a request
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Sequence

from msgspec import Struct

from tui_tuner.model import events as ev
from tui_tuner.model.plan import Plan, Price
from tui_tuner.model.session import Point, Session
from tui_tuner.model.slo import NEEDED, PERCENTILES, Limit, Slo
from tui_tuner.model.values import same

# NVML's clock event reasons that mean a fault or heat: HwSlowdown, SwThermalSlowdown, HwThermalSlowdown and
# HwPowerBrakeSlowdown. SwPowerCap (0x4) is set whenever a card is busy at its power limit, which is normal.
THROTTLING = 0x8 | 0x20 | 0x40 | 0x80
POWER_CAP = 0x4
LAG_SHARE = 0.10  # a client later than this share of the median TTFT (p99) measured itself, not the engine
HIT_SHARE = 0.01  # more prefix-cache hits than this mean that prompts were seen before
CLOCK_SHARE = 0.10  # a mean SM clock this far from the baseline's is another power state
WORK_SHARE = 0.01  # output tokens of the speed pass may differ by this much from the baseline's
SHORT_S = 5.0  # a speed pass below this cannot tell small differences: its edges weigh too much
TOO_SHORT_S = 2.0  # below this no verdict is more than indicative
ENOUGH_S = 10.0  # what a longer pass should reach

# Knobs that are about the prefix cache, or whose load repeats prefixes on purpose.
CACHE_KNOBS = frozenset({"enable_prefix_caching", "kv_offloading_size", "prefix_caching_hash_algo"})


class Spread(Struct, frozen=True):
    """One latency over the requests of a level, in milliseconds; a percentile without support is None."""

    count: int = 0
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None

    def at(self, percentile: int) -> float | None:
        value: float | None = getattr(self, f"p{percentile}")
        return value


class Level(Struct, frozen=True):
    """The figures of one load level."""

    level: float
    kind: str
    seconds: float
    requests: int  # answered to the end
    unanswered: int
    output_tokens: int
    output_tok_s: float
    total_tok_s: float
    requests_s: float
    goodput: float  # requests a second that met every limit of the SLO
    attained: float  # the share of the sent requests that did
    ttft: Spread
    tpot: Spread
    itl: Spread
    gap: Spread
    e2e: Spread
    limits: dict[str, float | None]  # each limit's figure at this level, None where the count does not support it
    meets: bool | None  # every limit holds; None: none is known to break, and some cannot be judged
    distance: float  # the worst measured / limit; at most 1 when every limit holds, 0 without limits
    lag_p99_ms: float | None = None
    prefix_hit_share: float | None = None
    acceptance: float | None = None
    preemptions: int | None = None
    joules_per_token: float | None = None
    running_mean: float | None = None
    waiting_mean: float | None = None
    kv_usage_max: float | None = None
    throttle: int | None = None
    sm_mhz: float | None = None
    temp_c: float | None = None

    def spread(self, metric: str) -> Spread:
        found: Spread = getattr(self, metric)
        return found


class Quality(Struct, frozen=True):
    """What the quality pass gave. `accuracy` is over the scored items; None where none was scored."""

    items: int
    scored: int
    right: float
    accuracy: float | None
    cut_off: int
    mean_tokens: float
    chat_template: bool = True


class Figures(Struct, frozen=True):
    """All figures of a point. `best` is the level that counts: the best for the goal among those that meet the SLO
    (the goodput of DistServe, Zhong et al., OSDI 2024), else the one closest to meeting it."""

    n: int
    levels: tuple[Level, ...] = ()
    best: Level | None = None
    goal: float | None = None
    quality: Quality | None = None
    price_per_million: float | None = None  # output tokens, in the plan's currency
    currency: str | None = None
    joules_per_token: float | None = None
    prefix_hit_share: float | None = None
    acceptance: float | None = None
    preemptions: int | None = None
    lag_p99_ms: float | None = None
    client_limited: bool = False
    throttle: int | None = None
    peak_mib: int | None = None

    def level(self, level: float) -> Level | None:
        return next((found for found in self.levels if found.level == level), None)


def percentile(ordered: Sequence[float], p: float) -> float:
    """The nearest-rank percentile of sorted values. Raises ValueError if there are none."""
    if not ordered:
        raise ValueError("no values, so no percentile")
    return ordered[max(math.ceil(p / 100.0 * len(ordered)), 1) - 1]


def spread(values: Iterable[float], support: int | None = None) -> Spread:
    """Percentiles of `values`; `support` is the number of requests that they come from, where it is not their own."""
    ordered = sorted(values)
    if not ordered:
        return Spread()
    count = len(ordered) if support is None else min(support, len(ordered))
    ps = {f"p{p}": percentile(ordered, p) if count >= NEEDED[p] else None for p in PERCENTILES}
    return Spread(count, math.fsum(ordered) / len(ordered), max=ordered[-1], **ps)


def figures(point: Point, plan: Plan | Session) -> Figures:
    """The figures of `point`, as far as it got; `plan` may be the session that it belongs to."""
    if isinstance(plan, Session):
        plan = plan.start.plan
    levels = tuple(level_figures(rows, plan.slo) for rows in point.levels)
    best = best_level(levels, plan.slo)
    energy = [(r.energy_j, x.output_tokens) for r, x in zip(point.levels, levels, strict=True) if r.energy_j]
    return Figures(
        n=point.n,
        levels=levels,
        best=best,
        goal=goal_figure(best, plan.slo) if best else None,
        quality=quality(point.answers),
        price_per_million=price_per_million(best, plan.price),
        currency=plan.price.currency if plan.price else None,
        joules_per_token=_ratio(sum(e for e, _ in energy), sum(t for _, t in energy)),
        prefix_hit_share=_share(point.levels, "prefix_hits", "prefix_queries"),
        acceptance=_share(point.levels, "accepted_tokens", "draft_tokens"),
        preemptions=_total(r.preemptions for r in point.levels),
        lag_p99_ms=max((x.lag_p99_ms for x in levels if x.lag_p99_ms is not None), default=None),
        client_limited=any(late(x) for x in levels),
        throttle=_union(r.throttle for r in point.levels),
        peak_mib=point.peak_mib,
    )


_seen: dict[int, tuple[weakref.ref[ev.Requests], Slo, Level]] = {}


def level_figures(rows: ev.Requests, slo: Slo) -> Level:
    """The figures of one load level's rows. Remembered, by identity, as long as the rows live: they never change."""
    key = id(rows)
    known = _seen.get(key)
    if known is not None and known[0]() is rows and known[1] == slo:
        return known[2]
    level = _level_figures(rows, slo)
    _seen[key] = (weakref.ref(rows, lambda _: _seen.pop(key, None)), slo, level)
    return level


def latencies(rows: ev.Requests) -> dict[str, list[float]]:
    """The sorted latencies of a level's answered requests, in milliseconds: one a request (`itl`: one a token)."""
    found: dict[str, list[float]] = {"ttft": [], "tpot": [], "itl": [], "e2e": [], "gap": []}
    for i in range(len(rows.sent)):
        own = _request(rows, i)
        if own is None:
            continue
        found["ttft"].append(own.ttft)
        found["e2e"].append(own.e2e)
        if own.tpot is not None:
            found["tpot"].append(own.tpot)
        if own.gaps:
            found["itl"].extend(own.gaps)
            found["gap"].append(max(own.gaps))
    return {metric: sorted(values) for metric, values in found.items()}


class _Request(Struct, frozen=True):
    ttft: float
    tpot: float | None
    e2e: float
    gaps: list[float]
    prompt_tokens: int
    output_tokens: int


def _request(rows: ev.Requests, i: int) -> _Request | None:
    """One request's latencies, or None if it was not answered to its end."""
    first, last = _get(rows.first, i), _get(rows.last, i)
    out = rows.output_tokens[i] if i < len(rows.output_tokens) else 0
    if first is None or last is None or out < 1 or (i < len(rows.finish) and rows.finish[i] in ("abort", "error")):
        return None
    return _Request(
        ttft=(first - rows.sent[i]) * 1000.0,
        tpot=(last - first) * 1000.0 / (out - 1) if out > 1 else None,
        e2e=(last - rows.sent[i]) * 1000.0,
        gaps=[g / 10.0 for g in rows.gaps[i]] if i < len(rows.gaps) else [],
        prompt_tokens=rows.prompt_tokens[i] if i < len(rows.prompt_tokens) else 0,
        output_tokens=out,
    )


def _level_figures(rows: ev.Requests, slo: Slo) -> Level:
    ttft: list[float] = []
    tpot: list[float] = []
    itl: list[float] = []
    longest: list[float] = []
    e2e: list[float] = []
    good = answered = out_tokens = in_tokens = 0
    bounds = slo.bounds()
    sent_count = len(rows.sent)
    for i in range(sent_count):
        own = _request(rows, i)
        if own is None:
            continue
        answered += 1
        out_tokens += own.output_tokens
        in_tokens += own.prompt_tokens
        ttft.append(own.ttft)
        e2e.append(own.e2e)
        if own.tpot is not None:
            tpot.append(own.tpot)
        if own.gaps:
            itl.extend(own.gaps)
            longest.append(max(own.gaps))
        good += all(_request_meets(bound, own) for bound in bounds)
    seconds = rows.seconds if rows.seconds > 0 else max((x for x in rows.last if x is not None), default=0.0)
    spreads = {
        "ttft": spread(ttft),
        "tpot": spread(tpot),
        "itl": spread(itl, support=len(longest)),
        "e2e": spread(e2e),
    }
    limits = {b.key: spreads[b.metric].at(b.percentile) for b in bounds}
    lags = sorted((s - p) * 1000.0 for p, s in zip(rows.planned, rows.sent, strict=False))
    return Level(
        level=rows.level,
        kind=rows.kind,
        seconds=seconds,
        requests=answered,
        unanswered=sent_count - answered,
        output_tokens=out_tokens,
        output_tok_s=out_tokens / seconds if seconds else 0.0,
        total_tok_s=(out_tokens + in_tokens) / seconds if seconds else 0.0,
        requests_s=answered / seconds if seconds else 0.0,
        goodput=good / seconds if seconds else 0.0,
        attained=good / sent_count if sent_count else 0.0,
        ttft=spreads["ttft"],
        tpot=spreads["tpot"],
        itl=spreads["itl"],
        gap=spread(longest),
        e2e=spreads["e2e"],
        limits=limits,
        meets=_meets(bounds, limits, answered),
        distance=_distance(bounds, limits, answered),
        lag_p99_ms=max(percentile(lags, 99), 0.0) if lags else None,
        prefix_hit_share=_share([rows], "prefix_hits", "prefix_queries"),
        acceptance=_share([rows], "accepted_tokens", "draft_tokens"),
        preemptions=rows.preemptions,
        joules_per_token=_ratio(rows.energy_j, out_tokens) if rows.energy_j else None,
        running_mean=rows.running_mean,
        waiting_mean=rows.waiting_mean,
        kv_usage_max=rows.kv_usage_max,
        throttle=rows.throttle,
        sm_mhz=rows.sm_mhz,
        temp_c=rows.temp_c,
    )


def _request_meets(bound: Limit, own: _Request) -> bool:
    """Whether one request is within a limit; for ITL its own gaps are taken at the limit's percentile."""
    if bound.metric == "itl":
        return not own.gaps or percentile(sorted(own.gaps), bound.percentile) <= bound.ms
    value: float | None = getattr(own, bound.metric)
    return value is None or value <= bound.ms


def _meets(bounds: list[Limit], limits: dict[str, float | None], answered: int) -> bool | None:
    if not answered:
        return False if bounds else None
    seen = [(limits[b.key], b.ms) for b in bounds]
    if any(value is not None and value > ms for value, ms in seen):
        return False
    return None if any(value is None for value, _ in seen) else True


def _distance(bounds: list[Limit], limits: dict[str, float | None], answered: int) -> float:
    if bounds and not answered:
        return math.inf
    ratios = [value / b.ms for b in bounds if (value := limits[b.key]) is not None]
    return max(ratios, default=0.0)


def best_level(levels: Sequence[Level], slo: Slo) -> Level | None:
    """The level by which a point is judged: best for the goal among those that meet the SLO, else the closest."""
    answered = [x for x in levels if x.requests]
    within = [x for x in answered if x.meets is not False]
    if not within:
        return min(answered, key=lambda x: x.distance, default=None)
    known = [(value, x) for x in within if (value := goal_figure(x, slo)) is not None]
    if not known:
        return within[0]
    pick = max if slo.higher_is_better else min
    return pick(known, key=lambda pair: pair[0])[1]


def goal_figure(level: Level, slo: Slo) -> float | None:
    """The goal's figure at one level: tok/s, requests/s, or milliseconds at the goal's percentile.

    Where too few requests came for that percentile the median stands in, at every point alike.
    """
    if slo.goal == "throughput":
        return level.output_tok_s
    if slo.goal == "goodput":
        return level.goodput
    found = level.spread(slo.goal)
    value = found.at(slo.goal_percentile)
    return value if value is not None else found.p50


def late(level: Level) -> bool:
    """Whether the load generator was the bottleneck: p99 of sent − planned beyond 10 % of the median TTFT."""
    return (
        level.lag_p99_ms is not None and bool(level.ttft.p50) and level.lag_p99_ms > LAG_SHARE * (level.ttft.p50 or 0)
    )


def quality(answers: ev.Answers | None) -> Quality | None:
    """The figures of a quality pass; None if there was none."""
    if answers is None or not answers.item:
        return None
    scores = [s for s in answers.score if s is not None]
    return Quality(
        items=len(answers.item),
        scored=len(scores),
        right=math.fsum(scores),
        accuracy=math.fsum(scores) / len(scores) if scores else None,
        cut_off=sum(f == "length" for f in answers.finish),
        mean_tokens=math.fsum(answers.tokens) / len(answers.tokens) if answers.tokens else 0.0,
        chat_template=answers.chat_template,
    )


def price_per_million(level: Level | None, price: Price | None) -> float | None:
    """The price of a million output tokens at the speed of `level`."""
    if level is None or price is None or level.output_tok_s <= 0:
        return None
    return price.per_hour / (level.output_tok_s * 3600.0) * 1e6


# ---- who may be compared with whom ------------------------------------------------------------------------------


def measured(point: Point | None) -> bool:
    """Whether a point has figures: it ended by itself and at least one load level came through."""
    return point is not None and point.done is not None and point.status != "aborted" and bool(point.levels)


def baselines(session: Session, segment: int | None = None) -> list[Point]:
    """The measured baseline points in the order of measuring, of one segment or of all."""
    found = [p for p in session.points if p.role in ("baseline", "baseline_again") and measured(p)]
    return sorted((p for p in found if segment is None or p.segment == segment), key=lambda p: p.began)


def baseline_of(point: Point, session: Session) -> Point | None:
    """The baseline that opened the point's segment, if it was measured."""
    own = baselines(session, point.segment)
    return next((p for p in own if p.role == "baseline"), own[0] if own else None)


def problems(point: Point, base: Point | None, session: Session) -> list[str]:
    """Why a point cannot win, as sentences; an empty list means that it is valid. `base` may be the point itself."""
    plan = session.start.plan
    if point.failed is not None or not measured(point):
        return [point.say or "it could not be measured"]
    found: list[str] = []
    here = figures(point, plan)
    status = point.status
    if status == "throttled" or (here.throttle or 0) & THROTTLING:
        found.append("the card was throttled")
    if status == "client_limited" or here.client_limited:
        lag = f" (p99 {here.lag_p99_ms:.0f} ms late)" if here.lag_p99_ms is not None else ""
        found.append(f"the load generator was late{lag}, so the client was measured")
    if point.capacity and point.capacity.changed and point.capacity.changed.foreign:
        names = ", ".join(sorted(point.capacity.changed.foreign)[:3])
        found.append(f"more than the knob changed: {names}")
    elif status not in ("ok", "throttled", "client_limited"):
        found.append(point.say or f"its status is {status}")
    if any(x.unanswered for x in here.levels):
        found.append(f"{sum(x.unanswered for x in here.levels)} requests were not answered")
    if here.prefix_hit_share is not None and here.prefix_hit_share > HIT_SHARE and not _cache_is_the_subject(plan):
        found.append(f"{here.prefix_hit_share:.0%} of the prompt tokens were in the prefix cache already")
    if base is not None and base.n != point.n:
        found += _unlike(point, here, figures(base, plan))
    return found


def too_short(point: Point) -> bool:
    """Whether the speed pass of a load level was so short that no verdict on it is more than indicative."""
    return any(rows.seconds < TOO_SHORT_S for rows in point.levels)


def notes(point: Point) -> list[str]:
    """What should be known of a valid point beside its figures, as sentences."""
    return [note for note in (brevity(point), unsteady(point)) if note is not None]


def brevity(point: Point) -> str | None:
    """That a speed pass was too short for small differences, with the number of requests that makes it long enough at
    every level; None if it was not."""
    short = min(point.levels, key=lambda rows: rows.seconds, default=None)
    if short is None or short.seconds >= SHORT_S or not short.sent:
        return None
    asked = math.ceil(len(short.sent) * ENOUGH_S / max(short.seconds, 1e-3))
    step = 10 ** max(len(str(asked)) - 2, 0)  # two digits say as much as was measured
    asked = -(-asked // step) * step
    where = f" at load level {short.level:g}" if len(point.levels) > 1 else ""
    return (
        f"the speed pass{where} lasted {short.seconds:.1f} s: too short to tell small differences; "
        f"ask for {asked:,} requests or more"
    )


def unsteady(point: Point) -> str | None:
    """That the warm-up ended at its limit without two windows in a row that agreed; None if they did, or if nothing
    is known of it."""
    warmed = point.warmed
    if warmed is None or warmed.steady:
        return None
    windows = f"{warmed.windows} windows" if warmed.windows != 1 else "1 window"
    return (
        f"the warm-up never became steady: {windows} in {warmed.seconds:.1f} s, its limit {warmed.limit_s:.0f} s; "
        "the speed pass may have begun on an engine that was not warm"
    )


def _cache_is_the_subject(plan: Plan) -> bool:
    load = plan.load
    return plan.knob.name in CACHE_KNOBS or load.shared_prefix is not None or load.kind == "trace"


def _unlike(point: Point, here: Figures, base: Figures) -> list[str]:
    """How a point's work or card differed from its baseline's."""
    found: list[str] = []
    for level in here.levels:
        twin = base.level(level.level)
        if twin is None:
            continue
        if twin.output_tokens and abs(level.output_tokens / twin.output_tokens - 1) > WORK_SHARE:
            found.append(f"not the same work: {level.output_tokens} output tokens, the baseline {twin.output_tokens}")
            break
    for level in here.levels:
        twin = base.level(level.level)
        if twin is None or not level.sm_mhz or not twin.sm_mhz or (level.throttle or 0) & POWER_CAP:
            continue
        if abs(level.sm_mhz / twin.sm_mhz - 1) > CLOCK_SHARE and not (twin.throttle or 0) & POWER_CAP:
            found.append(f"the clock was another: {level.sm_mhz:.0f} MHz, at the baseline {twin.sm_mhz:.0f} MHz")
            break
    return found


# ---- better and worse -------------------------------------------------------------------------------------------


def target(base: Figures, slo: Slo) -> str:
    """What is to be improved: the goal, or where the baseline misses the SLO the limit that it misses by most."""
    if base.best is not None and base.best.meets is False:
        bounds = {b.key: b.ms for b in slo.bounds()}
        broken = {k: v / bounds[k] for k, v in base.best.limits.items() if v is not None and v > bounds[k]}
        if broken:
            return max(broken, key=lambda k: broken[k])
    return slo.goal


def figure(here: Figures, what: str, slo: Slo) -> float | None:
    """The figure named `what`: the goal's, or a limit's (such as `ttft_p95_ms`) at the level that counts."""
    if what in slo.limits:
        return here.best.limits.get(what) if here.best else None
    return here.goal


def rises(what: str, slo: Slo) -> bool:
    """Whether more of the figure is better."""
    return what == slo.goal and slo.higher_is_better


def gain(here: float | None, base: float | None, up: bool) -> float | None:
    """The improvement in percent of the baseline: positive is better, whichever way the figure runs."""
    if here is None or base is None or base <= 0 or not math.isfinite(here):
        return None
    change = (here - base) / base * 100.0
    return change if up else -change


def finalist(session: Session) -> Point | None:
    """The best valid value by the goal, each against the baselines of its own segment.

    None if no value is valid, or if the best is below the baseline by more than the noise band: then there is
    nothing to confirm.
    """
    slo = session.start.plan.slo
    best: tuple[float, Point] | None = None
    for point in session.points:
        if point.role != "value" or not measured(point):
            continue
        base = baseline_of(point, session)
        if base is None or problems(base, base, session) or problems(point, base, session):
            continue
        base_figures = figures(base, session.start.plan)
        what = target(base_figures, slo)
        own = [
            v
            for p in baselines(session, point.segment)
            if (v := figure(figures(p, session.start.plan), what, slo)) is not None
        ]
        here = figure(figures(point, session.start.plan), what, slo)
        better = gain(here, math.fsum(own) / len(own) if own else None, rises(what, slo))
        if better is not None and (best is None or better > best[0]):
            best = (better, point)
    if best is None:
        return None
    band = session.start.band or {}
    return best[1] if best[0] >= -float(band.get("percent") or 0.0) else None


def value_point(session: Session, value: object) -> Point | None:
    """The latest measured point of a value."""
    found = [p for p in session.points if p.role in ("value", "finalist") and same(p.value, value) and measured(p)]
    return max(found, key=lambda p: p.began, default=None)


def _get(column: Sequence[float | None], i: int) -> float | None:
    return column[i] if i < len(column) else None


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def _total(values: Iterable[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def _union(values: Iterable[int | None]) -> int | None:
    bits = None
    for value in values:
        if value is not None:
            bits = (bits or 0) | value
    return bits


def _share(rows: Sequence[ev.Requests], hits: str, of: str) -> float | None:
    pairs = [(getattr(r, hits), getattr(r, of)) for r in rows]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    return _ratio(float(sum(a for a, _ in known)), float(sum(b for _, b in known))) if known else None
