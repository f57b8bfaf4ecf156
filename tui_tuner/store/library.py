"""The folder of sessions: new names, a quick list for the home screen, finding one by a part of its name."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

from msgspec import Struct

from tui_tuner.model import events as ev
from tui_tuner.model.session import State
from tui_tuner.store import sessionfile

SUFFIX = ".jsonl"
_TAIL = 64 << 10  # bytes read from the end of each file; more only where they tell nothing


class NotFound(Exception):
    """No session, or more than one (`several`), goes by that name; the text is a sentence."""

    def __init__(self, say: str, several: bool = False) -> None:
        super().__init__(say)
        self.several = several


class Summary(Struct, frozen=True):
    """What the home screen says of one session, from its first line and its tail.

    `problem` is the sentence of a file that cannot be read; all else is then empty.
    """

    id: str
    path: Path
    bytes: int
    state: State | None = None
    start: ev.SessionStart | None = None
    last_t: float = 0.0
    point: ev.PointStarted | None = None  # the last one to start
    decision: ev.Decision | None = None
    ended: ev.SweepEnded | None = None
    problem: str | None = None


def new_id(folder: Path, knob: str, now: float | None = None) -> str:
    """A name that no session in `folder` has: the time in UTC, then the knob."""
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    words = re.sub(r"[^A-Za-z0-9_]+", "-", knob).strip("-")[:40] or "sweep"
    name, count = f"{moment}-{words}", 1
    while (folder / f"{name}{SUFFIX}").exists():
        count += 1
        name = f"{moment}-{words}-{count}"
    return name


def path_of(folder: Path, session_id: str) -> Path:
    """Where the session of that id lies in `folder`."""
    return folder / f"{session_id}{SUFFIX}"


def logs_dir(path: Path) -> Path:
    """Where the engine's logs of a session lie: beside it, `ID.logs`."""
    return path.with_name(path.name.removesuffix(SUFFIX) + ".logs")


def log_of(path: Path, n: int, attempt: int = 1) -> Path:
    """The engine's log of one launch of a point."""
    return logs_dir(path) / (f"point-{n:02d}.log" if attempt == 1 else f"point-{n:02d}-attempt-{attempt}.log")


def listing(folder: Path) -> list[Summary]:
    """All sessions of a folder, the newest first. Never raises: an unreadable file is listed with its problem."""
    found: list[Summary] = []
    try:
        with os.scandir(folder) as entries:
            paths = [Path(e.path) for e in entries if e.name.endswith(SUFFIX) and not e.name.startswith(".")]
    except OSError:
        return []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
            found.append(summary(path))
    return sorted(found, key=lambda s: (s.last_t, s.id), reverse=True)


def summary(path: Path) -> Summary:
    """One session's line for a list. Raises FileNotFoundError, nothing else."""
    name = path.name.removesuffix(SUFFIX)
    info = path.stat()
    try:
        start = sessionfile.first_event(path)
        last = _last_events(path)
    except (sessionfile.Unreadable, OSError) as error:
        return Summary(name, path, info.st_size, last_t=info.st_mtime, problem=str(error))
    launched, ended = last.get("launched"), last.get("sweep_ended")
    point, decision = last.get("point_started"), last.get("decision")
    done = ended if isinstance(ended, ev.SweepEnded) else None
    if done and isinstance(launched, ev.Launched) and launched.t > done.t:
        done = None
    state: State = done.why if done else "running" if sessionfile.is_locked(path) else "interrupted"
    return Summary(
        name,
        path,
        info.st_size,
        state=state,
        start=start,
        last_t=max([start.t, *(e.t for e in last.values())]),
        point=point if isinstance(point, ev.PointStarted) else None,
        decision=decision if isinstance(decision, ev.Decision) else None,
        ended=done,
    )


