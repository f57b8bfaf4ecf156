"""What stands beneath a session's main table: every load level with the waits between its tokens, and the answers
against the baseline's. Cells are text, empty where there is nothing to say and a dash where it could not be told."""

from __future__ import annotations

from msgspec import Struct

from tui_tuner.analysis import points, quality, words
from tui_tuner.model.session import Point, Session

NOTHING = "–"
# Knobs whose effect lies between the tokens of running requests, beside the first token of arriving ones.
_BETWEEN = frozenset(
    {"max_num_batched_tokens", "enable_chunked_prefill", "long_prefill_token_threshold", "stream_interval", "watermark"}
)


class Row(Struct, frozen=True):
    point: Point
    cells: tuple[str, ...]


class Grid(Struct, frozen=True):
    """A table: its title, the heads of its columns after the point's name, and a row for each thing told."""

    title: str
    head: tuple[str, ...]
    rows: tuple[Row, ...]


def grids(session: Session) -> list[Grid]:
    """The tables that this session has something to put in."""
    return [grid for grid in (levels(session), answers(session)) if grid is not None]


def levels(session: Session) -> Grid | None:
    """Each load level of each measured point; None where the main table says it all: one closed loop, and neither the
    goal nor the knob nor a draft is about what happens between tokens.

    `ITL p99` is over all tokens, `gap` the longest wait within a request; both in the percentiles that the number of
    requests supports. `accepted` is the share of drafted tokens, `cached` of prompt tokens found in the prefix cache.
    """
    found = [
        (p, points.level_figures(rows, session.start.plan.slo))
        for p in session.points
        if points.measured(p)
        for rows in p.levels
    ]
    slo, load = session.start.plan.slo, session.start.plan.load
    drafts = any(x.acceptance is not None for _, x in found)
    cached = any((x.prefix_hit_share or 0.0) > points.HIT_SHARE for _, x in found)
    more = (
        len(load.levels()) > 1
        or load.kind != "closed"
        or session.start.plan.knob.name in _BETWEEN
        or any(name.startswith("itl") for name in (slo.goal, *slo.limits))
    )
    if not found or not (more or drafts or cached):
        return None
    head = ["level", "tok/s", "TTFT p50", "ITL p99", "gap p95", "longest"]
    head += ["accepted"] * drafts + ["cached"] * cached
    rows = []
    for point, x in found:
        told = [f"{x.level:g}", words.number(x.output_tok_s), *map(words.duration, _waits(x))]
        told += [_share(x.acceptance)] * drafts + [_share(x.prefix_hit_share)] * cached
        rows.append(Row(point, tuple(told)))
    return Grid("each load level", tuple(head), tuple(rows))


def _waits(level: points.Level) -> tuple[float | None, ...]:
    return level.ttft.p50, level.itl.p99, level.gap.p95, level.gap.max


def answers(session: Session) -> Grid | None:
    """The answers of each point against its baseline's; the repeated baseline's line is the yardstick, for nothing but
    the launch had changed. None where nothing was asked, and for dummy weights.

    `p` is exact McNemar's, `sees` the drop that so many items could have shown, in points, `length` the ratio of
    tokens, `same` the share of answers that read as the baseline's.
    """
    if session.start.dummy_weights:
        return None
    rows = []
    for point in session.points:
        own = points.quality(point.answers)
        if own is None:
            continue
        right = f"{own.right:.0f}/{own.scored}" if own.scored else NOTHING
        twin = against_baseline(point, session)
        compared = ("", "", "", "")
        alike = ("", "")
        if twin is not None:
            see = f"{twin.could_see * 100:.0f} pt" if twin.could_see is not None else NOTHING
            compared = (str(twin.lost), str(twin.won), f"{twin.p:.3f}", see)
            alike = (f"{twin.length_ratio:.2f}" if twin.length_ratio is not None else NOTHING, _share(twin.identical))
        rows.append(Row(point, (right, *compared, str(own.cut_off), *alike)))
    if not rows:
        return None
    head = ("right", "lost", "won", "p", "sees", "cut off", "length", "same")
    return Grid("the answers against the baseline's", head, tuple(rows))


def against_baseline(point: Point, session: Session) -> quality.Comparison | None:
    """A point's answers beside those of the baseline of its segment, with the repeated baseline as the yardstick;
    None for that baseline itself, and where one of them was not asked."""
    base = points.baseline_of(point, session)
    if base is None or base.n == point.n:
        return None
    own = points.baselines(session, point.segment)
    again = next((p for p in own if p.role == "baseline_again" and p.n not in (base.n, point.n)), None)
    return quality.compare(base.answers, point.answers, again.answers if again else None)


def _share(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.0%}"
