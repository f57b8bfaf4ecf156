"""The service-level objective: one goal, and the limits that no change may break."""

from __future__ import annotations

import re
from typing import Any, Literal

from msgspec import Struct

GoalName = Literal["throughput", "goodput", "ttft", "tpot", "itl", "e2e"]
GOALS: tuple[GoalName, ...] = ("throughput", "goodput", "ttft", "tpot", "itl", "e2e")
METRICS = ("ttft", "tpot", "itl", "e2e")
PERCENTILES = (50, 90, 95, 99)
_LIMIT = re.compile(r"^(ttft|tpot|itl|e2e)_p(50|90|95|99)_ms$")

# Requests that a percentile needs before it is shown: the smallest n for which the largest of n
# values lies above the true percentile with 95 % confidence, n = ln 0.05 / ln p
# (Wilks, "Determination of sample sizes for setting tolerance limits", 1941).
NEEDED = {50: 5, 90: 29, 95: 59, 99: 299}


class Limit(Struct, frozen=True):
    """One bound of the SLO: `metric` at `percentile` must not exceed `ms` milliseconds."""

    metric: str
    percentile: int
    ms: float

    @property
    def key(self) -> str:
        """The limit's name in a plan, such as `ttft_p95_ms`."""
        return f"{self.metric}_p{self.percentile}_ms"


class Slo(Struct, frozen=True):
    """What the person wants: a goal to improve and limits (milliseconds, by name) that must hold."""

    name: str = "custom"
    goal: GoalName = "throughput"
    limits: dict[str, float] = {}

    def bounds(self) -> list[Limit]:
        """The limits as records, in the order of metric and percentile."""
        found = []
        for key, ms in self.limits.items():
            match = _LIMIT.match(key)
            if match:
                found.append(Limit(match[1], int(match[2]), ms))
        return sorted(found, key=lambda b: (METRICS.index(b.metric), b.percentile))

    @property
    def goal_percentile(self) -> int:
        """The percentile by which a latency goal is judged: that of its own limit, else the median."""
        own = [b.percentile for b in self.bounds() if b.metric == self.goal]
        return own[-1] if own else 50

    @property
    def higher_is_better(self) -> bool:
        return self.goal in ("throughput", "goodput")

    def needed_requests(self) -> int:
        """Requests a load level must send so that every limit and the goal can be judged."""
        percentiles = [b.percentile for b in self.bounds()]
        if not self.higher_is_better:
            percentiles.append(self.goal_percentile)
        return max((NEEDED[p] for p in percentiles), default=1)


def limit_key_problem(key: str) -> str | None:
    """Why `key` is no limit of an SLO, or None if it is one."""
    if _LIMIT.match(key):
        return None
    return (
        f"'{key}' is no limit: write METRIC_pPERCENTILE_ms with METRIC one of {', '.join(METRICS)} "
        f"and PERCENTILE one of {', '.join(map(str, PERCENTILES))}, for example ttft_p95_ms"
    )


def slo_from_flat(flat: dict[str, Any]) -> Slo:
    """An SLO from a plan's flat table, where limits stand beside `name` and `goal`.

    Raises ValueError with a sentence that names the field.
    """
    limits: dict[str, float] = {}
    for key, value in flat.items():
        if key in ("name", "goal"):
            continue
        problem = limit_key_problem(key)
        if problem:
            raise ValueError(f"slo: {problem}")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
            raise ValueError(f"slo.{key} is {value!r}: it must be a number of milliseconds above 0")
        limits[key] = float(value)
    name = flat.get("name", "custom")
    if not isinstance(name, str):
        raise ValueError(f'slo.name is {name!r}: it must be a text, for example "chat"')
    goal = flat.get("goal", "throughput")
    if goal not in GOALS:
        raise ValueError(f"slo.goal is {goal!r}: it must be one of {', '.join(GOALS)}")
    return Slo(name=name, goal=goal, limits=limits)


# Starting points, each with where its limits come from; a person changes them at once.
PRESETS: dict[str, tuple[Slo, str]] = {
    "chat": (
        Slo("chat", "throughput", {"ttft_p95_ms": 1000.0, "tpot_p95_ms": 50.0}),
        "a reader's pace: text appears within a second and faster than it can be read (about 20 tokens a second)",
    ),
    "interactive": (
        Slo("interactive", "ttft", {"ttft_p95_ms": 450.0, "tpot_p95_ms": 40.0}),
        "the order of MLPerf Inference's interactive Llama-2-70B limits (TTFT 450 ms, TPOT 40 ms, there at p99)",
    ),
    "code": (
        Slo("code", "tpot", {"ttft_p95_ms": 500.0, "tpot_p95_ms": 30.0}),
        "completions beside a cursor: the first token and every next one must feel immediate",
    ),
    "rag": (
        Slo("rag", "ttft", {"ttft_p95_ms": 2000.0, "tpot_p95_ms": 100.0}),
        "long prompts, mostly prefill; MLPerf Inference's server limits for Llama-2-70B are 2 s and 200 ms",
    ),
    "offline": (Slo("offline", "throughput", {}), "a batch job: tokens per second, nobody waits for the first one"),
}
