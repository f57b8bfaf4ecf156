"""What all tests share: the fault table that ends up in the output, and the scripted engine."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest

# How long an example takes says how busy the machine is; and a run that fails should fail again. For new examples:
# pytest --hypothesis-profile=explore
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.register_profile("tui-tuner", deadline=None, derandomize=True)
hypothesis.settings.load_profile("tui-tuner")

FAULTS: list[tuple[str, ...]] = []  # rows that tests/runner adds as it goes
HEAD = ("fault", "phase", "kept", "left", "the person is told")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for sessions."""
    made = tmp_path / "sessions"
    made.mkdir(mode=0o700)
    return made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One row a fault: injected how, in which phase, what was kept, what was left, what the user is told."""
    if not FAULTS:
        return
    widths = [max(len(row[i]) for row in (HEAD, *FAULTS)) for i in range(4)]
    terminalreporter.section(f"faults: {len(FAULTS)}")
    for row in (HEAD, *sorted(FAULTS)):
        cells = "  ".join(cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True))
        terminalreporter.write_line(f"{cells}  {row[4]}")
    lost = sum(1 for row in FAULTS if "lost" in row[2])
    left = sum(1 for row in FAULTS if row[3] != "nothing")
    terminalreporter.write_line(f"{len(FAULTS)} faults, {lost} with something lost, {left} with something left behind")
