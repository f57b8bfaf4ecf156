"""The recorded sessions that come along: read as they are, and free of the machine that they were recorded on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tui_tuner.analysis import points, report, verdict
from tui_tuner.model.session import Session
from tui_tuner.store import library, sessionfile

FOLDER = Path(__file__).parents[2] / "sessions"
RECORDED = sorted(FOLDER.glob("*.jsonl"))


def test_there_are_some_and_the_list_reads_them() -> None:
    assert {s.path for s in library.listing(FOLDER)} == set(RECORDED) != set()


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.stem)
def test_a_recorded_session(path: Path) -> None:
    session = sessionfile.read(path)
    assert session.state(locked=False) == "finished" and session.start.machine.gpu is not None
    assert verdict.judge(session).why
    found = report.as_dict(session, "finished", path)
    for point, made in zip(session.points, found["points"], strict=True):
        if point.status == "ok":
            assert made["capacity"]["kv_blocks"] > 0 and made["throughput"]["output_tok_s"] > 0
            assert made["memory"]["peak_mib"] > 0
        else:
            assert point.say
    _dummy_weights_have_no_quality(session)


def _dummy_weights_have_no_quality(session: Session) -> None:
    if session.start.dummy_weights:
        assert all(points.figures(p, session).quality is None for p in session.points)


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.stem)
def test_no_path_of_the_machine_is_in_it(path: Path) -> None:
    assert not re.search(r'"(/|~)[^"]*"', path.read_text(encoding="utf-8"))
    assert path.stat().st_size < 2 << 20
