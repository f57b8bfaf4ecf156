"""The sweep that works everywhere: the small practice model, on whatever engine there is."""

from __future__ import annotations

from tui_tuner.model.load import Load
from tui_tuner.model.machine import Device
from tui_tuner.model.plan import PRACTICE, EvalChoice, Plan, Sweep
from tui_tuner.model.slo import Slo


def plan(device: Device = "cpu") -> Plan:
    """One sequence at a time against eight: a difference that any machine shows, in a few minutes.

    On a CPU the share of memory is small, since vLLM takes it of all the machine's memory.
    """
    return Plan(
        model=PRACTICE,
        thoroughness="quick",
        fixed={"max_model_len": 1024, "enforce_eager": True, "gpu_memory_utilization": 0.3},
        slo=Slo("chat", "throughput", {"ttft_p95_ms": 5000.0, "tpot_p95_ms": 200.0}),
        knob=Sweep("max_num_seqs", (2, 8)) if device == "cpu" else Sweep("max_num_seqs", (8, 64)),
        load=Load("closed", (8,) if device == "cpu" else (64,), (), 128, 32 if device == "cpu" else 128, 64),
        evalset=EvalChoice("basics", 20, 64),
    )
