"""The engine's own output at one point: its end, followed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget

from tui_tuner.tui import actions
from tui_tuner.tui.clean import plain
from tui_tuner.tui.screens.base import TunerScreen
from tui_tuner.tui.widgets.text import Line

EVERY = 1.0  # seconds between looks at the file


class LogsScreen(TunerScreen[None]):
    NAME = "logs"
    TITLE_TEXT = "Engine log"
    BINDINGS = actions.bindings("logs")

    def __init__(self, path: Path, n: int) -> None:
        super().__init__()
        self.path, self.n = path, n
        self._following = True
        self._text: list[str] = []

    def body(self) -> Iterable[Widget]:
        yield VerticalScroll(Line("… reading", id="log-text"), id="log")

    def on_mount(self) -> None:
        self.query_one("#log").focus()
        self._look()
        self.set_interval(EVERY, self._look)

    def _look(self) -> None:
        if self.is_current and self.alive:
            self.ask(partial(self.tuner.services.log, self.path, self.n), self._got, self._none, name="log")

    def _got(self, found: tuple[str, list[str]]) -> None:
        name, lines = found
        self.title_bar.put(f"Engine log, point {self.n}", name + ("  following" if self._following else ""))
        if lines != self._text:
            self._text = lines
            self.query_one("#log-text", Line).say(
                Content("\n".join(plain(line, 1000) for line in lines) or "Nothing yet.")
            )
            if self._following:
                self.query_one("#log", VerticalScroll).scroll_end(animate=False)

    def _none(self, why: str) -> None:
        self.query_one("#log-text", Line).say(f"! {why}")

    def action_follow(self) -> None:
        self._following = not self._following
        self._text = []
        self._look()
