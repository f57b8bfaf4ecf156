"""Keep, revert, or no clear difference: what a session's points allow to be said, and how firmly.

How far a verdict may go depends on what is known of the noise (`strength`):

indicative  a gain counts beyond the largest of 5 %, twice the drift, and the band
measured    beyond the largest of 3 %, twice the drift, and the band widened for the number of values tried
            (Student's t at 0.025/K, times √1.5); needs a band and the baseline first and last
tested      finalist and baseline launched afresh, alternating: the 95 % interval of their difference excludes zero,
            and the difference is more than 2 % and more than the drift

Where a speed pass took less than 2 s, no verdict is more than indicative, whatever else is known.

The drift is how far the last baseline lies from the first. Percentages are of the baseline; a gain is positive when
the figure got better, whichever way it runs.
"""

from __future__ import annotations

import math
from statistics import fmean, median
from typing import Any, Literal

import msgspec
from msgspec import Struct

from tui_tuner.analysis import bands, points, quality, stats, words
from tui_tuner.model import events as ev
from tui_tuner.model import knobs
from tui_tuner.model.session import Point, Session
from tui_tuner.model.values import Value, same

Strength = Literal["indicative", "measured", "tested"]
QUICK_FLOOR, STANDARD_FLOOR, TESTED_FLOOR = 5.0, 3.0, 2.0
HEAT_C = 15.0  # a mean temperature this far from the baseline's is worth a warning

# What a knob may do to the answers, where the catalogue does not say.
_TOUCHES: dict[str, str] = {"quantization": "measure", "kv_cache_dtype": "measure", "dtype": "measure"}


class LevelVerdict(Struct, frozen=True):
    """One value at one load level, against the baseline at that level."""

    level: float
    value: Value
    n: int
    figure: str
    here: float | None
    base: float | None
    gain_percent: float | None
    choice: ev.Choice
    broken: tuple[str, ...] = ()


class ValueVerdict(Struct, frozen=True):
    """One value against the baseline of its segment.

    broken    limits of the SLO that hold at the baseline and not here
    problems  why the point cannot win, as sentences; empty for a valid one
    interval  of the gain, percent; only where the value was launched several times
    """

    n: int
    value: Value
    choice: ev.Choice
    why: str
    figure: str
    here: float | None = None
    base: float | None = None
    gain_percent: float | None = None
    threshold_percent: float | None = None
    strength: Strength = "indicative"
    interval: tuple[float, float] | None = None
    broken: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    quality: quality.Comparison | None = None
    alarm: str | None = None
    launches: int = 1


