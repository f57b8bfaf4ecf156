"""Short questions over a screen: yes or no, one line of text, a text to read."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Footer

from tui_tuner.tui import actions
from tui_tuner.tui.widgets.form import Entry
from tui_tuner.tui.widgets.prose import Prose
from tui_tuner.tui.widgets.text import Line


class Confirm(ModalScreen[bool]):
    """A question that is answered with yes, or left."""

    BINDINGS = actions.bindings("confirm")

    def __init__(self, title: str, text: str, yes: str) -> None:
        super().__init__()
        self._title, self._text, self._yes = title, text, yes

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Line([(self._title, "bold")])
            yield Line(self._text, classes="box-text")
            yield Line([("y", "bold $primary"), f" {self._yes}    ", ("esc", "bold $primary"), " No, go back"])

    def action_yes(self) -> None:
        self.dismiss(True)

    def action_close(self) -> None:
        self.dismiss(False)


class Ask(ModalScreen[str | None]):
    """One line of text; `problem` says what is wrong with it, or None."""

    BINDINGS = actions.bindings("ask")

    def __init__(
        self, title: str, text: str, start: str = "", problem: Callable[[str], str | None] | None = None
    ) -> None:
        super().__init__()
        self._title, self._text, self._start, self._problem = title, text, start, problem

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Line([(self._title, "bold")])
            yield Line(self._text, classes="box-text")
            yield Entry(self._start, id="asked")
            yield Line("", id="asked-problem", classes="problem")
            yield Line([("enter", "bold $primary"), " Accept    ", ("esc", "bold $primary"), " Leave it"])

    def on_mount(self) -> None:
        self.query_one(Entry).focus()

    def action_answer(self) -> None:
        text = self.query_one(Entry).value
        wrong = self._problem(text) if self._problem else None
        if wrong:
            self.query_one("#asked-problem", Line).say(f"! {wrong}")
        else:
            self.dismiss(text.strip())

    def action_close(self) -> None:
        self.dismiss(None)


class Details(ModalScreen[None]):
    """A text to read, that scrolls."""

    BINDINGS = actions.bindings("details")

    def __init__(self, title: str, text: str, verbatim: bool = False) -> None:
        super().__init__()
        self._title, self._text, self._verbatim = title, text, verbatim

    def compose(self) -> ComposeResult:
        with Vertical(classes="box tall"):
            yield Line([(self._title, "bold")])
            prose = Prose(self._text, id="details-text", verbatim=self._verbatim)
            prose.can_focus = True
            yield prose
            yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.query_one(Prose).focus()

    def action_close(self) -> None:
        self.dismiss(None)
