"""Timing of alternating pairs, so that whatever the machine does meets both sides alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def alternate(ours: Callable[[], object], other: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Median seconds of each, taken in turns; the first round is not counted."""
    ours(), other()
    pairs = [(seconds(ours), seconds(other)) for _ in range(rounds)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def ratio(name: str, ours: float, other: float, goal: str, unit: str = "s") -> None:
    """Prints one line: the ratio, both sides, and the goal."""
    print(f"{name:<58} {ours / other:6.2f}   ({ours:.4g} {unit} / {other:.4g} {unit}; goal {goal})", flush=True)
