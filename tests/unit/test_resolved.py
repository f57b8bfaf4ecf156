"""The flat table of a resolved configuration, and what a complaint is made of; without vLLM."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_tuner.worker import introspect, resolved


class Mode(enum.Enum):
    FAST = 3


@dataclasses.dataclass
class Inner:
    mode: Any = Mode.FAST
    sizes: Any = dataclasses.field(default_factory=lambda: {4, 1, 2})
    _hidden: int = 1


@dataclasses.dataclass
class Config:
    instance_id: str = "differs every time"
    compilation_config: Inner = dataclasses.field(default_factory=Inner)
    value: float = math.nan
    kind: type = int
    thing: object = dataclasses.field(default_factory=object)
    path: Path = Path("/x/y")


def test_a_configuration_becomes_a_flat_table_of_json() -> None:
    flat = resolved.flatten(Config())
    assert flat == {
        "compilation_config.mode": "FAST", "compilation_config.sizes": [1, 2, 4], "value": "nan", "kind": "int",
        "thing": "<object>", "path": "/x/y",
    }  # fmt: skip
    json.dumps(flat, allow_nan=False)


def test_two_equal_configurations_are_equal_tables() -> None:
    assert resolved.flatten(Config("a")) == resolved.flatten(Config("b"))


def test_a_token_never_gets_in(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclasses.dataclass
    class Model:
        hf_token: str = "hf_secret"
        model: str = "m"

    @dataclasses.dataclass
    class Whole:
        model_config: Model = dataclasses.field(default_factory=Model)

    assert resolved.flatten(Whole()) == {"model_config.model": "m"}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(object()),
        lambda c: st.lists(c) | st.dictionaries(st.text() | st.integers(), c) | st.frozensets(st.integers()),
        max_leaves=10,
    )
)
def test_anything_becomes_json(value: object) -> None:
    json.dumps(resolved.plain(value), allow_nan=False)


CONTRADICTION = "max_num_batched_tokens (512) must be greater than or equal to max_num_seqs (1024)."


class Complaint(ValueError):
    """As pydantic's ValidationError."""

    def errors(self) -> list[dict[str, Any]]:
        return [{"loc": self.args[0], "msg": self.args[1]}]


@pytest.mark.parametrize(
    ("error", "args", "field", "sentence"),
    [
        (
            Complaint((), f"Value error, {CONTRADICTION}"),
            {"model": "m", "max_num_seqs": 1024},
            "max_num_seqs",
            CONTRADICTION,
        ),
        (Complaint(("cache_dtype",), "Not 'auto'"), {"kv_cache_dtype": "x"}, "kv_cache_dtype", "Not 'auto'"),
        (
            TypeError("AsyncEngineArgs.__init__() got an unexpected keyword argument 'nonsense'"),
            {"nonsense": 1},
            "nonsense",
            "this vLLM has no argument nonsense",
        ),
        (
            ValueError("Total number of attention heads (9) must be divisible by tensor parallel size (2)."),
            {"model": "m", "tensor_parallel_size": 2},
            "tensor_parallel_size",
            "Total number of attention heads (9) must be divisible by tensor parallel size (2).",
        ),
        (ValueError("No config file for awq"), {"quantization": "awq"}, "quantization", "No config file for awq"),
        (ValueError("/no/where is nothing"), {"model": "/no/where"}, "model", "there is no model in /no/where"),
        (RuntimeError(""), {}, None, "RuntimeError"),
    ],
)  # fmt: skip
def test_a_complaint_names_the_argument(
    error: Exception, args: dict[str, Any], field: str | None, sentence: str
) -> None:
    assert introspect.complaint(error, args) == (field, sentence)


def test_a_flag_is_turned_off_in_the_way_that_all_versions_understand() -> None:
    action = type("EnableDisableAction", (), {})()
    action.option_strings = ["--enable-x", "--disable-x"]
    assert introspect._flags("enable_x", action) == ["--enable-x", "--disable-x", "--no-enable-x"]


def test_choices_are_words_without_none() -> None:
    told = introspect._Declared(None, "x", None, {}, "", None)
    assert introspect._choices("x", told, SimpleNamespace(choices=["auto", "fp8", "None"])) == ["auto", "fp8"]
    assert introspect._choices("x", told, SimpleNamespace(choices=["auto", None])) == ["auto"]
    assert introspect._choices("x", told, SimpleNamespace(choices=None)) is None


def test_without_a_question_it_says_who_it_is() -> None:
    answer = introspect.answer({})
    assert answer["python"] and "msgspec" in answer["packages"] and "facts" not in answer


def test_without_vllm_the_problem_is_told() -> None:
    assert (
        "vllm" in introspect.answer({"facts": True})["problem"]
        or "torch" in introspect.answer({"facts": True})["problem"]
    )
