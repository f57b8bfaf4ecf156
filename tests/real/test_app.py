"""The app by keys alone, in a real terminal of 80×24, on a real engine: from home to the saved decision.

In the middle of the sweep the terminal is closed and the app is opened again in another one.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.terminal import Terminal
from tui_tuner.store import sessionfile

pytestmark = pytest.mark.engine


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], Terminal]]:
    terminals: list[Terminal] = []

    def make() -> Terminal:
        terminals.append(Terminal(sys.executable, "-m", "tui_tuner", "--sessions", str(tmp_path / "sessions")))
        return terminals[-1]

    yield make
    for terminal in terminals:
        with contextlib.suppress(OSError, AssertionError):
            terminal.close()


def test_from_home_to_the_saved_file(tmp_path: Path, opened: Callable[[], Terminal]) -> None:
    one = opened()
    one.until(lambda text: "New sweep" in text and "vLLM" in text, 240, "home with its engine")
    one.press("n")
    one.until(lambda text: "step 1 of" in text, 90, "the first step")
    for step in range(2, 7):
        one.press("\r")
        one.until(lambda text, step=step: f"step {step} of" in text, 90, f"step {step}")  # type: ignore[misc]
        if step == 5:  # one value instead of the two that are suggested
            one.press("\x15")  # ctrl+u
            one.until(lambda text: re.search(r"Values +2", text) is None, 90, "an empty field")
            one.press("8")
    assert not list(tmp_path.rglob("*.jsonl"))  # nothing is on the disk until Start
    one.until(lambda text: "nothing is wrong" in text or "min" in text, 240, "a checked plan")
    one.press("\x1bOQ")  # F2
    one.until(lambda text: "blocks" in text.lower() and "Stop" in text, 120, "the run screen")
    (path,) = tmp_path.rglob("*.jsonl")
    one.until(lambda text: "tok/s" in text and "speed" in text, 300, "the first speed pass")
    one.close()
    assert sessionfile.is_locked(path)

    two = opened()
    two.until(lambda text: "max_num_seqs" in text, 60, "the running sweep")
    if "Stop" not in two.text():  # home offers it; enter opens it
        two.press("\r")
    two.until(lambda text: "Stop" in text and "blocks" in text.lower(), 30, "the same run screen")
    two.until(lambda text: "Decide" in text, 900, "the results")
    assert not sessionfile.is_locked(path)
    session = sessionfile.read(path)
    assert session.ended is not None and session.ended.why == "finished"
    assert [(p.role, p.value, p.status) for p in session.points] == [
        ("baseline", 128, "ok"), ("value", 8, "ok"), ("baseline_again", 128, "ok"),
    ]  # fmt: skip
    assert all(not p.earlier for p in session.points)  # nothing was measured twice
    two.press("d")
    two.until(lambda text: "Record" in text, 90, "the decision")
    two.press("\r")
    text = two.until(lambda text: "vllm serve" in text, 30, "the saved screen")
    assert "--max-num-seqs" in text.replace("\n", "")
    decision = sessionfile.read(path).decision
    assert decision is not None and not decision.override
    assert path.with_name(path.stem + ".serve.sh").is_file()
