"""A form's parts: one line a field, its hint below the form, enter for the next step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from tui_tuner.tui.clean import fit, plain
from tui_tuner.tui.theme import STYLE
from tui_tuner.tui.widgets.text import Line, Piece, content

_MOVES = [
    Binding("up", "leave_up", show=False),
    Binding("down", "leave_down", show=False),
]


def without_enter(bindings: Sequence[BindingType]) -> list[BindingType]:
    """A widget's bindings but for enter, which belongs to the screen and its place in the footer."""
    return [b for b in bindings if not (isinstance(b, Binding) and b.key == "enter")]


class Entry(Input, inherit_bindings=False):
    """A text field of one line, without a border."""

    BINDINGS = [*without_enter(Input.BINDINGS), *_MOVES]

    def __init__(self, text: str, id: str) -> None:
        super().__init__(plain(text), id=id, compact=True)
        self.cursor_blink = False
        self.cursor_position = 0

    def action_leave_up(self) -> None:
        self.screen.focus_previous()

    def action_leave_down(self) -> None:
        self.screen.focus_next()


class Choice(Widget, can_focus=True):
    """One of a few: the arrows or space go through them; a word on the chosen one stands beside it."""

    BINDINGS = [
        Binding("left", "turn(-1)", "Change", show=False),
        Binding("right,space", "turn(1)", "Change", show=False),
        *_MOVES,
    ]
    chosen: reactive[str] = reactive("", init=False)

    @dataclass
    class Turned(Message):
        """Another option was chosen."""

        choice: Choice
        value: str

        @property
        def control(self) -> Choice:
            return self.choice

    def __init__(self, options: Sequence[tuple[str, str]], chosen: str, id: str) -> None:
        super().__init__(id=id)
        self.options = tuple(options)
        known = [name for name, _ in self.options]
        if chosen not in known:
            self.options = (*self.options, (chosen, ""))
        self.set_reactive(Choice.chosen, chosen)

    def offer(self, options: Sequence[tuple[str, str]], chosen: str) -> None:
        """Puts other options in place."""
        self.options = tuple(options)
        if chosen not in [name for name, _ in self.options]:
            self.options = (*self.options, (chosen, ""))
        self.set_reactive(Choice.chosen, chosen)
        self.refresh()

    def choose(self, value: str) -> None:
        """Shows `value` without telling anybody."""
        if value in [name for name, _ in self.options]:
            self.set_reactive(Choice.chosen, value)
            self.refresh()

    def action_turn(self, by: int) -> None:
        names = [name for name, _ in self.options]
        at = names.index(self.chosen) if self.chosen in names else 0
        self.chosen = names[(at + by) % len(names)]

    def watch_chosen(self, value: str) -> None:
        self.post_message(self.Turned(self, value))

    def on_click(self) -> None:
        self.focus()
        self.action_turn(1)

    def action_leave_up(self) -> None:
        self.screen.focus_previous()

    def action_leave_down(self) -> None:
        self.screen.focus_next()

    def render(self) -> Content:
        about = dict(self.options).get(self.chosen, "")
        quiet = STYLE["quiet"]
        return content([("‹ ", quiet), plain(self.chosen), (" › ", quiet), (" " + about, quiet)])


class Field(Horizontal):
    """A label and its control."""

    def __init__(self, label: str, control: Widget, hint: str = "") -> None:
        super().__init__(classes="field")
        self.label, self.control_widget, self.hint = label, control, hint

    def compose(self) -> ComposeResult:
        yield Line(self.label, classes="field-label")
        yield self.control_widget


@dataclass(frozen=True)
class Row:
    """A row of a pick list: cells in columns, and what it stands for."""

    key: str
    cells: tuple[str, ...]
    quiet: bool = False


