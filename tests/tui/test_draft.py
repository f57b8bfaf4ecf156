"""The wizard's draft: every plan passes through its fields unchanged, and every wrong field is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from tui_tuner.model import load as loads
from tui_tuner.model import slo as slos
from tui_tuner.model.load import Lengths, Load, SharedPrefix
from tui_tuner.model.plan import EvalChoice, Plan, Price, Sweep
from tui_tuner.model.slo import Slo
from tui_tuner.tui import draft
from tui_tuner.tui.draft import Draft, from_plan, practice, step_of

texts = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=12)
plain_values = st.one_of(
    st.booleans(), st.integers(0, 10**6), st.floats(0.01, 100, allow_nan=False), texts.filter(lambda t: t.strip() == t)
)
tables = st.dictionaries(texts, st.one_of(st.integers(0, 99), texts), min_size=1, max_size=3)
values = st.one_of(plain_values, tables)
lengths = st.one_of(
    st.integers(1, 9999),
    st.builds(
        lambda m, s, lo, more: Lengths(m, s / 100, lo, lo + more),
        st.integers(1, 999), st.integers(0, 200), st.integers(1, 99), st.integers(0, 999),
    ),
)  # fmt: skip
names = st.from_regex(r"[a-z][a-z_]{2,12}", fullmatch=True)


@st.composite
def plans(pick: st.DrawFn) -> Plan:
    kind = pick(st.sampled_from(["closed", "poisson"]))
    levels = pick(st.lists(st.integers(1, 500), min_size=1, max_size=4))
    prefix = pick(
        st.none() | st.builds(SharedPrefix, st.integers(1, 999), st.sampled_from([0.5, 1.0]), st.integers(1, 9))
    )
    load = Load(
        kind,  # type: ignore[arg-type]
        tuple(levels) if kind == "closed" else (),
        tuple(x / 4 for x in levels) if kind == "poisson" else (),
        pick(lengths),
        pick(lengths),
        pick(st.integers(1, 999)),
        pick(st.sampled_from(["random", "natural"])),
        prefix,
    )
    limits = pick(
        st.dictionaries(
            st.sampled_from([f"{m}_p{p}_ms" for m in slos.METRICS for p in slos.PERCENTILES]),
            st.integers(1, 99_999).map(float),
            max_size=5,
        )
    )
    return Plan(
        model=pick(texts),
        knob=Sweep(
            "max_num_seqs", tuple(pick(st.lists(values, min_size=1, max_size=4))), pick(st.just(UNSET) | values)
        ),
        thoroughness=pick(st.sampled_from(["quick", "standard", "decide"])),
        seed=pick(st.integers(0, 2**31 - 1)),
        fixed=pick(st.dictionaries(names, values, max_size=4)),
        slo=Slo("mine", pick(st.sampled_from(slos.GOALS)), limits),
        load=load,
        evalset=EvalChoice("basics", pick(st.integers(0, 99)), pick(st.integers(1, 99))),
        price=pick(st.none() | st.builds(Price, st.integers(1, 99).map(float), st.just("CNY"))),
    )


@pytest.mark.parametrize("text", ['"', "'", 'a"b', "[x", "x}", "\\", "a b", "a,b", "", "8", "true", "x\ny"])
def test_a_text_that_a_field_could_misread_is_quoted(text: str) -> None:
    assert draft.read_fixed(draft.write_fixed({"one": text, "two": 2})) == {"one": text, "two": 2}
    assert draft.read_values(draft.write_values((text, 2))) == (text, 2)


@given(plans())
def test_a_plan_comes_back_from_the_fields_as_it_was(plan: Plan) -> None:
    back, wrong = from_plan(plan).plan()
    assert wrong == ()
    assert back == plan


@given(st.text(max_size=30), st.sampled_from([f for f in Draft.__struct_fields__ if f not in ("thoroughness",)]))
def test_any_text_in_any_field_is_a_plan_or_a_sentence(text: str, field: str) -> None:
    plan, wrong = replace(practice(), **{field: text}).plan()
    assert (plan is None) == bool(wrong)
    for problem in wrong:
        assert problem.say and step_of(problem.field) in draft.STEPS


def test_the_practice_sweep_is_what_any_machine_can_run() -> None:
    plan, wrong = practice().plan()
    assert not wrong and plan is not None
    assert plan.model == "practice" and plan.knob.values == (2, 8)
    assert plan.slo.limits == {"ttft_p95_ms": 5000.0, "tpot_p95_ms": 200.0}


@pytest.mark.parametrize("preset", list(loads.PRESETS))
def test_a_traffic_preset_arrives_whole(preset: str) -> None:
    plan, _ = practice().with_load(preset).plan()
    assert plan is not None and plan.load == loads.PRESETS[preset][0]


@pytest.mark.parametrize("preset", list(slos.PRESETS))
def test_an_slo_preset_arrives_whole(preset: str) -> None:
    plan, _ = practice().with_slo(preset).plan()
    assert plan is not None and plan.slo == slos.PRESETS[preset][0]


def test_another_knob_forgets_the_old_ones_values() -> None:
    old = replace(practice(), baseline="4")
    new = old.with_knob("kv_cache_dtype")
    assert (new.values, new.baseline) == ("", "")
    assert old.with_knob("max_num_seqs") is old


@pytest.mark.parametrize(
    ("text", "limits"),
    [("", {}), ("5000", {95: 5000.0}), ("5 s", {95: 5000.0}), ("p50 200, p99: 900ms", {50: 200.0, 99: 900.0})],
)
def test_limits_as_people_write_them(text: str, limits: dict[int, float]) -> None:
    assert draft.read_limits(text) == limits


@pytest.mark.parametrize("text", ["fast", "p42 10", "0", "-5", "1,5,x"])
def test_limits_that_cannot_be(text: str) -> None:
    with pytest.raises(ValueError, match=r"limit|measured"):
        draft.read_limits(text)


def test_values_keep_their_tables_and_types() -> None:
    text = '{"label": "AWQ, 4 bit", "model": "a/b"}, off, 0.9, 8, fp8, "8", none'
    assert draft.read_values(text) == ({"label": "AWQ, 4 bit", "model": "a/b"}, False, 0.9, 8, "fp8", "8", None)


def test_fixed_takes_flags_as_well_as_names() -> None:
    assert draft.read_fixed("--max-model-len=4096 enforce_eager=off") == {"max_model_len": 4096, "enforce_eager": False}
    with pytest.raises(ValueError, match="name=value"):
        draft.read_fixed("max_model_len 4096")
    with pytest.raises(ValueError, match="twice"):
        draft.read_fixed("a=1 a=2")


@pytest.mark.parametrize(
    ("field", "step"),
    [("model", "model"), ("fixed.max_model_len", "model"), ("load.rate", "work"), ("evalset.items", "work"),
     ("slo.ttft", "slo"), ("knob.name", "knob"), ("knob.values", "values"), ("knob.baseline", "values"),
     ("price.per_hour", "review"), ("seed", "review")],
)  # fmt: skip
def test_a_field_leads_to_its_step(field: str, step: str) -> None:
    assert step_of(field) == step
