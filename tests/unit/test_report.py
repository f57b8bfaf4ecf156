"""The JSON contract, the table, the exports, the bottleneck, the estimate and the band."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import making as m
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tui_tuner.analysis import bands, bottleneck, estimate, export, points, report, schedule
from tui_tuner.model import events as ev
from tui_tuner.model import knobs
from tui_tuner.model.knobs import Facts, FieldFacts
from tui_tuner.model.load import Lengths, Load, SharedPrefix
from tui_tuner.model.machine import Gpu, Machine, ModelShape
from tui_tuner.model.plan import Price, Sweep
from tui_tuner.model.session import Session, State
from tui_tuner.model.slo import Slo


def whole() -> Session:
    return m.session(
        m.point(1, "baseline", 1), m.point(2, "value", 2, None, status="oom_startup"), m.point(3, "value", 8, 162.0),
        m.point(4, "baseline_again", 1, 101.0), begin=m.start(prediction="8 doubles it", band=m.BAND),
        decisions=(ev.Decision(99.0, "keep", 8, "faster"),),
    )  # fmt: skip


def test_the_json_is_the_contracts() -> None:
    found = msgspec.json.decode(msgspec.json.encode(report.as_dict(whole(), "finished", "/x/s-1.jsonl")))
    assert {"id", "file", "status", "knob", "points", "verdict"} <= set(found)
    assert (found["id"], found["status"], found["knob"]) == ("s-1", "finished", "max_num_seqs")
    assert [p["role"] for p in found["points"]] == ["baseline", "value", "value", "baseline_again"]
    ok = found["points"][2]
    assert ok["status"] == "ok" and ok["capacity"]["kv_blocks"] == 1000 and ok["capacity"]["block_size"] == 16
    assert ok["memory"]["peak_mib"] == 20_000
    assert ok["quality"]["accuracy"] == 0.5 and ok["quality"]["items"] == 20
    assert ok["quality"]["low"] < 0.5 < ok["quality"]["high"]
    assert ok["throughput"]["output_tok_s"] == pytest.approx(162.0)
    assert ok["latency"]["ttft_ms"]["p50"] == pytest.approx(200.0)
    assert ok["latency"]["ttft_ms"]["p99"] is None and ok["latency"]["tpot_ms"]["p95"] == pytest.approx(50.0)
    assert ok["latency"]["ttft_ms"]["intervals"]["p50"]
    assert ok["difference_percent"] == pytest.approx(61.2, abs=0.1)
    failed = found["points"][1]
    assert failed["status"] == "oom_startup" and failed["say"] and failed["fix"]["say"] == "try 0.90"
    assert {"choice", "value", "why", "strength"} <= set(found["verdict"])
    assert found["verdict"]["choice"] == "keep" and found["verdict"]["value"] == 8
    assert found["decision"]["choice"] == "keep" and found["prediction"] == "8 doubles it"


def test_dummy_weights_have_no_quality_in_the_json() -> None:
    session = replace(whole(), start=m.start(dummy_weights=True))
    assert all(p["quality"] is None for p in report.as_dict(session, "finished", "x")["points"])
    assert "50%" not in report.table(session)


@pytest.mark.parametrize("k", range(5))
def test_every_stage_can_be_reported(k: int) -> None:
    session = whole()
    session = replace(session, points=session.points[:k], decisions=())
    assert msgspec.json.encode(report.as_dict(session, "running", "x"))
    assert report.table(session) and all(export.TO[kind](session, "running", ()) for kind in export.TO)
    for point in session.points:
        assert report.point_line(point, session)


@pytest.mark.parametrize(
    ("state", "word"), [("running", "… running"), ("interrupted", "- cut off"), ("stopped", "- cut off")]
)
def test_a_point_without_an_outcome_runs_or_was_cut_off(state: State, word: str) -> None:
    cut = replace(m.point(2, "value", 2), done=None, levels=(), answers=None)
    session = m.session(m.point(1, "baseline", 1), cut)
    (row,) = [line for line in report.table(session, state).splitlines() if line.startswith("2 ")]
    assert word in row
    assert word[2:] in export.markdown(session, state)


@settings(max_examples=60, deadline=None)
@given(st.text(min_size=1, max_size=60), st.text(max_size=200))
def test_the_table_stays_within_80_columns_and_shows_text_as_text(name: str, say: str) -> None:
    plan = m.plan(model=name, knob=Sweep("max_num_seqs", (name,)))
    failed = m.point(2, "value", name, None, status="crash")
    assert failed.failed is not None
    failed = replace(failed, failed=replace(failed.failed, say=say))
    session = m.session(m.point(1, "baseline", 1), failed, begin=m.start(plan, prediction=say))
    for text in (report.table(session), report.table(session, ascii=True)):
        assert all(len(line) <= 80 for line in text.split("\n"))
        assert not any(ord(c) < 32 and c != "\n" for c in text) and "\x1b" not in text
    assert report.table(session, ascii=True).isascii()


def test_a_line_for_an_ended_point() -> None:
    session = whole()
    assert report.point_line(session.points[2], session).startswith(
        "✓ max_num_seqs 8, 16,000 KV tokens, 162 tok/s, +61 %"
    )
    assert report.point_line(session.points[1], session) == "✗ max_num_seqs 2: no memory in kv_cache: no memory is left"


def test_what_is_left_comes_from_the_points_once_there_are_any() -> None:
    begin = m.start(estimate={"point_seconds": 60.0})
    assert report.left(m.session(begin=begin)) == (1, 4, 240.0)
    assert report.left(m.session(m.point(1, "baseline", 1), begin=begin)) == (2, 4, 15.0)


# ---- points -----------------------------------------------------------------------------------------------------


def test_figures_by_hand() -> None:
    rows = ev.Requests(
        0.0, 1, 2.0, "closed", 2.0, [0, 0, 0], [0.0, 0.1, 0.2], [0.5, 0.6, None], [1.0, 2.0, None], [10, 20, 30],
        [3, 5, 0], ["length", "length", "abort"], [[2000, 3000], [1000, 2000, 3000, 8000], []], energy_j=16.0,
        draft_tokens=10, accepted_tokens=4,
    )  # fmt: skip
    found = points.level_figures(rows, Slo("x", "throughput", {"ttft_p50_ms": 510.0, "itl_p99_ms": 500.0}))
    assert (found.requests, found.unanswered, found.output_tokens) == (2, 1, 8)
    assert found.output_tok_s == 4.0 and found.total_tok_s == 19.0 and found.requests_s == 1.0
    assert found.ttft.mean == pytest.approx(500.0) and found.ttft.p50 is None and found.ttft.count == 2
    assert found.tpot.mean == pytest.approx((250 + 350) / 2)
    assert found.gap.max == 800.0 and found.itl.mean == pytest.approx(1900 / 6)
    assert found.goodput == 0.5 and found.attained == pytest.approx(1 / 3)
    assert found.joules_per_token == 2.0 and found.acceptance == 0.4
    assert found.meets is None and found.limits == {"ttft_p50_ms": None, "itl_p99_ms": None}


def test_percentiles_only_where_the_count_supports_them() -> None:
    for count, shown in (
        (4, []),
        (5, [50]),
        (29, [50, 90]),
        (59, [50, 90, 95]),
        (298, [50, 90, 95]),
        (299, [50, 90, 95, 99]),
    ):
        found = points.spread(float(i) for i in range(count))
        assert [p for p in (50, 90, 95, 99) if found.at(p) is not None] == shown


def test_price_of_a_million_tokens() -> None:
    level = points.level_figures(m.rows(100.0), m.SLO)
    assert points.price_per_million(level, Price(3.6)) == pytest.approx(10.0)


# ---- bottleneck -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("about", "kind"),
    [
        ({"waiting_mean": 5.0, "running_mean": 3.0, "kv_usage_max": 0.99}, "kv"),
        ({"waiting_mean": 0.0, "running_mean": 8.0, "preemptions": 3}, "kv"),
        ({"waiting_mean": 5.0, "running_mean": 3.0, "kv_usage_max": 0.2}, "sequences"),
        ({"waiting_mean": 0.0, "running_mean": 3.0}, "client"),
        ({"waiting_mean": 0.0, "running_mean": 8.0}, "compute"),
        ({"waiting_mean": None, "running_mean": None}, "unknown"),
    ],
)
def test_the_bottleneck_by_its_signals(about: dict[str, Any], kind: str) -> None:
    point = m.point(1, "baseline", 1, **about)
    session = m.session(point)
    assert bottleneck.of(point, session).kind == kind
    following = bottleneck.next_knobs(session)
    assert following and "max_num_seqs" not in following and all(name in knobs.CATALOGUE for name in following)


# ---- estimates --------------------------------------------------------------------------------------------------

H200 = Machine(gpu=Gpu("u", "H200", vram_mib=143771, reserved_mib=615))
SEVEN_B = ModelShape(28, 3584, 18944, 28, 4, 128, 49152, 32768, weight_bytes=6877943296 * 2)
SMOL = ModelShape(30, 576, 1536, 9, 3, 64, 49152, 8192, weight_bytes=269_060_552)


def facts(version: str = "0.26.0", **defaults: Any) -> Facts:
    known = {"max_num_seqs": 1024, "max_num_batched_tokens": 8192, "gpu_memory_utilization": 0.92, **defaults}
    return Facts(version, "cuda", fields={k: FieldFacts(k, effective_default=v) for k, v in known.items()})


@pytest.mark.parametrize(
    ("args", "measured"),
    [
        ({"gpu_memory_utilization": 0.14}, 100_528),
        ({"gpu_memory_utilization": 0.17}, 179_056),
        ({"gpu_memory_utilization": 0.17, "kv_cache_dtype": "fp8"}, 354_768),
        ({"gpu_memory_utilization": 0.17, "max_num_batched_tokens": 512, "max_num_seqs": 64}, 192_704),
        ({"gpu_memory_utilization": 0.40, "max_num_batched_tokens": 2048, "enforce_eager": True}, 795_360),
    ],
)
def test_kv_tokens_against_logged_starts(args: dict[str, Any], measured: int) -> None:
    found = estimate.kv_tokens(H200, SEVEN_B, args, facts())
    assert found is not None and found.starts
    assert found.low <= measured <= found.high
    assert found.tokens == pytest.approx(measured, rel=0.01)


def test_kv_estimate_knows_what_will_not_start_and_what_changed_in_0_29() -> None:
    short = estimate.kv_tokens(H200, SEVEN_B, {"gpu_memory_utilization": 0.10}, facts())
    assert short is not None and not short.starts and short.tokens == 0
    old = estimate.kv_tokens(H200, SEVEN_B, {"gpu_memory_utilization": 0.17}, facts())
    new = estimate.kv_tokens(H200, SEVEN_B, {"gpu_memory_utilization": 0.17}, facts("0.29.0"))
    assert old is not None and new is not None and 0.7 < old.gib - new.gib < 1.1
    small = estimate.kv_tokens(H200, SMOL, {"gpu_memory_utilization": 0.10}, facts())
    assert small is not None and small.tokens == pytest.approx(620_464, rel=0.02)


def test_kv_tokens_of_the_cpu_engine() -> None:
    cpu = Machine("cpu", 2, 24_000, round(13.09 * 1024))
    known = Facts("0.32.0", "cpu", fields=facts(max_num_seqs=128, max_num_batched_tokens=2048).fields)
    for share, blocks in ((0.3, 1019), (0.5, 1913)):
        found = estimate.kv_tokens(cpu, SMOL, {"gpu_memory_utilization": share, "block_size": 128}, known)
        assert found is not None and found.low <= blocks * 128 <= found.high


def test_kv_bytes_per_token() -> None:
    assert estimate.kv_bytes_per_token(SEVEN_B) == 57_344
    assert estimate.kv_bytes_per_token(SEVEN_B, "fp8") == 28_672
    assert estimate.kv_bytes_per_token(SMOL) == 23_040
    assert estimate.kv_bytes_per_token(replace(SEVEN_B, kv_lora_rank=512, qk_rope_head_dim=64)) == 28 * 576 * 2


def test_the_highest_utilization_is_one_that_starts() -> None:
    assert estimate.highest_utilization(13.09 * 1024, 11.57 * 1024) == 0.88
    assert estimate.highest_utilization(22.05 * 1024, 19.77 * 1024) == 0.89
    assert estimate.highest_utilization(0, 0) == 0.0


def test_minutes_before_the_start() -> None:
    plan = m.plan()
    assert estimate.point_count(plan) == (4, 4)
    assert estimate.point_count(plan, m.BAND) == (3, 3)
    assert estimate.point_count(replace(plan, thoroughness="decide"), m.BAND) == (10, 10)
    assert estimate.point_count(plan, kind="noise") == (5, 5)
    guess = estimate.minutes(plan, H200, SEVEN_B, facts())
    assert guess.point_seconds > 30 and "assumptions" in guess.source
    known = estimate.minutes(plan, m.start().machine, SEVEN_B, facts(), earlier=[whole()])
    assert known.point_seconds == 5.0 and "earlier" in known.source
    said = estimate.before(plan, 1, H200, SEVEN_B, facts())
    assert said["points"] == 4 and said["price"] == pytest.approx(2.0 * said["minutes"] / 60, abs=0.01)
    assert said["8"]["kv_tokens"] > 0


def test_a_load_that_cannot_show_a_knob() -> None:
    plain_load = Load("closed", (8,))
    assert not estimate.load_shows(knobs.CATALOGUE["enable_prefix_caching"], plain_load)
    assert estimate.load_shows(
        knobs.CATALOGUE["enable_prefix_caching"], replace(plain_load, shared_prefix=SharedPrefix(64))
    )
    assert not estimate.load_shows(knobs.CATALOGUE["speculative_config"], plain_load)
    assert not estimate.load_shows(knobs.CATALOGUE["max_num_batched_tokens"], plain_load)
    assert estimate.load_shows(
        knobs.CATALOGUE["max_num_batched_tokens"], Load("poisson", (), (4.0,), Lengths(512, 1.0))
    )
    assert estimate.load_shows(knobs.CATALOGUE["max_num_seqs"], plain_load)


@pytest.mark.parametrize("name", sorted(knobs.CATALOGUE))
def test_suggestions_are_valid_and_leave_the_baseline_out(name: str) -> None:
    knob = knobs.CATALOGUE[name]
    for machine, available in ((H200, 130_000), (Machine("cpu", 2, 24_000, 13_400), 11_800)):
        for value in estimate.suggest_values(
            knob, machine, SMOL, facts(), Load("closed", (8,)), available, baseline=2048
        ):
            assert value != 2048
            if name == "gpu_memory_utilization":
                assert 0 < value <= estimate.highest_utilization(machine.memory_mib, available)


# ---- bands ------------------------------------------------------------------------------------------------------


def noise_session(*speeds: float, **about: Any) -> Session:
    found = [m.point(i + 1, "baseline" if not i else "baseline_again", 1, s) for i, s in enumerate(speeds)]
    return m.session(*found, begin=m.start(kind="noise", **about))


def test_a_noise_run_gives_a_band_and_pairs_are_pooled_with_it() -> None:
    one = bands.pool([noise_session(100.0, 101.0, 99.0, 100.5, 99.5)], m.start())
    assert one is not None and one.pairs == 4 and one.sessions == 1 and one.figure == "throughput"
    assert one.sd_percent == pytest.approx(0.79, abs=0.01) and one.upper_percent > one.sd_percent
    assert one.percent == pytest.approx(2.776 * one.sd_percent * 2**0.5, rel=1e-3)
    more = bands.pool([noise_session(100.0, 101.0, 99.0, 100.5, 99.5), noise_session(50.0, 50.5)], m.start())
    assert more is not None and more.pairs == 5 and more.sessions == 2
    assert "ttft_p95_ms" in one.figures
    assert bands.describe(one.as_dict()) == f"±{one.percent:.1f} % from 4 pairs"


def test_no_band_from_too_little_or_from_another_machine() -> None:
    assert bands.pool([noise_session(100.0, 101.0)], m.start()) is None
    other = m.start(kind="noise", machine=Machine("other"))
    assert bands.pool([replace(noise_session(100.0, 101.0, 99.0, 100.5, 99.5), start=other)], m.start()) is None
    bad = noise_session(100.0, 101.0, 99.0, 100.5, 99.5)
    throttled = replace(bad, points=tuple(m.point(p.n, p.role, 1, throttle=0x20) for p in bad.points))
    assert bands.pool([throttled], m.start()) is None


def test_the_band_of_a_folder_is_found_by_a_new_session(tmp_path: Path) -> None:
    def write(name: str, session: Session) -> None:
        begun = replace(session.start, id=name)
        lines = [ev.encode(begun), ev.encode(session.launches[0])]
        for p in session.points:
            assert p.done and p.capacity
            lines += [ev.encode(e) for e in (p.start, p.capacity, *p.levels, p.done)]
        (tmp_path / f"{name}.jsonl").write_bytes(b"".join(lines))

    new = m.start(id="new")
    assert bands.known(new, tmp_path).band is None
    write("a", noise_session(100.0, 101.0, 99.0, 100.5, 99.5))
    write("b", noise_session(100.0, 300.0, machine=Machine("another")))
    (tmp_path / "c.jsonl").write_bytes(b"no session")
    found = bands.known(new, tmp_path).band
    assert found is not None and found["pairs"] == 4 and found["sessions"] == 1
    assert bands.known(replace(new, kind="noise"), tmp_path).band is None


def test_a_band_serves_the_launches_of_decide() -> None:
    calm = bands.pool([noise_session(100.0, 100.2, 99.9, 100.1, 100.0)], m.start())
    wild = bands.pool([noise_session(100.0, 106.0, 95.0, 103.0, 97.0)], m.start())
    assert calm is not None and wild is not None
    assert schedule.launches_for(calm.as_dict()) == 3 and schedule.launches_for(wild.as_dict()) == 8


# ---- exports ----------------------------------------------------------------------------------------------------


def test_the_serve_line_is_quoted_and_the_value_written_out() -> None:
    fixed = {"enforce_eager": True, "enable_prefix_caching": False, "dtype": "$(id)", "bad key": 1}
    session = replace(whole(), start=m.start(m.plan(model="a b; rm -rf ~", fixed=fixed)))
    words = shlex.split(export.serve(session, "finished"))
    assert words[:3] == ["vllm", "serve", "a b; rm -rf ~"]
    flags = ["--enforce-eager", "--no-enable-prefix-caching", "--dtype", "$(id)", "--max-num-seqs", "8"]
    assert sorted(words[3:]) == sorted(flags)
    before = shlex.split(export.serve(replace(session, decisions=()), "finished"))
    assert before[before.index("--max-num-seqs") + 1] == "1"
