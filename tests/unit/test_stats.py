"""Every statistic against scipy or a brute-force count."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as sp

from tui_tuner.analysis import bands, points, schedule, stats
from tui_tuner.model import events as ev
from tui_tuner.model.slo import Slo

values = st.floats(0.1, 1e4, allow_nan=False)


@given(
    st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.sampled_from([0.8, 0.95, 0.99])
)
def test_wilson_is_scipys(case: tuple[int, int], level: float) -> None:
    right, n = case
    mine = stats.wilson(right, n, level)
    theirs = sp.binomtest(right, n).proportion_ci(level, method="wilson")
    assert mine.low == pytest.approx(theirs.low, abs=1e-9)
    assert mine.high == pytest.approx(theirs.high, abs=1e-9)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_the_exact_binomial_test(lost: int, won: int) -> None:
    theirs = sp.binomtest(lost, lost + won, 0.5).pvalue if lost + won else 1.0
    assert stats.mcnemar(lost, won) == pytest.approx(theirs, rel=1e-9)


def test_mcnemar_by_counting_every_outcome() -> None:
    for n in range(1, 11):
        for lost in range(n + 1):
            far = abs(lost - Fraction(n, 2))
            hits = sum(abs(sum(flips) - Fraction(n, 2)) >= far for flips in product((0, 1), repeat=n))
            assert stats.mcnemar(lost, n - lost) == pytest.approx(hits / 2**n)


@settings(max_examples=200)
@given(st.lists(values, min_size=1, max_size=400), st.sampled_from([50, 90, 95, 99]))
def test_percentile_interval_holds_its_level(found: list[float], p: int) -> None:
    ordered = sorted(found)
    n = len(ordered)
    ranks = [float(i) for i in range(1, n + 1)]
    interval = stats.percentile_interval(ranks, p)
    if interval is None:
        # no pair of ranks could hold: the largest value alone lies above the percentile too rarely, or the smallest
        assert p / 100 < 1 - 0.025 ** (1 / n) + 1e-12 or sp.binom.cdf(n - 1, n, p / 100) < 0.975
        return
    low, high = (int(x) for x in interval)
    covered = sp.binom.cdf(high - 1, n, p / 100) - sp.binom.cdf(low - 1, n, p / 100)
    assert covered >= 0.95 - 1e-9
    assert sp.binom.cdf(low - 1, n, p / 100) <= 0.025 + 1e-9
    narrower = sp.binom.cdf(low, n, p / 100)
    assert narrower > 0.025 - 1e-9  # one rank further up would be too much
    assert ordered[low - 1] <= points.percentile(ordered, p) <= ordered[high - 1]


@given(st.lists(st.tuples(values, values), min_size=3, max_size=8), st.floats(-50, 50))
def test_detrended_is_least_squares_and_no_drift_moves_it(pairs: list[tuple[float, float]], drift: float) -> None:
    import numpy as np

    a = [(2.0 * i, x) for i, (x, _) in enumerate(pairs)]
    b = [(2.0 * i + 1, y) for i, (_, y) in enumerate(pairs)]
    mine = stats.detrended(a, b)
    design = np.array([[1.0, x, 1.0] for x, _ in a] + [[1.0, x, 0.0] for x, _ in b])
    target = np.array([y for _, y in a + b])
    solved, _rest, *_ = np.linalg.lstsq(design, target, rcond=None)
    scale = max(abs(target).max(), 1.0)
    assert mine.value == pytest.approx(solved[2], abs=1e-7 * scale)
    df = len(target) - 3
    error = math.sqrt(float(((target - design @ solved) ** 2).sum()) / df * np.linalg.inv(design.T @ design)[2, 2])
    assert mine.half == pytest.approx(sp.t.ppf(0.975, df) * error, rel=1e-5, abs=1e-6 * scale)
    shifted = stats.detrended([(x, y + drift * x) for x, y in a], [(x, y + drift * x) for x, y in b])
    assert shifted.value == pytest.approx(mine.value, abs=1e-6 * scale)


def test_one_launch_each_has_no_interval() -> None:
    with pytest.raises(ValueError, match="two launches"):
        stats.detrended([(0.0, 1.0)], [(1.0, 2.0)])


def test_widened_is_students_t_at_bonferronis_level() -> None:
    assert stats.widened(2.0, 4, 5) == pytest.approx(sp.t.ppf(1 - 0.005, 4) * 2.0 * math.sqrt(1.5))
    assert stats.widened(1.0, 10, 1, baselines=1) == pytest.approx(sp.t.ppf(0.975, 10) * math.sqrt(2))


def test_detectable_drop_without_flips_needs_six_lost_items() -> None:
    for n in (20, 60, 132):
        drop = stats.detectable_drop(n)
        assert drop is not None
        assert sp.binom.sf(5, n, drop) >= 0.8 > sp.binom.sf(5, n, drop - 1 / n)
    assert stats.detectable_drop(5) is None


def test_flips_between_equal_launches_make_a_drop_harder_to_see() -> None:
    assert stats.detectable_drop(60, 0.2) > stats.detectable_drop(60, 0.0)  # type: ignore[operator]


@pytest.mark.parametrize(("n", "lose", "win"), [(8, 0.5, 0.1), (20, 0.4, 0.05), (60, 0.2, 0.05), (60, 0.1, 0.1)])
def test_the_power_to_see_a_drop_by_counting_every_outcome(n: int, lose: float, win: float) -> None:
    seen = sum(
        sp.binom.pmf(lost, n, lose) * sp.binom.pmf(won, n, win)
        for lost, won in product(range(n + 1), repeat=2)
        if lost > won and sp.binomtest(lost, lost + won, 0.5).pvalue < 0.05
    )
    assert stats._power(n, lose, win) == pytest.approx(seen, abs=1e-6)


groups = st.lists(st.lists(st.floats(50.0, 200.0), min_size=1, max_size=6), min_size=1, max_size=6)


@given(groups)
def test_the_pooled_noise_is_the_within_group_deviation(found: list[list[float]]) -> None:
    """The residuals of a fit with one mean a group, as numpy solves it; bounds by scipy."""
    import numpy as np

    band = bands.noise(found)
    pairs = sum(len(group) - 1 for group in found)
    if pairs < bands.MIN_PAIRS:
        assert band is None
        return
    assert band is not None and band.pairs == pairs
    logs = np.log([x for group in found for x in group])
    design = np.zeros((len(logs), len(found)))
    design[np.arange(len(logs)), np.repeat(np.arange(len(found)), [len(group) for group in found])] = 1.0
    rest = logs - design @ np.linalg.lstsq(design, logs, rcond=None)[0]
    sd = 100.0 * math.sqrt(float(rest @ rest) / pairs)
    assert band.sd_percent == pytest.approx(sd, abs=1e-6)
    assert band.percent == pytest.approx(sp.t.ppf(0.975, pairs) * sd * math.sqrt(2), abs=1e-5)
    assert band.upper_percent == pytest.approx(sd * math.sqrt(pairs / sp.chi2.ppf(0.1, pairs)), abs=1e-5)


requests = st.lists(
    st.tuples(st.floats(0, 5), st.floats(0.001, 3), st.floats(0.001, 3), st.integers(0, 9), st.booleans()),
    min_size=1,
    max_size=40,
)


@given(requests, st.floats(1, 3000), st.floats(1, 900))
def test_goodput_by_counting_requests(
    found: list[tuple[float, float, float, int, bool]], ttft: float, tpot: float
) -> None:
    sent = [r[0] for r in found]
    first = [r[0] + r[1] for r in found]
    last = [r[0] + r[1] + r[2] for r in found]
    out = [r[3] for r in found]
    rows = ev.Requests(
        1.0, 1, 8.0, "closed", 4.0, sent, sent, first, last, [10] * len(found), out,
        ["abort" if r[4] else "length" for r in found],
    )  # fmt: skip
    slo = Slo("x", "goodput", {"ttft_p50_ms": ttft, "tpot_p50_ms": tpot})
    level = points.level_figures(rows, slo)
    answered = [k for k in range(len(found)) if out[k] and not found[k][4]]
    good = [
        k
        for k in answered
        if (first[k] - sent[k]) * 1000.0 <= ttft
        and (out[k] == 1 or (last[k] - first[k]) * 1000.0 / (out[k] - 1) <= tpot)
    ]
    assert (level.requests, level.unanswered) == (len(answered), len(found) - len(answered))
    assert level.goodput == len(good) / 4.0
    assert level.attained == len(good) / len(found)
    assert level.output_tok_s == sum(out[k] for k in answered) / 4.0


@given(st.lists(values, min_size=1, max_size=50), st.sampled_from([50, 90, 95, 99]))
def test_nearest_rank_percentile_by_counting(found: list[float], p: int) -> None:
    ordered = sorted(found)
    got = points.percentile(ordered, p)
    assert got in ordered
    assert sum(x <= got for x in ordered) >= p / 100 * len(ordered)
    assert sum(x < got for x in ordered) < p / 100 * len(ordered)


@pytest.mark.parametrize("n", range(3, 9))
def test_launches_have_the_power_that_is_claimed(n: int) -> None:
    df = 2 * n - 2
    t = sp.t.ppf(0.975, df)
    d = schedule.DETECT_PERCENT / schedule._LARGEST_SD[n] * math.sqrt(n / 2)
    assert sp.nct.sf(t, df, d) + sp.nct.cdf(-t, df, d) == pytest.approx(0.8, abs=2e-4)


@pytest.mark.parametrize("df", [1, 2, 3, 4, 6, 10, 11, 15, 30, 100])
def test_the_schedules_own_quantiles(df: int) -> None:
    assert schedule._t975(df) == pytest.approx(sp.t.ppf(0.975, df), rel=1e-3)
    exact = math.sqrt(df / sp.chi2.ppf(0.1, df))
    assert schedule.upper_factor(df) == pytest.approx(exact, rel=0.02)


def test_more_noise_asks_for_more_launches() -> None:
    def asked(sd: float) -> int:
        return schedule.launches_for({"percent": 3, "upper_percent": sd, "pairs": 4})

    assert [asked(sd) for sd in (0.5, 1.6, 2.0, 2.4, 2.7, 3.0, 3.3, 9.0)] == [3, 3, 4, 5, 6, 7, 8, 8]
    assert schedule.launches_for({"percent": 1.1, "pairs": 4}) == 3
    assert schedule.launches_for({"percent": 20.0, "pairs": 4}) == 8
