"""Verdicts and loads on a real vLLM engine on the CPU: what must not be called a gain, what must, and what each kind
of traffic records. Small loads; the whole file takes about twenty minutes on two cores."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.long]

FIXED = "fixed = { max_model_len = 512, enforce_eager = true, gpu_memory_utilization = 0.3 }"

SEQUENCES = f"""
model = "practice"
thoroughness = "standard"
{FIXED}
slo = {{ goal = "throughput" }}
knob = {{ name = "max_num_seqs", values = [64], baseline = 128 }}
load = {{ concurrency = [4], prompt_tokens = 64, output_tokens = 16, requests = 96 }}
evalset = {{ items = 0 }}
"""

ONE_OR_EIGHT = f"""
model = "practice"
{FIXED}
slo = {{ goal = "throughput" }}
knob = {{ name = "max_num_seqs", values = [8], baseline = 1 }}
load = {{ concurrency = [8], prompt_tokens = 64, output_tokens = 16, requests = 24 }}
evalset = {{ items = 0 }}
"""

SAME_TWICE = f"""
model = "practice"
{FIXED}
slo = {{ goal = "throughput" }}
knob = {{ name = "max_num_seqs", values = [8], baseline = 8 }}
evalset = {{ name = "basics", items = 60, max_tokens = 32 }}
[load]
concurrency = [4]
prompt_tokens = {{ mean = 48, spread = 0.5, low = 16, high = 128 }}
output_tokens = {{ mean = 16, spread = 0.5, low = 4, high = 32 }}
requests = 32
"""

ARRIVALS = f"""
model = "practice"
{FIXED}
slo = {{ goal = "throughput" }}
knob = {{ name = "max_num_batched_tokens", values = [512], baseline = 2048 }}
evalset = {{ items = 0 }}
[load]
kind = "poisson"
rate = [3]
prompt_tokens = {{ mean = 96, spread = 1.0, low = 16, high = 256 }}
output_tokens = {{ mean = 12, spread = 0.5, low = 4, high = 32 }}
requests = 36
"""

PREFIX = f"""
model = "practice"
{FIXED}
slo = {{ goal = "ttft" }}
knob = {{ name = "enable_prefix_caching", values = [false], baseline = true }}
evalset = {{ items = 0 }}
[load]
concurrency = [4]
prompt_tokens = 320
output_tokens = 8
requests = 32
shared_prefix = {{ tokens = 256 }}
"""

SPECULATION = f"""
model = "practice"
{FIXED}
slo = {{ goal = "tpot" }}
evalset = {{ items = 0 }}
load = {{ concurrency = [1], prompt_tokens = 128, output_tokens = 48, requests = 32, text = "natural" }}
[knob]
name = "speculative_config"
values = [{{ method = "ngram", num_speculative_tokens = 3, prompt_lookup_min = 2, prompt_lookup_max = 4 }}]
"""


def tuner(folder: Path, command: str, plan: str) -> dict[str, Any]:
    """Runs a plan to its end and gives the session as the command line prints it."""
    file = folder / "plan.toml"
    file.write_text(plan)
    done = subprocess.run(
        [sys.executable, "-m", "tui_tuner", command, str(file), "--json", "--sessions", str(folder / "sessions")],
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert [p["say"] for p in result["points"] if p["status"] != "ok"] == []
    assert result["status"] == "finished"
    print(f"\n{command} {result['knob']}: {result['verdict']['sentence']}")
    return result


def point(result: dict[str, Any], role: str) -> dict[str, Any]:
    found: dict[str, Any] = next(p for p in result["points"] if p["role"] == role)
    return found


def rows(result: dict[str, Any], n: int) -> dict[str, Any]:
    """The raw rows of a point's only level."""
    events = [json.loads(line) for line in Path(result["file"]).read_text().splitlines()]
    found: dict[str, Any] = next(e for e in events if e["type"] == "requests" and e["n"] == n)
    return found


