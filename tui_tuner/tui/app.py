"""The app: which screen is shown, and what it knows. Everything else is in screens, widgets and services."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace
from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.filter import LineFilter
from textual.reactive import var
from textual.screen import Screen

from tui_tuner.tui import actions, terminal, theme
from tui_tuner.tui.background import apart, share_memory
from tui_tuner.tui.draft import STEPS, Draft, practice
from tui_tuner.tui.records import Known, Replay
from tui_tuner.tui.services import Services

WATCH_TERMINAL = 1.0  # seconds between looks at whether the terminal is still there


class TunerApp(App[int]):
    """`services` are all that the screens know of the outside; tests hand in others."""

    TITLE = "tui-tuner"
    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "f9"
    COMMAND_PALETTE_DISPLAY = "F9"
    BINDINGS: ClassVar = [Binding("f10", "quit", "Quit", show=False), Binding("ctrl+q", "quit", "Quit", show=False)]
    ANIMATION_LEVEL = "none"

    known: var[Known] = var(Known())

    def __init__(
        self,
        services: Services,
        ascii_only: bool = False,
        open_session: Path | None = None,
        look: str | None = None,
        watch_terminal: bool = False,
        replay: Replay | None = None,
    ) -> None:
        super().__init__()
        self.services = services
        self.draft: Draft = practice()
        self.animation_level = "none"
        self._ascii = theme.Ascii() if ascii_only else None
        self._open_session = open_session
        self._open_replay = replay
        self._watch = watch_terminal
        self.register_theme(theme.DARK)
        self.register_theme(theme.LIGHT)
        self.theme = look or theme.choose()

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return theme.variables(self.current_theme.ansi)

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters = super().get_line_filters()
        return [*filters, self._ascii] if self._ascii else filters

    def get_default_screen(self) -> Screen[None]:
        from tui_tuner.tui.screens.home import HomeScreen

        return HomeScreen()

    def on_mount(self) -> None:
        if self._watch:
            self.set_interval(WATCH_TERMINAL, self._look_for_terminal)
            loop = asyncio.get_running_loop()
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(signal.SIGTERM, partial(self.exit, 143))
                loop.add_signal_handler(signal.SIGHUP, self._gone)
        if self._open_session is not None:
            self.show_session(self._open_session)
        if self._open_replay is not None:
            # Whoever asked for this replay alone has done with the app when it is left.
            self.show_replay(self._open_replay.path, self._open_replay.speed, self._replayed)

    def _replayed(self, _: None) -> None:
        self.exit(0)

    def _look_for_terminal(self) -> None:
        if terminal.lost():
            self._gone()

    def _gone(self) -> None:
        """The terminal is no more: nothing can be drawn or said, and nothing of a sweep lives in this process."""
        os._exit(129)

    # ---- what is known -------------------------------------------------------------------------------------------

    def find_out(self) -> None:
        """Looks at sessions, machine, engine, models and eval sets; each arrives when it arrives."""
        share_memory()
        self.look_again("listing")
        for name in ("surroundings", "engine", "models", "evalsets"):
            if getattr(self.known, name) is None:
                self.look_again(name)

    def look_again(self, name: str) -> None:
        """Asks one service again, and puts its answer into `known`."""
        job = getattr(self.services, name)

        async def wait() -> None:
            try:
                answer = await apart(job)
            except Exception as error:  # noqa: BLE001 (told where it matters: that part stays unknown)
                self.log.error(f"{name}: {error}")
                self.notify(f"{name}: {error}"[:400], severity="warning", markup=False)
                return
            self.known = replace(self.known, **{name: answer})

        self.run_worker(wait(), group=f"known-{name}", exclusive=True)

    # ---- the way through the screens -----------------------------------------------------------------------------

    def go_to_step(self, name: str) -> None:
        """Opens a step of the wizard on top of the one before."""
        self.push_screen(self._step(name, False))

    def edit_step(self, name: str) -> None:
        """Opens a step from the review, to come back to it."""
        self.push_screen(self._step(name, True))

    def _step(self, name: str, returning: bool) -> Screen[bool]:
        from tui_tuner.tui.screens import steps

        return steps.STEP[name](returning)

    def start_wizard(self, draft: Draft | None = None) -> None:
        """Opens the wizard at its first step."""
        if draft is not None:
            self.draft = draft
        self.go_to_step(STEPS[0])

    def show_run(self, path: Path) -> None:
        """Shows a session's run screen over the home screen."""
        from tui_tuner.tui.screens.run import RunScreen

        self.to_home()
        self.push_screen(RunScreen(path))

    def show_replay(self, path: Path, speed: float | None = None, left: Callable[[None], None] | None = None) -> None:
        """Plays a session back over the home screen; without a speed in about a minute."""
        from tui_tuner.tui.screens.replay import ReplayScreen

        self.push_screen(ReplayScreen(path, speed), left)

    def show_results(self, path: Path, recorded: str = "") -> None:
        """Shows what came of a session; `recorded` says in words that it is only there to be read."""
        from tui_tuner.tui.screens.results import ResultsScreen

        self.push_screen(ResultsScreen(path, recorded))

    def show_session(self, path: Path) -> None:
        """Shows a session: the run screen, which leads on to the results."""
        self.show_run(path)

    def to_home(self) -> None:
        """Closes all screens above the home screen."""
        while len(self.screen_stack) > 1:
            self.pop_screen()

    def action_toggle_theme(self) -> None:
        pairs = {"dark": "light", "light": "dark", "ansi-dark": "ansi-light", "ansi-light": "ansi-dark"}
        self.theme = pairs.get(self.theme, "dark")

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        name = getattr(screen, "NAME", "")
        for act in actions.of(name):
            method = getattr(screen, f"action_{act.name}", None) or getattr(self, f"action_{act.name}", None)
            if act.palette and method and screen.check_action(act.name, ()):
                yield SystemCommand(
                    f"{act.label}  ({act.key})", act.says, partial(self.run_action_of, screen, act.name)
                )
        yield SystemCommand("Theme", "Switch between dark and light", self.action_toggle_theme)
        yield SystemCommand("Quit  (F10)", "Leave tui-tuner; a running sweep goes on", self.exit)

    async def run_action_of(self, screen: Screen[object], name: str) -> None:
        """Runs an action of `screen`, as its key would."""
        await self.run_action(name, screen if hasattr(screen, f"action_{name}") else self)


def run_app(
    sessions: str | None = None,
    engine_python: str | None = None,
    ascii_only: bool = False,
    open_session: Path | None = None,
    replay: Replay | None = None,
) -> int:
    """Opens the app on this terminal; returns the exit status. Where it cannot open, says why on stderr: 2."""
    wrong = terminal.problem(ascii_only)
    if wrong:
        print(wrong, file=sys.stderr)
        return 2
    app = TunerApp(Services(sessions, engine_python), ascii_only, open_session, watch_terminal=True, replay=replay)
    result = app.run(mouse=terminal.mouse())
    return result if isinstance(result, int) else app.return_code or 0
