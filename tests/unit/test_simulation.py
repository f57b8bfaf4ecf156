"""The simulation in short: false keeps, true effects found, and what could not have been told."""

from __future__ import annotations

import random

import pytest

from tests.simulation import World, row, simulate


@pytest.mark.parametrize("world", [World(0.5), World(2.0), World(5.0), World(2.0, drift=3.0), World(2.0, heat=4.0)])
@pytest.mark.parametrize("values", [1, 5])
def test_measured_keeps_nothing_that_is_not_there(world: World, values: int) -> None:
    found = row("standard", world, values, 150)
    assert found.strength == "measured"
    assert found.false_keeps <= 0.05


@pytest.mark.parametrize("world", [World(1.0), World(2.0), World(5.0), World(2.0, drift=3.0)])
def test_tested_keeps_nothing_that_is_not_there(world: World) -> None:
    for values in (1, 5):
        assert row("decide", world, values, 60).false_keeps <= 0.05


@pytest.mark.parametrize("world", [World(0.5), World(1.0), World(2.0), World(2.0, drift=3.0)])
def test_decide_finds_a_true_five_percent(world: World) -> None:
    found = row("decide", world, 1, 100)
    assert found.found is not None and found.found >= 0.8


def test_beyond_that_noise_the_verdict_says_what_it_could_not_have_told() -> None:
    rng = random.Random(1)
    missed = 0
    for _ in range(30):
        verdict, _session = simulate("decide", [5.0], World(5.0), rng)
        if verdict.choice != "keep":
            missed += 1
            assert verdict.smallest_difference is not None and verdict.smallest_difference > 2.0
            assert verdict.choice == "revert" or "could not be told" in verdict.why
    assert missed > 5
