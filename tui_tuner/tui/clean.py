"""Text from outside, made harmless: model names, session files, engine output and answers are text, nothing more."""

from __future__ import annotations

import re
import unicodedata

from rich.cells import cell_len, set_cell_size

from tui_tuner.model.text import UNSAFE

_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
LONGEST = 4000  # characters of one text that a screen ever shows


def plain(text: object, longest: int = LONGEST) -> str:
    """`text` on one line: no control, escape, bidi or invisible character is left, and no more than `longest` ones."""
    return " ".join(_safe(str(text)[: longest * 2]).split("\n"))[:longest]


def lines(text: object, longest: int = LONGEST) -> list[str]:
    """`text` as lines, each made safe as by `plain`."""
    return _safe(str(text)[: longest * 2])[:longest].split("\n")


def _safe(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    text = _SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\t", "  ")
    return "".join(c for c in text if c == "\n" or unicodedata.category(c) not in UNSAFE)


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
