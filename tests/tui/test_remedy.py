"""The value that a failure names, tried by a key: in the sweep while it runs, else in a new one."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tui import fake, scenes
from tui import sessions as made
from tui.fake import FakeServices
from tui.test_flow import press, said
from tui_tuner.model import events as ev
from tui_tuner.model.plan import Sweep
from tui_tuner.store import sessionfile
from tui_tuner.tui import remedy
from tui_tuner.tui.screens.results import ResultsScreen
from tui_tuner.tui.screens.run import RunScreen
from tui_tuner.tui.services import Services

FAILED = ev.PointFailed(1.0, 2, "oom_startup", "load", "c", "s", ev.Fix("try 0.9", "gpu_memory_utilization", 0.9))
PLAN = made.plan(knob=Sweep("gpu_memory_utilization", (0.95, 0.99)), fixed={"max_model_len": 1024})


def failing(ended: bool, knob: str = "max_num_seqs", value: object = 4) -> list[ev.AnyEvent]:
    """A sweep over 2 and 8 whose value 2 failed, and named a value to try."""
    fix = ev.Fix(f"try {knob} {value}", knob, value)
    failed = ev.PointFailed(made.T0 + 85, 2, "oom_startup", "kv_cache", "no memory", "The memory is full.", fix)
    events = [
        *made.begin(),
        *made.measured(1, "baseline", 128, made.T0 + 2, 162.0, 0.9, 0.045),
        *made.starting(2, "value", 2, made.T0 + 70, "kv_cache"),
        failed,
        ev.Clean(made.T0 + 86, 2, True, 0.4),
    ]
    if not ended:
        return [*events, *made.starting(3, "value", 8, made.T0 + 140, "speed")]
    return [
        *events,
        *made.measured(3, "value", 8, made.T0 + 140, 163.0, 0.9, 0.045),
        *made.measured(4, "baseline_again", 128, made.T0 + 210, 164.0, 0.9, 0.045),
        ev.SweepEnded(made.T0 + 275, "finished"),
    ]


async def test_a_value_of_the_knob_joins_the_running_sweep() -> None:
    services = FakeServices({"s": failing(ended=False)}, frozenset({"s"}))
    app = fake.app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.until(pilot, lambda: isinstance(app.screen, RunScreen) and app.screen.view is not None)
        await press(pilot, "t")
        assert services.asked == [], "the cursor is on the baseline, which did not fail"
        await press(pilot, "down")
        assert "try max_num_seqs 4  t tries it" in said(app, "#note")
        await press(pilot, "t")
        assert services.asked == [("add", None, 4)]
        await press(pilot, "down")
        assert "t tr" not in said(app, "#note")


async def test_a_value_that_is_in_the_sweep_already_is_not_asked_for_again() -> None:
    services = FakeServices({"s": failing(ended=False, value=8)}, frozenset({"s"}))
    app = fake.app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.until(pilot, lambda: isinstance(app.screen, RunScreen) and app.screen.view is not None)
        await press(pilot, "down", "t")
        assert services.asked == [] and "t tr" not in said(app, "#note")


async def test_the_fixed_configuration_is_never_changed_inside_a_sweep() -> None:
    services = FakeServices({"s": failing(False, "max_model_len", 512)}, frozenset({"s"}))
    app = fake.app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.until(pilot, lambda: isinstance(app.screen, RunScreen) and app.screen.view is not None)
        await press(pilot, "down", "t")
        assert services.asked == [] and isinstance(app.screen, RunScreen)
        assert "t tr" not in said(app, "#note")


@pytest.mark.parametrize(("knob", "value"), [("max_num_seqs", 4), ("max_model_len", 512)])
async def test_after_the_end_it_is_a_new_sweep(knob: str, value: int) -> None:
    services = FakeServices({"s": failing(True, knob, value)})
    app = fake.app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        app.show_results(Path("s.jsonl"))
        await scenes.settle(pilot)
        screen = app.screen
        assert isinstance(screen, ResultsScreen) and screen.outcome is not None
        for _ in screen.outcome.rows:
            if f"try {knob} {value} in a new sweep" in said(app, "#under"):
                break
            await press(pilot, "down" if screen._row() != screen.outcome.rows[-1] else "home")
        else:
            raise AssertionError(said(app, "#under"))
        await press(pilot, "t")
        plan, wrong = app.draft.plan()
        assert not wrong and plan is not None and app.screen.NAME == "model"  # type: ignore[attr-defined]
        if knob == "max_num_seqs":
            assert plan.knob.values == (4,) and plan.fixed == made.plan().fixed
        else:
            assert plan.knob.values == (2, 8) and plan.fixed["max_model_len"] == 512


def test_what_can_be_tried_and_what_cannot() -> None:
    assert remedy.of(FAILED, PLAN, True) == remedy.Remedy("gpu_memory_utilization", 0.9, True)
    found = remedy.of(FAILED, PLAN, False)
    assert found and found.say == "try gpu_memory_utilization 0.9 in a new sweep" == found.after("something else")
    assert found.after("try gpu_memory_utilization 0.9") == "tries it in a new sweep"
    assert remedy.applied(PLAN, found).knob.values == (0.9,) and remedy.applied(PLAN, found).fixed == PLAN.fixed
    for fix in (
        None, ev.Fix("read the log"), ev.Fix("x", "max_model_len"), ev.Fix("x", "a b; rm", 1),
        ev.Fix("x", "max_model_len", {"a": 1}), ev.Fix("x", "max_model_len", [1]),
    ):  # fmt: skip
        assert remedy.of(replace(FAILED, fix=fix), PLAN, False) is None
    assert remedy.of(None, PLAN, False) is None
    odd = remedy.of(replace(FAILED, fix=ev.Fix("x", "max_model_len", "\x1b[31m\u202e")), PLAN, False)
    assert odd and odd.say.isprintable()


def test_the_draft_of_a_file_with_its_failure_mended(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"".join(ev.encode(event) for event in failing(True, "max_model_len", 512)))
    assert sessionfile.read(path).points[1].failed
    services = Services(str(tmp_path))
    assert "max_model_len=512" in services.draft_of(path, 2).fixed
    assert services.draft_of(path, 1) == services.draft_of(path)
    assert services.draft_of(path, 99) == services.draft_of(path)
