"""The chain of decisions: what was built upon, in order, and nothing else."""

from __future__ import annotations

from typing import Any

import making as m
from msgspec.structs import replace

from tui_tuner.analysis import chain, export
from tui_tuner.model import events as ev
from tui_tuner.model.machine import Gpu
from tui_tuner.model.plan import Sweep
from tui_tuner.model.session import Session

Made = tuple[ev.SessionStart, ev.Decision]


def made(t: float, knob: str, base: Any, kept: Any = None, fixed: dict[str, Any] | None = None, **plan: Any) -> Made:
    """A session's start at `t` and its decision: to keep `kept`, or to go back."""
    begin = m.start(m.plan(knob=Sweep(knob, (kept,)), fixed=fixed or {}, **plan), baseline=base, id=f"s{t:g}", t=t)
    choice: Any = "keep" if kept is not None else "revert"
    value = kept if kept is not None else base
    return begin, ev.Decision(t + 1, choice, value, seen={"why": f"verdict {t:g}"})


def of(last: Made, *others: Made) -> list[str]:
    start, decision = last
    return [link.did for link in chain.of(Session(start, decisions=(decision,)), others)]


FIRST = made(1, "max_num_seqs", 128, 8)
SECOND = made(2, "block_size", 16, None, {"max_num_seqs": 8})
THIRD = made(3, "enforce_eager", False, True, {"max_num_seqs": 8})


def test_the_chain_is_told_from_the_first_to_its_own() -> None:
    told = ["max_num_seqs 128 → 8", "block_size stays 16", "enforce_eager off → on"]
    assert of(THIRD, SECOND, THIRD, FIRST) == told
    assert of(SECOND, THIRD, FIRST) == told[:2]  # what came later led nowhere here


def test_what_was_not_built_upon_is_left_out() -> None:
    elsewhere = (replace(FIRST[0], machine=replace(FIRST[0].machine, gpu=Gpu("GPU-2", "L4"))), FIRST[1])
    other_model = made(1, "max_num_seqs", 128, 8, model="other")
    dropped = made(1.5, "max_num_seqs", 128, 32)
    assert of(THIRD, elsewhere, other_model, dropped) == ["enforce_eager off → on"]


def test_a_knob_can_be_turned_twice_and_a_checkpoint_changes_the_model() -> None:
    again = made(4, "max_num_seqs", 8, 16)
    assert of(again, FIRST) == ["max_num_seqs 128 → 8", "max_num_seqs 8 → 16"]
    awq = made(2, "quantization", {"label": "none", "model": "m"}, {"label": "AWQ", "model": "m-AWQ"}, model="m")
    after = made(3, "max_num_seqs", 128, 8, model="m-AWQ")
    before = made(1, "block_size", 16, 32, model="m")
    assert of(after, before, awq) == ["quantization none → AWQ", "max_num_seqs 128 → 8"]
    assert of(after, before) == ["max_num_seqs 128 → 8"]


def test_reports_tell_the_chain_with_each_reason() -> None:
    start, decision = THIRD
    why = replace(decision, why="*it* <b>is</b> simpler", override=True)
    session = replace(m.quick(m.point(2, "value", True, 150.0), begin=start), decisions=(why,))
    links = chain.of(session, [FIRST])
    text = export.TO["markdown"](session, "finished", links)
    assert "1. max\\_num\\_seqs 128 → 8: verdict 1 (s1)" in text
    assert "2. enforce\\_eager off → on: verdict 3 (against the verdict: \\*it\\*" in text
    page = export.TO["html"](session, "finished", links)
    assert "<li>max_num_seqs 128 → 8: verdict 1 (s1)</li>" in page and "&lt;b&gt;is" in page
