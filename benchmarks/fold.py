"""Folding a session of 20,000 ticks against decoding its lines."""

from __future__ import annotations

from benchmarks.measure import alternate, ratio
from tui_tuner.model import events as ev
from tui_tuner.model.machine import Engine, Machine
from tui_tuner.model.plan import Plan, Sweep
from tui_tuner.model.session import Fold

TICKS = 20_000


def lines() -> list[bytes]:
    """The session: four points whose ticks are dense, as after a night's sweep."""
    plan = Plan("practice", Sweep("max_num_seqs", (2, 4, 8)))
    made: list[ev.AnyEvent] = [ev.SessionStart(0.0, 1, "bench", plan, 128, Machine(), Engine("python", "bench"))]
    for n in range(1, 5):
        made.append(ev.PointStarted(n * 1e4, n, "baseline" if n == 1 else "value", 2**n))
        made += [
            ev.Tick(n * 1e4 + i / 2, n, 180.5, 8, 0, 0.41, 0, 4100, 612.5, 61, 1980, 4, i * 3e2)
            for i in range(TICKS // 4)
        ]
        made.append(ev.PointDone(n * 1e4 + 9e3, n, "ok"))
    return [ev.encode(event) for event in made]


def main() -> None:
    text = lines()
    decode = ev.decode

    def folded() -> None:
        folding = Fold()
        for line in text:
            folding.add(decode(line))
        folding.session()

    ours, bare = alternate(folded, lambda: [decode(line) for line in text], 9)
    ratio(f"folding {TICKS:,} ticks / decoding their lines", ours, bare, "≤ 1.5")
