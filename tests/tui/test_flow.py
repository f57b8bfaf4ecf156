"""What a person does: from home by enter to Start, through the run to a decision, and all that is asked on the way."""

from __future__ import annotations

import threading
from pathlib import Path

from textual.pilot import Pilot

from tui import fake, scenes
from tui import sessions as made
from tui.fake import FakeServices
from tui_tuner.tui.app import TunerApp
from tui_tuner.tui.draft import Draft
from tui_tuner.tui.player import Player
from tui_tuner.tui.records import Checked, Listing, Replay, Suggestion
from tui_tuner.tui.screens.home import HomeScreen
from tui_tuner.tui.screens.replay import ReplayScreen
from tui_tuner.tui.screens.results import ResultsScreen
from tui_tuner.tui.screens.run import RunScreen
from tui_tuner.tui.services import ReplaySource
from tui_tuner.tui.widgets.form import Entry, Pick
from tui_tuner.tui.widgets.text import Line


async def press(pilot: Pilot[int], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await scenes.settle(pilot)


def said(app: TunerApp, selector: str) -> str:
    return app.screen.query_one(selector, Line).said


async def test_enter_enter_enter_reaches_review_and_f2_starts_the_practice_sweep() -> None:
    services = FakeServices({"running": made.running()})
    app = fake.app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "n", *["enter"] * 5)
        assert not services.began
        await press(pilot, "f2")
        plan, wrong = services.began[0].plan()
        assert not wrong and plan is not None
        assert plan.model == "practice" and plan.knob.values == (2, 8)
        assert plan.fixed == {"max_model_len": 1024, "enforce_eager": True, "gpu_memory_utilization": 0.3}
        assert plan.evalset.items == 20 and plan.thoroughness == "quick"
        assert isinstance(app.screen, RunScreen)
        await press(pilot, "escape")
        assert isinstance(app.screen, HomeScreen)


async def test_enter_on_start_starts_as_well() -> None:
    services = FakeServices({"running": made.running()})
    app = fake.app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "n", *["enter"] * 6)
        assert len(services.began) == 1


async def test_decide_without_a_band_offers_the_noise_run_and_starts_it() -> None:
    services = FakeServices({"running": made.running()})
    app = fake.app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "n", *["enter"] * 5)
        app.screen.query_one("#thoroughness").focus()
        await press(pilot, "right", "right")
        assert app.draft.thoroughness == "decide"
        await scenes.until(pilot, lambda: "F6 measures it first" in said(app, "#checked"))
        await press(pilot, "f2")
        assert not services.began and "F6" in said(app, "#hint")
        await press(pilot, "f6")
        assert [d.thoroughness for d in services.noise] == ["decide"]
        assert isinstance(app.screen, RunScreen)


async def test_escape_goes_back_step_by_step_and_keeps_what_was_typed() -> None:
    app = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "n", "enter", "down", "down", "1", "6")
        assert app.screen.query_one("#concurrency", Entry).value == "16"
        await press(pilot, "escape")
        assert app.draft.concurrency == "16"
        await press(pilot, "enter")
        assert app.screen.query_one("#concurrency", Entry).value == "16"
        await press(pilot, "escape", "escape")
        assert isinstance(app.screen, HomeScreen)


async def test_a_wrong_field_holds_the_step_and_says_what_is_right() -> None:
    app = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "n", "enter")
        app.screen.query_one("#prompt_tokens", Entry).value = "many"
        await press(pilot, "enter")
        assert app.screen.NAME == "work"  # type: ignore[attr-defined]
        assert "no length" in said(app, "#hint") and "128" in said(app, "#hint")
        assert app.focused is app.screen.query_one("#prompt_tokens")
        await press(pilot, "2", "5", "6", "enter")
        assert app.screen.NAME == "slo"  # type: ignore[attr-defined]


async def test_a_preset_fills_the_fields_and_a_change_makes_it_custom() -> None:
    app = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "n", "enter", "right", "right")
        assert app.screen.query_one("#prompt_tokens", Entry).value.startswith("1536")
        app.screen.query_one("#requests", Entry).value = "99"
        await press(pilot, "enter")
        assert app.draft.load == "custom" and app.draft.requests == "99" and app.draft.shared_prefix == "512 100% 4"


async def test_a_line_of_the_review_leads_to_its_step_and_back() -> None:
    app = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "n", "f4")
        assert app.screen.NAME == "review"  # type: ignore[attr-defined]
        app.screen.query_one("#jump-values").focus()
        await press(pilot, "enter")
        assert app.screen.NAME == "values"  # type: ignore[attr-defined]
        app.screen.query_one("#values", Entry).value = "4, 16"
        await press(pilot, "enter")
        assert app.screen.NAME == "review" and app.draft.values == "4, 16"  # type: ignore[attr-defined]
        assert "4, 16" in fake.text_of(app)


