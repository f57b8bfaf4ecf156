"""The pure parts of the terminal side: text, charts, terminal, the view, what follows a decision."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from rich.cells import cell_len

from tui import sessions as made
from tui_tuner.analysis import schedule, verdict
from tui_tuner.model import events as ev
from tui_tuner.model.plan import Sweep
from tui_tuner.model.session import fold
from tui_tuner.tui import actions, clean, onward, outcome, terminal, theme, view, words
from tui_tuner.tui.services import Services
from tui_tuner.tui.widgets import chart
from tui_tuner.tui.widgets.form import grown

HARMLESS = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


# ---- text -------------------------------------------------------------------------------------------------------


@given(st.text(max_size=300), st.integers(0, 120), st.booleans())
def test_fit_is_exactly_as_wide_as_asked(text: str, columns: int, right: bool) -> None:
    assert cell_len(clean.fit(text, columns, right)) == columns


@given(st.text(st.characters(), max_size=200))
def test_nothing_a_terminal_could_obey_is_left(text: str) -> None:
    import unicodedata

    shown = clean.plain(text)
    assert "\n" not in shown
    assert not [c for c in shown if unicodedata.category(c) in HARMLESS]


def test_escape_sequences_go_as_a_whole() -> None:
    assert clean.plain("\x1b[31mred\x1b[0m \x1b]0;title\x07rest\x1b]8;;http://x\x1b\\link") == "red restlink"


def test_a_megabyte_line_costs_no_more_than_what_is_shown() -> None:
    assert len(clean.plain("x" * (1 << 20))) == clean.LONGEST


@given(st.text(max_size=80))
def test_ascii_is_ascii_and_as_wide(text: str) -> None:
    safe = clean.plain(text)
    shown = theme.ascii_only(safe)
    assert shown.isascii()
    assert cell_len(shown) == cell_len(safe)


def test_figures_are_written_one_way() -> None:
    assert words.number(1204.4) == "1,204" and words.number(None) == "–"
    assert words.difference(-0.256) == "−26 %" and words.difference(0.012) == "+1.2 %"
    assert words.mib(3512) == "3,512 MiB" and words.mib(24564) == "24.0 GiB"
    assert words.ms(16.04) == "16.0 ms" and words.ms(12_340) == "12.3 s"
    assert words.seconds(45) == "45 s" and words.seconds(3900) == "1 h 05 min"


# ---- charts -----------------------------------------------------------------------------------------------------

levels = st.lists(st.none() | st.floats(0, 1e6, allow_nan=False), max_size=60)


@given(levels, st.floats(0.1, 1e6), st.integers(1, 6), st.integers(0, 80))
def test_bars_fill_their_room_and_start_at_zero(
    values: list[float | None], top: float, height: int, width: int
) -> None:
    rows = chart.bars(values, top, height, width)
    assert len(rows) == height and all(len(row) == width for row in rows)
    for column, value in enumerate(chart.columns(values, width)):
        filled = sum(" ▁▂▃▄▅▆▇█".index(row[column]) for row in rows)
        if not value or value <= 0:
            assert filled == 0
        else:
            assert 1 <= filled <= height * 8
            assert abs(filled - min(value / top, 1) * height * 8) <= 1


def test_close_values_look_alike() -> None:
    rows = chart.bars([1000, 1010], nice := view.nice(1010), 2, 2)
    assert nice == 2000 and rows[1][0] == rows[1][1]


@given(st.floats(1e-3, 1e9))
def test_a_scale_ends_at_a_round_number_not_far_above(value: float) -> None:
    top = view.nice(value)
    assert value * 0.99999 <= top <= value * 2.6


def test_the_growing_column_takes_what_is_left() -> None:
    assert grown((10, 5, 5), 0, 40) == (26, 5, 5)
    assert grown((10, 5, 5), 0, 5) == (10, 5, 5)


# ---- the terminal -----------------------------------------------------------------------------------------------

UTF8 = {"TERM": "xterm-256color", "LANG": "en_US.UTF-8"}


def test_a_good_terminal_has_no_problem() -> None:
    assert terminal.problem(environ=UTF8, tty=True) is None
    assert terminal.problem(environ={**UTF8, "LANG": "zh_CN.utf8"}, tty=True) is None


@pytest.mark.parametrize(
    ("environ", "tty", "names"),
    [
        (UTF8, False, "tui-tuner run PLAN.toml"),
        ({**UTF8, "TERM": "dumb"}, True, "tui-tuner attach ID"),
        ({**UTF8, "TERM": ""}, True, "TERM=xterm-256color"),
        ({**UTF8, "LANG": "C"}, True, "tui-tuner --ascii"),
        ({**UTF8, "LC_ALL": "de_DE.ISO-8859-1"}, True, "tui-tuner --ascii"),
    ],
)
def test_each_bad_terminal_is_told_what_works_there(environ: dict[str, str], tty: bool, names: str) -> None:
    said = terminal.problem(environ=environ, tty=tty)
    assert said is not None and names in said


def test_ascii_needs_no_utf8() -> None:
    assert terminal.problem(True, {**UTF8, "LANG": "C"}, True) is None


def test_the_mouse_is_left_to_the_person_over_ssh_and_in_tmux() -> None:
    assert terminal.mouse({})
    assert not terminal.mouse({"SSH_CONNECTION": "a b c d"})
    assert not terminal.mouse({"TMUX": "/tmp/x"})


def test_a_lost_terminal_is_noticed() -> None:
    master, slave = os.openpty()
    os.close(master)
    try:
        assert terminal.lost(slave)
    finally:
        os.close(slave)


def test_the_theme_follows_the_terminal() -> None:
    assert theme.choose({"TERM": "xterm-256color"}) == "dark"
    assert theme.choose({"TERM": "xterm-256color", "COLORFGBG": "0;15"}) == "light"
    assert theme.choose({"TERM": "linux"}) == "ansi-dark"


# ---- the snapshot -----------------------------------------------------------------------------------------------


def shot(events: list[ev.AnyEvent], locked: bool = True) -> view.RunView:
    session = fold(events)
    return view.snapshot(session, locked, session.last_t, schedule.slots(session))


def test_the_run_so_far() -> None:
    v = shot(made.running())
    assert (v.at, v.of, v.n, v.state) == (3, 4, 3, "running")
    assert v.phase == "speed pass" and v.kv_blocks == 1019 and v.kv_tokens == 130432
    assert [r.state for r in v.rows] == ["✓ measured", "✓ measured", "… speed pass", "· waiting"]
    assert v.rows[1].change == pytest.approx(121 / 162 - 1) and v.rows[1].better is False
    assert v.left_s is not None and 0 < v.left_s < 120
    assert v.cost == pytest.approx(v.elapsed_s / 3600 * 2)
    assert v.speed.top == 200 and v.kv.top == 1019 and v.memory.top == 13404


def test_a_lower_latency_is_better() -> None:
    rows = shot(made.latency()).rows
    assert rows[2].change is not None and rows[2].change < 0 and rows[2].better is True


def test_unlocked_and_unfinished_is_interrupted() -> None:
    v = shot(made.running(), locked=False)
    assert v.state == "interrupted" and "resume" not in v.phase and v.rows[2].state == "! cut off"
    assert v.left_s is None


@given(st.lists(st.integers(0, 400), max_size=40).map(sorted))
def test_any_part_of_a_session_can_be_shown(kept: list[int]) -> None:
    whole = made.hostile()
    part = [whole[0], *[whole[i] for i in kept if 0 < i < len(whole)]]
    session = fold(part)
    view.snapshot(session, True, session.last_t, schedule.slots(session))
    outcome.of(session, False, verdict.judge(session))


# ---- after the decision -----------------------------------------------------------------------------------------


def test_the_next_sweep_starts_from_what_was_kept() -> None:
    session = fold([*made.finished(), ev.Decision(made.T0 + 300, "keep", 8, seen={"why": "faster"})])
    plan = onward.onward(session)
    assert plan.fixed["max_num_seqs"] == 8 and plan.knob.baseline is UNSET
    assert "max_num_seqs" not in onward.next_knobs(session)
    assert onward.decided(session) == "Kept max_num_seqs 8"


def test_going_back_leaves_the_configuration_alone() -> None:
    session = fold([*made.finished(), ev.Decision(made.T0 + 300, "revert", 128)])
    assert onward.onward(session).fixed == session.start.plan.fixed


def test_a_kept_checkpoint_becomes_the_model() -> None:
    awq = {"label": "AWQ", "model": "a/b-AWQ"}
    plan = made.plan(model="a/b", knob=Sweep("quantization", (awq,)))
    session = fold([*made.begin(plan), ev.Decision(made.T0 + 9, "keep", awq)])
    assert onward.onward(session).model == "a/b-AWQ" and "model" not in onward.onward(session).fixed


def test_the_verdict_comes_first_among_the_choices() -> None:
    session = fold(made.finished())
    rows = outcome.choices(outcome.of(session, False, verdict.judge(session)))
    assert rows[0][:2] == ("keep", 8) and not rows[0][3]
    assert {(c, v) for c, v, _, against in rows if against} == {("revert", 128), ("keep", 2)}


def test_a_value_that_failed_cannot_be_kept() -> None:
    session = fold(made.with_failure())
    rows = outcome.choices(outcome.of(session, False, verdict.judge(session)))
    assert [v for c, v, _, _ in rows if c == "keep"] == [8]
    assert rows[0][0] == "revert" and not rows[0][3]  # without a difference, going back is the default


def test_the_picture_keeps_to_its_room() -> None:
    session = fold(made.levels())
    dots = outcome.of(session, False, verdict.judge(session)).dots
    lines = outcome.plot(dots, 60, 8)
    assert len(lines) == 10 and max(map(len, lines)) <= 60
    assert {"A", "B", "C"} <= set("".join(lines))
    assert outcome.plot((), 60, 8) == [] and outcome.plot(dots, 5, 8) == []


# ---- the table of actions and the imports -----------------------------------------------------------------------


def test_keys_are_ones_that_arrive_everywhere_and_never_clash() -> None:
    known = {"enter", "space", "escape", "question_mark", "plus", "minus", *(f"f{i}" for i in range(1, 11))}
    for screen in {s for a in actions.ACTIONS for s in a.screens}:
        keys = [key for act in actions.of(screen) for key in act.keys.split(",")]
        assert len(keys) == len(set(keys)), screen
        assert all(key in known or (len(key) == 1 and key.isalnum()) for key in keys)


def test_the_app_imports_nothing_heavy() -> None:
    code = (
        "import sys, tui_tuner.tui.app, tui_tuner.tui.screens.home, tui_tuner.tui.services\n"
        "print(*[m for m in ('scipy','numpy','pandas','torch','vllm','pynvml','psutil','tui_tuner.runner',"
        "'tui_tuner.engines','tui_tuner.gpu','tui_tuner.prepare','markdown_it') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == []


# ---- the real services on real files ----------------------------------------------------------------------------


def write(folder: Path, name: str, events: list[ev.AnyEvent]) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.jsonl"
    path.write_bytes(b"".join(ev.encode(e) for e in events))
    return path


def test_sessions_are_listed_opened_decided_and_saved(tmp_path: Path) -> None:
    services = Services(str(tmp_path), None)
    path = write(tmp_path, "a", made.finished())
    write(tmp_path, "b", made.running())
    (tmp_path / "c.jsonl").write_text("no session\n")
    rows = {r.id: r for r in services.listing().rows}
    assert rows["a"].state == "finished" and rows["a"].outcome == "to decide"
    assert rows["b"].state == "interrupted" and rows["c"].problem
    seen = services.outcome(path)
    assert seen.judged.choice == "keep" and seen.judged.value == 8
    services.decide(path, "keep", 8, None)
    saved = services.saved(path)
    assert saved.serve.startswith("vllm serve ") and "--max-num-seqs 8" in saved.serve
    file = Path(saved.file)
    assert file.read_text().strip() == saved.serve and file.stat().st_mode & 0o777 == 0o600
    assert "max_num_seqs 128 → 8" in saved.chain[-1]
    assert services.next_draft(path).knob != "max_num_seqs"
    assert services.draft_of(path).values == "2, 8"


def test_an_override_without_a_reason_is_refused_by_the_service_too(tmp_path: Path) -> None:
    services = Services(str(tmp_path), None)
    path = write(tmp_path, "a", made.finished())
    with pytest.raises(Exception, match="reason"):
        services.decide(path, "revert", 128, None)


def test_the_serve_line_is_not_written_through_a_link(tmp_path: Path) -> None:
    services = Services(str(tmp_path), None)
    path = write(tmp_path, "a", made.finished())
    victim = tmp_path / "victim"
    victim.write_text("keep me")
    (tmp_path / "a.serve.sh").symlink_to(victim)
    assert "nowhere" in services.saved(path).file
    assert victim.read_text() == "keep me"


def test_a_log_is_read_from_its_end_and_made_safe(tmp_path: Path) -> None:
    from tui_tuner.store import library

    services = Services(str(tmp_path), None)
    path = write(tmp_path, "a", made.running())
    log = library.log_of(path, 3, 1)
    log.parent.mkdir()
    log.write_bytes(b"old\n" * 200_000 + b"loading:  5%\rloading: 99%\n\x1b[31mlast\x07\n")
    name, lines = services.log(path, 3)
    assert name == log.name and lines[-3:] == ["loading: 99%", "last", ""]
    assert len(lines) <= 1000
    assert "No log" in services.log(path, 1)[1][0]


def test_a_followed_file_gives_snapshots_as_it_grows(tmp_path: Path) -> None:
    events = made.running()
    path = write(tmp_path, "a", events[:30])
    source = Services(str(tmp_path), None).source(path)
    first = source.poll()
    assert first is not None and source.poll() is None and not source.locked()
    with path.open("ab") as file:
        file.write(b"".join(ev.encode(e) for e in events[30:]))
    second = source.poll()
    assert second is not None and len(second.points) == 3
    assert source.view(second, True, second.last_t).rows[0].tok_s == pytest.approx(162.0)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert "--sessions" in (Services(str(file / "sessions"), None).listing().problem or "")
