"""Keep, revert or no clear difference: the rules, and everything that must be unable to win."""

from __future__ import annotations

from typing import Any

import making as m
import pytest
from msgspec.structs import replace

from tui_tuner.analysis import points, quality
from tui_tuner.analysis.verdict import judge
from tui_tuner.model import events as ev
from tui_tuner.model.load import Load, SharedPrefix
from tui_tuner.model.plan import Sweep
from tui_tuner.model.session import Point, Session
from tui_tuner.model.slo import Slo


def standard(*values: Any, **changes: Any) -> ev.SessionStart:
    changes.setdefault("band", m.BAND)
    return m.start(m.plan(knob=Sweep("max_num_seqs", values or (8,)), thoroughness="standard"), **changes)


WORK = 64 * 32  # output tokens of a level: over a number of seconds they are its tok/s


def test_a_clear_gain_is_kept_and_said_in_one_sentence() -> None:
    verdict = judge(m.quick(m.point(2, "value", 8, 162.0, ttft_ms=2000.0)))
    assert (verdict.choice, verdict.value, verdict.strength) == ("keep", 8, "indicative")
    assert verdict.why.startswith(
        "8 sequences: +62 % tok/s, TTFT p95 still inside 5 s, no accuracy drop seen (could see"
    )
    assert verdict.why.endswith(": keep, indicative")
    assert verdict.smallest_difference == 5.0


@pytest.mark.parametrize(("tok_s", "choice"), [(104.0, "no clear difference"), (106.0, "keep"), (94.0, "revert")])
def test_quick_wants_five_percent(tok_s: float, choice: str) -> None:
    assert judge(m.quick(m.point(2, "value", 8, tok_s))).choice == choice


def test_quick_wants_twice_the_drift() -> None:
    def said(again: float) -> str:
        return judge(
            m.session(m.point(1, "baseline", 1), m.point(2, "value", 8, 113.0), m.point(3, "baseline_again", 1, again))
        ).choice

    assert said(104.0) == "keep"  # 10.8 % over the mean of 100 and 104; twice the drift is 7.8 %
    assert said(90.0) == "no clear difference"


def test_quick_with_a_band_wants_the_band() -> None:
    band = {**m.BAND, "percent": 12.0}
    begin = m.start(m.plan(knob=Sweep("max_num_seqs", (8,))), band=band)
    found = judge(m.session(m.point(1, "baseline", 1), m.point(2, "value", 8, 111.0), begin=begin))
    assert (found.choice, found.strength, found.smallest_difference) == ("no clear difference", "indicative", 12.0)
    assert judge(m.session(m.point(1, "baseline", 1), m.point(2, "value", 8, 113.0), begin=begin)).choice == "keep"


def test_the_best_of_several_by_one_launch_is_said_to_be_that() -> None:
    def said(found: Any) -> bool:
        return any("the luckiest can look like a gain" in w for w in found.warnings)

    values = [m.point(n, "value", n, 108.0 + n) for n in range(2, 7)]
    best = judge(m.quick(*values))
    assert (best.choice, best.value) == ("keep", 6) and said(best)
    assert not said(judge(m.quick(values[0]))), "one value was not picked"
    assert not said(judge(m.quick(*values, begin=standard(2, 3, 4, 5, 6)))), "the band is widened for that"


def test_standard_with_a_band_is_measured_beyond_three_percent() -> None:
    found = judge(m.quick(m.point(2, "value", 8, 104.0), begin=standard()))
    assert (found.choice, found.strength) == ("keep", "measured")
    assert found.smallest_difference == 3.0