async def test_review_changes_price_prediction_and_thoroughness_in_place() -> None:
    services = FakeServices({"running": made.running()})
    app = fake.app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "n", "f4")
        app.screen.query_one("#thoroughness").focus()
        await press(pilot, "right", "down", "3", "down", "down", *"faster", "f2")
        draft = services.began[0]
        assert (draft.thoroughness, draft.price, draft.prediction) == ("standard", "3", "faster")


async def test_a_problem_found_by_the_check_stops_the_start() -> None:
    class Refusing(FakeServices):
        def check(self, draft: Draft) -> Checked:
            from tui_tuner.tui.draft import Problem

            return Checked(
                (Problem("fixed.max_model_len", "99999 is longer than the model allows: at most 8192", 8192),)
            )

    services = Refusing({"running": made.running()})
    app = fake.app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "n", "f4")
        assert "at most 8192" in fake.text_of(app)
        await press(pilot, "f2")
        assert not services.began
        assert app.focused is app.screen.query_one("#jump-model")


async def test_a_refused_start_says_why_and_stays() -> None:
    class Failing(FakeServices):
        def begin(self, draft: Draft) -> Path:
            raise RuntimeError("another tui-tuner measures on this card: process 77")

    app = fake.app(Failing())
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "n", "f4", "f2")
        assert app.screen.NAME == "review"  # type: ignore[attr-defined]
        assert "process 77" in said(app, "#hint")


async def test_another_knob_brings_its_own_values() -> None:
    app = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "n", "enter", "enter", "enter", "down", "enter")
        assert app.draft.knob == "gpu_memory_utilization"
        assert app.screen.query_one("#values", Entry).value == "2, 8"  # what the service suggests
        await press(pilot, "escape", "down", "down", "down", "enter")
        assert "no speculation" in said(app, "#about")
        assert app.screen.NAME == "knob"  # type: ignore[attr-defined]


async def test_a_field_that_was_cleared_is_not_filled_by_a_suggestion_that_comes_late() -> None:
    asked = threading.Event()

    class Slow(FakeServices):
        def suggestion(self, draft: Draft) -> Suggestion:
            asked.wait(30)
            return super().suggestion(draft)

    app = fake.app(Slow())
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        for key in ["n", "enter", "enter", "enter", "enter", "ctrl+u"]:
            await pilot.press(key)
            await pilot.pause(0.2)
        assert app.screen.query_one("#values", Entry).value == ""
        asked.set()
        await scenes.settle(pilot)
        assert "Suggested" in said(app, "#why")
        assert app.screen.query_one("#values", Entry).value == ""


async def test_a_pasted_line_becomes_the_fixed_configuration() -> None:
    app = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "n", "f3", "f2")
        assert "Nothing is there" in said(app, "#hint")
        await press(pilot, *"--nope", "f2")
        assert "no argument nope" in said(app, "#hint")
        app.screen.query_one("#pasted").text = "vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 4096"  # type: ignore[attr-defined]
        await press(pilot, "f2")
        assert app.screen.query_one("#model", Entry).value == "Qwen/Qwen2.5-7B-Instruct"
        assert app.screen.query_one("#fixed", Entry).value == "max_model_len=4096"


async def test_a_running_session_is_shown_at_once_and_leaving_lets_it_run() -> None:
    services = FakeServices({"running": made.running()}, frozenset({"running"}))
    app = fake.app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.until(pilot, lambda: isinstance(app.screen, RunScreen) and app.screen.view is not None)
        assert app.screen.view.state == "running"  # type: ignore[attr-defined]
        await press(pilot, "escape")
        assert isinstance(app.screen, HomeScreen)
        assert services.asked == []
        await press(pilot, "enter")
        assert isinstance(app.screen, RunScreen)


async def test_stop_skip_add_and_drop_reach_the_runner() -> None:
    services = FakeServices({"running": made.running()}, frozenset({"running"}))
    app = fake.app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.until(pilot, lambda: isinstance(app.screen, RunScreen) and app.screen.view is not None)
        n = app.screen.view.n  # type: ignore[attr-defined]
        await press(pilot, "s", "escape")
        assert services.asked == []
        await press(pilot, "s", "y", "k", "y")
        assert services.asked == [("stop", None, None), ("skip", n, None)]
        await press(pilot, "a", "8", "enter")
        assert "already in the sweep" in fake.text_of(app)
        await press(pilot, "backspace", "3", "2", "enter")
        assert services.asked[-1] == ("add", None, 32)


