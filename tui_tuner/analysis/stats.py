"""The statistics of the verdict. Rates and accuracies are 0..1; scipy is loaded by the functions that need it.

Sources: Wilson (1927) for a proportion; McNemar (1947) in its exact binomial form for paired answers; David and
Nagaraja, "Order Statistics" (2003), section 7.1 for percentiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist, fmean

from msgspec import Struct

LEVEL = 0.95
POWER = 0.8


class Interval(Struct, frozen=True):
    """An estimate with the bounds of its confidence interval, and the degrees of freedom where it has any."""

    value: float
    low: float
    high: float
    df: float | None = None

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2.0


def wilson(right: float, n: int, level: float = LEVEL) -> Interval:
    """The score interval of a proportion. Raises ValueError if `n` is below 1."""
    if n < 1:
        raise ValueError("a proportion needs at least one item")
    z = NormalDist().inv_cdf(0.5 + level / 2)
    p = right / n
    scale = 1 + z * z / n
    middle = (p + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return Interval(p, max(middle - half, 0.0) if right > 0 else 0.0, min(middle + half, 1.0) if right < n else 1.0)


@lru_cache(maxsize=65536)
def mcnemar(lost: int, won: int) -> float:
    """The exact two-sided p-value that so many items were lost and won if both were equally likely."""
    n = lost + won
    if n == 0:
        return 1.0
    tail = sum(math.comb(n, i) for i in range(min(lost, won) + 1)) / 2**n
    return float(min(1.0, 2 * tail))


def percentile_interval(ordered: Sequence[float], p: float, level: float = LEVEL) -> tuple[float, float] | None:
    """The interval of the p-th percentile (0..100) from order statistics of sorted values, free of any distribution.

    The ranks l < u are those with P(l <= Bin(n, p) < u) of at least `level`, at most half of the rest in each tail;
    None where n is too small for such ranks to exist.
    """
    n = len(ordered)
    if n < 1:
        return None
    tail = (1 - level) / 2
    cdf = 0.0
    low = high = None
    for k, weight in enumerate(_binomial(n, p / 100.0)):
        if cdf + weight > tail and low is None:
            low = k  # P(Bin < k) <= tail, so the true percentile is at or above the k-th value
        cdf += weight
        if cdf >= 1 - tail and high is None:
            high = k + 1
    if low is None or high is None or low < 1 or high > n:
        return None
    return ordered[low - 1], ordered[high - 1]


def _binomial(n: int, p: float) -> list[float]:
    """The probabilities of 0 .. n successes."""
    if p <= 0 or p >= 1:
        return [float(k == (n if p >= 1 else 0)) for k in range(n + 1)]
    log = [math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in range(n + 1)]
    return [math.exp(c + k * math.log(p) + (n - k) * math.log1p(-p)) for k, c in enumerate(log)]


@lru_cache(maxsize=4096)
def t_quantile(p: float, df: float) -> float:
    """Student's t below which a share `p` lies."""
    from scipy import stats

    return float(stats.t.ppf(p, df))


@lru_cache(maxsize=1024)
def chi2_quantile(p: float, df: float) -> float:
    """The chi-square value below which a share `p` lies."""
    from scipy import stats

    return float(stats.chi2.ppf(p, df))


def detrended(a: Sequence[tuple[float, float]], b: Sequence[tuple[float, float]], level: float = LEVEL) -> Interval:
    """The difference of means a − b of launches in turn, freed of an even drift; each launch is (place, value).

    Least squares for value = m + drift · place + difference · [is a], with Student's interval of the difference at
    n − 3 degrees of freedom. In strict alternation one side always comes later, so that a drift looks like a
    difference; this takes it out. Raises ValueError below two launches of each.
    """
    if len(a) < 2 or len(b) < 2:
        raise ValueError("an interval between launches needs at least two launches of each")
    rows = [(x, 1.0, y) for x, y in a] + [(x, 0.0, y) for x, y in b]
    n = len(rows)
    mx, mg, my = (fmean(row[i] for row in rows) for i in range(3))
    xx = math.fsum((x - mx) ** 2 for x, _, _ in rows)
    gg = math.fsum((g - mg) ** 2 for _, g, _ in rows)
    xg = math.fsum((x - mx) * (g - mg) for x, g, _ in rows)
    xy = math.fsum((x - mx) * (y - my) for x, _, y in rows)
    gy = math.fsum((g - mg) * (y - my) for _, g, y in rows)
    det = xx * gg - xg * xg
    if det <= 1e-12 * max(xx * gg, 1e-300):
        raise ValueError("the launches do not alternate, so a drift cannot be told from a difference")
    diff, drift = (xx * gy - xg * xy) / det, (gg * xy - xg * gy) / det
    rest = math.fsum((y - my - drift * (x - mx) - diff * (g - mg)) ** 2 for x, g, y in rows)
    df = n - 3
    half = t_quantile(0.5 + level / 2, df) * math.sqrt(rest / df * xx / det)
    return Interval(diff, diff - half, diff + half, float(df))


def widened(sd: float, df: float, values: int, baselines: int = 2) -> float:
    """The noise of the best of `values` values against the mean of `baselines` baselines, one launch each.

    Student's t at 1 − 0.025/values (Bonferroni) times sd · sqrt(1 + 1/baselines): sqrt(1.5) for a baseline that was
    measured first and last. In the unit of `sd`.
    """
    return t_quantile(1 - 0.025 / max(values, 1), df) * sd * math.sqrt(1 + 1 / max(baselines, 1))


@lru_cache(maxsize=512)
def detectable_drop(n: int, flips: float = 0.0, power: float = POWER) -> float | None:
    """The smallest drop in accuracy (0..1) that exact McNemar at 5 % would have found with `power` among `n` items.

    `flips` is the share of items that change between two equal launches, half of them each way; the drop comes on
    top of the lost ones. Lost and won items are counted as independent binomials. None: no drop could be seen.
    """
    for step in range(1, n + 1):
        if _power(n, min(flips / 2 + step / n, 1.0), flips / 2) >= power:
            return step / n
    return None


def _power(n: int, lose: float, win: float) -> float:
    """The chance that exact McNemar finds more lost than won at 5 %."""
    losses, wins = _binomial(n, lose), _binomial(n, win)
    above = [0.0] * (n + 2)  # P(lost >= k)
    for k in range(n, -1, -1):
        above[k] = above[k + 1] + losses[k]
    total = 0.0
    for won, weight in enumerate(wins):
        if weight < 1e-9:
            continue
        needed = next((k for k in range(won + 1, n + 1) if mcnemar(k, won) < 0.05), None)
        if needed is None:
            break
        total += weight * above[needed]
    return total
