"""A live chart that is light on the wire: block characters, one style a row, its scale from zero."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from tui_tuner.tui.clean import fit

_BLOCKS = " ▁▂▃▄▅▆▇█"


def columns(values: Sequence[float | None], width: int) -> list[float | None]:
    """The last `width` values, the newest on the right."""
    tail = list(values[-width:]) if width > 0 else []
    return [None] * (width - len(tail)) + tail


def bars(values: Sequence[float | None], top: float, height: int, width: int) -> list[str]:
    """`height` lines of block characters, `width` wide: zero is the bottom edge, `top` the upper one.

    A value above zero always shows, a missing one never does.
    """
    steps = height * 8
    levels = []
    for value in columns(values, width):
        if value is None or value <= 0 or top <= 0:
            levels.append(0)
        else:
            levels.append(min(max(round(value / top * steps), 1), steps))
    rows = []
    for row in range(height):
        floor = (height - 1 - row) * 8
        rows.append("".join(_BLOCKS[min(max(level - floor, 0), 8)] for level in levels))
    return rows


class Chart(Widget):
    """A name and the newest figure on the left, the bars, and the scale's upper end on the right."""

    COMPONENT_CLASSES = {"chart--label", "chart--bar", "chart--scale"}
    LEFT, RIGHT = 20, 14

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._left: tuple[str, ...] = ()
        self._scale = ""
        self._values: tuple[float | None, ...] = ()
        self._top = 0.0
        self._rows: list[str] = []

    def show(self, left: tuple[str, ...], scale: str, values: tuple[float | None, ...], top: float) -> None:
        """Puts new figures in place; repaints only if a cell differs."""
        rows = self._bars(values, top)
        if (left, scale, rows) != (self._left, self._scale, self._rows):
            self._left, self._scale, self._values, self._top, self._rows = left, scale, values, top, rows
            self.refresh()

    def _bars(self, values: Sequence[float | None], top: float) -> list[str]:
        return bars(values, top, self.size.height, max(self.size.width - self.LEFT - self.RIGHT, 0))

    def on_resize(self) -> None:
        self._rows = self._bars(self._values, self._top)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if width <= 0 or y >= self.size.height:
            return Strip.blank(max(width, 0))
        label = self.get_component_rich_style("chart--label")
        head = label + Style(bold=True) if y == 0 else self.get_component_rich_style("chart--scale")
        left = fit(self._left[y] if y < len(self._left) else "", min(self.LEFT, width))
        bar = self._rows[y] if y < len(self._rows) else ""
        scale = self._scale if y == 0 else "0" if y == self.size.height - 1 and self._scale else ""
        end = fit(" " + scale, max(width - len(bar) - self.LEFT, 0))
        segments = [
            Segment(left, head),
            Segment(bar, self.get_component_rich_style("chart--bar")),
            Segment(end, self.get_component_rich_style("chart--scale")),
        ]
        return Strip(segments).adjust_cell_length(width, label)
