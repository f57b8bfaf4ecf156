"""The terminal itself: whether it can show the app, whether it is still there, and what it may be asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

SMALLEST = (70, 20)  # columns and rows below which a notice stands in place of the screen
MEANT_FOR = (80, 24)


def problem(
    ascii_only: bool = False,
    environ: Mapping[str, str] = os.environ,
    tty: bool | None = None,
    encoding: str | None = None,
) -> str | None:
    """Why the app cannot open here, in a sentence that names the command which works, or None."""
    if tty is None:
        # Textual reads the first and draws on the third.
        tty = all(f is not None and f.isatty() for f in (sys.__stdin__, sys.__stdout__, sys.__stderr__))
    if not tty:
        return (
            "tui-tuner needs a terminal, and there is none here. `tui-tuner plan | tui-tuner run -` measures "
            "a small sweep, `tui-tuner run PLAN.toml` runs a plan, "
            "`tui-tuner list` and `tui-tuner show ID` read sessions."
        )
    if environ.get("TERM", "") in ("", "dumb", "unknown"):
        return (
            f"This terminal cannot place text (TERM={environ.get('TERM', '') or 'empty'}). `tui-tuner run PLAN.toml`, "
            "`tui-tuner attach ID` and `tui-tuner show ID` print plain lines; or set TERM=xterm-256color if yours can."
        )
    known = encoding if encoding is not None else _encoding(environ)
    if not ascii_only and known.lower().replace("-", "").replace("_", "") != "utf8":
        return (
            f"This terminal's locale is {known}, not UTF-8: symbols would be garbled. `tui-tuner --ascii` works here; "
            "or set LC_ALL=C.UTF-8."
        )
    return None


def _encoding(environ: Mapping[str, str]) -> str:
    """The encoding that the locale asks for; Python's own UTF-8 mode hides it from `locale`."""
    asked = next((environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), "C")
    _, dot, encoding = asked.partition(".")
    if dot:
        return encoding.partition("@")[0] or asked
    return asked


def mouse(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether to ask for the mouse: not over SSH or in tmux, where people want their own select-and-copy
    (and where re-attaching sends bytes that Textual 8.2.8 cannot decode)."""
    if environ.get("TUI_TUNER_MOUSE") in ("0", "1"):
        return environ["TUI_TUNER_MOUSE"] == "1"
    return not any(environ.get(name) for name in ("SSH_CONNECTION", "SSH_TTY", "TMUX", "STY"))


def lost(fd: int | None = None) -> bool:
    """Whether the controlling terminal has gone. With SIGHUP ignored (`nohup`) nothing else tells."""
    try:
        os.tcgetpgrp(sys.__stdin__.fileno() if fd is None and sys.__stdin__ is not None else fd or 0)
    except (OSError, ValueError):
        return True
    return False


def too_small(columns: int, rows: int) -> str | None:
    """The notice for a window that cannot hold a screen."""
    if columns >= SMALLEST[0] and rows >= SMALLEST[1]:
        return None
    return (
        f"This window is {columns}×{rows}.\ntui-tuner needs {MEANT_FOR[0]}×{MEANT_FOR[1]}.\nA sweep goes on meanwhile."
    )
