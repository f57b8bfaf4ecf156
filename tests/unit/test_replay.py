"""The timeline of a recorded session, and the pace at which it is gone through."""

from __future__ import annotations

from pathlib import Path

import making as m
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_tuner.model import events as ev
from tui_tuner.model import replay
from tui_tuner.model.replay import Pace, Timeline
from tui_tuner.model.session import fold
from tui_tuner.store import sessionfile

RECORDED = sorted((Path(__file__).parents[2] / "sessions").glob("*.jsonl"))


def events() -> list[ev.AnyEvent]:
    return [
        m.start(), ev.Launched(100.0, 1, "boot"), ev.PointStarted(101.0, 1, "baseline", 1),
        *(ev.Tick(101.0 + i / 2, 1, tok_s=float(i)) for i in range(1, 20)), ev.PointDone(112.0, 1, "ok"),
        ev.SweepEnded(113.0, "finished"), ev.Decision(90_000.0, "keep", 8),
    ]  # fmt: skip


def test_a_session_grows_along_its_timeline_and_waits_are_cut_short() -> None:
    line = Timeline(events())
    assert line.length == 13.0 + replay.LONGEST_WAIT
    assert not line.until(0.5).points and line.until(1.0).points[0].status is None
    assert len(line.until(3.0).points[0].ticks) == 4 and line.until(12.0).points[0].status == "ok"
    assert line.until(13.0).ended is not None and line.until(14.0).decision is None
    assert line.until(line.length).decision is not None
    assert not line.until(0.0).points  # going back
    assert line.moment(3.2) == pytest.approx(103.2) and line.moment(line.length) == 90_000.0
    assert line.marks() == [0.0, 1.0, 12.0, 13.0, 13.0 + replay.LONGEST_WAIT]


@given(st.lists(st.floats(0.0, 80.0), max_size=12))
def test_any_way_through_shows_what_a_fresh_reading_shows(places: list[float]) -> None:
    line, every = Timeline(events()), events()
    for at in places:
        count = len(line.until(at).points[0].ticks) if line.until(at).points else 0
        assert count == sum(isinstance(e, ev.Tick) and e.t - 100.0 <= at for e in every)
    assert line.until(line.length) == fold(every)


@given(st.lists(st.floats(-1e6, 1e6), max_size=20))
def test_a_clock_that_jumps_never_makes_time_run_back(times: list[float]) -> None:
    line = Timeline([m.start(), *(ev.Noted(t, "x") for t in times)])
    assert 0 <= line.length <= replay.LONGEST_WAIT * max(len(times) - 1, 0)
    assert line.marks() == sorted(line.marks())


def test_the_pace_pauses_and_changes_without_a_jump() -> None:
    pace = replay.pace(100.0, 2.0, 10.0)
    assert (pace.position(10.0), pace.position(15.0), pace.position(1e9)) == (0.0, 10.0, 100.0)
    paused = pace.toggled(15.0)
    assert paused.position(500.0) == 10.0 and not paused.over(500.0)
    going = paused.toggled(500.0)
    assert going.position(501.0) == 12.0
    assert going.faster(501.0).position(502.0) == 16.0 and going.slower(501.0).position(502.0) == 13.0
    assert paused.faster(20.0).position(30.0) == 10.0
    assert going.to_end(501.0).over(501.0) and paused.to_end(501.0).over(501.0)


@given(st.floats(0.0, 1e6))
def test_it_takes_about_a_minute_unless_asked(length: float) -> None:
    pace = replay.pace(length, None, 0.0)
    assert pace.speed >= 1 and length / pace.speed <= 90
    assert pace.speed == 1 or length / pace.speed > 45
    assert replay.pace(length, 0, 0.0).over(0.0)
    limits = [pace := f(pace) for f in [lambda p: p.faster(0.0)] * 40]
    assert limits[-1].speed <= replay.FASTEST and Pace(length, 1.0).slower(0.0).slower(0.0).slower(0.0).speed == 0.25


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.stem)
def test_every_recorded_session_can_be_played(path: Path) -> None:
    line = Timeline(sessionfile.events(path))
    for at in line.marks():
        line.until(at)
    assert line.until(line.length) == sessionfile.read(path)