def find(id_or_path: str, folder: Path) -> Path:
    """The session file that a person means: a path, an id, or the beginning of one that fits no other.

    Raises NotFound with a sentence.
    """
    asked = id_or_path.strip()
    if not asked or "\0" in asked:
        raise NotFound("name a session: `tui-tuner list` shows them")
    try:
        if os.sep in asked or asked.endswith(SUFFIX):
            path = Path(asked).expanduser()
            if path.is_file():
                return path
            raise NotFound(f"there is no file {path}")
        exact = path_of(folder, asked)
        if exact.is_file():
            return exact
        names = sorted(p.name.removesuffix(SUFFIX) for p in folder.glob(f"*{SUFFIX}") if not p.name.startswith("."))
    except (OSError, RuntimeError, ValueError) as error:
        raise NotFound(f"{asked} cannot be looked up: {error}") from None
    fits = [name for name in names if name.startswith(asked)]
    if len(fits) == 1:
        return path_of(folder, fits[0])
    if fits:
        more = f" and {len(fits) - 4} more" if len(fits) > 4 else ""
        raise NotFound(f"{asked} fits {len(fits)} sessions: {', '.join(fits[:4])}{more}; name a longer part", True)
    if not names:
        raise NotFound(f"there is no session {asked}: {folder} holds none yet")
    raise NotFound(f"there is no session {asked} in {folder}: `tui-tuner list` shows those that are")


def recorded_dir() -> Path:
    """Where the sessions that come along lie: in the installed package, or beside it in a checkout. May be missing."""
    package = Path(__file__).resolve().parents[1]
    packaged = package / "sessions"
    return packaged if packaged.is_dir() else package.parent / "sessions"


def recorded() -> list[Summary]:
    """The sessions that come along, measured on real cards, by name. Never raises."""
    return sorted(listing(recorded_dir()), key=lambda s: s.id)


def is_recorded(path: Path) -> bool:
    """Whether the file is one of those that come along: they are there to be read."""
    try:
        return path.resolve().parent == recorded_dir().resolve()
    except OSError:
        return False


def find_to_read(id_or_path: str, folder: Path) -> Path:
    """As `find`, and by name among the sessions that come along, too. Raises NotFound with a sentence."""
    try:
        return find(id_or_path, folder)
    except NotFound as error:
        if os.sep not in id_or_path and not error.several:
            with contextlib.suppress(NotFound):
                return find(id_or_path.strip().removesuffix(SUFFIX), recorded_dir())
        raise error from None


def _last_events(path: Path) -> dict[str, ev.AnyEvent]:
    """The last event of each kind that decides what a session is, from the end of the file."""
    wanted = ("launched", "sweep_ended", "point_started", "decision")
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        size = os.fstat(fd).st_size
        length = min(_TAIL, size)
        while True:
            tail = os.pread(fd, length, size - length)
            lines = tail.split(b"\n")
            last: dict[str, ev.AnyEvent] = {}
            for line in lines[0 if length == size else 1 : -1]:  # the first may be cut, the last is empty or torn
                if line.startswith(b'{"type":"tick"') and b'"n"' in line:
                    continue
                try:
                    event = ev.decode(line)
                except sessionfile._BAD:
                    continue
                if isinstance(event, (ev.Launched, ev.SweepEnded, ev.PointStarted, ev.Decision)):
                    last[str(event.__struct_config__.tag)] = event
            if length == size or "sweep_ended" in last or "launched" in last or "point_started" in last:
                _add_last_tick(lines, last)
                return {k: v for k, v in last.items() if k in wanted or k == "tick"}
            length = min(size, length * 8)
    finally:
        os.close(fd)


def _add_last_tick(lines: list[bytes], last: dict[str, ev.AnyEvent]) -> None:
    for line in reversed(lines[:-1]):
        with contextlib.suppress(*sessionfile._BAD):
            event = ev.decode(line)
            if not isinstance(event, (ev.Unknown, ev.SessionStart)):
                last.setdefault("tick", event)
            return
