"""The table of points: columns that suit the width, rows replaced in place so that the cursor stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from tui_tuner.tui.clean import fit
from tui_tuner.tui.theme import STYLE, Mood
from tui_tuner.tui.widgets.form import without_enter
from tui_tuner.tui.widgets.text import Line

Cell = tuple[str, Mood]


@dataclass(frozen=True)
class Column:
    """A column: its head with the unit, its width in cells, and the least width of the table that shows it."""

    head: str
    width: int
    right: bool = False
    since: int = 0


class _List(OptionList, inherit_bindings=False):
    """The rows; enter is the screen's."""

    BINDINGS = without_enter(OptionList.BINDINGS)


class Table(Vertical):
    """Rows of cells under a head; `rows` are keyed, and those that stay are replaced where they stand."""

    def __init__(self, columns: Sequence[Column], id: str) -> None:
        super().__init__(id=id)
        self._columns = tuple(columns)
        self._rows: tuple[tuple[str, tuple[Cell, ...]], ...] = ()
        self._drawn: list[Content] = []
        self._head = Line("", classes="table-head")
        self._list = _List(id=f"{id}-rows", markup=False, compact=True)

    def compose(self) -> ComposeResult:
        yield self._head
        yield self._list

    @property
    def body(self) -> OptionList:
        return self._list

    def point_at(self, key: str) -> None:
        """Puts the cursor on the row of that key, if there is one."""
        keys = [k for k, _ in self._rows]
        if key in keys:
            self._list.highlighted = keys.index(key)

    @property
    def key(self) -> str | None:
        """The key of the row under the cursor."""
        at = self._list.highlighted
        return self._rows[at][0] if at is not None and at < len(self._rows) else None

    def shape(self, columns: Sequence[Column]) -> None:
        """Puts other columns in place."""
        if tuple(columns) != self._columns:
            self._columns = tuple(columns)
            self._draw()

    def fill(self, rows: Sequence[tuple[str, Sequence[Cell]]]) -> None:
        """Puts `rows` in place: a key and its cells, one a column."""
        self._rows = tuple((key, tuple(cells)) for key, cells in rows)
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _shown(self) -> list[tuple[int, Column]]:
        room = self.size.width or 78
        return [(i, c) for i, c in enumerate(self._columns) if c.since <= room]

    def _draw(self) -> None:
        shown = self._shown()
        self._head.say("  ".join(fit(c.head, c.width, c.right) for _, c in shown))
        lines = [self._line(cells, shown) for _, cells in self._rows]
        if len(lines) != len(self._drawn):
            at = self._list.highlighted
            self._list.clear_options()
            self._list.add_options([Option(line) for line in lines])
            if lines:
                self._list.highlighted = min(at or 0, len(lines) - 1)
        else:
            for number, (line, old) in enumerate(zip(lines, self._drawn, strict=True)):
                if line.plain != old.plain or line.spans != old.spans:
                    self._list.replace_option_prompt_at_index(number, line)
        self._drawn = lines

    def _line(self, cells: Sequence[Cell], shown: Sequence[tuple[int, Column]]) -> Content:
        pieces: list[str | tuple[str, str]] = []
        if len(cells) == 2 < len(shown):  # a name, and a sentence in place of all figures
            rest = sum(c.width + 2 for _, c in shown[1:]) - 2
            first = shown[0][1].width
            return Content.assemble(fit(cells[0][0], first), "  ", (fit(cells[1][0], rest), STYLE[cells[1][1]]))
        for place, (number, column) in enumerate(shown):
            text, how = cells[number] if number < len(cells) else ("", "plain")
            style = "" if how == "plain" else STYLE[how]
            pieces.append((fit(text, column.width, column.right), style))
            if place < len(shown) - 1:
                pieces.append("  ")
        return Content.assemble(*pieces)
