"""Session files on the disk: whole, torn, cut, flipped, foreign; locks; the list; requests to the runner."""

from __future__ import annotations

import multiprocessing
import os
import resource
import stat
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tui_tuner.model import events as ev
from tui_tuner.model.machine import Engine, Machine
from tui_tuner.model.plan import Plan, Sweep
from tui_tuner.model.session import Fold, fold
from tui_tuner.prepare import decision
from tui_tuner.prepare import start as begin
from tui_tuner.store import inbox, library, sessionfile
from tui_tuner.store.sessionfile import Follower, Locked, Unreadable, WriteFailed, Writer

HF = "hf_" + "a1B2" * 8


def start(session_id: str = "s1", **more: object) -> ev.SessionStart:
    plan = Plan(model="practice", knob=Sweep("max_num_seqs", (2, 8)))
    return ev.SessionStart(
        100.0,
        format=ev.FORMAT,
        id=session_id,
        plan=plan,
        baseline=4,
        machine=Machine(),
        engine=Engine("py", "x"),
        **more,
    )


def some_events() -> list[ev.AnyEvent]:
    return [
        ev.Launched(101.0, pid=1, boot_id="b"),
        ev.PointStarted(102.0, n=0, role="baseline", value=4, pgid=77, started=5),
        ev.Phase(103.0, n=0, name="load"),
        ev.Capacity(104.0, n=0, kv_blocks=100, block_size=16, kv_tokens=1600),
        *[ev.Tick(105.0 + i, n=0, tok_s=float(i), running=4, waiting=0, kv_usage=0.5) for i in range(20)],
        ev.Requests(
            130.0, n=0, level=8.0, kind="closed", seconds=2.0, planned=[0.0], sent=[0.0], first=[0.1], last=[1.0]
        ),
        ev.Answers(131.0, n=0, item=["q"], text=["snow ☃ \u202e"], score=[1.0], finish=["stop"], tokens=[3]),
        ev.PointDone(132.0, n=0, status="ok", peak_mib=10),
        ev.Clean(133.0, n=0, ok=True, seconds=0.1),
        ev.SweepEnded(134.0, why="finished"),
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "sessions" / "s1.jsonl"
    sessionfile.create(path, start())
    with Writer.open(path) as writer:
        for event in some_events():
            writer.append(event, sync=False)
    return path


def test_what_is_written_is_what_is_read(path: Path) -> None:
    assert sessionfile.read(path) == fold([start(), *some_events()])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_creating_twice_is_refused_and_changes_nothing(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        sessionfile.create(path, start("other"))
    assert path.read_bytes() == before


def test_a_torn_tail_is_read_around_and_cut_off_by_the_next_writer(path: Path) -> None:
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(b'{"type":"tick","t":1')
    assert sessionfile.read(path) == fold([start(), *some_events()])
    with Writer.open(path) as writer:
        assert writer.repaired == b'{"type":"tick","t":1'
        assert path.read_bytes() == whole
        writer.append(ev.Noted(140.0, "again"))
    assert sessionfile.read(path).notes[0].say == "again"


def test_lines_that_are_no_events_are_counted_not_raised(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b'{"type":"from_the_future","t":1,"x":[1]}\n\xff\xfe\n[1,2]\n{"type":"tick","t":"no"}\n')
        file.write(b"[" * 200_000 + b"\n" + b"x" * 1_000_000 + b"\n")
        file.write(ev.encode(ev.Noted(141.0, "after all that")))
    session = sessionfile.read(path)
    assert session.skipped == 6
    assert session.notes[-1].say == "after all that"


def test_a_line_longer_than_any_event_is_skipped_without_keeping_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessionfile, "LONGEST_LINE", 1 << 20)
    with path.open("ab") as file:
        file.write(b'"' + b"x" * (5 << 20) + b'"\n' + ev.encode(ev.Noted(141.0, "after")))
    session = sessionfile.read(path)
    assert (session.skipped, session.notes[-1].say) == (1, "after")


UNREADABLE = {
    "zero bytes": (b"", "is empty"),
    "not a session": (b"hello\n", "not a session"),
    "another JSON": (b'{"type":"tick","t":1,"n":0}\n', "not a session"),
    "binary": (os.urandom(500) + b"\0\n", "not a session"),
    "first line cut": (ev.encode(start())[:80], "cut off"),
    "first line damaged": (b'{"type":"session","format":1}\n', "damaged"),
    "newer format": (b'{"type":"session","format":99,"id":7}\n', "newer tui-tuner (format 99"),
    "megabyte without a line": (b"x" * (3 << 20), "not a session"),
    "deeply nested": (b"[" * 100_000 + b"\n", "not a session"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_no_session_is_refused_with_a_sentence(name: str, tmp_path: Path) -> None:
    content, words = UNREADABLE[name]
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(Unreadable, match=r".") as refused:
        sessionfile.read(path)
    assert words in str(refused.value)
    with pytest.raises(Unreadable):
        Writer.open(path)
    assert path.read_bytes() == content
    (line,) = library.listing(tmp_path)
    assert line.problem and line.start is None


def test_folders_pipes_and_nothing_are_refused_with_a_sentence(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    for name, words in (("pipe", "not a file"), ("folder", "is a folder"), ("none", "no such file")):
        with pytest.raises(Unreadable) as refused:
            sessionfile.read(tmp_path / f"{name}.jsonl")
        assert words in str(refused.value)
    assert len(library.listing(tmp_path)) == 2


def test_the_second_writer_is_told_who_the_first_is(path: Path) -> None:
    with Writer.open(path):
        assert sessionfile.is_locked(path)
        with pytest.raises(Locked) as refused:
            Writer.open(path)
        assert refused.value.pid in (os.getpid(), None)
    assert not sessionfile.is_locked(path)


def _ask_for_ever(path: Path, stop: multiprocessing.synchronize.Event) -> None:
    while not stop.is_set():
        sessionfile.is_locked(path)


def test_asking_whether_it_is_locked_does_not_keep_a_writer_out(path: Path) -> None:
    stop = multiprocessing.get_context("spawn").Event()
    asker = multiprocessing.get_context("spawn").Process(target=_ask_for_ever, args=(path, stop))
    asker.start()
    try:
        for _ in range(50):
            Writer.open(path).close()
    finally:
        stop.set()
        asker.join(10)


def test_a_follower_reads_each_line_once_and_waits_for_the_rest_of_a_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    follower = Follower(path)
    assert follower.poll() is None
    assert "no such file" in (follower.problem or "")
    sessionfile.create(path, start())
    session = follower.poll()
    assert session and session.id == "s1" and follower.problem is None
    assert follower.poll() is None
    line = ev.encode(ev.Noted(150.0, "hello"))
    with path.open("ab", buffering=0) as file:
        file.write(line[:9])
        assert follower.poll() is None
        file.write(line[9:])
    session = follower.poll()
    assert session and session.notes[0].say == "hello" and session.skipped == 0


def test_a_follower_starts_anew_when_the_file_is_replaced_or_shortened(path: Path, tmp_path: Path) -> None:
    follower = Follower(path)
    assert follower.poll() is not None
    other = tmp_path / "other.jsonl"
    sessionfile.create(other, start("replaced"))
    other.rename(path)
    session = follower.poll()
    assert session and session.id == "replaced" and not session.points
    path.unlink()
    assert follower.poll() is None and follower.problem
    sessionfile.create(path, start("back"))
    session = follower.poll()
    assert session and session.id == "back" and follower.problem is None
    with path.open("ab") as file:
        file.write(ev.encode(ev.Noted(150.0, "hello")))
    assert follower.poll() is not None
    path.write_bytes(ev.encode(start("shorter")))
    session = follower.poll()
    assert session and session.id == "shorter" and not session.notes


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_makes_a_reader_raise_anything_but_its_own(path: Path, data: st.DataObject) -> None:
    content = bytearray(b"".join(ev.encode(e) for e in [start(), *some_events()]))
    for _ in range(data.draw(st.integers(0, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    damaged = path.with_name("damaged.jsonl")
    damaged.write_bytes(bytes(content[:cut]) + data.draw(st.binary(max_size=20)))
    try:
        session = sessionfile.read(damaged)
    except Unreadable as refused:
        assert str(refused)
    else:
        with Writer.open(damaged) as writer:
            writer.append(ev.Noted(1.0, "kept"))
        again = sessionfile.read(damaged)
        assert again.notes[-1].say == "kept"
        assert again.points == session.points or damaged.read_bytes()[:-1].count(b"\n") > 0
    assert any(s.path == damaged for s in library.listing(path.parent))
    assert library.find("damaged", path.parent) == damaged
    follower = Follower(damaged)
    follower.poll()
    follower.poll()


@given(st.text(max_size=40))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_find_takes_any_text(path: Path, text: str) -> None:
    try:
        assert library.find(text, path.parent).is_file()
    except library.NotFound as refused:
        assert str(refused)


def test_folding_costs_little_beside_decoding() -> None:
    # Counted work, not time: each tick is decoded and added once, and a snapshot copies, it does not fold again.
    folding = Fold()
    for event in (start(), *some_events()[:4]):
        folding.add(event)
    for i in range(20_000):
        folding.add(ev.Tick(200.0 + i, n=0, tok_s=1.0))
    session = folding.session()
    assert len(session.points[0].ticks) == 20_000
    assert folding.session().points[0] is session.points[0]


def test_secrets_never_reach_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "correct-horse-battery")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "parallel-false")
    with Writer.open(path) as writer:
        writer.append(ev.Noted(1.0, f"{HF} correct-horse-battery https://me:pw1234@host/x parallel-false"))
        writer.append(
            ev.PointStarted(2.0, n=1, role="value", value=2, args={"hf_token": "plainwords", "model": "m", "seed": 0})
        )
    text = path.read_text()
    for secret in (HF, "correct-horse", "pw1234", "plainwords"):
        assert secret not in text
    assert "parallel-false" in text
    sessionfile.create(path.with_name("s2.jsonl"), start("s2", prediction=f"with {HF}"))
    assert HF not in path.with_name("s2.jsonl").read_text()


def _fill_the_disk(path: Path) -> None:
    with Writer.open(path) as writer:
        size = path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 300, size + 300))
        writer.append(ev.Noted(1.0, "fits"))
        try:
            writer.append(ev.Noted(2.0, "x" * 4000))
        except WriteFailed as error:
            assert "largest size" in str(error)
            writer.append(ev.SweepEnded(3.0, why="stopped"))
            os._exit(7)


def test_a_full_disk_leaves_no_half_line(path: Path) -> None:
    child = multiprocessing.get_context("spawn").Process(target=_fill_the_disk, args=(path,))
    child.start()
    child.join(30)
    assert child.exitcode == 7
    session = sessionfile.read(path)
    assert session.notes[-1].say == "fits" and session.skipped == 0
    assert session.ended and session.ended.why == "stopped"
    assert path.read_bytes().endswith(b"\n")


def test_the_list_is_read_from_first_lines_and_tails(path: Path) -> None:
    folder = path.parent
    sessionfile.create(folder / "s2.jsonl", start("s2"))
    with Writer.open(folder / "s2.jsonl") as writer:
        writer.append(ev.Launched(300.0, pid=1, boot_id="b"))
        writer.append(ev.PointStarted(301.0, n=3, role="value", value=8))
        for i in range(2000):
            writer.append(ev.Tick(302.0 + i, n=3, tok_s=1.5, running=8, waiting=2), sync=False)
        newest, older = library.listing(folder)
        assert (newest.id, newest.state, newest.last_t) == ("s2", "running", 302.0 + 1999)
        assert newest.point and newest.point.n == 3
    assert library.listing(folder)[0].state == "interrupted"
    assert (older.state, older.last_t) == ("finished", 134.0)
    with Writer.open(path) as writer:
        writer.append(ev.Decision(400.0, "keep", 8))
        writer.append(ev.Launched(500.0, pid=1, boot_id="b"))
    assert [(s.id, s.state) for s in library.listing(folder)][1] == ("s1", "interrupted")
    assert library.listing(folder / "nowhere") == []


def test_find_knows_ids_beginnings_and_paths(path: Path) -> None:
    folder = path.parent
    sessionfile.create(folder / "sx.jsonl", start("sx"))
    assert library.find("s1", folder) == path
    assert library.find("sx", folder).name == "sx.jsonl"
    assert library.find(str(path), Path("/")) == path
    with pytest.raises(library.NotFound, match="fits 2 sessions"):
        library.find("s", folder)
    with pytest.raises(library.NotFound, match="no session q"):
        library.find("q", folder)


def test_new_ids_differ_and_hold_nothing_strange(path: Path) -> None:
    folder = path.parent
    first = library.new_id(folder, "../evil\x1b[0m knob", 0.0)
    assert first == "19700101-000000-evil-0m-knob"
    library.path_of(folder, first).write_text("")
    assert library.new_id(folder, "../evil\x1b[0m knob", 0.0) == first + "-2"
    assert library.logs_dir(path).name == "s1.logs"


def test_requests_are_taken_once_in_order(path: Path) -> None:
    box = inbox.Inbox(path)
    assert box.poll() == []
    inbox.send(path, ev.Asked(1.0, "add", value=16))
    time.sleep(0.001)
    inbox.send(path, ev.Asked(2.0, "stop"))
    (inbox.folder_of(path) / "rubbish").write_bytes(b"\0\xff")
    (inbox.folder_of(path) / "zz-other-event").write_bytes(ev.encode(ev.Noted(1.0, "x")))
    assert [a.what for a in box.poll()] == ["add", "stop"]
    assert box.poll() == []
    box.close()
    assert not inbox.folder_of(path).exists()


def test_a_request_that_cannot_be_left_is_said(tmp_path: Path) -> None:
    with pytest.raises(inbox.NotSent, match="could not be left"):
        inbox.send(tmp_path / "no" / "s.jsonl", ev.Asked(1.0, "stop"))


def test_summaries_can_be_encoded(path: Path) -> None:
    assert msgspec.to_builtins(library.listing(path.parent)[0].start)["id"] == "s1"


@given(st.lists(st.sampled_from([*some_events(), ev.Tick(9.0, n=5), ev.Tick(999.0, n=0), ev.Unknown("x", 3.0)])))
def test_many_at_once_is_the_same_as_one_by_one(events: list[ev.AnyEvent]) -> None:
    one, many = Fold(), Fold()
    one.add(start())
    for event in events:
        one.add(event)
    many.add_all([start(), *events])
    assert many.session() == one.session()


def test_sessions_that_come_along_are_found_by_name_and_only_read(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    come_along = tmp_path / "recorded"
    monkeypatch.setattr(library, "recorded_dir", lambda: come_along)
    assert library.recorded() == []  # no folder at all
    with pytest.raises(library.NotFound, match="nothing"):
        library.find_to_read("nothing", path.parent)
    sessionfile.create(come_along / "h200-knob.jsonl", start("r1"))
    sessionfile.create(come_along / "s1.jsonl", start("r2"))
    (come_along / "README.md").write_text("about them")
    assert [s.id for s in library.recorded()] == ["h200-knob", "s1"]
    assert library.find_to_read("h200", path.parent) == come_along / "h200-knob.jsonl"
    assert library.find_to_read("h200-knob.jsonl", path.parent) == come_along / "h200-knob.jsonl"
    assert library.find_to_read("s1", path.parent) == path  # one's own comes first
    for own in ("h1", "h2"):
        sessionfile.create(path.parent / f"{own}.jsonl", start(own))
    with pytest.raises(library.NotFound, match="fits 2"):
        library.find_to_read("h", path.parent)
    assert library.is_recorded(come_along / "s1.jsonl") and not library.is_recorded(path)
    with pytest.raises(library.NotFound):
        library.find("h200", path.parent)  # what writes does not look there
    before = (come_along / "h200-knob.jsonl").read_bytes()
    with pytest.raises(decision.NotRecorded, match="came along"):
        decision.record(come_along / "h200-knob.jsonl", "revert", None)
    with pytest.raises(begin.Refused, match="came along"):
        begin.resume(come_along / "h200-knob.jsonl")
    assert (come_along / "h200-knob.jsonl").read_bytes() == before
