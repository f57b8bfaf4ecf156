"""Session files of a real sweep with bytes cut and flipped, and with values that no runner writes.

Whatever came of a file, everything that reads one either shows it or refuses it with a sentence: the commands, home,
the screens, and the runner that is to go on with it.
"""

from __future__ import annotations

import contextlib
import io
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tui import sessions as made

from tui_tuner import cli, paths
from tui_tuner.analysis import export, schedule, verdict
from tui_tuner.model import events as ev
from tui_tuner.model.session import Session
from tui_tuner.prepare import start
from tui_tuner.runner import point as points
from tui_tuner.runner import processes, sweep
from tui_tuner.store import sessionfile
from tui_tuner.tui import outcome, view
from tui_tuner.tui.screens import results, run
from tui_tuner.tui.services import Services

RECORDED = Path(__file__).parents[2] / "sessions" / "h200-gpu_memory_utilization.jsonl"
FLAWS = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
ROWS = 12  # of each level that are kept: the shape is what matters here, and examples are many


def shortened() -> list[dict[str, Any]]:
    """The recorded sweep's lines, with fewer ticks and shorter columns."""
    lines = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
    kept = [line for i, line in enumerate(lines) if line["type"] != "tick" or i % 40 == 0]
    for line in kept:
        if line["type"] == "requests":
            line.update({name: column[:ROWS] for name, column in line.items() if isinstance(column, list)})
            line["gaps"] = [gaps[:4] for gaps in line["gaps"]]
    return kept


def answered() -> list[dict[str, Any]]:
    """A sweep with answers, a failed point and a decision: what the recorded one does not hold."""
    events = [*made.with_failure(), ev.Decision(made.T0 + 900, "keep", 8, "so", {"choice": "keep", "why": "faster"})]
    return [json.loads(ev.encode(event)) for event in events]


def of_this_boot(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As if it had been measured since this machine was started: what it left behind is looked for."""
    return [line | {"boot_id": processes.boot_id()} if line["type"] == "launched" else line for line in lines]


SESSIONS = [of_this_boot(shortened()), of_this_boot(answered())]
FILES = [b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines) for lines in SESSIONS]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("TUI_TUNER_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(paths, "locks_dir", lambda: tmp_path / "locks")
    before = {number: signal.getsignal(number) for number in range(1, 31) if number not in (9, 19)}
    yield
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def said(*words: str) -> tuple[int, str, str]:
    """A command's exit code and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(words)
    return code, out.getvalue(), err.getvalue()


def is_read(path: Path) -> Session | None:
    """Whether all that reads a session gets along with this file: the session, or None if it is refused."""
    folder = ["--sessions", str(path.parent)]
    assert said("list", *folder)[0] == cli.OK
    assert said("list", "--json", *folder)[0] == cli.OK
    assert [row.id for row in Services(str(path.parent)).listing().rows] == [path.stem]
    try:
        session = sessionfile.read(path)
    except sessionfile.Unreadable as refused:
        assert str(path) in str(refused)
        for command in (("show", path.stem), ("show", str(path), "--json"), ("export", path.stem)):
            code, out, err = said(*command, *folder)
            assert (code, out) == (cli.BAD_INPUT, "") and err.startswith("tui-tuner: ")
        return None
    for command in (("show", path.stem), ("show", str(path), "--json"), ("compare", path.stem, path.stem)):
        code, out, _ = said(*command, *folder)
        assert code == cli.OK and out
    for to in export.TO:
        code, _, err = said("export", path.stem, "--to", to, *folder)
        assert code in (cli.OK, cli.BAD_INPUT) and "Traceback" not in err
    seen = view.snapshot(session, False, session.last_t, schedule.slots(session))
    for row in seen.rows:
        run.cells(row)
        run.details(session, row)
    for line in (run.phase, run.now, run.times):
        line(seen)
    found = outcome.of(session, False, verdict.judge(session))
    results.sentence(found)
    for measure in found.rows:
        results.cells(measure)
        results.under(found, measure)
    for page in (results.curve, results.answers, results.prediction):
        page(found, 74, 12)
    outcome.choices(found)
    return session


class Failing:
    """In the place of a point's run: no engine is started, the point just fails."""

    count = 0

    def __init__(self, of: sweep.Sweep, slot: schedule.Slot, baseline_mib: int | None) -> None:
        self.sweep, self.slot = of, slot

    def go(self) -> points.Outcome:
        Failing.count += 1
        assert Failing.count < 40, "the schedule comes to no end"
        self.sweep.task(self.slot.value)
        now, n = self.sweep.now(), self.slot.n
        self.sweep.emit(ev.PointStarted(now, n, self.slot.role, self.slot.value, segment=self.sweep.session.segment))
        self.sweep.emit(ev.PointFailed(now, n, "crash", "load", "none", "nothing was started"))
        return points.Outcome()


def goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner takes the session and comes to an end, or refuses it with a sentence; `resume` likewise."""
    launched: list[Path] = []
    monkeypatch.setattr(start, "launch", launched.append)
    code, _, err = said("resume", path.stem, "--sessions", str(path.parent))
    assert code in (cli.OK, cli.BROKEN, cli.BAD_INPUT, cli.NO_BASELINE, cli.STOPPED) and "Traceback" not in err
    monkeypatch.setattr(sweep, "PointRun", Failing)
    Failing.count = 0
    before = path.read_bytes()
    words: list[str | None] = []
    code = sweep.run(path, words.append)
    assert len(words) == 1
    if words[0] is None:
        session = sessionfile.read(path)
        assert session.ended and "itself failed" not in (session.ended.say or "")
        kept = before[: before.rfind(b"\n") + 1]
        assert path.read_bytes().startswith(kept), "nothing is ever rewritten"
    else:
        assert words[0] and code == sweep.FAILED and path.read_bytes() == before


def damaged(data: st.DataObject) -> bytes:
    content = bytearray(data.draw(st.sampled_from(FILES)))
    for _ in range(data.draw(st.integers(0, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, len(content)))
        del content[at : at + data.draw(st.integers(0, 4000))]
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    return bytes(content)


@FLAWS
@given(data=st.data())
def test_cut_and_flipped_bytes(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("damaged") / "s.jsonl"
    path.write_bytes(damaged(data))
    is_read(path)
    with pytest.MonkeyPatch.context() as monkeypatch:
        goes_on(path, monkeypatch)


NUMBERS = st.sampled_from([0, -1, 1, 1e-300, 1e300, -1e300, 2**62, 10**30, 0.5, 7])
ODD = st.one_of(
    st.none(), st.booleans(), NUMBERS, st.text(max_size=12),
    st.sampled_from(["", "\x1b[31m", "\u202e", "[/bold]", "x" * 5000, "'; rm -rf / #", "auto", "../../.."]),
    st.lists(NUMBERS, max_size=3), st.just({}), st.just({"label": "a", "model": "b"}), st.just([[]]),
)  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value; of a long list only the first few."""
    if at:
        yield at
    items = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*at, key))


