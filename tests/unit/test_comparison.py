"""Two sessions side by side: what spoils a comparison, and what may be called a difference."""

from __future__ import annotations

from typing import Any

import making as m
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tui_tuner.analysis import comparison
from tui_tuner.analysis.comparison import Comparison, Figure, Row
from tui_tuner.cli import compare as told
from tui_tuner.model import events as ev
from tui_tuner.model.load import Load
from tui_tuner.model.machine import Gpu
from tui_tuner.model.plan import EvalChoice, Price, Sweep
from tui_tuner.model.session import Session
from tui_tuner.model.slo import Slo


def sweep(name: str, base: float = 100.0, again: float = 101.0, value: float = 150.0, **about: Any) -> Session:
    decided = about.pop("decisions", ())
    right = about.pop("right", 10)
    begin = m.start(m.plan(knob=Sweep("max_num_seqs", (8,))), id=name, **about)
    return m.session(
        m.point(1, "baseline", 1, base, right=right), m.point(2, "value", 8, value, right=right),
        m.point(3, "baseline_again", 1, again, right=right), begin=begin, decisions=decided,
    )  # fmt: skip


def with_plan(session: Session, **changes: Any) -> Session:
    return replace(session, start=replace(session.start, plan=replace(session.start.plan, **changes)))


def row(found: Comparison, key: str, pair: int = 0) -> Row:
    return next(r for r in found.pairs[pair].rows if r.key == key)


def test_alike_sessions_say_so_and_small_differences_are_none() -> None:
    found = comparison.compare(sweep("a"), sweep("b", base=102.0, again=103.0))
    assert found.differences == () and found.say[0].startswith("Both held the same")
    speed = row(found, "throughput")
    assert speed.choice == "no clear difference" and speed.change == pytest.approx(1.99, abs=0.01)
    assert speed.a is not None and speed.a.value == pytest.approx(100.5) and speed.a.launches == 2
    assert row(found, "accuracy").choice == "no clear difference"


def test_a_difference_counts_beyond_the_noise_of_either() -> None:
    found = comparison.compare(sweep("a"), sweep("b", base=120.0, again=120.0))
    assert row(found, "throughput").choice == "B"
    assert comparison.compare(sweep("b", base=120.0, again=120.0), sweep("a")).pairs[0].rows[1].choice == "A"
    drifting = comparison.compare(sweep("a"), sweep("b", base=110.0, again=130.0))
    speed = row(drifting, "throughput")
    assert speed.choice == "no clear difference" and "B's baseline drifted" in speed.say
    band = m.BAND | {"percent": 30.0}
    noisy = comparison.compare(sweep("a", band=band), sweep("b", base=120.0, again=120.0))
    assert row(noisy, "throughput").choice == "no clear difference" and "±30.0 %" in row(noisy, "throughput").say
    speed = row(noisy, "throughput")
    assert speed.a is not None and speed.a.low is not None and speed.a.low < speed.a.value


def test_the_best_or_decided_configuration_stands_beside_the_others() -> None:
    kept = sweep("a")
    back = sweep("b", decisions=(ev.Decision(99.0, "revert", 1, "no"),))
    found = comparison.compare(kept, back)
    assert (found.pairs[1].a.role, found.pairs[1].a.value) == ("best", 8)
    assert (found.pairs[1].b.role, found.pairs[1].b.value) == ("baseline", 1)
    assert found.pairs[1].configuration == {"max_num_seqs": [8, 1]}
    assert row(found, "throughput", 1).choice == "A"
    decided = sweep("c", decisions=(ev.Decision(99.0, "keep", 8),))
    assert comparison.compare(decided, kept).pairs[1].a.role == "decided"


