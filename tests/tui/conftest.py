"""Screens are compared as plain text with stored files; `TUI_TUNER_ACCEPT=1` stores what is seen."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

STORED = Path(__file__).parent / "screens"


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times of day are shown in UTC, and nothing of the real terminal shines through."""
    monkeypatch.setenv("TZ", "UTC")
    for name in ("NO_COLOR", "COLORFGBG", "TMUX", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    time.tzset()
    yield
    time.tzset()


@pytest.fixture
def same_screen() -> Callable[[str, str], None]:
    """Compares a screen's text with the stored one of that name."""

    def check(name: str, text: str) -> None:
        file = STORED / f"{name}.txt"
        if os.environ.get("TUI_TUNER_ACCEPT") == "1":
            STORED.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert file.exists(), f"{file} is not stored: run with TUI_TUNER_ACCEPT=1 and look at it"
        assert text == file.read_text(encoding="utf-8")

    return check