def test_the_band_is_widened_for_the_values_tried() -> None:
    noisy = {**m.BAND, "percent": 8.0, "sd_percent": 2.0}
    one = judge(m.quick(m.point(2, "value", 8, 107.0), begin=standard(8, band=noisy)))
    five = judge(
        m.quick(
            m.point(2, "value", 8, 107.0), *(m.point(n, "value", n, 100.0) for n in range(3, 7)),
            begin=standard(8, 3, 4, 5, 6, band=noisy),
        )
    )  # fmt: skip
    assert one.choice == "keep" and one.smallest_difference == pytest.approx(2.776 * 2 * 1.5**0.5, rel=1e-3)
    assert five.choice == "no clear difference" and five.smallest_difference == pytest.approx(
        4.604 * 2 * 1.5**0.5, rel=1e-3
    )


def test_standard_without_a_band_stays_indicative() -> None:
    found = judge(m.quick(m.point(2, "value", 8, 104.0), begin=standard(band=None)))
    assert (found.choice, found.strength, found.smallest_difference) == ("no clear difference", "indicative", 5.0)
    assert any("noise" in warning for warning in found.warnings)


def decided(finalist: list[float], baseline: list[float], **changes: Any) -> Session:
    begin = m.start(m.plan(knob=Sweep("max_num_seqs", (8,)), thoroughness="decide"), band=m.BAND)
    first = [m.point(1, "baseline", 1), m.point(2, "value", 8, finalist[0]), m.point(3, "baseline_again", 1)]
    rounds = []
    for i, (a, b) in enumerate(zip(finalist, baseline, strict=True)):
        rounds += [m.point(4 + 2 * i, "finalist", 8, a), m.point(5 + 2 * i, "baseline_again", 1, b)]
    band = (ev.Band(35.0, 2, 8, len(finalist), 1.6),)
    return m.session(*first, *rounds, begin=begin, bands=band, **changes)


def decide(finalist: list[float], baseline: list[float]) -> Any:
    return judge(decided(finalist, baseline))


def test_decide_is_tested_between_launches() -> None:
    found = decide([105.0, 105.4, 104.8], [100.0, 100.3, 99.9])
    assert (found.choice, found.strength) == ("keep", "tested")
    low, high = found.per_value[0].interval
    assert 0 < low < 5 < high < 10
    assert found.per_value[0].launches == 3


def test_decide_says_what_it_could_not_have_told() -> None:
    found = decide([112.0, 97.0, 109.0], [100.0, 108.0, 95.0])
    assert (found.choice, found.strength) == ("no clear difference", "tested")
    assert found.smallest_difference > 5
    assert "could not be told" in found.why


def test_decide_wants_more_than_two_percent() -> None:
    found = decide([101.5, 101.51, 101.49], [100.0, 100.01, 99.99])
    assert found.per_value[0].interval[0] > 0
    assert (found.choice, found.strength) == ("no clear difference", "tested")


def test_an_even_drift_over_the_rounds_is_no_difference() -> None:
    up = [100.0 * 1.01**i for i in range(12)]
    found = decide(up[1::2], up[0::2])
    assert found.choice == "no clear difference"
    assert abs(found.per_value[0].gain_percent) < 0.2 or found.smallest_difference > 2


def test_a_newly_broken_limit_reverts() -> None:
    found = judge(m.quick(m.point(2, "value", 8, 162.0, ttft_ms=6000.0)))
    assert found.choice == "revert"
    assert found.per_value[0].broken == ("ttft_p95_ms",)
    assert "TTFT p95 6.0 s breaks its limit of 5 s" in found.why


def test_where_the_baseline_misses_the_slo_the_distance_counts() -> None:
    slo = Slo("chat", "throughput", {"ttft_p95_ms": 2000.0})
    begin = m.start(m.plan(knob=Sweep("max_num_seqs", (8,)), slo=slo))
    base = m.point(1, "baseline", 1, ttft_ms=3000.0)
    found = judge(m.quick(m.point(2, "value", 8, 95.0, ttft_ms=2200.0), begin=begin, base=base))
    assert (found.choice, found.figure) == ("keep", "ttft_p95_ms")
    assert "closer, not there: TTFT p95 3.0 → 2.2 s, limit 2 s" in found.why
    there = judge(m.quick(m.point(2, "value", 8, 95.0, ttft_ms=1500.0), begin=begin, base=base))
    assert there.choice == "keep" and "inside its limit now" in there.why
    worse = judge(m.quick(m.point(2, "value", 8, 150.0, ttft_ms=4000.0), begin=begin, base=base))
    assert worse.choice == "revert"


