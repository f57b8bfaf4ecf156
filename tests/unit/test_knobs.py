"""The catalogue, and the comparison of resolved configurations by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tui_tuner.model import knobs
from tui_tuner.model.changes import compare
from tui_tuner.model.slo import GOALS
from tui_tuner.model.values import is_variant

FIGURES = {"throughput", "ttft", "tpot", "itl", "kv_tokens", "vram", "startup"}
HELP = Path(knobs.__file__).parents[1] / "tui" / "help" / "knobs"


@pytest.mark.parametrize("knob", knobs.CATALOGUE.values(), ids=lambda k: k.name)
def test_an_entry_is_whole(knob: knobs.Knob) -> None:
    assert knob.flag == "--" + knob.name.replace("_", "-")
    assert set(knob.directions) == FIGURES
    assert knob.config_field and knob.trades and knob.when and knob.raise_means
    assert all(a != b for i, a in enumerate(knob.suggested) for b in knob.suggested[:i])
    kinds = {"int": int, "float": (int, float), "bool": bool, "choice": (str, type(None)), "table": dict}
    for value in knob.suggested:
        assert isinstance(value, kinds[knob.kind]), value  # type: ignore[arg-type]


@pytest.mark.parametrize("knob", knobs.CATALOGUE.values(), ids=lambda k: k.name)
def test_every_knob_has_its_help_page(knob: knobs.Knob) -> None:
    assert (HELP / f"{knob.name}.md").is_file()


def test_what_can_touch_quality_is_said_to() -> None:
    measured = {k.name for k in knobs.CATALOGUE.values() if k.quality == "measure"}
    assert measured == {"quantization", "kv_cache_dtype", "dtype"}


def test_get_names_the_nearest() -> None:
    assert knobs.get("max_num_seqs").name == "max_num_seqs"
    for wrong in ("max_num_seq", "--max-num-seqs", "MAX_NUM_SEQS"):
        with pytest.raises(KeyError) as caught:
            knobs.get(wrong)
        assert "did you mean max_num_seqs" in caught.value.args[0]
    with pytest.raises(KeyError) as caught:
        knobs.get("zzzzzz")
    assert "gpu_memory_utilization" in caught.value.args[0]


@pytest.mark.parametrize("goal", GOALS)
def test_ranked_has_every_knob_once(goal: str) -> None:
    names = [k.name for k in knobs.ranked(goal)]
    assert sorted(names) == sorted(knobs.CATALOGUE)


def test_what_hurts_is_not_tried_first() -> None:
    for goal, figure in (("throughput", "throughput"), ("ttft", "ttft"), ("tpot", "tpot")):
        first = knobs.ranked(goal)[:3]
        assert any(k.directions[figure] != "flat" for k in first)  # type: ignore[index]
    assert "cpu_offload_gb" not in [k.name for k in knobs.ranked("throughput")[:10]]


BASE = {
    "scheduler_config.max_num_seqs": 8, "scheduler_config.max_num_batched_tokens": 2048,
    "cache_config.gpu_memory_utilization": 0.3, "model_config.model": "a", "model_config.dtype": "bfloat16",
    "scheduler_config.async_scheduling": True, "speculative_config": None, "compilation_config.mode": "NONE",
}  # fmt: skip


def test_knob_derived_and_foreign_are_told_apart() -> None:
    here = BASE | {
        "scheduler_config.max_num_seqs": 1, "scheduler_config.max_num_batched_tokens": 1024,
        "cache_config.gpu_memory_utilization": 0.5,
    }  # fmt: skip
    changed = compare(BASE, here, knobs.get("max_num_seqs"))
    assert changed.knob == {"scheduler_config.max_num_seqs": [8, 1]}
    assert changed.derived == {"scheduler_config.max_num_batched_tokens": [2048, 1024]}
    assert changed.foreign == {"cache_config.gpu_memory_utilization": [0.3, 0.5]}


def test_equal_configurations_do_not_differ_whatever_the_knob() -> None:
    for knob in knobs.CATALOGUE.values():
        changed = compare(BASE, dict(BASE), knob)
        assert not (changed.knob or changed.derived or changed.foreign)


def test_one_is_one_point_nought_and_is_not_true() -> None:
    knob = knobs.get("watermark")
    assert not compare({"scheduler_config.watermark": 1}, {"scheduler_config.watermark": 1.0}, knob).knob
    assert compare({"scheduler_config.watermark": 1}, {"scheduler_config.watermark": True}, knob).knob


def test_a_configuration_that_comes_into_being_is_the_knob() -> None:
    here = {k: v for k, v in BASE.items() if k != "speculative_config"} | {
        "speculative_config.method": "ngram", "speculative_config.num_speculative_tokens": 3,
        "scheduler_config.async_scheduling": False,
    }  # fmt: skip
    changed = compare(BASE, here, knobs.get("speculative_config"))
    assert set(changed.knob) == {"speculative_config.method", "speculative_config.num_speculative_tokens"}
    assert set(changed.derived) == {"scheduler_config.async_scheduling"} and not changed.foreign


def test_a_variant_may_change_its_model_and_nothing_else() -> None:
    knob = knobs.get("quantization")
    variant = {"label": "AWQ", "model": "b", "max_num_seqs": 16}
    assert is_variant(variant)
    here = BASE | {
        "model_config.model": "b", "model_config.quantization": "awq", "model_config.dtype": "float16",
        "scheduler_config.max_num_seqs": 16, "cache_config.gpu_memory_utilization": 0.4,
    }  # fmt: skip
    changed = compare(BASE, here, knob, variant)
    assert {"model_config.model", "model_config.quantization", "scheduler_config.max_num_seqs"} == set(changed.knob)
    assert set(changed.derived) == {"model_config.dtype"}
    assert set(changed.foreign) == {"cache_config.gpu_memory_utilization"}
    plain = compare(BASE, here, knob, "awq")
    assert "model_config.model" in plain.foreign
