"""What earlier sessions of the folder tell of a plan before it starts."""

from __future__ import annotations

import making as m
from msgspec.structs import replace

from tui_tuner.model.load import Load
from tui_tuner.prepare import start


def test_an_earlier_sweep_of_the_same_work_tells_that_the_speed_pass_is_short() -> None:
    short = m.quick(m.point(2, "value", 8, 1000.0), base=m.point(1, "baseline", 1, 1024.0))
    machine, plan = short.start.machine, short.start.plan
    (said,) = start._too_short([short], plan, machine)
    assert "lasted 2.0 s" in said and "320 requests or more" in said and said.endswith("(as in s-1)")
    long = m.quick(m.point(2, "value", 8, 100.0))
    assert start._too_short([long, short], plan, machine) == [], "the newest tells"
    other = replace(plan, load=Load("closed", (8,), requests=320))
    assert start._too_short([short], other, machine) == []
    assert start._too_short([short], replace(plan, model="another"), machine) == []
    assert start._too_short([short], plan, replace(machine, gpu=None)) == []
