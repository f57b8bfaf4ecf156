"""Step 5: the values to try, suggested from the machine."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from msgspec.structs import replace
from textual.widget import Widget

from tui_tuner.tui import actions, words
from tui_tuner.tui.draft import Draft, write_value, write_values
from tui_tuner.tui.records import Suggestion
from tui_tuner.tui.screens.step import Step
from tui_tuner.tui.widgets.form import Entry, Field
from tui_tuner.tui.widgets.prose import page
from tui_tuner.tui.widgets.text import Line, Piece, mood


class ValuesStep(Step):
    NAME = "values"
    LEAD = "Each value is one start of the engine. A few that are far apart tell more than many that are close."
    BINDINGS = actions.bindings("values")

    def __init__(self, returning: bool = False) -> None:
        super().__init__(returning)
        self._for = ""

    def fields(self) -> Iterable[Widget]:
        yield Line("", id="of-knob")
        yield Field(
            "Values",
            Entry(self.draft.values, id="values"),
            'With commas between them: 2, 8 · on, off · auto, fp8 · a variant: {"label": "AWQ", "model": "…"}',
        )
        yield Field(
            "Baseline",
            Entry(self.draft.baseline, id="baseline"),
            "Empty: what the fixed configuration says, else vLLM's default here.",
        )
        yield Line("", id="why", classes="note")

    def on_mount(self) -> None:
        self._load()
        self.query_one("#values").focus()

    def resumed(self) -> None:
        if self.draft.knob != self._for:
            self.query_one("#values", Entry).value = self.draft.values
            self.query_one("#baseline", Entry).value = self.draft.baseline
            self._load()

    def _load(self) -> None:
        self._for = self.draft.knob
        self.query_one("#of-knob", Line).say([mood(f"{'Knob':19}", "quiet"), (self.draft.knob, "bold")])
        self.query_one("#why", Line).say([mood("… asking the machine what can start here", "quiet")])
        self.ask(partial(self.tuner.services.suggestion, self.draft), self._got, self._none, name="suggestion")

    def _got(self, s: Suggestion) -> None:
        values = self.query_one("#values", Entry)
        if not self.draft.values.strip() and not values.value.strip():  # what a person has cleared stays cleared
            values.value = write_values(s.values)
        base = words.value(s.baseline) if s.has_baseline else "vLLM's default"
        lines: list[Piece] = [
            mood(f"{'If empty':19}", "quiet"),
            base,
            "\n",
            mood(f"{'Suggested':19}", "quiet"),
            write_values(s.values),
        ]
        if s.range:
            lines += ["\n", mood(f"{'Allowed':19}", "quiet"), s.range]
        if s.why:
            lines += ["\n\n", s.why]
        self.query_one("#why", Line).say(lines)
        if not self.query_one("#baseline", Entry).value and s.has_baseline:
            self.query_one("#baseline", Entry).placeholder = write_value(s.baseline)

    def _none(self, why: str) -> None:
        self.query_one("#why", Line).say([mood(f"! {why}", "bad")])

    def topic(self) -> str:
        knob = f"knobs/{self.draft.knob}"
        return knob if page(knob) else self.NAME

    def help_topics(self) -> tuple[str, ...]:
        return (self.NAME, self.topic()) if self.topic() != self.NAME else (self.NAME,)

    def read(self) -> Draft:
        return replace(
            self.draft, values=self.query_one("#values", Entry).value, baseline=self.query_one("#baseline", Entry).value
        )

    def action_knob_help(self) -> None:
        from tui_tuner.tui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen(self.NAME, (self.topic(),)))
