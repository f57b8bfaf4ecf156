"""The contract's sweeps, through the command line, on a real vLLM engine on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.engine

SEQS = """
model = "practice"
thoroughness = "quick"
seed = 0
fixed = { max_model_len = 1024, enforce_eager = true, gpu_memory_utilization = 0.3 }
slo = { name = "chat", goal = "throughput", ttft_p95_ms = 5000, tpot_p95_ms = 200 }
knob = { name = "max_num_seqs", values = [2, 8] }
load = { kind = "closed", concurrency = [8], prompt_tokens = 128, output_tokens = 32, requests = 64 }
evalset = { name = "basics", items = 20, max_tokens = 64 }
price = { per_hour = 2.0, currency = "CNY" }
"""

MEMORY = """
model = "practice"
fixed = { max_model_len = 1024, enforce_eager = true, max_num_seqs = 8 }
slo = { goal = "throughput" }
knob = { name = "gpu_memory_utilization", values = [0.4], baseline = 0.25 }
load = { concurrency = [8], prompt_tokens = 64, output_tokens = 16, requests = 16 }
evalset = { items = 0 }
"""


def _run(tmp_path: Path, plan: str) -> dict[str, Any]:
    file = tmp_path / "plan.toml"
    file.write_text(plan)
    done = subprocess.run(
        [sys.executable, "-m", "tui_tuner", "run", str(file), "--json", "--sessions", str(tmp_path / "sessions")],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    _nothing_is_left(result)
    return result


def _nothing_is_left(result: dict[str, Any]) -> None:
    """No process of a point's group, and nothing of vLLM's in shared memory that a point had made."""
    events = [json.loads(line) for line in Path(result["file"]).read_text().splitlines()]
    groups = {e["pgid"] for e in events if e["type"] == "point_started"}
    assert groups
    alive = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) in groups:
                alive.append(process)
        except (psutil.Error, OSError):
            continue
    assert not alive
    assert all(e["ok"] for e in events if e["type"] == "clean")


def test_max_num_seqs(tmp_path: Path) -> None:
    result = _run(tmp_path, SEQS)
    assert result["status"] == "finished" and result["knob"] == "max_num_seqs"
    points = result["points"]
    assert [(p["role"], p["value"], p["status"]) for p in points] == [
        ("baseline", 128, "ok"), ("value", 2, "ok"), ("value", 8, "ok"), ("baseline_again", 128, "ok"),
    ]  # fmt: skip
    for point in points:
        assert point["capacity"]["kv_blocks"] > 100 and point["capacity"]["block_size"] > 0
        assert point["capacity"]["kv_tokens"] == point["capacity"]["kv_blocks"] * point["capacity"]["block_size"]
        assert point["memory"]["peak_mib"] > 500
        assert point["quality"]["items"] == 20 and 0 < point["quality"]["accuracy"] < 1
        assert point["throughput"]["output_tok_s"] > 0
        assert 0 < point["latency"]["ttft_ms"]["p50"] <= point["latency"]["ttft_ms"]["p95"]
        assert point["latency"]["tpot_ms"]["p50"] > 0
        assert point["latency"]["ttft_ms"].get("p99") is None  # 64 requests do not support it
    two, eight = points[1], points[2]
    assert two["throughput"]["output_tok_s"] < eight["throughput"]["output_tok_s"]
    assert two["latency"]["ttft_ms"]["p50"] > eight["latency"]["ttft_ms"]["p50"]  # six of eight clients wait
    assert result["verdict"]["choice"] in ("keep", "revert", "no clear difference")
    assert result["verdict"]["strength"] == "indicative"


def test_more_memory_is_more_kv_blocks(tmp_path: Path) -> None:
    result = _run(tmp_path, MEMORY)
    points = result["points"]
    assert [p["status"] for p in points] == ["ok", "ok", "ok"]
    assert points[1]["capacity"]["kv_blocks"] > 1.3 * points[0]["capacity"]["kv_blocks"]
    assert result["verdict"]["choice"] in ("no clear difference", "revert", "keep")