def test_quality_that_fell_reverts() -> None:
    begin = m.start(m.plan(knob=Sweep("kv_cache_dtype", ("fp8",))), baseline="auto")
    found = judge(m.quick(m.point(2, "value", "fp8", 162.0, right=2), begin=begin))
    assert found.choice == "revert"
    assert found.per_value[0].quality.fell and found.per_value[0].quality.lost == 8
    assert "accuracy fell: 8 items lost, 0 won" in found.why


def test_a_rounding_flip_is_none() -> None:
    assert judge(m.quick(m.point(2, "value", 8, 162.0, right=9))).choice == "keep"


def test_quality_is_compulsory_where_the_knob_touches_it() -> None:
    begin = m.start(m.plan(knob=Sweep("kv_cache_dtype", ("fp8",))), baseline="auto")
    base = m.point(1, "baseline", "auto", right=None)
    found = judge(m.quick(m.point(2, "value", "fp8", 162.0, right=None), begin=begin, base=base))
    assert found.choice == "no clear difference"
    assert "quality was not measured" in found.why


def test_quality_that_moves_where_it_cannot_is_an_alarm() -> None:
    for right in (0, 20):
        found = judge(m.quick(m.point(2, "value", 8, 162.0, right=right)))
        assert found.choice == "no clear difference"
        assert any("something else changed" in w for w in found.warnings)


def test_dummy_weights_show_no_quality() -> None:
    begin = m.start(m.plan(knob=Sweep("kv_cache_dtype", ("fp8",))), baseline="auto", dummy_weights=True)
    found = judge(m.quick(m.point(2, "value", "fp8", 162.0, right=0), begin=begin))
    assert found.choice == "keep" and found.quality is None
    assert "accuracy" not in found.why


GARBAGE = "@@@@ ~~~~ @@@@ ~~~~ @@@@ ~~~~ @@@@ ~~~~ @@@@ ~~~~"


def invalid_points() -> dict[str, Any]:
    changed = ev.Capacity(20.0, 2, changed=ev.Changed(foreign={"model_config.dtype": ["bfloat16", "float32"]}))
    late = m.rows(162.0)
    return {
        "garbage": m.point(2, "value", 8, 162.0, given=m.answers(10, text=GARBAGE)),
        "throttled by status": m.point(2, "value", 8, 162.0, status="throttled"),
        "throttled by its bits": m.point(2, "value", 8, 162.0, throttle=0x40),
        "late client by status": m.point(2, "value", 8, 162.0, status="client_limited"),
        "late client by its rows": m.point(
            2, "value", 8, levels=(replace(late, planned=[s - 0.1 for s in late.sent]),)
        ),
        "replayed prompts": m.point(2, "value", 8, 162.0, prefix_hits=2000),
        "foreign change": m.point(2, "value", 8, 162.0, capacity=changed),
        "another clock": m.point(2, "value", 8, 162.0, sm_mhz=1900.0),
        "other work": m.point(2, "value", 8, 162.0, out=24),
        "unanswered": m.point(2, "value", 8, levels=(replace(m.rows(162.0), last=[None, *m.rows(162.0).last[1:]]),)),
        "unclean": m.point(2, "value", 8, 162.0, status="unclean"),
        "more cut off": m.point(2, "value", 8, 162.0, given=m.answers(10, finish=["length"] * 20)),
        "failed": m.point(2, "value", 8, None, status="oom_startup"),
        "skipped": m.point(2, "value", 8, 162.0, status="aborted"),
    }  # fmt: skip


