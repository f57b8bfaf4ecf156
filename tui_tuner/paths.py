"""Where things lie on this machine. Nothing is created here: whoever writes makes the folder.

`$TUI_TUNER_HOME` puts everything under one folder, for rented boxes that keep only their mounted volume.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import platformdirs

APP = "tui-tuner"


def home() -> Path | None:
    """`$TUI_TUNER_HOME` as an absolute folder, or None where it is unset or empty."""
    text = os.environ.get("TUI_TUNER_HOME", "").strip()
    return Path(text).expanduser().absolute() if text else None


def expanded(value: Any) -> Any:
    """A plain value with a home folder at the beginning of a text written out, as sessions name it by `~`. A home that
    nobody knows stays as it is."""
    if isinstance(value, str):
        return os.path.expanduser(value)  # noqa: PTH111 (the one in pathlib raises)
    if isinstance(value, dict):
        return {key: expanded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [expanded(part) for part in value]
    return value


def data_dir() -> Path:
    """What must be kept: sessions."""
    return home() or Path(platformdirs.user_data_dir(APP))


def cache_dir() -> Path:
    """What can be made again: engines, the practice model, facts about an installed vLLM."""
    own = home()
    return own / "cache" if own else Path(platformdirs.user_cache_dir(APP))


def engines_dir() -> Path:
    """The environments made by `tui-tuner setup`, one folder per package and version."""
    return cache_dir() / "engines"


def models_dir() -> Path:
    """The practice model."""
    return cache_dir() / "models"


def facts_dir() -> Path:
    """What introspection of each engine found."""
    return cache_dir() / "facts"


def sessions_dir(override: str | None = None) -> Path:
    """Where session files are: `override` (from `--sessions`), else the data folder's `sessions`."""
    return Path(override).expanduser().absolute() if override else data_dir() / "sessions"


def settings_file() -> Path:
    """The person's saved choices (JSON)."""
    own = home()
    return (own / "config" if own else Path(platformdirs.user_config_dir(APP))) / "settings.json"


def locks_dir() -> Path:
    """The locks of cards: one place for all users and all settings, or two tuners would not meet.

    Whoever takes a lock makes the folder with mode 1777, as for /tmp itself.
    """
    return Path("/tmp/tui-tuner-locks")