class Pick(OptionList, inherit_bindings=False):
    """A list to choose from, in aligned columns, one of which takes the room that is left.

    It hands the focus on at its ends.
    """

    BINDINGS = without_enter(OptionList.BINDINGS)

    @dataclass
    class Moved(Message):
        """The cursor stands on another row."""

        pick: Pick
        key: str

        @property
        def control(self) -> Pick:
            return self.pick

    def __init__(self, widths: Sequence[int], id: str, right: Sequence[int] = (), grows: int | None = None) -> None:
        super().__init__(id=id, markup=False, compact=True)
        self._least, self._right, self._grows = tuple(widths), frozenset(right), grows
        self._widths = self._least
        self._rows: tuple[Row, ...] = ()

    def on_resize(self) -> None:
        widths = grown(self._least, self._grows, self.size.width - 2)
        if widths != self._widths:
            self._widths = widths
            for number, row in enumerate(self._rows):
                self.replace_option_prompt_at_index(number, self._line(row))

    @property
    def key(self) -> str | None:
        """What the row under the cursor stands for."""
        return self._rows[self.highlighted].key if self.highlighted is not None and self._rows else None

    def fill(self, rows: Sequence[Row], at: str | None = None) -> None:
        """Puts `rows` in place, with the cursor on the row of that key (else where it was)."""
        at = at if at is not None else self.key
        self._rows = tuple(rows)
        self.clear_options()
        self.add_options([Option(self._line(row)) for row in self._rows])
        keys = [row.key for row in self._rows]
        if keys:
            self.highlighted = keys.index(at) if at in keys else 0

    def _line(self, row: Row) -> Content:
        pieces: list[Piece] = []
        last = len(row.cells) - 1
        for number, (cell, columns) in enumerate(zip(row.cells, self._widths, strict=True)):
            text = fit(cell, columns, number in self._right) if columns else plain(cell)
            pieces.append((text + ("" if number == last else "  "), STYLE["quiet"] if number and row.quiet else ""))
        return Content.assemble(*pieces)

    def action_cursor_down(self) -> None:
        if self.highlighted is None or self.highlighted >= self.option_count - 1:
            self.screen.focus_next()
        else:
            super().action_cursor_down()

    def action_cursor_up(self) -> None:
        if not self.highlighted:
            self.screen.focus_previous()
        else:
            super().action_cursor_up()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        if self.key is not None:
            self.post_message(self.Moved(self, self.key))


def grown(least: Sequence[int], grows: int | None, room: int) -> tuple[int, ...]:
    """Column widths for a table `room` wide: the one that grows gets what the others, two apart, leave."""
    spare = room - sum(least) - 2 * (len(least) - 1)
    return tuple(w + max(spare, 0) if i == grows else w for i, w in enumerate(least))


class Button(Widget, can_focus=True):
    """A line that does something on enter, which the screen passes on, or on space."""

    BINDINGS = [Binding("space", "press", show=False), *_MOVES]

    @dataclass
    class Pressed(Message):
        button: Button

        @property
        def control(self) -> Button:
            return self.button

    def __init__(self, label: str, id: str) -> None:
        super().__init__(id=id)
        self._label = label

    def relabel(self, label: str) -> None:
        if label != self._label:
            self._label = label
            self.refresh()

    def action_press(self) -> None:
        self.post_message(self.Pressed(self))

    def on_click(self, event: events.Click) -> None:
        self.focus()
        self.action_press()

    def action_leave_up(self) -> None:
        self.screen.focus_previous()

    def action_leave_down(self) -> None:
        self.screen.focus_next()

    def render(self) -> Content:
        return content([("› " if self.has_focus else "  "), self._label])


class Jump(Button):
    """A line of the review: what stands in the plan, and on enter the step in which it is changed."""

    def __init__(self, label: str, step: str) -> None:
        super().__init__(label, id=f"jump-{step}")
        self.step = step
        self._text = ""

    def put(self, text: str) -> None:
        if text != self._text:
            self._text = text
            self.refresh()

    def render(self) -> Content:
        from tui_tuner.tui.clean import cut

        room = max(self.size.width - 21, 1)
        return content([(fit(self._label, 18), STYLE["quiet"]), " ", cut(self._text, room)])


def values_of(screen: Any) -> dict[str, str]:
    """What stands in every field of a screen, by id."""
    found: dict[str, str] = {}
    for entry in screen.query(Entry):
        found[entry.id or ""] = entry.value
    for choice in screen.query(Choice):
        found[choice.id or ""] = choice.chosen
    return found