@pytest.mark.parametrize("name", invalid_points())
def test_an_invalid_point_cannot_win(name: str) -> None:
    base = m.point(1, "baseline", 1, sm_mhz=1500.0)
    session = m.quick(invalid_points()[name], base=base)
    found = judge(session)
    assert found.choice != "keep" and found.value == 1
    assert found.per_value[0].problems
    assert points.finalist(session) is None or name in ("garbage", "more cut off")


@pytest.mark.parametrize("name", sorted(invalid_points().keys() - {"skipped"}))
def test_a_finalist_whose_launches_are_invalid_cannot_win(name: str) -> None:
    bad = invalid_points()[name]
    session = decided([162.0, 162.5, 161.5, 162.2], [100.0, 100.2, 99.9, 100.1])
    assert judge(session).choice == "keep"

    def spoil(point: Point) -> Point:
        if point.role == "baseline_again" and point.n > 3:  # a card that runs at another clock has one
            return m.point(point.n, point.role, 1, levels=tuple(replace(x, sm_mhz=1500.0) for x in point.levels))
        if point.role != "finalist":
            return point
        return replace(bad, n=point.n, role="finalist", began=point.began)

    session = replace(session, points=tuple(map(spoil, session.points)))
    for state in (session, replace(session, ended=ev.SweepEnded(200.0, "finished"))):
        found = judge(state)
        assert (found.choice, found.value) == ("no clear difference", 1), found.why
        assert found.per_value[0].problems and "cannot win" in found.per_value[0].why


def test_a_finalist_that_fails_now_and_then_cannot_win() -> None:
    session = decided([162.0, 162.5, 161.5, 162.2], [100.0, 100.2, 99.9, 100.1])
    failed = replace(m.point(8, "finalist", 8, None, status="oom_runtime"), began=session.point(8).began)  # type: ignore[union-attr]
    found = judge(replace(session, points=tuple(failed if p.n == 8 else p for p in session.points)))
    assert found.choice == "no clear difference" and "1 of its 4 fresh launches failed" in found.per_value[0].why
    assert found.per_value[0].launches == 3


def test_rounds_that_were_broken_off_leave_the_single_launches() -> None:
    session = decided([162.0, 162.5, 161.5], [100.0, 100.2, 99.9])
    found = judge(replace(session, points=session.points[:5], ended=ev.SweepEnded(99.0, "stopped")))
    assert (found.choice, found.strength) == ("keep", "measured")
    assert any("stays at the single launches" in w for w in found.warnings)


def test_an_invalid_baseline_lets_nothing_win() -> None:
    base = m.point(1, "baseline", 1, throttle=0x20)
    assert judge(m.quick(m.point(2, "value", 8, 162.0), base=base)).choice == "no clear difference"


def test_power_capping_is_normal() -> None:
    base = m.point(1, "baseline", 1, throttle=0x4, sm_mhz=1500.0)
    assert judge(m.quick(m.point(2, "value", 8, 162.0, throttle=0x4, sm_mhz=1200.0), base=base)).choice == "keep"


def test_hits_are_welcome_where_the_cache_is_the_subject() -> None:
    hits = m.point(2, "value", True, 162.0, prefix_hits=5000)
    begin = m.start(m.plan(knob=Sweep("enable_prefix_caching", (True,))), baseline=False)
    assert judge(m.quick(hits, begin=begin)).choice == "keep"
    shared = m.plan(knob=Sweep("max_num_seqs", (8,)), load=Load("closed", (8,), shared_prefix=SharedPrefix(64)))
    assert judge(m.quick(m.point(2, "value", 8, 162.0, prefix_hits=5000), begin=m.start(shared))).choice == "keep"