async def test_a_value_that_has_not_started_can_be_dropped() -> None:
    events = [*made.begin(), *made.starting(1, "baseline", 128, made.T0 + 2)]
    services = FakeServices({"running": events}, frozenset({"running"}))
    app = fake.app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.until(pilot, lambda: isinstance(app.screen, RunScreen) and app.screen.view is not None)
        await press(pilot, "x")
        assert services.asked == []  # the baseline cannot be dropped
        await press(pilot, "down", "x")
        assert services.asked == [("drop", 2, None)]


async def test_the_run_grows_in_place_and_ends_in_its_results() -> None:
    services = FakeServices({"s": made.running()}, frozenset({"s"}))
    app = fake.app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.until(pilot, lambda: isinstance(app.screen, RunScreen) and app.screen.view is not None)
        run = app.screen
        assert isinstance(run, RunScreen)
        await press(pilot, "down")
        services.events["s"] = [*services.events["s"][:-1]]
        services.events["s"] = made.finished()[:-1]
        await scenes.until(pilot, lambda: run.view is not None and run.view.measured == 4)
        assert run.query_one("#points-rows").highlighted == 1  # type: ignore[attr-defined]
        services.events["s"] = made.finished()
        services.is_locked = frozenset()
        await scenes.until(pilot, lambda: isinstance(app.screen, ResultsScreen))
        await scenes.settle(pilot)
        assert "indicative" in fake.text_of(app)


async def test_two_viewers_see_the_same() -> None:
    services = FakeServices({"s": made.running()}, frozenset({"s"}))
    texts = []
    for _ in range(2):
        app = fake.app(services)
        async with app.run_test(size=(80, 24)) as pilot:
            await scenes.until(pilot, lambda app=app: isinstance(app.screen, RunScreen) and app.screen.view is not None)
            await scenes.settle(pilot)
            texts.append(fake.text_of(app))
    assert texts[0] == texts[1]


async def test_a_file_that_goes_away_is_a_state_not_an_end() -> None:
    services = FakeServices({"s": made.running()}, frozenset({"s"}))
    app = fake.app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        app.show_run(Path("gone.jsonl"))
        await scenes.until(pilot, lambda: "cannot be read" in fake.text_of(app))
        await press(pilot, "escape")
        assert isinstance(app.screen, HomeScreen)


async def test_keeping_what_the_verdict_says_needs_no_reason() -> None:
    services = FakeServices({"finished": made.finished()})
    app = fake.app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "enter", "enter", "enter")
        assert services.decided == [("keep", 8, None)]
        assert "vllm serve" in fake.text_of(app)
        await press(pilot, "enter")
        assert isinstance(app.screen, HomeScreen)


async def test_an_override_needs_a_reason_and_records_it() -> None:
    services = FakeServices({"finished": made.finished()})
    app = fake.app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "enter", "enter", "down", "enter")
        assert services.decided == [] and "reason" in said(app, "#hint")
        await press(pilot, *"risk", "enter")
        assert services.decided == [("revert", 128, "risk")]


async def test_a_decision_that_cannot_be_recorded_says_why() -> None:
    class Locked(FakeServices):
        def decide(self, path: Path, choice: object, value: object, why: str | None) -> None:
            raise RuntimeError("the sweep is still running: decide when it has ended")

    app = fake.app(Locked({"finished": made.finished()}))
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "enter", "enter", "enter")
        assert "still running" in said(app, "#hint")


async def test_no_key_waits_for_a_slow_service_and_neither_does_the_end() -> None:
    never = threading.Event()

    class Slow(FakeServices):
        def listing(self) -> Listing:
            never.wait(60)
            return super().listing()

        surroundings = engine = models = evalsets = check_up = listing  # type: ignore[assignment]

    app = fake.app(Slow())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert "… looking" in fake.text_of(app)
        await pilot.press("f1")
        await pilot.pause()
        assert "Keys" in fake.text_of(app)
        await pilot.press("escape", "q")
    never.set()
    assert app.return_value == 0


async def test_no_engine_and_a_folder_that_cannot_be_written_are_said_at_home() -> None:
    class Bare(FakeServices):
        def engine(self):  # type: ignore[no-untyped-def]
            from tui_tuner.tui.records import EngineState

            return EngineState(None, "no Python with vLLM was found: run `tui-tuner setup`")

        def listing(self) -> Listing:
            return Listing((), "/sessions", "/sessions cannot be written: name another folder with --sessions")

    app = fake.app(Bare())
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        text = fake.text_of(app)
        assert "tui-tuner setup" in text and "--sessions" in text


async def test_the_palette_holds_the_actions_of_the_screen() -> None:
    app = fake.app(FakeServices({"finished": made.finished()}))
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        names = [c.title for c in app.get_system_commands(app.screen)]
        assert any(n.startswith("New sweep") for n in names) and any(n.startswith("Quit") for n in names)
        assert not any(n.startswith("Resume") for n in names)  # the session under the cursor is finished
        await press(pilot, "f9")
        assert "New sweep" in fake.text_of(app)


