"""What a command prints: whatever is in it, a terminal has nothing to obey."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from tui_tuner.model.text import escaped, plain


def as_json(value: Any) -> None:
    """Data on stdout, as indented JSON."""
    print(escaped(msgspec.json.format(msgspec.json.encode(value), indent=1).decode()))


def say(text: str) -> None:
    """Progress and remarks, on stderr."""
    print(plain(text, keep_lines=True), file=sys.stderr, flush=True)


def complain(text: object) -> None:
    """Why something cannot be done, on stderr."""
    say(f"tui-tuner: {text}")