def changed(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    if not at:
        return new
    if isinstance(value, dict):
        return {key: changed(inner, at[1:], new) if key == at[0] else inner for key, inner in value.items()}
    if isinstance(value, list):
        return [changed(inner, at[1:], new) if i == at[0] else inner for i, inner in enumerate(value)]
    return value  # an earlier change took the place away


PLACES = [[(i, at) for i, line in enumerate(lines) for at in places(line)] for lines in SESSIONS]


@FLAWS
@given(data=st.data())
def test_values_that_no_runner_writes(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    which = data.draw(st.integers(0, len(SESSIONS) - 1))
    lines = list(SESSIONS[which])
    for _ in range(data.draw(st.integers(1, 5))):
        i, at = data.draw(st.sampled_from(PLACES[which]))
        lines[i] = changed(lines[i], at, data.draw(ODD))
    if data.draw(st.booleans()):
        lines[1:] = data.draw(st.permutations(lines[1:]))
    path = tmp_path_factory.mktemp("odd") / "s.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    is_read(path)
    with pytest.MonkeyPatch.context() as monkeypatch:
        goes_on(path, monkeypatch)


@pytest.mark.parametrize(
    "flaw",
    [{"score": [5.0] * 20}, {"score": [-1.0] * 20}, {"text": ["one"]}, {"tokens": []}, {"finish": ["stop"] * 21}],
)
def test_answers_that_do_not_fit_together_are_skipped(flaw: dict[str, Any], tmp_path: Path) -> None:
    """A score is between wrong and right, and each answer has an item: else every figure of quality would be wrong."""
    lines = answered()
    number = next(i for i, line in enumerate(lines) if line["type"] == "answers")
    lines[number] |= flaw
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    session = sessionfile.read(path)
    assert session.skipped == 1 and session.points[0].answers is None and session.points[0].levels
    assert verdict.judge(session).why and all(export.TO[kind](session, "finished") for kind in export.TO)
