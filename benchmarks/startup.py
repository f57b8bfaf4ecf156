"""`tui-tuner --version` against `python -c pass`."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.measure import alternate, ratio


def _run(*command: str) -> None:
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    ours, bare = alternate(lambda: _run("-m", "tui_tuner", "--version"), lambda: _run("-c", "pass"), 15)
    ratio("tui-tuner --version / python -c pass", ours, bare, "printed")
