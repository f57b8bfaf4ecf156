"""Which point comes next, through additions, failures, interruptions and the finalist's rounds."""

from __future__ import annotations

from typing import Any

import making as m
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tui_tuner.analysis import schedule
from tui_tuner.analysis.schedule import Slot
from tui_tuner.model import events as ev
from tui_tuner.model.plan import Sweep, Thoroughness
from tui_tuner.model.session import Point, Session


def begin(values: tuple[Any, ...] = (2, 8), thoroughness: Thoroughness = "quick", **changes: Any) -> ev.SessionStart:
    return m.start(m.plan(knob=Sweep("max_num_seqs", values), thoroughness=thoroughness), **changes)


def done(
    session: Session, slot: Slot, tok_s: float = 100.0, segment: int | None = None, at: float | None = None
) -> Session:
    point = m.point(slot.n, slot.role, slot.value, tok_s, segment=slot.segment if segment is None else segment)
    began = at if at is not None else max((p.began for p in session.points), default=0.0) + 10
    before = session.point(slot.n)  # an attempt that was cut off stays, as the fold keeps it
    earlier = (*before.earlier, replace(before, earlier=())) if before else ()
    point = replace(point, began=began, earlier=earlier)
    others = tuple(p for p in session.points if p.n != slot.n)
    return replace(session, points=tuple(sorted((*others, point), key=lambda p: p.n)))


def cut(session: Session, slot: Slot) -> Session:
    began = max((p.began for p in session.points), default=0.0) + 10
    start = ev.PointStarted(began, slot.n, slot.role, slot.value, 1, slot.segment)
    point = Point(slot.n, slot.role, slot.value, 1, slot.segment, began, start)
    return replace(session, points=tuple(sorted((*session.points, point), key=lambda p: p.n)))


def run(session: Session, limit: int = 99) -> list[Slot]:
    found = []
    while len(found) < limit and (slot := schedule.next_slot(session)) is not None:
        found.append(slot)
        session = done(session, slot)
    return found


def brief(slots: list[Slot]) -> list[tuple[int, str, Any]]:
    return [(s.n, s.role, s.value) for s in slots]


def test_quick_is_baseline_values_and_the_baseline_again() -> None:
    assert brief(run(m.session(begin=begin()))) == [
        (1, "baseline", 1), (2, "value", 2), (3, "value", 8), (4, "baseline_again", 1)
    ]  # fmt: skip


def test_quick_with_a_band_ends_with_the_values() -> None:
    assert [s.role for s in run(m.session(begin=begin(band=m.BAND)))] == ["baseline", "value", "value"]


def test_standard_shuffles_by_the_seed_between_two_baselines() -> None:
    values = tuple(range(2, 12))
    found = run(m.session(begin=begin(values, "standard", band=m.BAND)))
    assert [s.role for s in found] == ["baseline", *["value"] * 10, "baseline_again"]
    order = [s.value for s in found[1:-1]]
    assert sorted(order) == list(values) != order
    assert order == [s.value for s in run(m.session(begin=begin(values, "standard", band=m.BAND)))[1:-1]]
    other = replace(begin(values, "standard"), plan=replace(begin(values, "standard").plan, seed=1))
    assert order != [s.value for s in run(m.session(begin=other))[1:-1]]


def test_a_noise_run_launches_the_baseline_five_times() -> None:
    found = run(m.session(begin=begin(kind="noise")))
    assert [s.role for s in found] == ["baseline", *["baseline_again"] * 4]
    assert {s.value for s in found} == {1} and [s.n for s in found] == [1, 2, 3, 4, 5]


def test_nothing_follows_a_baseline_that_failed() -> None:
    for status in ("oom_startup", "crash"):
        assert schedule.next_slot(m.session(m.point(1, "baseline", 1, None, status=status), begin=begin())) is None
    assert schedule.next_slot(m.session(m.point(1, "baseline", 1, status="aborted"), begin=begin())) is None


def test_the_sweep_goes_on_after_a_value_that_failed() -> None:
    session = m.session(m.point(1, "baseline", 1), m.point(2, "value", 2, None, status="oom_startup"), begin=begin())
    assert brief(run(session)) == [(3, "value", 8), (4, "baseline_again", 1)]


def test_a_cut_point_comes_again_under_its_number() -> None:
    session = cut(m.session(m.point(1, "baseline", 1), begin=begin()), Slot(2, "value", 2))
    assert schedule.next_slot(session) == Slot(2, "value", 2)


def test_an_added_value_comes_before_the_last_baseline_with_the_next_free_number() -> None:
    session = replace(
        m.session(m.point(1, "baseline", 1), begin=begin()),
        asked=(ev.Asked(15.0, "add", value=16), ev.Asked(16.0, "add", value=8)),
    )
    assert brief(run(session)) == [(2, "value", 2), (3, "value", 8), (5, "value", 16), (4, "baseline_again", 1)]


def test_a_value_added_after_the_last_baseline_is_followed_by_another() -> None:
    session = m.session(begin=begin((2,)))
    for slot in run(session):
        session = done(session, slot)
    session = replace(session, asked=(ev.Asked(99.0, "add", value=16),))
    assert brief(run(session)) == [(4, "value", 16), (5, "baseline_again", 1)]


