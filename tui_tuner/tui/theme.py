"""Colours and symbols. Every state is a symbol and a word; colour only repeats it, in blue and orange."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import Theme

Mood = Literal["good", "bad", "same", "busy", "quiet", "plain"]

# What a mood looks like: a style made of theme variables, never of fixed colours.
STYLE: dict[Mood, str] = {
    "good": "$primary",
    "bad": "$warning",
    "same": "$foreground",
    "busy": "bold $foreground",
    "quiet": "$muted",
    "plain": "$foreground",
}

MEETS, MISSES, SAME, FAILED, RUNNING, WAITING, HERE = "✓", "✗", "≈", "!", "…", "·", "›"


def _theme(name: str, dark: bool, **colors: str) -> Theme:
    return Theme(
        name=name,
        dark=dark,
        primary=colors["blue"],
        secondary=colors["blue"],
        accent=colors["orange"],
        warning=colors["orange"],
        error=colors["orange"],
        success=colors["blue"],
        foreground=colors["text"],
        background=colors["ground"],
        surface=colors["surface"],
        panel=colors["panel"],
        variables={
            "block-cursor-foreground": colors["ground"],
            "block-cursor-background": colors["blue"],
            "block-cursor-text-style": "none",
            "block-cursor-blurred-foreground": colors["text"],
            "block-cursor-blurred-background": colors["panel"],
            "block-cursor-blurred-text-style": "none",
            "input-cursor-text-style": "reverse",
            "footer-background": colors["surface"],
            "footer-key-foreground": colors["blue"],
            "footer-description-foreground": colors["muted"],
            "border": colors["line"],
            "border-blurred": colors["line"],
            "scrollbar": colors["line"],
            "scrollbar-background": colors["ground"],
            "scrollbar-corner-color": colors["ground"],
            "scrollbar-hover": colors["muted"],
            "scrollbar-active": colors["blue"],
            "muted": colors["muted"],
            "line": colors["line"],
        },
    )


# All of them are colours of the 256-colour palette, so that a terminal without true colour shows the same.
DARK = _theme(
    "dark", True, blue="#5FAFFF", orange="#FFAF5F", text="#D0D0D0", ground="#121212", surface="#1C1C1C",
    panel="#303030", muted="#8A8A8A", line="#444444",
)  # fmt: skip
LIGHT = _theme(
    "light", False, blue="#005FAF", orange="#AF5F00", text="#1C1C1C", ground="#FFFFFF", surface="#EEEEEE",
    panel="#DADADA", muted="#626262", line="#BCBCBC",
)  # fmt: skip
_SIXTEEN = {"muted": "ansi_bright_black", "line": "ansi_bright_black"}


def choose(environ: Mapping[str, str] = os.environ) -> str:
    """The theme's name for this terminal: by $COLORFGBG's background, and plain ANSI where there are 16 colours."""
    ground = environ.get("COLORFGBG", "").rpartition(";")[2]
    light = ground in ("7", "15")
    few = "256" not in environ.get("TERM", "") and environ.get("COLORTERM", "") not in ("truecolor", "24bit")
    if few and environ.get("TERM", "") in (
        "linux",
        "xterm",
        "screen",
        "tmux",
        "vt100",
        "vt220",
        "ansi",
        "xterm-16color",
    ):
        return "ansi-light" if light else "ansi-dark"
    return "light" if light else "dark"


def variables(ansi: bool) -> dict[str, str]:
    """Variables of our own that the stylesheet uses, for themes that are not ours."""
    return dict(_SIXTEEN) if ansi else {"muted": "#808890", "line": "#505860"}


_ASCII = str.maketrans(
    {
        "✓": "+", "✗": "x", "≈": "~", "…": ".", "·": ".", "›": ">", "‹": "<", "→": ">", "←": "<", "↑": "^", "↓": "v",
        "−": "-", "–": "-", "—": "-", "±": "~", "≤": "<", "≥": ">", "×": "x", "•": "*", "▸": ">", "▏": "|", "│": "|",
        "┃": "|", "─": "-", "━": "-", "┌": "+", "┐": "+", "└": "+", "┘": "+", "╭": "+", "╮": "+", "╰": "+", "╯": "+",
        "├": "+", "┤": "+", "┬": "+", "┴": "+", "┼": "+", "▁": ".", "▂": ".", "▃": ":", "▄": ":", "▅": "=", "▆": "=",
        "▇": "#", "█": "#", "▔": "-", "▕": "|", "▎": "|", "▍": "|", "▌": "|", "▋": "|", "▊": "#", "▉": "#", "▀": "#",
        "●": "*", "○": "o", "◆": "*", "’": "'", "‘": "'", "“": '"', "”": '"', "⏎": "^", "△": "^", "▽": "v",
        "↔": "=", "²": "2", "³": "3", "µ": "u", "\u00a0": " ", "º": "o", "°": "o",
    }
)  # fmt: skip


def ascii_only(text: str) -> str:
    """`text` in ASCII and as wide as before: known symbols have their likeness, the rest a question mark a column."""
    if text.isascii():
        return text
    known = text.translate(_ASCII)
    return known if known.isascii() else "".join(c if c.isascii() else "?" * cell_len(c) for c in known)


class Ascii(LineFilter):
    """The last thing that happens to every line under `--ascii`."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(ascii_only(text), style, control) for text, style, control in segments]