def test_a_knob_that_cannot_matter_is_never_kept(tmp_path: Path) -> None:
    """Four clients never fill 64 sequences, let alone 128: whatever differs is the machine, and the band knows it."""
    noise = tuner(tmp_path, "noise", SEQUENCES)
    assert len(noise["points"]) == 5
    result = tuner(tmp_path, "run", SEQUENCES)
    assert [p["role"] for p in result["points"]] == ["baseline", "value", "baseline_again"]
    assert result["band"]
    assert result["band"]["pairs"] == 4
    assert result["band"]["percent"] > 0
    verdict = result["verdict"]
    print(f"band {result['band']['percent']:.1f} %, difference {point(result, 'value')['difference_percent']:+.1f} %")
    assert verdict["strength"] == "measured"
    assert verdict["choice"] != "keep"


def test_eight_sequences_for_eight_clients_are_kept(tmp_path: Path) -> None:
    result = tuner(tmp_path, "run", ONE_OR_EIGHT)
    assert (result["verdict"]["choice"], result["verdict"]["value"]) == ("keep", 8)
    baseline, value = point(result, "baseline"), point(result, "value")
    assert value["throughput"]["output_tok_s"] > 1.5 * baseline["throughput"]["output_tok_s"]
    assert baseline["bottleneck"]["kind"] == "sequences"


def test_the_same_set_twice_shows_no_difference(tmp_path: Path) -> None:
    """One configuration three times, at requests of mixed lengths: no quality difference is claimed."""
    result = tuner(tmp_path, "run", SAME_TWICE)
    for role in ("value", "baseline_again"):
        quality = point(result, role)["quality"]
        assert quality["scored"] == 60
        against = quality["against_baseline"]
        assert not against["fell"]
        assert against["p"] >= 0.05
        assert against["identical"] > 0.9
        print(f"{role}: {quality['right']} right, {against['lost']} lost, {against['won']} won, p {against['p']:.2f}")
    own = rows(result, 1)
    assert len(set(own["prompt_tokens"])) > 8
    assert len(set(own["output_tokens"])) > 8
    assert all(finish == "length" for finish in own["finish"])
    assert rows(result, 2)["prompt_tokens"] == own["prompt_tokens"]
    assert rows(result, 2)["output_tokens"] == own["output_tokens"]


def test_poisson_arrivals_are_kept_to(tmp_path: Path) -> None:
    result = tuner(tmp_path, "run", ARRIVALS)
    for one in result["points"]:
        sent = rows(result, one["n"])
        assert sent["kind"] == "poisson"
        assert sent["planned"] == sorted(sent["planned"])
        assert 36 / 3 * 0.5 < sent["planned"][-1] < 36 / 3 * 2
        assert one["throughput"]["lag_p99_ms"] is not None
        assert one["throughput"]["prefix_hit_share"] < 0.01
        assert one["latency"]["itl_ms"]["p50"] > 0
    assert rows(result, 1)["planned"] == pytest.approx(rows(result, 2)["planned"], abs=1e-4)  # a clock's rounding


def test_a_shared_prefix_is_seen_only_with_the_cache(tmp_path: Path) -> None:
    result = tuner(tmp_path, "run", PREFIX)
    share = point(result, "baseline")["throughput"]["prefix_hit_share"]
    print(f"hit share {share:.2f}; TTFT p50 on {point(result, 'baseline')['latency']['ttft_ms']['p50']:.0f} ms, "
          f"off {point(result, 'value')['latency']['ttft_ms']['p50']:.0f} ms")  # fmt: skip
    assert 0.3 < share <= 256 / 320
    assert not point(result, "value")["throughput"]["prefix_hit_share"]
    assert point(result, "baseline")["problems"] == point(result, "value")["problems"] == []


def test_speculation_tells_its_acceptance(tmp_path: Path) -> None:
    result = tuner(tmp_path, "run", SPECULATION)
    assert point(result, "baseline")["throughput"]["acceptance"] is None
    value = point(result, "value")
    print(f"acceptance {value['throughput']['acceptance']:.2f}, change {value['difference_percent']:+.1f} %")
    assert 0.0 < value["throughput"]["acceptance"] < 1.0
    own = rows(result, value["n"])
    assert own["output_tokens"] == [48] * 32
    assert all(len(gaps) == 47 for gaps in own["gaps"])
