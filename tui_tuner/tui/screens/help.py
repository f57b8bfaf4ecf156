"""The help of a screen: its explanation and its keys, both read from where they are used."""

from __future__ import annotations

from collections.abc import Iterable

from textual.widget import Widget

from tui_tuner.tui import actions
from tui_tuner.tui.screens.base import TunerScreen
from tui_tuner.tui.widgets.prose import Prose, page


class HelpScreen(TunerScreen[None]):
    NAME = "help"
    TITLE_TEXT = "Help"
    BINDINGS = actions.bindings("help")

    def __init__(self, screen: str, topics: tuple[str, ...]) -> None:
        super().__init__()
        self._of, self._topics = screen, topics

    def body(self) -> Iterable[Widget]:
        texts = [text for text in map(page, self._topics) if text]
        yield Prose("\n\n".join([*texts, keys(self._of)]), id="help-text")

    def on_mount(self) -> None:
        prose = self.query_one(Prose)
        prose.can_focus = True
        prose.focus()


def keys(screen: str) -> str:
    """A screen's keys as a help text."""
    rows = [f"- **{' or '.join(actions.display(k) for k in a.keys.split(','))}** {a.says}" for a in actions.of(screen)]
    rows.append("- **f9** All commands, by name")
    rows.append("- **tab**, arrows: move between fields; left and right change a choice")
    return "\n\n".join(["# Keys", *rows])
