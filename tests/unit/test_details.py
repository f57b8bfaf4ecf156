"""The tables beneath the main one: waits between tokens at each level, and answers against the baseline's."""

from __future__ import annotations

from typing import Any

import making as m
from hypothesis import given
from hypothesis import strategies as st

from tui_tuner.analysis import details, export, page, quality, report, stats, verdict
from tui_tuner.model import events as ev
from tui_tuner.model.load import Lengths, Load
from tui_tuner.model.plan import Sweep
from tui_tuner.model.session import Session
from tui_tuner.model.slo import Slo
from tui_tuner.tui import outcome
from tui_tuner.tui.screens import results


def plain_sweep(**changes: Any) -> Session:
    points = [m.point(1, "baseline", 1, right=None), m.point(2, "value", 8, 162.0, right=None)]
    return m.session(*points, begin=m.start(m.plan(**changes)))


def test_one_closed_loop_needs_no_second_table() -> None:
    assert details.grids(plain_sweep()) == []


def test_where_waits_between_tokens_are_the_matter_they_stand_beside_ttft() -> None:
    open_ = Load("poisson", (), (4.0,), Lengths(128, 1.0))
    for changes in (
        {"load": open_},
        {"knob": Sweep("max_num_batched_tokens", (512,))},
        {"slo": Slo("x", "itl")},
        {"slo": Slo("x", "throughput", {"itl_p99_ms": 50.0})},
    ):
        grid = details.levels(plain_sweep(**changes))
        assert grid and grid.head == ("level", "tok/s", "TTFT p50", "ITL p99", "gap p95", "longest")
    spike = m.rows(100.0, 1, requests=300, tpot_ms=20.0)
    gaps = [[200] * 30 + [9000], *([[200] * 31] * 299)]
    long = m.point(1, "baseline", 1, right=None, levels=(ev.Requests(**{**_fields(spike), "gaps": gaps}),))
    grid = details.levels(m.session(long, begin=m.start(m.plan(load=open_))))
    assert grid and grid.rows[0].cells == ("8", "100", "200 ms", "20.0 ms", "20.0 ms", "900 ms")
    few = details.levels(plain_sweep(load=open_))
    assert few and few.rows[0].cells[3] == "–", "64 requests support no p99"


def _fields(rows: ev.Requests) -> dict[str, Any]:
    return {name: getattr(rows, name) for name in rows.__struct_fields__}


def test_speculation_tells_its_acceptance_at_each_concurrency() -> None:
    def at(n: int, accepted: int | None) -> tuple[ev.Requests, ...]:
        told: list[dict[str, Any]] = [{}] * 3
        if accepted is not None:
            told = [{"draft_tokens": 100, "accepted_tokens": accepted - i} for i in range(3)]
        return tuple(m.rows(100.0, n, level=c, **more) for c, more in zip((1.0, 4.0, 16.0), told, strict=True))

    drafts = m.point(2, "value", {"method": "ngram"}, levels=at(2, 60))
    grid = details.levels(m.session(m.point(1, "baseline", None, levels=at(1, None)), drafts))
    assert grid and grid.head[-1] == "accepted"
    assert [(r.point.n, r.cells[0], r.cells[-1]) for r in grid.rows] == [
        (1, "1", "–"), (1, "4", "–"), (1, "16", "–"), (2, "1", "60%"), (2, "4", "59%"), (2, "16", "58%"),
    ]  # fmt: skip


def test_what_was_in_the_prefix_cache_is_shown() -> None:
    session = m.session(m.point(1, "baseline", 1), m.point(2, "value", 8, 162.0, prefix_hits=4096))
    grid = details.levels(session)
    assert grid and grid.head[-1] == "cached" and [r.cells[-1] for r in grid.rows] == ["0%", "50%"]


