"""Eval sets: the shipped ones, the checker, fair samples, scorers that trust nothing."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui_tuner import evals
from tui_tuner.evals import scorers, traffic
from tui_tuner.evals.evalset import Item, folder, stratum


def item(scorer: str, answer: object) -> Item:
    return Item("x", "?", answer=answer, scorer=scorer)


def test_the_shipped_sets_load_and_hold_what_is_promised() -> None:
    assert evals.shipped() == ("basics", "reasoning")
    basics, reasoning = evals.load("basics"), evals.load("reasoning")
    assert len(basics.items) >= 120 and len(reasoning.items) >= 150
    for found in (basics, reasoning):
        assert found.licence == "CC0-1.0"
        assert {stratum(i) for i in found.items} == {f"level-{n}" for n in range(1, 6)}
        assert len({i.text for i in found.items}) == len(found.items)
    assert {i.scorer for i in basics.items} >= {"number", "choice", "contains", "regex"}
    assert all(i.scorer == "number" for i in reasoning.items)


def test_the_reasoning_set_is_what_its_script_writes() -> None:
    script = runpy.run_path(str(folder() / "make_reasoning.py"))
    text = "".join(line + "\n" for line in script["lines"]())
    assert text.encode() == (folder() / "reasoning.jsonl").read_bytes()


def test_a_right_answer_scores_and_a_wrong_one_does_not() -> None:
    for name in evals.shipped():
        for found in evals.load(name).items:
            right = found.answer[0] if isinstance(found.answer, list) else str(found.answer)
            assert evals.score(found, right) == 1.0, found
            assert evals.score(found, "") == 0.0, found
            assert evals.score(found, "\x00\ufffd zq vv xx") == 0.0, found


@pytest.mark.parametrize(
    ("scorer", "answer", "text", "right"),
    [
        ("exact", "Paris", "  paris.\n", True),
        ("exact", "Paris", "It is Paris", False),
        ("exact", ["no", "nope"], "Nope!", True),
        ("number", 12, "The answer is 12.", True),
        ("number", 12, "5 + 7 = 12", True),
        ("number", 12, "Answer: 12 because 3 * 4 = 12 and not 13", True),
        ("number", 12, "#### 13", False),
        ("number", 1024, "1,024", True),
        ("number", 0.5, "1/2", True),
        ("number", -3, "x = -3", True),
        ("number", 3, "x = -3", False),
        ("number", 12, "112", False),
        ("number", 5, "b5", False),
        ("choice", "B", "B", True),
        ("choice", "B", "(b) apple", True),
        ("choice", "B", "The answer is B.", True),
        ("choice", "B", "Answer: **B**", True),
        ("choice", "B", "A fruit that grows on trees: B", True),
        ("choice", "A", "The answer is a fruit.", False),
        ("choice", "C", "B) carrot", False),
        ("contains", "mars", "It is Mars.", True),
        ("contains", "mars", "The marsh", False),
        ("contains", "carbon dioxide", "Carbon  dioxide, of course", True),
        ("contains", "水", "答案是水。", True),
        ("regex", r"2021-03-0?5", "It is 2021-03-05", True),
        ("regex", r"^yes\b", "no, yes", False),
    ],
)
def test_scorers(scorer: str, answer: object, text: str, right: bool) -> None:
    assert evals.score(item(scorer, answer), text) == float(right)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|aa)+$",
        "(a*)*b",
        "(?:a?){30}a{30}",
        r"(\w+\s?)*!",
        "a*a*a*a*b",
        r"(a)\1",
        "(?=a)",
        "(" * 5,
        "a" * 201,
    ],
)
def test_patterns_that_could_run_for_ever_are_refused(pattern: str) -> None:
    assert scorers.problem("regex", pattern)
    assert evals.score(item("regex", pattern), "a" * 100_000) == 0.0


@pytest.mark.parametrize(
    "pattern", [r"\d{4}-\d{2}-\d{2}", "yes|no", "colou?r", r"(\d{3},)*\d{1,3}", ".*foo.*", r"(?:a|b)+"]
)
def test_ordinary_patterns_are_allowed(pattern: str) -> None:
    assert scorers.problem("regex", pattern) is None


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(scorers.SCORERS)), st.text(max_size=300))
def test_no_text_makes_a_scorer_raise(scorer: str, text: str) -> None:
    answers = {"number": 7, "choice": "C", "regex": r"\d+ .*x"}
    assert evals.score(item(scorer, answers.get(scorer, "seven")), text) in (0.0, 1.0)


def test_an_item_without_an_answer_is_not_scored() -> None:
    assert evals.score(Item("x", "Tell a joke."), "ha") is None


GOOD = {"id": "1", "prompt": "2 + 2 = ?", "answer": 4}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "no JSON"),
        (b"[1]", "no JSON object"),
        ({**GOOD, "id": ""}, "id is ''"),
        ({**GOOD, "id": True}, "id is True"),
        ({"id": "1", "answer": 4}, "prompt and messages"),
        ({**GOOD, "messages": []}, "prompt and messages"),
        ({**GOOD, "prompt": " "}, "prompt is ' '"),
        ({"id": "1", "messages": [{"role": "robot", "content": "x"}], "answer": 1}, "messages[0].role"),
        ({"id": "1", "messages": [{"role": "user"}], "answer": 1}, "messages[0]"),
        ({**GOOD, "scorer": "judge"}, "scorer is 'judge'"),
        ({**GOOD, "answer": "four", "scorer": "number"}, "answer is 'four'"),
        ({**GOOD, "answer": "AB", "scorer": "choice"}, "answer is 'AB'"),
        ({**GOOD, "answer": "(", "scorer": "regex"}, "no regular expression"),
        ({**GOOD, "answer": [], "scorer": "contains"}, "answer is []"),
        ({"id": "1", "prompt": "x", "scorer": "exact"}, "answer is missing"),
        ({**GOOD, "tags": "level-1"}, "tags is 'level-1'"),
        ({**GOOD, "anwser": 4}, "'anwser' is no field"),
        ({**GOOD, "id": "0"}, "id '0' was used in line 1"),
    ],
)
def test_a_bad_line_is_named_by_number_and_field(tmp_path: Path, line: object, words: str) -> None:
    bad = line if isinstance(line, bytes) else msgspec.json.encode(line)
    file = tmp_path / "mine.jsonl"
    file.write_bytes(msgspec.json.encode({**GOOD, "id": "0"}) + b"\n\n" + bad + b"\n")
    with pytest.raises(evals.BadEvalSet, match=r"mine\.jsonl, line 3: .*" + re.escape(words)):
        evals.load(str(file))


def test_a_missing_or_empty_set_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(evals.BadEvalSet, match="basics, reasoning"):
        evals.load("nothing-here")
    (tmp_path / "e.jsonl").write_text("\n")
    with pytest.raises(evals.BadEvalSet, match="no items"):
        evals.load(tmp_path / "e.jsonl")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 9))
def test_a_smaller_sample_is_part_of_a_larger_one(k: int, m: int, seed: int) -> None:
    found = evals.load("basics")
    few, more = sorted((k, m))
    small, large = evals.sample(found, few, seed), evals.sample(found, more, seed)
    assert large[: len(small)] == small
    assert len(small) == min(few, len(found.items)) == len({i.id for i in small})
    levels = Counter(stratum(i) for i in found.items)
    counts = Counter(stratum(i) for i in small)
    for level, size in levels.items():  # every prefix is a fair mix, to within two items of each level
        assert abs(counts[level] - len(small) * size / len(found.items)) < 2


def test_another_seed_is_another_sample() -> None:
    found = evals.load("basics")
    assert evals.sample(found, 20, 0) == evals.sample(found, 20, 0) != evals.sample(found, 20, 1)


def test_the_worker_is_never_handed_an_answer() -> None:
    question = evals.load("basics").items[0].question()
    assert not {"answer", "scorer"} & set(msgspec.to_builtins(question))


def test_traffic_is_read_in_all_its_kinds(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    rows = [
        {"prompt": "hi", "max_tokens": 5, "arrival_s": 3},
        {"body": {"messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 7}, "arrival_s": 2.5},
        {"prompt_tokens": 10, "output_tokens": 3, "arrival_s": 4},
    ]
    file.write_bytes(b"\n".join(map(msgspec.json.encode, rows)))
    assert traffic.read(file) == [
        {"messages": [{"role": "user", "content": "hi"}], "output_tokens": 7, "arrival_s": 0.0},
        {"prompt": "hi", "output_tokens": 5, "arrival_s": 0.5},
        {"prompt_tokens": 10, "output_tokens": 3, "arrival_s": 1.5},
    ]
    assert len(traffic.read(file, limit=2)) == 2


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"text": "x"}, "exactly one of prompt"),
        ({"prompt": ""}, "prompt is ''"),
        ({"prompt": "x", "max_tokens": 0}, "max_tokens is 0"),
        ({"prompt_tokens": 5}, "output_tokens is missing"),
        ({"prompt_tokens": 1.5, "output_tokens": 1}, "prompt_tokens is 1.5"),
        ({"body": 3}, "body is 3"),
        ({"body": {"messages": "x"}}, "messages must be a list"),
        ({"prompt": "x", "arrival_s": "now"}, "arrival_s is 'now'"),
    ],
)
def test_bad_traffic_is_named_by_line_and_field(tmp_path: Path, row: dict[str, object], words: str) -> None:
    file = tmp_path / "t.jsonl"
    file.write_bytes(b'{"prompt": "fine"}\n' + msgspec.json.encode(row))
    with pytest.raises(traffic.BadTraffic, match=r"t\.jsonl, line 2: .*" + re.escape(words)):
        traffic.read(file)


def test_arrival_times_are_for_all_or_none(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_bytes(b'{"prompt": "a", "arrival_s": 1}\n{"prompt": "b"}')
    with pytest.raises(traffic.BadTraffic, match="request 2 has no arrival_s"):
        traffic.read(file)
