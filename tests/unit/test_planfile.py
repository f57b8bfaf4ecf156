"""Plans as TOML: there and back, and a sentence for whatever cannot be read."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_tuner.model.load import Lengths, Load, SharedPrefix
from tui_tuner.model.plan import EvalChoice, Plan, Price, Sweep
from tui_tuner.model.slo import Slo
from tui_tuner.prepare import planfile

CONTRACT = """
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


def test_the_documented_plan_is_read_as_it_stands() -> None:
    plan = planfile.parse(CONTRACT)
    assert plan.knob == Sweep("max_num_seqs", (2, 8))
    assert plan.fixed == {"max_model_len": 1024, "enforce_eager": True, "gpu_memory_utilization": 0.3}
    assert plan.slo == Slo("chat", "throughput", {"ttft_p95_ms": 5000.0, "tpot_p95_ms": 200.0})
    assert plan.load == Load("closed", (8,), (), 128, 32, 64)
    assert plan.evalset == EvalChoice("basics", 20, 64)
    assert plan.price == Price(2.0, "CNY")


_values = st.lists(st.one_of(st.integers(1, 4096), st.booleans(), st.text(max_size=8)), min_size=1, max_size=4)
_lengths = st.one_of(
    st.integers(1, 4096), st.builds(Lengths, st.integers(1, 4096), st.floats(0, 2), st.integers(1, 9), st.none())
)
_loads = st.one_of(
    st.builds(Load, st.just("closed"), st.just((8, 64)), st.just(()), _lengths, _lengths, st.integers(1, 999)),
    st.builds(
        Load, st.just("poisson"), st.just(()), st.just((0.5, 4.0)), _lengths, _lengths, st.integers(1, 999),
        shared_prefix=st.one_of(st.none(), st.builds(SharedPrefix, st.integers(1, 64))),
    ),
)  # fmt: skip


@given(
    st.builds(
        Plan,
        model=st.text(min_size=1).filter(str.strip),
        knob=st.builds(Sweep, st.just("max_num_seqs"), _values.map(tuple)),
        seed=st.integers(0, 2**31 - 1),
        fixed=st.dictionaries(st.text(min_size=1), st.one_of(st.integers(-9, 9), st.booleans(), st.text()), max_size=3),
        load=_loads,
        price=st.one_of(st.none(), st.builds(Price, st.floats(0, 99), st.just("CNY"))),
    )
)
def test_what_is_written_is_read_back_as_the_same_plan(plan: Plan) -> None:
    assert planfile.parse(planfile.write(plan)) == plan


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": ""}, "model is missing"),
        ({"knob": "max_num_seqs"}, "knob is 'max_num_seqs'"),
        ({"knobs": {}}, "knobs is not known"),
        ({"thoroughness": "fast"}, "thoroughness is 'fast'"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": True}, "seed is True"),
        ({"fixed": [1]}, "fixed is [1]"),
        ({"slo": {"ttft_p96_ms": 3}}, "ttft_p96_ms"),
        ({"slo": {"ttft_p95_ms": "fast"}}, "slo.ttft_p95_ms"),
        ({"slo": {"goal": "speed"}}, "slo.goal is 'speed'"),
        ({"load": {"requests": "many"}}, "load.requests"),
        ({"load": {"speed": 3}}, "load.speed is not known"),
        ({"evalset": {"items": 1.5}}, "evalset.items"),
        ({"price": {"currency": "EUR"}}, "price"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, object], says: str) -> None:
    table = planfile.to_table(planfile.parse(CONTRACT)) | change
    with pytest.raises(ValueError, match=r"^") as error:
        planfile.from_table(table)
    assert says in str(error.value)


@pytest.mark.parametrize("text", ["model = ", "[[", "\x00", "model = 'x'\nmodel = 'y'"])
def test_what_is_no_toml_is_said_so(text: str) -> None:
    with pytest.raises(planfile.BadPlan, match="not valid TOML"):
        planfile.parse(text)


def test_a_missing_file_and_a_folder_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(planfile.BadPlan, match="there is no file"):
        planfile.read(tmp_path / "none.toml")
    with pytest.raises(planfile.BadPlan, match="is a folder"):
        planfile.read(tmp_path)


def test_a_plans_own_files_are_found_beside_it_and_named_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "set.jsonl").write_text(
        '{"id": "1", "prompt": "2 + 2 = ?", "answer": 4, "scorer": "number"}\n'
    )
    (tmp_path / "traffic.jsonl").write_text('{"prompt_tokens": 5, "output_tokens": 3}\n')
    (tmp_path / "plan.toml").write_text(
        'model = "practice"\nknob = { name = "max_num_seqs", values = [2] }\n'
        'load = { kind = "trace", file = "traffic.jsonl" }\n'
        'evalset = { name = "mine/set.jsonl", items = 1 }\n'
    )
    monkeypatch.chdir("/")
    plan = planfile.read(tmp_path / "plan.toml")
    assert plan.evalset.name == str(tmp_path / "mine" / "set.jsonl")
    assert plan.load.file == str(tmp_path / "traffic.jsonl")
    monkeypatch.chdir(tmp_path)
    assert planfile.read(Path("plan.toml")) == plan
    assert planfile.rooted(plan, Path("/nowhere")) == plan
    (tmp_path / "basics").write_text("a file called as a shipped set is")
    (tmp_path / "plan.toml").write_text(
        'model = "practice"\nknob = { name = "max_num_seqs", values = [2] }\n'
        'evalset = { name = "basics" }\nload = { file = "none.jsonl" }\n'
    )
    plan = planfile.read(tmp_path / "plan.toml")
    assert plan.evalset.name == "basics" and plan.load.file == str(tmp_path / "none.jsonl")
    (tmp_path / "plan.toml").write_text(
        'model = "../model"\nknob = { name = "max_num_seqs", values = [2] }\nevalset = { name = "basik" }\n'
    )
    plan = planfile.read(tmp_path / "plan.toml")
    assert plan.model == str(tmp_path / ".." / "model") and plan.evalset.name == "basik"