@pytest.mark.parametrize(
    ("changes", "what", "part"),
    [
        ({"load": Load("closed", (16,), requests=64)}, "load", "speed"),
        ({"load": Load("closed", (8,), requests=256)}, "load", "speed"),
        ({"evalset": EvalChoice("reasoning", 20, 64)}, "eval set", "quality"),
        ({"seed": 3}, "seed", "quality"),
        ({"slo": Slo("chat", "throughput", {"ttft_p95_ms": 1.0})}, "SLO", "limits"),
    ],
)
def test_other_work_is_named_first_and_not_judged(changes: dict[str, Any], what: str, part: str) -> None:
    found = comparison.compare(sweep("a"), with_plan(sweep("b", base=200.0, again=200.0), **changes))
    assert found.differences[0].what == what and part in found.differences[0].spoils
    assert (row(found, "throughput").say == "not comparable") == (part == "speed")
    assert (row(found, "accuracy").say == "not comparable") == (part == "quality")
    assert what in found.say[0]


def test_what_can_move_the_figures_is_named_and_does_not_spoil_them() -> None:
    machine = replace(m.start().machine, gpu=Gpu("GPU-2", "L4", driver="580"))
    one = comparison.compare(sweep("a"), with_plan(sweep("b"), fixed={"enforce_eager": True}))
    assert [d.what for d in one.differences] == ["value of enforce_eager"]
    assert "only the value of enforce_eager differs" in one.say[-1]
    many = comparison.compare(sweep("a"), with_plan(sweep("b", machine=machine), model="other"))
    assert {d.what for d in many.differences} == {"model", "card", "driver"}
    assert "which of them did cannot be told" in many.say[-1] and row(many, "throughput").choice is not None


def test_a_point_that_cannot_win_is_not_judged() -> None:
    b = sweep("b", base=200.0, again=200.0)
    bad = tuple(replace(p, done=replace(p.done, status="throttled")) if p.done else p for p in b.points)
    found = comparison.compare(sweep("a"), replace(b, points=bad))
    assert row(found, "throughput").choice is None and "throttled" in found.pairs[0].b.problems[0]


def test_quality_is_judged_by_the_items_that_flipped() -> None:
    assert row(comparison.compare(sweep("a", right=20), sweep("b", right=5)), "accuracy").choice == "A"
    dummy = comparison.compare(sweep("a"), sweep("b", dummy_weights=True))
    assert row(dummy, "accuracy").b is None and "not measured in B" in row(dummy, "accuracy").say


def test_unmeasured_sessions_and_other_currencies_are_no_fault() -> None:
    empty = m.session(begin=m.start(id="e"))
    failed = m.session(m.point(1, "baseline", 1, None, status="crash"), begin=m.start(id="f"))
    for a in (empty, failed, sweep("a"), with_plan(sweep("c"), price=Price(1.0, "USD"))):
        for b in (empty, failed, sweep("b")):
            found = comparison.compare(a, b)
            assert msgspec.json.encode(found.as_dict()) and told.text(found, a, b)


@settings(max_examples=40, deadline=None)
@given(st.text(min_size=1, max_size=90), st.floats(1.0, 1e6), st.floats(1.0, 1e6))
def test_the_text_keeps_to_80_columns_and_shows_text_as_text(name: str, one: float, other: float) -> None:
    a = with_plan(sweep(name, base=one), model=name, fixed={name: name})
    b = sweep("b", base=other)
    text = told.text(comparison.compare(a, b), a, b)
    assert all(len(line) <= 80 for line in text.split("\n"))
    assert "\x1b" not in text and "\u202e" not in text


@pytest.mark.parametrize(
    ("unit", "figure", "shown"),
    [
        ("ms", Figure(47.5, 47.3, 53.5), "47.5 (47.3–53.5) ms"),
        ("ms", Figure(980.0, 950.0, 1100.0), "980 ms"),  # two units would not fit
        ("ms", Figure(1500.0, 1400.0, 1600.0), "1.5 (1.4–1.6) s"),
        ("tok/s", Figure(51.3, 33.1, 69.6), "51.3 (33.1–69.6)"),
        ("tok/s", Figure(123_456.0, 111_111.0, 135_801.0), "123,456"),
        ("ms", None, "–"),
    ],
)
def test_an_interval_has_one_unit_and_keeps_to_its_column(unit: str, figure: Figure | None, shown: str) -> None:
    assert told._figure(Row("x", "x", unit, figure, figure), figure) == shown and len(shown) <= 20