def test_values_are_compared_within_their_segment() -> None:
    begin = m.start(m.plan(knob=Sweep("max_num_seqs", (2, 8))))
    session = m.session(
        m.point(1, "baseline", 1, 100.0), m.point(2, "value", 2, 101.0), m.point(5, "baseline", 1, 150.0, segment=1),
        m.point(6, "value", 8, 151.0, segment=1), m.point(7, "baseline_again", 1, 150.0, segment=1), begin=begin,
    )  # fmt: skip
    found = judge(session)
    assert found.choice == "no clear difference"
    assert found.of(8).gain_percent == pytest.approx(0.67, abs=0.01)
    assert any("interrupted" in w for w in found.warnings)


def test_the_best_of_several_levels_that_meets_the_slo_counts() -> None:
    slow = m.rows(300.0, level=64.0, ttft_ms=9000.0)
    base = m.point(1, "baseline", 1, levels=(m.rows(100.0, level=8.0), slow))
    value = m.point(2, "value", 8, levels=(m.rows(120.0, level=8.0), replace(slow, seconds=1.0)))
    found = judge(m.quick(value, base=base))
    assert found.choice == "keep" and found.per_value[0].here == pytest.approx(120.0)
    assert {(v.level, v.choice) for v in found.per_level} == {(8.0, "keep"), (64.0, "keep")}


def test_a_latency_goal_gains_by_falling() -> None:
    begin = m.start(m.plan(knob=Sweep("max_num_seqs", (8,)), slo=Slo("x", "ttft", {})))
    found = judge(m.quick(m.point(2, "value", 8, 100.0, ttft_ms=100.0), begin=begin))
    assert found.choice == "keep" and found.per_value[0].gain_percent == pytest.approx(50.0)
    assert "TTFT p50 −50 %" in found.why


def test_a_session_at_any_stage_can_be_judged() -> None:
    full = [m.point(1, "baseline", 1), m.point(2, "value", 8, 162.0), m.point(3, "baseline_again", 1)]
    for k in range(4):
        assert judge(m.session(*full[:k])).choice == ("keep" if k >= 2 else "no clear difference")
    assert judge(m.session(m.point(1, "baseline", 1, None, status="oom_startup"))).choice == "no clear difference"
    assert judge(m.session(m.point(1, "baseline", 1), begin=m.start(kind="noise"))).choice == "no clear difference"


def test_two_launches_of_one_set_show_no_difference() -> None:
    same = quality.compare(m.answers(10), m.answers(10))
    assert same is not None and not same.fell and not same.rose and same.identical == 1.0 and same.p == 1.0


def test_answers_without_a_key_are_compared_by_agreement() -> None:
    none = [None] * 20
    base, again = m.answers(score=none), m.answers(score=none)
    other = m.answers(score=none, text="quite another text")
    found = quality.compare(base, other, again)
    assert found is not None and found.agreement and found.fell and found.identical == 0.0
    assert not quality.compare(base, again, again).fell  # type: ignore[union-attr]


def test_the_flips_between_two_baselines_are_the_yardstick() -> None:
    again = replace(m.point(9, "baseline_again", 1), answers=m.answers(12, n=9))
    session = m.session(m.point(1, "baseline", 1), m.point(2, "value", 8, 162.0), again)
    found = judge(session)
    assert found.yardstick == pytest.approx(0.1)
    assert found.choice == "keep"
    calm = judge(m.quick(m.point(2, "value", 8, 162.0)))
    noisy = found.per_value[0].quality.could_see
    assert calm.yardstick == 0.0 and (noisy is None or noisy > calm.per_value[0].quality.could_see)


def test_answers_that_read_otherwise_are_mentioned() -> None:
    other = m.answers(10, text="quite another text that scores the same")
    found = judge(m.quick(m.point(2, "value", 8, 162.0, given=other)))
    assert found.choice == "keep" and any("read as the baseline" in w for w in found.warnings)