async def test_models_are_picked_from_the_list() -> None:
    app = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "n", "down")
        assert app.screen.query_one("#model", Entry).value == "Qwen/Qwen2.5-7B-Instruct"
        await press(pilot, "down", "down")
        assert app.focused is app.screen.query_one("#model")
        await press(pilot, "up", "up")
        assert app.screen.query_one(Pick).key == "Qwen/Qwen2.5-7B-Instruct"


async def test_answers_that_come_after_their_screen_has_gone_are_dropped() -> None:
    """Starting closes six screens at once, each of which has asked for something."""
    gate = threading.Event()

    class Late(FakeServices):
        def knobs(self, draft: Draft):  # type: ignore[no-untyped-def]
            if self.began:
                gate.wait(10)
            return super().knobs(draft)

        def check(self, draft: Draft) -> Checked:
            if self.began:
                gate.wait(10)
            return super().check(draft)

    services = Late({"running": made.running()})
    app = fake.app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "n", *["enter"] * 5)
        await pilot.press("f2")
        await scenes.until(pilot, lambda: isinstance(app.screen, RunScreen))
        gate.set()
        await scenes.settle(pilot)
        assert isinstance(app.screen, RunScreen)


async def test_closing_all_screens_at_once_is_quiet() -> None:
    app = fake.app(FakeServices({"finished": made.finished()}))
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        for _ in range(3):
            await press(pilot, "n", *["enter"] * 5)
            app.to_home()
            await scenes.settle(pilot)
            assert isinstance(app.screen, HomeScreen)


async def test_a_replay_pauses_changes_its_pace_and_ends_in_results_that_are_only_read() -> None:
    services = FakeServices(recorded={"card": made.over_on_a_card()})
    app = fake.app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        await press(pilot, "p")
        screen = app.screen
        assert isinstance(screen, ReplayScreen)
        await scenes.until(pilot, lambda: screen.view is not None)
        assert said(app, "#label") == "replay of a recorded session (NVIDIA GeForce RTX 4090, 2025-06-15)"
        assert "paused" in said(app, "#title")
        speed = screen.player.pace.speed
        await press(pilot, "plus", "f", "minus")
        assert screen.player.pace.speed == speed * 2 and screen.player.pace.paused
        await press(pilot, "space")
        assert f"×{speed * 2:g}" in said(app, "#title")
        before = screen.player.position
        await scenes.until(pilot, lambda: screen.player.position > before)
        await press(pilot, "e")
        await scenes.until(pilot, lambda: isinstance(app.screen, ResultsScreen) and app.screen.outcome is not None)
        assert "Recorded on NVIDIA GeForce RTX 4090" in said(app, "#sentence")
        await press(pilot, "enter", "d", "r")
        assert isinstance(app.screen, ResultsScreen) and not services.decided and not services.asked
        await press(pilot, "escape")
        assert app.screen is screen and "at its end" in said(app, "#title")
        await press(pilot, "q")
        assert isinstance(app.screen, HomeScreen)


async def test_recorded_sessions_stand_below_ones_own_and_open_in_their_results() -> None:
    services = FakeServices({"running": made.running()}, recorded={"card": made.over_on_a_card()})
    app = fake.app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        home = app.screen
        assert isinstance(home, HomeScreen)
        assert home.chosen is not None and home.chosen.id == "running" and home.check_action("resume", ())
        await press(pilot, "down")
        assert home.chosen.id == "card" and not home.check_action("resume", ())
        await press(pilot, "enter")
        assert isinstance(app.screen, ResultsScreen) and app.screen.recorded
        await press(pilot, "escape", "up")
        assert home.chosen.id == "running"


async def test_a_replay_asked_for_on_the_command_line_is_all_there_is() -> None:
    services = FakeServices(recorded={"card": made.over_on_a_card()})
    app = fake.app(services, replay=Replay(Path("card.jsonl"), 8.0))
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.settle(pilot)
        screen = app.screen
        assert isinstance(screen, ReplayScreen)
        await scenes.until(pilot, lambda: screen.view is not None)
        assert screen.player.pace.speed == 8.0
        await press(pilot, "q")
    assert app.return_value == 0


async def test_a_recording_that_cannot_be_read_says_why() -> None:
    class Broken(FakeServices):
        def replay(self, path: Path, player: Player) -> ReplaySource:
            raise ValueError("card.jsonl is not a session")

    app = fake.app(Broken(), replay=Replay(Path("card.jsonl")))
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.until(pilot, lambda: "is not a session" in said(app, "#note"))
        await press(pilot, "space", "f", "s", "e", "v", "q")
    assert app.return_value == 0
