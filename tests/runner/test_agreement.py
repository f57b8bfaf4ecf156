"""An eval set of prompts alone: answers are compared with the baseline's, and so keep or lose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import scripted
from tui_tuner.analysis import report
from tui_tuner.analysis.verdict import judge
from tui_tuner.model.plan import EvalChoice

ITEMS = 12


def told(folder: Path, name: str, unlike: int) -> str:
    """A file of answers of which the first so many are others."""
    texts = {f"q{n}": f"{'Perhaps' if n < unlike else 'It is'} {n}." for n in range(ITEMS)}
    file = folder / f"{name}.json"
    file.write_text(json.dumps(texts), encoding="utf-8")
    return str(file)


@pytest.mark.parametrize(
    ("unlike", "choice", "says"),
    [(0, "keep", "100% of the answers read as"), (9, "revert", "25% of the answers read as at the baseline")],
)
def test_prompts_without_answers_are_scored_by_agreement_with_the_baseline(
    unlike: int, choice: str, says: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.prepare(monkeypatch)
    own = folder / "prompts.txt"
    own.write_text("".join(json.dumps({"id": f"q{n}", "prompt": f"What is {n}?"}) + "\n" for n in range(ITEMS)))
    scripted.scenario(
        monkeypatch,
        folder,
        [
            {"do": {"answers": told(folder, "usual", 0)}},
            {"when": {"kv_cache_dtype": "fp8"}, "do": {"answers": told(folder, "fp8", unlike), "gain": 1.5}},
        ],
    )
    path = scripted.session(
        folder, knob="kv_cache_dtype", values=("fp8",), baseline="auto", evalset=EvalChoice(str(own), ITEMS, 32)
    )
    scripted.start(path).wait(60)
    session = scripted.released(path)
    assert [p.status for p in session.points] == ["ok"] * 3
    assert all(p.answers and p.answers.score == [None] * ITEMS for p in session.points)
    verdict = judge(session)
    assert verdict.choice == choice and says in verdict.why
    assert ("agreement with the baseline's answers fell (9 items" in verdict.per_value[0].why) is (unlike > 0)
    compared = verdict.per_value[0].quality
    assert compared and compared.agreement and (compared.lost, compared.won) == (unlike, 0)
    quality = report.as_dict(session, "finished", path)["points"][1]["quality"]
    assert (quality["accuracy"], quality["items"], quality["scored"]) == (None, ITEMS, 0)
    assert quality["against_baseline"]["identical"] == pytest.approx(1 - unlike / ITEMS)
    assert quality["against_baseline"]["fell"] is (unlike > 0)
