"""Saved: the line to serve with, where it lies, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from textual.containers import VerticalScroll
from textual.widget import Widget

from tui_tuner.tui import actions
from tui_tuner.tui.records import Saved
from tui_tuner.tui.screens.base import TunerScreen
from tui_tuner.tui.screens.confirm import Details
from tui_tuner.tui.widgets.text import Line, Piece, mood


class SavedScreen(TunerScreen[None]):
    NAME = "saved"
    TITLE_TEXT = "Saved"
    BINDINGS = actions.bindings("saved")

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.saved: Saved | None = None

    def body(self) -> Iterable[Widget]:
        yield VerticalScroll(Line("… writing the serve line", id="saved-text"), id="saved-scroll")

    def on_mount(self) -> None:
        self.query_one("#saved-scroll").focus()
        self.ask(partial(self.tuner.services.saved, self.path), self._got, self._failed, name="saved")

    def _failed(self, why: str) -> None:
        self.query_one("#saved-text", Line).say([mood(f"! {why}", "bad")])

    def _got(self, saved: Saved) -> None:
        self.saved = saved
        self.title_bar.put("Saved", saved.decision)
        self.query_one("#saved-text", Line).say(said(saved))
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.saved is not None if action in ("copy", "yaml", "onward", "again") else True

    def action_copy(self) -> None:
        if self.saved is not None:
            self.app.copy_to_clipboard(self.saved.serve)
            self.tell(f"Sent to your terminal; also saved in {self.saved.file}", warn=False)

    def action_yaml(self) -> None:
        if self.saved is not None:
            self.app.push_screen(Details("Configuration as YAML", self.saved.yaml, verbatim=True))

    def action_onward(self) -> None:
        self.ask(partial(self.tuner.services.next_draft, self.path), self.tuner.start_wizard, name="draft")

    def action_again(self) -> None:
        self.ask(partial(self.tuner.services.draft_of, self.path), self.tuner.start_wizard, name="draft")

    def action_home(self) -> None:
        self.tuner.to_home()

    def action_back(self) -> None:
        self.dismiss(None)


def said(saved: Saved) -> list[Piece]:
    """The page."""
    pieces: list[Piece] = [(saved.decision, "bold"), "\n\n", mood("Serve with\n", "quiet"), saved.serve, "\n\n"]
    pieces += [mood(f"Saved in {saved.file}\n", "quiet"), "\n"]
    if saved.steps:
        pieces.append(mood("What to do next\n", "quiet"))
        for step in saved.steps:
            pieces += [f"· {step}", "\n"]
    if saved.chain:
        pieces += ["\n", mood("How it came to this\n", "quiet")]
        for line in saved.chain[-8:]:
            pieces += [f"· {line}", "\n"]
    return pieces
