"""Every screen in every state that matters, and the keys that lead there from home."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from textual.pilot import Pilot

from tui import fake
from tui import sessions as made
from tui_tuner.tui.app import TunerApp


@dataclass(frozen=True)
class Scene:
    """`sessions` stand in the list; `opened` is shown first, `keys` follow."""

    name: str
    keys: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ("finished",)
    opened: str | None = None
    results: str | None = None
    running: bool = False
    gpu: bool = False
    recorded: tuple[str, ...] = ()


EVENTS = {
    "finished": made.finished,
    "running": made.running,
    "failure": made.with_failure,
    "hostile": made.hostile,
    "started": lambda: [*made.begin(), *made.starting(1, "baseline", 128, made.T0 + 2, "load")],
    "levels": made.levels,
    "latency": made.latency,
    "card": made.on_a_card,
    "whole-card": made.over_on_a_card,
}
STEPS = ("n", "enter", "enter", "enter", "enter", "enter")

SCENES = (
    Scene("home-empty", sessions=()),
    Scene("home", sessions=("finished", "failure", "running", "hostile")),
    Scene("home-gpu", sessions=("card",), gpu=True),
    Scene("home-recorded", recorded=("whole-card", "latency")),
    Scene("home-recorded-alone", sessions=(), recorded=("whole-card",)),
    Scene("home-help", ("f1",)),
    Scene("check-up", ("d",)),
    Scene("model", STEPS[:1]),
    Scene("paste", (*STEPS[:1], "f3")),
    Scene("work", STEPS[:2]),
    Scene("work-poisson", (*STEPS[:2], "down", "right")),
    Scene("work-trace", (*STEPS[:2], "down", "right", "right")),
    Scene("slo", STEPS[:3]),
    Scene("slo-rag", (*STEPS[:3], "right", "right", "right")),
    Scene("knob", STEPS[:4]),
    Scene("knob-second", (*STEPS[:4], "down", "down")),
    Scene("knob-page", (*STEPS[:4], "f5")),
    Scene("values", STEPS[:5]),
    Scene("review", STEPS),
    Scene("run", opened="running", sessions=("running",), running=True),
    Scene("run-loading", opened="started", sessions=("started",), running=True),
    Scene("run-card", opened="card", sessions=("card",), running=True, gpu=True),
    Scene("run-interrupted", opened="running", sessions=("running",)),
    Scene("run-hostile", opened="hostile", sessions=("hostile",)),
    Scene("run-stop", ("s",), opened="running", sessions=("running",), running=True),
    Scene("run-skip", ("k",), opened="running", sessions=("running",), running=True),
    Scene("run-add", ("a",), opened="running", sessions=("running",), running=True),
    Scene("run-details", ("down", "enter"), opened="failure", sessions=("failure",)),
    Scene("run-log", ("l",), opened="running", sessions=("running",), running=True),
    Scene("replay", ("p",), sessions=(), recorded=("whole-card",)),
    Scene("replay-end", ("p", "e", "escape"), sessions=(), recorded=("whole-card",)),
    Scene("replay-results", ("p", "e"), sessions=(), recorded=("whole-card",)),
    Scene("replay-help", ("p", "f1"), sessions=(), recorded=("whole-card",)),
    Scene("results", results="finished"),
    Scene("results-failure", results="failure", sessions=("failure",)),
    Scene("results-levels", ("space",), results="levels", sessions=("levels",)),
    Scene("results-latency", results="latency", sessions=("latency",)),
    Scene("results-curve", ("space",), results="finished"),
    Scene("results-answers", ("space", "space"), results="finished"),
    Scene("results-prediction", ("space", "space", "space"), results="finished"),
    Scene("results-hostile", ("space", "space"), results="hostile", sessions=("hostile",)),
    Scene("decide", ("enter",), results="finished"),
    Scene("decide-override", ("enter", "down", "enter"), results="finished"),
    Scene("saved", ("enter", "enter"), results="finished"),
)


def app_of(scene: Scene) -> TunerApp:
    events = {name: EVENTS[name]() for name in scene.sessions}
    locked = frozenset(scene.sessions) if scene.running else frozenset()
    recorded = {name: EVENTS[name]() for name in scene.recorded}
    return fake.app(fake.FakeServices(events, locked, scene.gpu, recorded))


async def settle(pilot: Pilot[int]) -> None:
    """Waits until all answers of the services have been shown."""
    for _ in range(3):
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()


async def play(scene: Scene, pilot: Pilot[int]) -> None:
    """Brings the app to the scene."""
    application = pilot.app
    assert isinstance(application, TunerApp)
    await settle(pilot)
    if scene.opened is not None and not scene.running:
        application.show_run(Path(f"{scene.opened}.jsonl"))
    if scene.results is not None:
        application.show_results(Path(f"{scene.results}.jsonl"))
    await settle(pilot)
    if scene.opened is not None:
        await until(pilot, lambda: getattr(application.screen, "view", None) is not None)
    for key in scene.keys:
        await pilot.press(key)
        await settle(pilot)
        if key in ("p", "e") and scene.name.startswith("replay"):
            await until(pilot, lambda: getattr(application.screen, "view", None) or application.screen.NAME != "replay")
            if key == "e":
                await until(pilot, lambda: getattr(application.screen, "outcome", None) is not None)
    await settle(pilot)


async def until(pilot: Pilot[int], true: object, tries: int = 400) -> None:
    """Waits for something to become true; fails if it never does."""
    assert callable(true)
    for _ in range(tries):
        await pilot.pause(0.01)
        if true():
            return
    raise AssertionError("it never happened")