@pytest.mark.parametrize(("seconds", "strength"), [(1.9, "indicative"), (2.1, "measured")])
def test_a_very_short_speed_pass_is_never_more_than_indicative(seconds: float, strength: str) -> None:
    base = m.point(1, "baseline", 1, WORK / seconds)
    found = judge(m.quick(m.point(2, "value", 8, WORK / 2.5), base=base, begin=standard()))
    assert found.strength == strength
    assert any("too short to tell small differences" in w for w in found.warnings)
    slow = judge(m.quick(m.point(2, "value", 8, 130.0), begin=standard()))
    assert slow.strength == "measured" and not any("too short" in w for w in slow.warnings)


@pytest.mark.parametrize(("scale", "strength"), [(1.0, "tested"), (20.0, "indicative")])
def test_launches_of_a_very_short_speed_pass_test_nothing(scale: float, strength: str) -> None:
    found = decide([scale * x for x in (110, 111, 109)], [scale * x for x in (100, 101, 99)])
    assert (found.choice, found.strength) == ("keep", strength)
    assert (found.smallest_difference or 0.0) >= (2.0 if scale == 1.0 else 5.0)


def test_a_short_speed_pass_says_how_many_requests_would_do() -> None:
    short, long = m.rows(WORK / 1.9, level=8.0), m.rows(WORK / 6.0, level=32.0)
    said = "lasted 1.9 s: too short to tell small differences; ask for 340 requests or more"
    assert points.notes(m.point(1, "baseline", 1, levels=(short,))) == [f"the speed pass {said}"]
    assert points.notes(m.point(1, "baseline", 1, levels=(long, short))) == [f"the speed pass at load level 8 {said}"]
    assert points.notes(m.point(1, "baseline", 1, levels=(long,))) == []


def test_a_warm_up_that_never_became_steady_is_said() -> None:
    def warmed(n: int, steady: bool) -> ev.Warmed:
        return ev.Warmed(1.0, n, windows=3, seconds=11.2, limit_s=12.0, steady=steady)

    session = m.quick(m.point(2, "value", 8, 162.0))
    mixed = replace(session, points=tuple(replace(p, warmed=warmed(p.n, p.n != 2)) for p in session.points))
    said = "the warm-up never became steady: 3 windows in 11.2 s, its limit 12 s"
    assert [len(points.notes(p)) for p in mixed.points] == [0, 1, 0]
    assert points.notes(mixed.points[1])[0].startswith(said)
    (warning,) = [w for w in judge(mixed).warnings if "steady" in w]
    assert warning.startswith(f"point 2: {said}")
    never = replace(session, points=tuple(replace(p, warmed=warmed(p.n, False)) for p in session.points))
    (warning,) = [w for w in judge(never).warnings if "steady" in w]
    assert warning.startswith("at every point: ")
    assert not any("steady" in w for w in judge(session).warnings), "an older session does not tell"


def test_agreement_without_a_second_baseline_says_that_it_cannot_tell() -> None:
    def asked(n: int, text: str) -> ev.Answers:
        return m.answers(0, n=n, text=text, score=[None] * 20)

    base, other = m.point(1, "baseline", 1, given=asked(1, "four")), m.point(2, "value", 8, given=asked(2, "five"))
    once = judge(m.session(base, other, begin=m.start()))
    assert (
        any("asked once" in w for w in once.warnings)
        and once.per_value[0].quality
        and not once.per_value[0].quality.fell
    )
    knob = m.start(m.plan(knob=Sweep("kv_cache_dtype", ("fp8",))), baseline="auto")
    fast = m.point(2, "value", "fp8", 162.0, given=asked(2, "five"))
    alike = m.point(2, "value", "fp8", 162.0, given=asked(2, "four"))
    base_auto = m.point(1, "baseline", "auto", given=asked(1, "four"))
    blind = judge(m.session(base_auto, fast, begin=knob))
    assert blind.choice == "no clear difference" and "asked only once" in blind.why
    assert judge(m.session(base_auto, alike, begin=knob)).choice == "keep", "nothing changed that could have"
    twice = judge(m.quick(other, base=base))
    assert not any("asked once" in w for w in twice.warnings)
    assert twice.per_value[0].quality and twice.per_value[0].quality.fell
