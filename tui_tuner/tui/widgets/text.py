"""Lines of text that are never markup."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from textual.content import Content
from textual.widgets import Static

from tui_tuner.tui.clean import lines, plain
from tui_tuner.tui.theme import STYLE, Mood

Piece = str | tuple[str, str]  # text, or text and its style


def mood(text: str, how: Mood) -> tuple[str, str]:
    """A piece in the colour of its mood."""
    return text, STYLE[how]


def content(pieces: str | Content | Iterable[Piece]) -> Content:
    """Pieces as Textual's content; every text passes through `plain` first."""
    if isinstance(pieces, Content):
        return pieces
    if isinstance(pieces, str):
        return Content("\n".join(lines(pieces)))
    return Content.assemble(*[_safe(piece) for piece in pieces])


def _safe(piece: Piece) -> Any:
    if isinstance(piece, str):
        return "\n".join(lines(piece))
    return "\n".join(lines(piece[0])), piece[1]


class Line(Static):
    """Text without markup. `say` changes it, and repaints only when it differs."""

    def __init__(
        self, text: str | Content | Iterable[Piece] = "", id: str | None = None, classes: str | None = None
    ) -> None:
        self._said = content(text)
        super().__init__(self._said, id=id, classes=classes, markup=False)

    @property
    def said(self) -> str:
        """What stands there, as plain text."""
        return self._said.plain

    def say(self, text: str | Content | Iterable[Piece], layout: bool = True) -> None:
        """Shows `text`. With `layout` false the widget's size is known not to change."""
        new = content(text)
        if not new.is_same(self._said) or new.spans != self._said.spans:
            self._said = new
            self.update(new, layout=layout)


class TitleBar(Line):
    """The first line of a screen: where one is, and on the right how things stand."""

    def __init__(self, title: str, right: str = "") -> None:
        super().__init__("", id="title")
        self._left, self._right = plain(title), plain(right)

    def on_mount(self) -> None:
        self.put()

    def on_resize(self) -> None:
        self.put()

    def put(self, left: str | None = None, right: str | None = None) -> None:
        """Changes one of its ends."""
        self._left = self._left if left is None else plain(left)
        self._right = self._right if right is None else plain(right)
        from tui_tuner.tui.clean import cut, fit, width

        room = max(self.size.width - 2, 0)
        end = cut(self._right, room)
        self.say([(fit(self._left, max(room - width(end) - 2, 0)), "bold"), "  ", (end, STYLE["quiet"])], layout=False)