def test_a_dropped_value_is_left_out_unless_it_started() -> None:
    session = m.session(m.point(1, "baseline", 1), m.point(2, "value", 2), begin=begin())
    session = replace(session, asked=(ev.Asked(30.0, "drop", value=2), ev.Asked(31.0, "drop", n=3)))
    assert brief(run(session)) == [(4, "baseline_again", 1)]
    assert brief(schedule.slots(session))[:2] == [(1, "baseline", 1), (2, "value", 2)]


def test_refusals_are_sentences() -> None:
    session = m.session(m.point(1, "baseline", 1), m.point(2, "value", 2), begin=begin())
    assert schedule.refusal(session, ev.Asked(1.0, "add", value=16)) is None
    assert "already" in str(schedule.refusal(session, ev.Asked(1.0, "add", value=8)))
    assert "not started" in str(schedule.refusal(session, ev.Asked(1.0, "drop", value=2)))
    assert schedule.refusal(session, ev.Asked(1.0, "drop", n=3)) is None


def test_a_new_segment_opens_with_its_own_baseline() -> None:
    session = cut(m.session(m.point(1, "baseline", 1), m.point(2, "value", 2), begin=begin()), Slot(3, "value", 8))
    session = replace(
        session, launches=(*session.launches, ev.Launched(99.0, 2, "other boot", segment=1, why="resume"))
    )
    found = run(session)
    assert brief(found) == [(5, "baseline", 1), (3, "value", 8), (4, "baseline_again", 1)]
    assert {s.segment for s in found} == {1}
    session = done(session, found[0], at=100.0)
    assert [(s.n, s.segment) for s in schedule.slots(session)] == [(1, 0), (2, 0), (5, 1), (3, 1), (4, 1)]


def test_a_baseline_that_was_cut_off_is_the_new_segments_own() -> None:
    session = cut(m.session(begin=begin()), Slot(1, "baseline", 1))
    session = replace(session, launches=(*session.launches, ev.Launched(99.0, 2, "other boot", segment=1)))
    assert brief(run(session)) == [(1, "baseline", 1), (2, "value", 2), (3, "value", 8), (4, "baseline_again", 1)]


def test_resuming_in_time_opens_no_segment() -> None:
    session = cut(m.session(m.point(1, "baseline", 1), begin=begin()), Slot(2, "value", 2))
    session = replace(session, launches=(*session.launches, ev.Launched(25.0, 2, "boot", segment=0)))
    assert brief(run(session))[0] == (2, "value", 2)


def decided(speeds: dict[Any, float]) -> tuple[Session, list[Slot]]:
    session = m.session(begin=begin((2, 8), "decide", band=m.BAND))
    found = []
    while True:
        event = schedule.band_event(session, 1000.0)
        if event is not None:
            session = replace(session, bands=(event,))
        slot = schedule.next_slot(session)
        if slot is None:
            return session, found
        found.append(slot)
        session = done(session, slot, speeds[slot.value], at=1000.0 + len(found) if session.bands else None)


def test_decide_launches_the_best_and_the_baseline_afresh_in_turn() -> None:
    session, found = decided({1: 100.0, 2: 105.0, 8: 103.0})
    assert session.bands[0].finalist == 2 and session.bands[0].launches == 3
    assert [(s.role, s.value) for s in found[4:]] == [("finalist", 2), ("baseline_again", 1)] * 3
    assert [s.n for s in found[4:]] == [5, 6, 7, 8, 9, 10]


def test_decide_has_no_rounds_where_the_best_is_clearly_worse() -> None:
    session, found = decided({1: 100.0, 2: 80.0, 8: 70.0})
    assert not session.bands and len(found) == 4


@given(st.lists(st.sampled_from(["run", "cut", "reboot", "add", "drop"]), max_size=30), st.integers(0, 3))
def test_a_number_never_changes_its_meaning(steps: list[str], seed: int) -> None:
    base = begin((2, 4, 8), "standard", band=m.BAND)
    session = m.session(begin=replace(base, plan=replace(base.plan, seed=seed)))
    known: dict[int, tuple[str, Any]] = {}
    t, added = 1000.0, 16
    for step in steps:
        t += 10
        slot = schedule.next_slot(session)
        if step == "run" and slot:
            session = done(session, slot, at=t)
        elif step == "cut" and slot and session.point(slot.n) is None:
            session = replace(cut(session, slot), last_t=t)
        elif step == "reboot":
            launch = ev.Launched(t, 1, "b", segment=session.segment + 1)
            session = replace(session, launches=(*session.launches, launch))
        elif step == "add":
            added += 1
            session = replace(session, asked=(*session.asked, ev.Asked(t, "add", value=added)))
        elif step == "drop":
            session = replace(session, asked=(*session.asked, ev.Asked(t, "drop", value=8)))
        slots = schedule.slots(session)
        assert len({s.n for s in slots}) == len(slots)
        for s in slots:
            assert known.setdefault(s.n, (s.role, s.value)) == (s.role, s.value)
        for p in session.points:
            assert any(s.n == p.n and s.role == p.role for s in slots)
    rest = run(session)
    assert len(rest) < 60
