"""The engine's logs, after the engine."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tui_tuner.model.secrets import Redactor


def redact(log: Path) -> None:
    """Takes secrets out of an engine's log once nobody writes to it any more."""
    redactor = Redactor(os.environ)
    half = log.with_suffix(".half")
    try:
        with log.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
            if all(redactor.text(line) == line for line in file):
                return
            file.seek(0)
            with half.open("w", encoding="utf-8", errors="surrogateescape", newline="") as clean_file:
                half.chmod(0o600)
                clean_file.writelines(redactor.text(line) for line in file)
        half.replace(log)
    except OSError:
        with contextlib.suppress(OSError):
            half.unlink()
