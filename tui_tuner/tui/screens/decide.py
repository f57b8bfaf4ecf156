"""Keep or go back: the verdict proposes, the person decides; deciding otherwise asks for a reason."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Literal, cast

from textual import on
from textual.widget import Widget
from textual.widgets import OptionList

from tui_tuner.tui import actions
from tui_tuner.tui.outcome import Outcome, choices
from tui_tuner.tui.screens.base import TunerScreen
from tui_tuner.tui.widgets.form import Entry, Field, Pick, Row
from tui_tuner.tui.widgets.text import Line, mood


class DecideScreen(TunerScreen[None]):
    NAME = "decide"
    TITLE_TEXT = "Keep or go back"
    BINDINGS = actions.bindings("decide")

    def __init__(self, path: Path, outcome: Outcome) -> None:
        super().__init__()
        self.path, self.outcome = path, outcome
        self._choices = choices(outcome)

    def body(self) -> Iterable[Widget]:
        yield Line(self.outcome.judged.sentence, id="sentence")
        yield Pick((44, 26), id="choices", grows=0)
        yield Field("Your reason", Entry("", id="why"))
        yield Line("", id="hint")

    def on_mount(self) -> None:
        self.title_bar.put("Keep or go back", self.outcome.title)
        pick = self.query_one(Pick)
        first = "the verdict" if self.outcome.judged.choice in ("keep", "revert") else "the default"
        pick.fill(
            [
                Row(str(i), (label, "against the verdict" if against else first))
                for i, (_, _, label, against) in enumerate(self._choices)
            ]
        )
        pick.focus()
        self._moved()

    @property
    def _chosen(self) -> tuple[str, object, str, bool]:
        return self._choices[int(self.query_one(Pick).key or 0)]

    @on(Pick.Moved)
    def _moved(self) -> None:
        against = self._chosen[3]
        field = self.query_one(Field)
        field.set_class(not against, "-off")
        text = "Deciding against the verdict is fine; your reason is kept beside the figures." if against else ""
        self._say(text)

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_accept()

    def action_accept(self) -> None:
        choice, value, _, against = self._chosen
        why = self.query_one("#why", Entry)
        if against and not why.value.strip():
            why.focus()
            self._say("! Write your reason, then enter.", wrong=True)
            return
        job = partial(
            self.tuner.services.decide,
            self.path,
            cast("Literal['keep', 'revert']", choice),
            value,
            why.value.strip() or None,
        )
        self.ask(job, self._recorded, lambda why_not: self._say(f"! {why_not}", wrong=True), name="decide")

    def _recorded(self, _: None) -> None:
        from tui_tuner.tui.screens.saved import SavedScreen

        self.app.switch_screen(SavedScreen(self.path))

    def action_back(self) -> None:
        self.dismiss(None)

    def _say(self, text: str, wrong: bool = False) -> None:
        self.query_one("#hint", Line).say([mood(text, "bad" if wrong else "quiet")])
