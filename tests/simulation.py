"""How often the verdict is wrong: thousands of simulated sessions through the real schedule and the real verdict.

    python -m tests.simulation [--sessions 400] [--seed 0]

Each session is made in memory: the schedule says which point comes, the point's speed is drawn, the verdict judges.
A launch's speed is `100 · (1 + effect) · exp(noise + drift + heat)`: noise is normal with the given standard
deviation and drawn anew at each launch; drift runs evenly from 0 to its size over the session;
heat is a card that starts 4 % fast and falls to its warm speed within the first few launches. Where a band is known it
comes from a simulated `noise` run of five launches on the same machine.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tui_tuner.analysis import bands, schedule
from tui_tuner.analysis.verdict import Verdict, judge
from tui_tuner.model import events as ev
from tui_tuner.model.load import Load
from tui_tuner.model.machine import Engine, Machine
from tui_tuner.model.plan import EvalChoice, Plan, Sweep, Thoroughness
from tui_tuner.model.session import Point, Session
from tui_tuner.model.slo import Slo

NOISES = (0.5, 1.0, 2.0, 3.0, 5.0)
OUTPUT = 3_000  # tokens of a pass: half a minute, so that it is none of the short ones


class World(Struct, frozen=True):
    """What is true of the machine, in percent: launch-to-launch noise, drift over the session, a cold start."""

    noise: float
    drift: float = 0.0
    heat: float = 0.0

    def speed(self, rng: random.Random, effect: float, launch: int, expected: int) -> float:
        """tok/s of launch number `launch` (from 0) of a session of about `expected` launches."""
        place = min(launch / max(expected - 1, 1), 1.0)
        shift = self.drift * place + self.heat * math.exp(-launch / 1.5)
        return 100.0 * (1 + effect / 100.0) * math.exp(rng.gauss(0.0, self.noise / 100.0) + shift / 100.0)


def known_band(world: World, rng: random.Random) -> dict[str, Any]:
    """The band of a noise run of five launches."""
    launches = [world.speed(rng, 0.0, i, 5) for i in range(schedule.NOISE_LAUNCHES)]
    found = bands.noise([launches])
    assert found is not None
    return bands.Band(
        found.percent, found.sd_percent, found.upper_percent, found.pairs, "throughput", 1, {"throughput": found}
    ).as_dict()


def measured(n: int, slot: schedule.Slot, t: float, tok_s: float) -> Point:
    """A point that one request tells the speed of."""
    seconds = OUTPUT / tok_s
    rows = ev.Requests(t, n, 8.0, "closed", seconds, [0.0], [0.0], [seconds / 2], [seconds], [10], [OUTPUT], ["length"])
    start = ev.PointStarted(t, n, slot.role, slot.value)
    return Point(n, slot.role, slot.value, 1, slot.segment, t, start, levels=(rows,), done=ev.PointDone(t + 1, n, "ok"))


def simulate(
    thoroughness: Thoroughness, effects: Sequence[float], world: World, rng: random.Random, with_band: bool = True
) -> tuple[Verdict, Session]:
    """One session whose values 1, 2, … have the true `effects` (percent), and the verdict on it."""
    values = tuple(range(1, len(effects) + 1))
    plan = Plan(
        "m",
        Sweep("max_num_seqs", values),
        thoroughness,
        seed=rng.randrange(1 << 30),
        slo=Slo(),
        load=Load("closed", (8,), requests=1),
        evalset=EvalChoice(items=0),
    )
    band = known_band(replace(world, drift=0.0), rng) if with_band else None
    start = ev.SessionStart(0.0, ev.FORMAT, "s", plan, 0, Machine(cpu="x"), Engine("python", "test"), band=band)
    session = Session(start, (ev.Launched(0.0, 1, "boot"),))
    expected = len(effects) + 2 + (2 * schedule.launches_for(band) if band and thoroughness == "decide" else 0)
    t, launch = 1.0, 0
    while True:
        fixed = schedule.band_event(session, t)
        if fixed is not None:
            session = replace(session, bands=(fixed,))
        slot = schedule.next_slot(session)
        if slot is None:
            break
        effect = effects[slot.value - 1] if slot.value else 0.0
        point = measured(slot.n, slot, t, world.speed(rng, effect, launch, expected))
        session = replace(session, points=tuple(sorted((*session.points, point), key=lambda p: p.n)), last_t=t)
        t, launch = t + 10.0, launch + 1
    return judge(session), session


class Row(Struct, frozen=True):
    """One line of the table: shares of sessions, 0..1."""

    strength: str
    world: World
    values: int
    sessions: int
    false_keeps: float
    found: float | None = None
    named: float | None = (
        None  # of the true effects that were missed: the verdict's sentence names what could not be told
    )
    launches: float | None = None


def row(
    thoroughness: Thoroughness, world: World, values: int, sessions: int, seed: int = 0, with_band: bool = True
) -> Row:
    """False keeps of `values` values without any effect; in `decide` also how often a true 5 % is found."""
    rng = random.Random(f"{thoroughness} {world} {values} {with_band} {seed}")
    wrong = 0
    strength = "indicative"
    for _ in range(sessions):
        verdict, _session = simulate(thoroughness, [0.0] * values, world, rng, with_band)
        wrong += verdict.choice == "keep"
        strength = verdict.strength
    found = missed = named = launches = 0
    if thoroughness == "decide":
        strength = "tested"
        for _ in range(sessions):
            verdict, session = simulate(thoroughness, [5.0] + [0.0] * (values - 1), world, rng, with_band)
            if verdict.choice == "keep" and verdict.value == 1:
                found += 1
            else:
                missed += 1
                named += "could not be told" in verdict.why
            launches += session.bands[0].launches if session.bands else 0
    decide = thoroughness == "decide"
    return Row(
        strength + ("" if with_band else ", no band"),
        world,
        values,
        sessions,
        wrong / sessions,
        found / sessions if decide else None,
        (named / missed if missed else None) if decide else None,
        launches / sessions if decide else None,
    )


def table(sessions: int, seed: int) -> str:
    """The whole table as text."""
    lines = [
        f"{sessions} sessions a row; false keep: kept though nothing differs; found: a true 5 % kept",
        "said: of the true effects that were missed, those whose verdict names what it could not have told",
        "",
        f"strength                noise  drift  heat{'values':>8}{'false keep':>12}"
        f"{'found':>8}{'said':>7}{'launches':>10}",
    ]
    for thoroughness, with_band in (("quick", False), ("quick", True), ("standard", True), ("decide", True)):
        for values in (1, 5):
            for noise in NOISES:
                for drift, heat in ((0.0, 0.0), (3.0, 0.0), (0.0, 4.0)):
                    r = row(thoroughness, World(noise, drift, heat), values, sessions, seed, with_band)  # type: ignore[arg-type]
                    found = f"{r.found:.1%}" if r.found is not None else ""
                    said = f"{r.named:.0%}" if r.named is not None else ""
                    launches = f"{r.launches:.1f}" if r.launches is not None else ""
                    lines.append(
                        f"{r.strength:<22}{noise:>6.1f}%{drift:>6.1f}%{heat:>5.1f}%{values:>8}"
                        f"{r.false_keeps:>12.1%}{found:>8}{said:>7}{launches:>10}"
                    )
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="How often the verdict is wrong, by simulation.")
    parser.add_argument("--sessions", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    print(table(asked.sessions, asked.seed))
