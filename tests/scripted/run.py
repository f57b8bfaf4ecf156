"""A runner with short waits, for faults that the real ones would take minutes to notice."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec

from tui_tuner.runner import sweep
from tui_tuner.runner.limits import Limits


def ready(problem: str | None) -> None:
    print(problem or "ok", flush=True)


if __name__ == "__main__":
    limits = msgspec.convert(json.loads(sys.argv[2]), Limits)
    sys.exit(sweep.run(Path(sys.argv[1]), ready, limits))
