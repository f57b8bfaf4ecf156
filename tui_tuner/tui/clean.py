"""Text from outside on a screen: made harmless as everywhere (`model.text`), and exactly as wide as its place."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

from tui_tuner.model.text import LONGEST, plain

__all__ = ["LONGEST", "cut", "fit", "lines", "plain", "width"]


def lines(text: object, longest: int = LONGEST) -> list[str]:
    """`text` as lines, each made safe as by `plain`."""
    return plain(text, longest, keep_lines=True).split("\n")


def width(text: str) -> int:
    """The columns that `text` takes in a terminal."""
    return cell_len(text)


def fit(text: object, columns: int, right: bool = False) -> str:
    """`text` in exactly `columns` columns: padded, or cut with an ellipsis; wide characters count twice."""
    line = plain(text)
    space = columns - cell_len(line)
    if space >= 0:
        return " " * space + line if right else line + " " * space
    if columns <= 1:
        return set_cell_size(line, max(columns, 0))
    return set_cell_size(set_cell_size(line, columns - 1).rstrip() + "…", columns)


def cut(text: object, columns: int) -> str:
    """`text` in at most `columns` columns."""
    return fit(text, columns).rstrip()