def test_answers_stand_beside_the_baselines_and_the_yardstick_with_them() -> None:
    cut = m.answers(8, n=2, finish=["length"] * 3 + ["stop"] * 17, tokens=[10] * 20)
    session = m.session(
        m.point(1, "baseline", 1), m.point(2, "value", 8, 162.0, given=cut),
        m.point(3, "baseline_again", 1, given=m.answers(11, n=3)), m.point(4, "value", 2, None),
    )  # fmt: skip
    grid = details.answers(session)
    assert grid and grid.head == ("right", "lost", "won", "p", "sees", "cut off", "length", "same")
    base, value, again = (row.cells for row in grid.rows)
    assert base == ("10/20", "", "", "", "", "0", "", "")
    assert value[:4] == ("8/20", "2", "0", "0.500") and value[5:] == ("3", "2.00", "100%")
    seen = stats.detectable_drop(20, 0.05)
    assert value[4] == (f"{(seen or 0) * 100:.0f} pt" if seen is not None and seen <= 0.5 else "–")
    assert again[:4] == ("11/20", "0", "1", "1.000")
    assert details.answers(m.session(*session.points, begin=m.start(dummy_weights=True))) is None


def test_the_widest_table_fits_a_terminal() -> None:
    wide = m.rows(123456.0, level=1024.0, draft_tokens=100, accepted_tokens=100, prefix_hits=4096, ttft_ms=98765.0)
    session = m.session(m.point(1, "baseline", "a very long name of a value", levels=(wide,)))
    (row,) = [line for line in report.table(session).splitlines() if " 1024 " in line]
    assert len(row) <= 80 and row.endswith(" 100%    50%")


def test_all_reports_hold_the_tables() -> None:
    session = m.session(
        m.point(1, "baseline", 1), m.point(2, "value", 8, 162.0, right=7),
        begin=m.start(m.plan(load=Load("poisson", (), (4.0,)))),
    )  # fmt: skip
    for text in (report.table(session), export.markdown(session), page.html(session)):
        for word in ("ITL p99", "longest", "sees", "same", "7/20"):
            assert word in text


texts = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from([0.0, 1.0]), st.booleans(), st.integers(1, 9)),
    min_size=1,
    max_size=30,
)


@given(texts, texts)
def test_a_comparison_by_counting(before: list[Any], after: list[Any]) -> None:
    def answered(rows: list[Any], shift: int) -> ev.Answers:
        return ev.Answers(
            1.0, 1, [f"i{k + shift}" for k in range(len(rows))], [r[0] for r in rows], [r[1] for r in rows],
            ["length" if r[2] else "stop" for r in rows], [r[3] for r in rows],
        )  # fmt: skip

    found = quality.compare(answered(before, 0), answered(after, 5))
    both = [(before[k], after[k - 5]) for k in range(5, min(len(before), len(after) + 5))]
    if not both:
        assert found is None
        return
    assert found is not None and found.items == found.scored == len(both)
    assert found.lost == sum(a[1] == 1 and b[1] == 0 for a, b in both)
    assert found.won == sum(a[1] == 0 and b[1] == 1 for a, b in both)
    assert found.identical * len(both) == sum(a[0] == b[0] for a, b in both)
    assert (found.cut_off, found.base_cut_off) == (sum(b[2] for _, b in both), sum(a[2] for a, _ in both))
    assert found.length_ratio == sum(b[3] for _, b in both) / sum(a[3] for a, _ in both)
    assert found.fell == (found.p < 0.05 and found.lost > found.won)


def test_the_results_screen_tells_the_waits_and_the_answers() -> None:
    cut = m.answers(8, n=2, finish=["length"] * 3 + ["stop"] * 17, tokens=[10] * 20)
    session = m.session(
        m.point(1, "baseline", 1),
        m.point(2, "value", 8, 162.0, given=cut, draft_tokens=100, accepted_tokens=62),
        begin=m.start(m.plan(load=Load("poisson", (), (4.0,)))),
    )
    shown = outcome.of(session, False, verdict.judge(session))
    assert shown.rows[1].between == "gap p95 50.0 ms, longest gap 50.0 ms, 62% of drafts accepted"
    assert "62% of drafts accepted" in "".join(str(piece) for piece in results.under(shown, shown.rows[1]))
    assert shown.compared[0][1].endswith("; 100 % read the same, 3 cut off (baseline 0), 2.00 times as long")
    twice = m.quick(session.points[1])
    assert [name for name, _ in outcome.of(twice, False, verdict.judge(twice)).compared] == ["8", "baseline again"]
    plain_ = outcome.of(plain_sweep(), False, verdict.judge(plain_sweep()))
    assert [row.between for row in plain_.rows] == ["", ""]