class Verdict(Struct, frozen=True):
    """What the session says. `value` is what to go on with: the kept one, else the baseline's.

    smallest_difference  percent of the figure; smaller ones could not have been told
    drift_percent        None where the baseline was launched once
    yardstick            the share of scored items that flipped between two launches of the baseline
    """

    choice: ev.Choice
    value: Value
    why: str
    strength: Strength
    smallest_difference: float | None
    figure: str
    per_value: tuple[ValueVerdict, ...] = ()
    per_level: tuple[LevelVerdict, ...] = ()
    quality: quality.Comparison | None = None
    warnings: tuple[str, ...] = ()
    drift_percent: float | None = None
    band: bands.Noise | None = None
    yardstick: float | None = None

    def of(self, value: Value) -> ValueVerdict | None:
        """The verdict on one value."""
        return next((v for v in self.per_value if same(v.value, value)), None)

    def as_dict(self) -> dict[str, Any]:
        """As JSON values, without the texts of the answers."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        for part in [found, *found["per_value"]]:
            if part.get("quality"):
                part["quality"]["flips"] = [flip["item"] for flip in part["quality"]["flips"]]
        return found


def judge(session: Session) -> Verdict:
    """The verdict on what has been measured so far. Never raises for a session that could be read."""
    return _Judge(session).verdict()


class _Judge:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.start = session.start
        self.plan = session.start.plan
        self.slo = session.start.plan.slo
        self.knob = session.start.plan.knob.name
        self.warnings: list[str] = []
        self.band_event = session.bands[0] if session.bands else None
        # the finalist's rounds begin here; the baselines before it are those around the values
        self.rounds_from = min((p.began for p in session.points if p.role == "finalist"), default=math.inf)
        self.values = [p for p in session.points if p.role == "value"]
        self.tried = sum(points.measured(p) for p in self.values)
        self._figures: dict[int, points.Figures] = {}

    # ---- the whole ----------------------------------------------------------------------------------------------

    def verdict(self) -> Verdict:
        opening = points.baselines(self.session)
        if not opening:
            failed = next((p for p in self.session.points if p.role == "baseline" and p.failed), None)
            why = f"the baseline could not be measured: {failed.say}" if failed else "the baseline is not measured yet"
            return self._nothing(why)
        if self.start.kind == "noise":
            return self._nothing("a noise run compares the baseline with itself: there is nothing to keep or revert")
        first = opening[0]
        for text in points.problems(first, first, self.session):
            self._warn(f"the baseline: {text}")
        judged = [self._value(p) for p in self.values if p.status is not None]
        if not judged:
            return self._nothing("no value is measured yet")
        judged = self._tested(judged)
        what = self._target(first)
        keeps = [v for v in judged if v.choice == "keep" and v.gain_percent is not None]
        tested = [v for v in judged if v.interval is not None]
        winner = max(tested or keeps, key=lambda v: v.gain_percent or 0.0, default=None)
        if winner is not None and winner.choice == "keep":
            choice: ev.Choice = "keep"
            value, shown = winner.value, winner
        else:
            choice = "revert" if all(v.choice == "revert" for v in judged) else "no clear difference"
            value = self.start.baseline
            known = [v for v in judged if v.gain_percent is not None and not v.problems]
            shown = tested[0] if tested else max(known, key=lambda v: v.gain_percent or 0.0, default=judged[0])
            if choice != "revert" and shown.choice == "revert" and not tested:
                shown = next((v for v in judged if v.choice != "revert"), shown)
        strength = shown.strength
        smallest = shown.threshold_percent
        if smallest is None:
            smallest = next((v.threshold_percent for v in judged if v.threshold_percent is not None), None)
        self._general_warnings(judged)
        if choice == "keep" and strength == "indicative" and self.tried > 2:
            self._warn(
                f"the best of {self.tried} values, each launched once: the luckiest can look like a gain; standard, "
                "with a noise band, allows for that, and decide launches it again"
            )
        return Verdict(
            choice=choice,
            value=value,
            why=self._sentence(choice, shown, strength, smallest),
            strength=strength,
            smallest_difference=smallest,
            figure=what,
            per_value=tuple(judged),
            per_level=self._levels(),
            quality=shown.quality,
            warnings=tuple(dict.fromkeys(self.warnings)),
            drift_percent=self._drift(first.segment, what),
            band=self._noise(what),
            yardstick=yard.flip_share if (yard := self._yardstick(first)) is not None and yard.scored else None,
        )

    def _nothing(self, why: str) -> Verdict:
        return Verdict(
            "no clear difference",
            self.start.baseline,
            why,
            "indicative",
            None,
            self.slo.goal,
            warnings=tuple(self.warnings),
            band=self._noise(self.slo.goal),
        )

    # ---- baselines, drift and noise -----------------------------------------------------------------------------

    def figures(self, point: Point) -> points.Figures:
        if point.n not in self._figures:
            self._figures[point.n] = points.figures(point, self.plan)
        return self._figures[point.n]

    def _bases(self, segment: int) -> list[Point]:
        """The baselines around a segment's values: first and last, not those of the finalist's rounds."""
        return [p for p in points.baselines(self.session, segment) if p.began < self.rounds_from]

    def _base(self, segment: int) -> Point | None:
        own = self._bases(segment)
        return next((p for p in own if p.role == "baseline"), own[0] if own else None)

    def _target(self, base: Point) -> str:
        return points.target(self.figures(base), self.slo)

    def _base_values(self, segment: int, what: str) -> list[float]:
        found = [points.figure(self.figures(p), what, self.slo) for p in self._bases(segment)]
        return [x for x in found if x is not None]

    def _drift(self, segment: int, what: str) -> float | None:
        """How far the last baseline lies from the first, in percent; across an interruption where that is all there
        is, which can only make it larger."""
        values = self._base_values(segment, what)
        if len(values) < 2:
            every = [p for p in points.baselines(self.session) if p.began < self.rounds_from]
            values = [x for p in every if (x := points.figure(self.figures(p), what, self.slo)) is not None]
        if len(values) < 2 or values[0] <= 0:
            return None
        return abs(values[-1] - values[0]) / fmean((values[0], values[-1])) * 100.0

    def _noise(self, what: str) -> bands.Noise | None:
        return bands.of(self.start.band, what, self.slo.goal)

    def _threshold(self, point: Point, what: str) -> tuple[float, Strength]:
        """What the point's gain must exceed, in percent, and how firm a verdict then is."""
        segment = point.segment
        twice = 2.0 * (self._drift(segment, what) or 0.0)
        noise = self._noise(what)
        count = len(self._base_values(segment, what))
        short = any(points.too_short(p) for p in (point, *self._bases(segment)))
        if self.plan.thoroughness != "quick" and noise is not None and count >= 2 and not short:
            band = stats.widened(noise.sd_percent, noise.pairs, self.tried)
            return max(STANDARD_FLOOR, twice, band), "measured"
        return max(QUICK_FLOOR, twice, noise.percent if noise else 0.0), "indicative"

    # ---- one value ----------------------------------------------------------------------------------------------

    def _value(self, point: Point) -> ValueVerdict:
        base = self._base(point.segment)
        name = words.called(self.knob, point.value)
        if not points.measured(point):
            choice: ev.Choice = "no clear difference" if point.status in ("aborted", "env_error") else "revert"
            why = point.say or f"it ended with {point.status}"
            return ValueVerdict(point.n, point.value, choice, f"{name}: {why}", self.slo.goal, problems=(why,))
        if base is None:
            why = "there is no baseline in its part of the sweep"
            return ValueVerdict(point.n, point.value, "no clear difference", f"{name}: {why}", self.slo.goal,
                                problems=(why,))  # fmt: skip
        what = self._target(base)
        up = points.rises(what, self.slo)
        here = points.figure(self.figures(point), what, self.slo)
        reference = self._base_values(point.segment, what)
        mean = fmean(reference) if reference else None
        better = points.gain(here, mean, up)
        threshold, strength = self._threshold(point, what)
        invalid = points.problems(point, base, self.session)
        invalid += [f"the baseline: {text}" for text in points.problems(base, base, self.session)]
        compared = self._quality(point, base)
        alarm = self._alarm(compared)
        if alarm:
            invalid.append(alarm)
        if compared is not None and compared.unlike:
            invalid.append(compared.unlike)
        unknown = self._unknown_quality(compared, self._yardstick(base) is not None)
        if unknown and better is not None and better > threshold:
            invalid.append(unknown)
        broken = self._broken(base, point, what, threshold)
        choice = _choose(better, threshold, broken, compared, invalid)
        return ValueVerdict(
            n=point.n,
            value=point.value,
            choice=choice,
            why=self._reason(name, choice, what, here, mean, better, threshold, broken, compared, invalid),
            figure=what,
            here=here,
            base=mean,
            gain_percent=better,
            threshold_percent=threshold,
            strength=strength,
            broken=tuple(broken),
            problems=tuple(invalid),
            quality=compared,
            alarm=alarm,
        )

    def _quality(self, point: Point, base: Point) -> quality.Comparison | None:
        if self.start.dummy_weights:
            return None
        again = next((p for p in self._bases(point.segment) if p.role == "baseline_again" and p.answers), None)
        return quality.compare(base.answers, point.answers, again.answers if again and again.n != point.n else None)

    def _yardstick(self, base: Point) -> quality.Comparison | None:
        """The baseline against its own repetition: what changes although nothing did."""
        if self.start.dummy_weights:
            return None
        again = next((p for p in self._bases(base.segment) if p.n != base.n and p.answers is not None), None)
        return quality.compare(base.answers, again.answers) if again is not None else None

    def _touches(self) -> str:
        """measure, check or untouched: what the catalogue says that the knob may do to the answers."""
        catalogue: Any = getattr(knobs, "CATALOGUE", {})
        entries = catalogue.values() if isinstance(catalogue, dict) else catalogue
        entry = next((k for k in entries if k.name == self.knob), None)
        return str(entry.quality) if entry is not None else _TOUCHES.get(self.knob, "untouched")

    def _must_measure_quality(self) -> bool:
        return self._touches() == "measure" and not self.start.dummy_weights and self.knob != "max_model_len"

    def _unknown_quality(self, compared: quality.Comparison | None, twice: bool) -> str | None:
        """Why nothing is known of the answers where something must be; None where it is, or need not be. `twice` tells
        whether the baseline was asked twice: without that, nobody knows how many of its own texts it repeats."""
        if not self._must_measure_quality():
            return None
        if compared is None or not (compared.scored or compared.agreement):
            return f"{self.knob} can change the answers, and their quality was not measured"
        if compared.agreement and not twice and compared.identical < 1:
            return (
                f"{self.knob} can change the answers, {compared.identical:.0%} of them read as the baseline's, and the "
                "baseline was asked only once: standard asks it twice"
            )
        return None

    def _alarm(self, compared: quality.Comparison | None) -> str | None:
        if compared is None or self._touches() != "untouched" or not (compared.fell or compared.rose):
            return None
        return (
            f"quality moved ({compared.lost} items lost, {compared.won} won) on a knob that cannot touch it: "
            "something else changed"
        )

    def _broken(self, base: Point, point: Point, what: str, threshold: float) -> list[str]:
        """Limits that hold at the baseline and not here; and, where the baseline misses the SLO, other limits that
        it misses and that got clearly worse."""
        bounds = {b.key: b.ms for b in self.slo.bounds()}
        before, after = self.figures(base).best, self.figures(point).best
        if before is None or after is None:
            return []
        found = []
        for key, ms in bounds.items():
            a, b = before.limits.get(key), after.limits.get(key)
            if a is None or b is None or b <= ms:
                continue
            if a <= ms or (key != what and b > a * (1 + threshold / 100.0)):
                found.append(key)
        return found

    # ---- the finalist's rounds ----------------------------------------------------------------------------------

    def _tested(self, judged: list[ValueVerdict]) -> list[ValueVerdict]:
        """Replaces the finalist's verdict by that of its fresh launches, once there are at least three valid ones of
        each side."""
        event = self.band_event
        if event is None:
            return judged
        index = next((i for i, v in enumerate(judged) if same(v.value, event.finalist)), None)
        if index is None:
            return judged
        before = judged[index]
        what = before.figure
        fresh = [p for p in self.session.points if p.began >= self.rounds_from and points.measured(p)]
        mine = [p for p in fresh if p.role == "finalist"]
        theirs = [p for p in fresh if p.role == "baseline_again"]
        opening = self._base(0) or (theirs[0] if theirs else None)
        if opening is None:
            return judged
        mine = [p for p in mine if not self._invalid_launch(p, theirs[0] if theirs else opening)]
        theirs = [p for p in theirs if not self._invalid_launch(p, opening)]
        launched = [p for p in self.session.points if p.began >= self.rounds_from and _came_to_an_end(p)]
        over = self.session.ended is not None or len(launched) >= 2 * event.launches
        spoiled = [p for p in launched if p not in mine and p not in theirs]
        if min(len(mine), len(theirs)) < 3 or len(mine) + len(theirs) < 2 * event.launches - 2:
            if over and spoiled:
                why = f"{len(spoiled)} of {len(launched)} fresh launches cannot be used: {self._spoiled(spoiled[0])}"
                return [*judged[:index], self._cannot_win(before, why), *judged[index + 1 :]]
            if over:
                self._warn("too few fresh launches were measured: the verdict stays at the single launches")
            return judged
        order = {p.n: float(i) for i, p in enumerate(sorted(fresh, key=lambda p: p.began))}
        turns, baseline_turns = self._logs(mine, what, order), self._logs(theirs, what, order)
        a, b = [y for _, y in turns], [y for _, y in baseline_turns]
        if min(len(a), len(b)) < 3:
            return judged
        up = points.rises(what, self.slo)
        difference = stats.detrended(turns, baseline_turns) if up else stats.detrended(baseline_turns, turns)
        low, middle, high = (_as_percent(x, up) for x in (difference.low, difference.value, difference.high))
        drift = self._round_drift(b)
        half = max(middle - low, high - middle)
        short = any(points.too_short(p) for p in (*mine, *theirs))
        threshold = max(QUICK_FLOOR if short else TESTED_FLOOR, drift, half)
        broken = self._newly_broken_by_median(theirs, mine, what, threshold)
        compared = self._middle_quality(mine, theirs, before.quality)
        alarm = self._alarm(compared)
        invalid = [alarm] if alarm else []
        failed = [p for p in spoiled if p.role == "finalist" and p.failed is not None]
        if failed:
            invalid.append(f"{len(failed)} of its {event.launches} fresh launches failed: {failed[0].say}")
        if compared is not None and compared.unlike:
            invalid.append(compared.unlike)
        if middle > 0 and (unknown := self._unknown_quality(compared, len(theirs) > 1)):
            invalid.append(unknown)
        choice = _choose(middle, threshold, broken, compared, invalid)
        here = math.exp(fmean(a))
        base = math.exp(fmean(b))
        result = ValueVerdict(
            n=before.n,
            value=before.value,
            choice=choice,
            why=self._reason(
                words.called(self.knob, before.value),
                choice,
                what,
                here,
                base,
                middle,
                threshold,
                broken,
                compared,
                invalid,
            ),
            figure=what,
            here=here,
            base=base,
            gain_percent=middle,
            threshold_percent=threshold,
            strength="indicative" if short else "tested",
            interval=(low, high),
            broken=tuple(broken),
            problems=tuple(invalid),
            quality=compared,
            alarm=alarm,
            launches=len(mine),
        )
        return [*judged[:index], result, *judged[index + 1 :]]

    def _spoiled(self, point: Point) -> str:
        """Why a launch of the rounds does not count."""
        problems = points.problems(point, self._base(0), self.session)
        return f"{words.called(self.knob, point.value)}: {problems[0]}" if problems else "its work was another"

    def _cannot_win(self, verdict: ValueVerdict, why: str) -> ValueVerdict:
        name = words.called(self.knob, verdict.value)
        moved = self._moved(verdict.figure, verdict.here, verdict.base, verdict.gain_percent)
        choice: ev.Choice = verdict.choice if verdict.choice == "revert" else "no clear difference"
        return msgspec.structs.replace(
            verdict,
            choice=choice,
            why=f"{name}: {moved}, cannot win: {why}: {choice}",
            problems=(*verdict.problems, why),
        )

    def _invalid_launch(self, point: Point, base: Point) -> bool:
        return bool(points.problems(point, base, self.session))

    def _logs(self, launches: list[Point], what: str, order: dict[int, float]) -> list[tuple[float, float]]:
        """Each launch's place in the rounds and the logarithm of its figure."""
        found = [
            (order[p.n], points.figure(self.figures(p), what, self.slo))
            for p in sorted(launches, key=lambda p: p.began)
        ]
        return [(place, math.log(x)) for place, x in found if x is not None and x > 0]

    @staticmethod
    def _round_drift(logs: list[float]) -> float:
        """The drift over the rounds, in percent: the last baseline against the first, by the means of their halves."""
        half = len(logs) // 2
        return abs(math.expm1(fmean(logs[-half:]) - fmean(logs[:half]))) * 100.0 if half else 0.0

    def _newly_broken_by_median(self, theirs: list[Point], mine: list[Point], what: str, threshold: float) -> list[str]:
        found = []
        for bound in self.slo.bounds():
            a = [x for p in theirs if (x := points.figure(self.figures(p), bound.key, self.slo)) is not None]
            b = [x for p in mine if (x := points.figure(self.figures(p), bound.key, self.slo)) is not None]
            if not a or not b or median(b) <= bound.ms:
                continue
            if median(a) <= bound.ms or (bound.key != what and median(b) > median(a) * (1 + threshold / 100.0)):
                found.append(bound.key)
        return found

    def _middle_quality(
        self, mine: list[Point], theirs: list[Point], before: quality.Comparison | None
    ) -> quality.Comparison | None:
        """The finalist's quality by the launch in the middle: launches in order of items lost less items won."""
        if self.start.dummy_weights:
            return None
        again = theirs[1].answers if len(theirs) > 1 else None
        found = [c for p in mine if (c := quality.compare(theirs[0].answers, p.answers, again)) is not None]
        found = [*found, *([before] if before is not None else [])]
        return sorted(found, key=lambda c: c.lost - c.won)[len(found) // 2] if found else None

    # ---- per level ----------------------------------------------------------------------------------------------

    def _levels(self) -> tuple[LevelVerdict, ...]:
        found = []
        for point in self.values:
            base = self._base(point.segment)
            if base is None or not points.measured(point):
                continue
            valid = not points.problems(point, base, self.session)
            threshold, _ = self._threshold(point, self._target(base))
            for here in self.figures(point).levels:
                before = self.figures(base).level(here.level)
                if before is None:
                    continue
                own = [
                    points.goal_figure(twin, self.slo)
                    for p in self._bases(point.segment)
                    if (twin := self.figures(p).level(here.level)) is not None
                ]
                known = [x for x in own if x is not None]
                mean = fmean(known) if known else None
                value = points.goal_figure(here, self.slo)
                better = points.gain(value, mean, self.slo.higher_is_better)
                broken = [
                    b.key
                    for b in self.slo.bounds()
                    if (x := here.limits.get(b.key)) is not None
                    and (y := before.limits.get(b.key)) is not None
                    and x > b.ms >= y
                ]
                choice = _choose(better, threshold, broken, None, [] if valid else ["invalid"])
                found.append(
                    LevelVerdict(
                        here.level, point.value, point.n, self.slo.goal, value, mean, better, choice, tuple(broken)
                    )
                )
        return tuple(found)

    # ---- words --------------------------------------------------------------------------------------------------

    def _warn(self, text: str) -> None:
        self.warnings.append(text)

    def _shown(self) -> list[Point]:
        return [p for p in self.session.points if p.levels and points.measured(p)]

    def _general_warnings(self, judged: list[ValueVerdict]) -> None:
        for v in judged:
            for problem in v.problems:
                if not problem.startswith("the baseline:"):
                    self._warn(f"{words.called(self.knob, v.value)}: {problem}")
        brief = points.brevity(min(self._shown(), key=_shortest))
        if brief:
            self._warn(brief)
        cold = [p for p in self._shown() if points.unsteady(p)]
        if cold:
            self._warn(f"{_these(cold, self._shown())}: {points.unsteady(cold[0])}")
        segments = {p.segment for p in self.values if points.measured(p)}
        if len(segments) > 1:
            self._warn("the sweep was interrupted: values are compared with the baseline of their own part only")
        if self.plan.thoroughness != "quick" and self._noise(self.slo.goal) is None:
            self._warn("no noise band is known here: the verdict stays indicative; `tui-tuner noise PLAN` measures one")
        for bound in self.slo.bounds():
            for base in points.baselines(self.session)[:1]:
                best = self.figures(base).best
                if best is not None and best.limits.get(bound.key) is None:
                    self._warn(
                        f"{bound.key} was not judged: {best.requests} requests are too few for p{bound.percentile}"
                    )
        self._heat()
        yard = self._yardstick(points.baselines(self.session)[0])
        for v in judged:
            c = v.quality
            if c is not None and c.agreement and yard is None and c.identical < 1:
                self._warn(
                    f"{words.called(self.knob, v.value)}: {c.identical:.0%} of the answers read as the baseline's; how "
                    "many would at another launch of it is not known, for it was asked once: standard asks twice"
                )
            if c is not None and yard is not None and c.identical < yard.identical / 2 and not c.fell and c.items >= 10:
                self._warn(
                    f"{words.called(self.knob, v.value)}: {c.identical:.0%} of the answers read as the baseline's, "
                    f"between two baselines {yard.identical:.0%}"
                )

    def _heat(self) -> None:
        def mean(point: Point) -> float | None:
            temps = [x.temp_c for x in self.figures(point).levels if x.temp_c is not None]
            return fmean(temps) if temps else None

        for point in self.values:
            base = self._base(point.segment)
            if base is None or not points.measured(point):
                continue
            a, b = mean(base), mean(point)
            if a is not None and b is not None and abs(a - b) > HEAT_C:
                self._warn(
                    f"{words.called(self.knob, point.value)}: {b:.0f} °C, the baseline {a:.0f} °C: heat moves clocks"
                )

    def _limits_said(self, value: Value, broken: tuple[str, ...]) -> list[str]:
        """ "TTFT p95 still inside 5 s" for the tightest limit, or what is broken."""
        point = points.value_point(self.session, value)
        best = self.figures(point).best if point is not None else None
        bounds = {b.key: b for b in self.slo.bounds()}
        if best is None or not bounds:
            return []
        if broken:
            return [
                f"{words.figure_name(k, self.slo)} {words.duration(best.limits[k])} breaks its limit "
                f"of {words.limit(bounds[k].ms)}"
                for k in broken
            ]
        judged = {k: v / bounds[k].ms for k, v in best.limits.items() if v is not None and v <= bounds[k].ms}
        if len(judged) < len(bounds) or not judged:
            return []
        tight = max(judged, key=lambda k: judged[k])
        return [f"{words.figure_name(tight, self.slo)} still inside {words.limit(bounds[tight].ms)}"]

    def _quality_said(self, compared: quality.Comparison | None) -> str | None:
        if self.start.dummy_weights:
            return "dummy weights, so nothing is said of quality"
        if compared is None:
            return "quality not measured"
        if compared.agreement:
            return f"{compared.identical:.0%} of the answers read as at the baseline"
        if compared.fell:
            return f"accuracy fell: {compared.lost} items lost, {compared.won} won"
        if compared.could_see is None:
            return f"no accuracy drop seen ({compared.scored} items can see none)"
        return f"no accuracy drop seen (could see {compared.could_see * 100:.0f} points)"

    def _moved(self, what: str, here: float | None, base: float | None, better: float | None) -> str:
        name = words.figure_name(what, self.slo)
        if here is None or base is None or better is None:
            return f"{name} could not be compared"
        if what in self.slo.limits:
            bound = self.slo.limits[what]
            place = "inside its limit now" if here <= bound else ("closer, not there" if here < base else "further off")
            return f"{place}: {name} {words.span(base, here)}, limit {words.limit(bound)}"
        if points.rises(what, self.slo):
            return f"{words.percent(better)} {name}"
        return f"{name} {words.percent(-better)}"

    def _reason(
        self,
        name: str,
        choice: ev.Choice,
        what: str,
        here: float | None,
        base: float | None,
        better: float | None,
        threshold: float,
        broken: list[str],
        compared: quality.Comparison | None,
        invalid: list[str],
    ) -> str:
        parts = [self._moved(what, here, base, better)]
        if broken:
            parts.append("breaks " + ", ".join(words.figure_name(k, self.slo) for k in broken))
        if compared is not None and compared.fell:
            what_fell = "agreement with the baseline's answers" if compared.agreement else "accuracy"
            parts.append(f"{what_fell} fell ({compared.lost} items lost, {compared.won} won)")
        if invalid:
            parts.append("cannot win: " + "; ".join(invalid))
        elif choice == "no clear difference" and better is not None:
            parts.append(f"{threshold:.1f} % would be a difference")
        return f"{name}: {', '.join(parts)}: {choice}"

    def _sentence(self, choice: ev.Choice, v: ValueVerdict, strength: Strength, smallest: float | None) -> str:
        name = words.called(self.knob, v.value)
        moved = self._moved(v.figure, v.here, v.base, v.gain_percent)
        told = f"differences below {smallest:.1f} % could not be told" if smallest is not None else None
        if choice == "keep":
            said = [moved, *self._limits_said(v.value, ()), self._quality_said(v.quality) or ""]
            return f"{name}: {', '.join(s for s in said if s)}: keep, {strength}"
        back = f"stay with {words.called(self.knob, self.start.baseline)}"
        if v.problems and v.gain_percent is None:
            return f"{name}: {v.problems[0].rstrip('.')}: {choice}, {strength}; {back}"
        said = [moved, *(self._limits_said(v.value, v.broken) if v.broken else [])]
        if v.quality is not None and v.quality.fell:
            said.append(self._quality_said(v.quality) or "")
        if v.problems:
            said.append(f"cannot win: {v.problems[0]}")
        elif choice == "no clear difference" and told:
            said.append(told)
        if len([x for x in self.values if x.status is not None]) > 1 and choice == "no clear difference":
            name = f"the best was {name}" if not v.problems else name
        return f"{name}: {', '.join(s for s in said if s)}: {choice}, {strength}; {back}"


def _shortest(point: Point) -> float:
    """The seconds of the shortest of a point's speed passes."""
    return min(rows.seconds for rows in point.levels)


def _came_to_an_end(point: Point) -> bool:
    return point.status is not None and point.status != "aborted"


def _these(some: list[Point], of: list[Point]) -> str:
    """Which points a remark is about: "points 2, 4", or how many of them."""
    if len(some) == len(of) > 1:
        return "at every point"
    if len(some) <= 4:
        return ("point " if len(some) == 1 else "points ") + ", ".join(str(p.n) for p in some)
    return f"at {len(some)} of {len(of)} points"


def _choose(
    better: float | None, threshold: float, broken: list[str], compared: quality.Comparison | None, invalid: list[str]
) -> ev.Choice:
    if invalid:
        return "no clear difference"
    if broken or (compared is not None and compared.fell):
        return "revert"
    if better is None:
        return "no clear difference"
    if better > threshold:
        return "keep"
    return "revert" if better < -threshold else "no clear difference"


def _as_percent(log_ratio: float, up: bool) -> float:
    """The gain in percent of the baseline: of here/base where more is better, of what was saved where less is."""
    return math.expm1(log_ratio) * 100.0 if up else -math.expm1(-log_ratio) * 100.0
