"""Step 4: the knob, ranked for the goal."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from textual import on
from textual.widget import Widget

from tui_tuner.tui import actions
from tui_tuner.tui.draft import Draft
from tui_tuner.tui.records import KnobRow
from tui_tuner.tui.screens.step import Step
from tui_tuner.tui.widgets.form import Pick, Row
from tui_tuner.tui.widgets.prose import page
from tui_tuner.tui.widgets.text import Line, Piece, mood

_COLUMNS = (24, 11, 1, 32)


class KnobStep(Step):
    NAME = "knob"
    LEAD = "One knob a sweep. The first ones move your goal most often; measuring tells how far."
    BINDINGS = actions.bindings("knob")

    def __init__(self, returning: bool = False) -> None:
        super().__init__(returning)
        self._rows: dict[str, KnobRow] = {}

    def fields(self) -> Iterable[Widget]:
        yield Pick(_COLUMNS, id="knobs", grows=3)
        yield Line("", id="about")

    def on_mount(self) -> None:
        self.query_one(Pick).focus()
        self._load()

    def resumed(self) -> None:
        self._load()

    def _load(self) -> None:
        self.ask(partial(self.tuner.services.knobs, self.draft), self._got, self._none, name="knobs")

    def _got(self, rows: tuple[KnobRow, ...]) -> None:
        self._rows = {row.name: row for row in rows}
        self.query_one(Pick).fill([_row(r) for r in rows], self.draft.knob)

    def _none(self, why: str) -> None:
        self.query_one("#about", Line).say([mood(f"! {why}", "bad")])

    def topic(self) -> str:
        key = self.query_one(Pick).key
        return f"knobs/{key}" if key and page(f"knobs/{key}") else self.NAME

    def help_topics(self) -> tuple[str, ...]:
        return (self.topic(), self.NAME) if self.topic() != self.NAME else (self.NAME,)

    @on(Pick.Moved)
    def _moved(self, event: Pick.Moved) -> None:
        row = self._rows.get(event.key)
        if row:
            self.query_one("#about", Line).say(about(row))
            self.show_aside()

    def read(self) -> Draft:
        key = self.query_one(Pick).key
        return self.draft.with_knob(key) if key else self.draft

    def accept(self) -> bool:
        row = self._rows.get(self.query_one(Pick).key or "")
        if row and row.missing:
            self.query_one("#about", Line).say([mood(f"! {row.missing}", "bad")])
            return False
        return super().accept()

    def action_knob_help(self) -> None:
        from tui_tuner.tui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen(self.NAME, (self.topic(),)))


def _row(row: KnobRow) -> Row:
    say = row.missing or row.why or row.title
    return Row(row.name, (row.name, row.group, row.arrow, say), quiet=bool(row.missing))


def about(row: KnobRow) -> list[Piece]:
    """What is known of a knob, in a few lines."""
    default = (
        row.declared
        if row.effective in ("", row.declared)
        else f"{row.declared} declared, {row.effective} as a server here"
    )
    pieces: list[Piece] = [(row.title, "bold"), "\n", mood("Trades   ", "quiet"), row.trades]
    pieces += ["\n", mood("When     ", "quiet"), row.when]
    if default:
        pieces += ["\n", mood("Default  ", "quiet"), default]
    if row.load:
        pieces += ["\n", mood("Load     ", "quiet"), row.load]
    if row.unsuited:
        pieces += ["\n", mood(f"! {row.unsuited}", "bad")]
    return pieces
