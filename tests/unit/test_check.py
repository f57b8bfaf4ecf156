"""What is wrong with a plan is said before anything starts, with the field and what would be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tui_tuner.model.knobs import Facts, FieldFacts, Resolution
from tui_tuner.model.load import Lengths, Load, SharedPrefix
from tui_tuner.model.machine import Gpu, Machine, ModelShape
from tui_tuner.model.plan import EvalChoice, Plan, Price, Sweep
from tui_tuner.prepare import check

GOOD = Plan(
    "practice",
    Sweep("max_num_seqs", (2, 8)),
    fixed={"max_model_len": 1024, "gpu_memory_utilization": 0.3},
    load=Load("closed", (8,), (), 128, 32, 64),
    evalset=EvalChoice("basics", 20, 64),
)
SHAPE = ModelShape(30, 576, 1536, 9, 3, 64, 49152, 8192)
MACHINE = Machine("CPU", 2, 24_000, 10_000)


def _seqs(*values: Any, **more: Any) -> Plan:
    return replace(GOOD, knob=Sweep("max_num_seqs", values, **more))


def test_a_good_plan_has_no_problem() -> None:
    assert check.alone(GOOD) == []
    assert check.here(GOOD, MACHINE, SHAPE, 9_000) == []
    no_secret = {"hf_token": True, "tokenizer": "models/x", "cudagraph_capture_sizes": (1, 2), "names": ("a", "b")}
    assert not [p for p in check.alone(replace(GOOD, fixed={**GOOD.fixed, **no_secret})) if "secret" in p.say]


@pytest.mark.parametrize(
    ("plan", "field", "says"),
    [
        (replace(GOOD, knob=Sweep("max_num_seq", (1,))), "knob.name", "max_num_seqs"),
        (_seqs(), "knob.values", "no value to try"),
        (_seqs(*range(1, 20)), "knob.values", "at most 12"),
        (_seqs(2, 2), "knob.values", "stands there twice"),
        (_seqs("two"), "knob.values", "whole number"),
        (_seqs(True), "knob.values", "whole number"),
        (_seqs(2.5), "knob.values", "whole number"),
        (_seqs(None), "knob.values", "leave the knob out"),
        (_seqs({"label": "AWQ"}), "knob.values", "names no model"),
        (_seqs(2, baseline="all"), "knob.baseline", "whole number"),
        (replace(_seqs(2, baseline=4), fixed={"max_num_seqs": 8}), "fixed.max_num_seqs", "`knob.baseline` at 4"),
        (replace(GOOD, fixed={"model": "x"}), "fixed.model", "named once"),
        (replace(GOOD, fixed={"hf_token": "something-of-mine"}), "fixed.hf_token", "environment"),
        (replace(GOOD, fixed={"override": {"a": ["https://me:pw@example.org"]}}), "fixed.override", "environment"),
        (replace(GOOD, model="https://key@example.org/m"), "model", "environment"),
        (_seqs(2, {"label": "b", "model": "hf_" + "a1" * 16}), "knob.values 2", "environment"),
        (replace(GOOD, fixed={"gpu_memory_utilization": 1.5}), "fixed.gpu_memory_utilization", "share of memory"),
        (replace(GOOD, fixed={"max_num_batched_tokens": 4}), "knob.values", "raise max_num_batched_tokens to 8"),
        (replace(GOOD, load=Load("closed", (0,))), "load.concurrency", "from 1"),
        (replace(GOOD, load=Load("closed", (8,), (2.0,))), "load.rate", "no rate"),
        (replace(GOOD, load=Load("poisson", (), ())), "load.rate", "need a rate"),
        (replace(GOOD, load=Load("poisson", (8,), (1.0,))), "load.concurrency", "closed"),
        (replace(GOOD, load=Load("poisson", (), (float("inf"),))), "load.rate", "above 0"),
        (replace(GOOD, load=Load("closed", (8,), (), 0)), "load.prompt_tokens", "at least 1"),
        (replace(GOOD, load=Load("closed", (8,), (), Lengths(64, 9.0))), "load.prompt_tokens", "spread"),
        (replace(GOOD, load=Load("closed", (8,), requests=0)), "load.requests", "from 1"),
        (replace(GOOD, load=Load("closed", shared_prefix=SharedPrefix(128))), "load.shared_prefix", "at most 127"),
        (replace(GOOD, load=Load("trace")), "load.file", "needs the file"),
        (replace(GOOD, load=Load("trace", file="/nowhere.jsonl")), "load.file", "/nowhere.jsonl"),
        (replace(GOOD, evalset=EvalChoice("basics", -1)), "evalset.items", "0 for no quality pass"),
        (replace(GOOD, evalset=EvalChoice("basics", 9999)), "evalset.items", "at most"),
        (replace(GOOD, evalset=EvalChoice("nowhere", 5)), "evalset.name", "nowhere"),
        (replace(GOOD, evalset=EvalChoice("basics", 5, 0)), "evalset.max_tokens", "from 1"),
        (replace(GOOD, price=Price(float("nan"))), "price.per_hour", "no price"),
        (
            replace(GOOD, knob=Sweep("kv_cache_dtype", ("fp8",)), evalset=EvalChoice("basics", 0)),
            "evalset.items", "quality must be measured",
        ),
    ],
)  # fmt: skip
def test_a_plan_that_cannot_be(plan: Plan, field: str, says: str) -> None:
    found = check.alone(plan)
    assert [p.field for p in found] == [field]
    assert says in found[0].say


def test_no_eval_is_needed_where_nothing_can_be_asked() -> None:
    dummy = replace(
        GOOD, knob=Sweep("kv_cache_dtype", ("fp8",)), evalset=EvalChoice("basics", 0), fixed={"load_format": "dummy"}
    )
    assert check.alone(dummy) == []


@pytest.mark.parametrize(
    ("plan", "field", "suggest"),
    [
        (replace(GOOD, fixed={"max_model_len": 9000}), "fixed.max_model_len", 8192),
        (replace(GOOD, fixed={"max_model_len": 100}), "fixed.max_model_len", 160),
        (replace(GOOD, fixed={"tensor_parallel_size": 2}), "fixed.tensor_parallel_size", 1),
        (replace(GOOD, fixed={"gpu_memory_utilization": 0.95}), "fixed.gpu_memory_utilization", 0.9),
        (replace(GOOD, knob=Sweep("max_model_len", (512, 9000)), fixed={}), "knob.values", 8192),
        (
            replace(GOOD, knob=Sweep("gpu_memory_utilization", (0.3,), 0.95), fixed={}),
            "knob.baseline", 0.9,
        ),
        (replace(GOOD, knob=Sweep("gpu_memory_utilization", (0.93, 0.95)), fixed={}), "knob.values", 0.9),
    ],
)  # fmt: skip
def test_what_this_machine_rules_out(plan: Plan, field: str, suggest: float) -> None:
    (problem,) = check.here(plan, MACHINE, SHAPE, 9_000)
    assert (problem.field, problem.suggest) == (field, suggest)
    assert f"{suggest}" in problem.say or f"{suggest:.2f}" in problem.say


def test_a_value_over_the_edge_is_allowed_beside_one_that_starts() -> None:
    plan = replace(GOOD, knob=Sweep("gpu_memory_utilization", (0.5, 0.97)), fixed={})
    assert check.here(plan, MACHINE, SHAPE, 9_000) == []


def test_heads_that_cannot_be_split_are_said() -> None:
    two = Machine(gpus=2, gpu=Gpu("GPU-0", "card", vram_mib=24_000))
    (problem,) = check.here(replace(GOOD, fixed={"tensor_parallel_size": 2}), two, SHAPE, None)
    assert "9 attention heads" in problem.say


FACTS = Facts(
    "0.32.0", "cpu",
    fields={
        "max_num_seqs": FieldFacts("max_num_seqs", "int", 128, 128, low=1),
        "gpu_memory_utilization": FieldFacts("gpu_memory_utilization", "float", 0.92, 0.92, 0, 1, low_open=True),
        "kv_cache_dtype": FieldFacts("kv_cache_dtype", "str", "auto", "auto", choices=["auto", "fp8"]),
        "max_model_len": FieldFacts("max_model_len", "int"),
    },
)  # fmt: skip


@pytest.mark.parametrize(
    ("plan", "field", "says"),
    [
        (_seqs(0), "knob.values", "at least 1"),
        (replace(GOOD, fixed={"gpu_memory_utilization": 0}), "fixed.gpu_memory_utilization", "above 0"),
        (replace(GOOD, fixed={"gpu_memory_utilization": 1.01}), "fixed.gpu_memory_utilization", "at most 1"),
        (replace(GOOD, fixed={"kv_cache_dtyp": "auto"}), "fixed.kv_cache_dtyp", "did you mean kv_cache_dtype"),
        (replace(GOOD, fixed={"kv_cache_dtype": "fp9"}), "fixed.kv_cache_dtype", "did you mean fp8"),
        (replace(GOOD, fixed={"swap_space": 4}), "fixed.swap_space", "vLLM 0.32.0 has no argument"),
        (replace(GOOD, knob=Sweep("block_size", (16,))), "knob.name", "vLLM 0.32.0 has no argument"),
    ],
)
def test_what_the_installed_version_does_not_take(plan: Plan, field: str, says: str) -> None:
    (problem,) = check.known(plan, FACTS)
    assert problem.field == field and says in problem.say


def test_vllms_own_refusal_is_placed_at_the_plans_field() -> None:
    fine, bad = Resolution(), Resolution(field="dtype", problem="Input should be 'auto' or 'half'")
    own = Resolution(field="max_num_seqs", problem="too many")
    assert check.resolved(GOOD, 128, [fine, fine, fine]) == []
    assert [p.field for p in check.resolved(GOOD, 128, [bad, own, fine])] == ["fixed.dtype", "knob.values"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("./nowhere", "no model './nowhere' on this disk"),
        ("nowhere", "no model 'nowhere'"),
        ("a/b/c", "no model 'a/b/c'"),
        ("practice", "tui-tuner setup"),
    ],
)
def test_a_missing_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, says: str) -> None:
    monkeypatch.setenv("TUI_TUNER_HOME", str(tmp_path))
    problem = check.model_problem(name)
    assert problem is not None and says in problem.say


def test_a_folder_without_a_model_and_an_id_to_download(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    problem = check.model_problem(str(tmp_path))
    assert problem is not None and "has no config.json" in problem.say
    assert check.model_problem("Qwen/Qwen2.5-7B-Instruct") is None
