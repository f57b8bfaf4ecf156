"""All that a screen may ask of the outside. Each function may be slow and may raise with a sentence; none is called
in the event loop. Imports are inside: the first frame waits for none of them.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tui_tuner.model.values import Value
from tui_tuner.tui.clean import plain
from tui_tuner.tui.draft import Draft, Problem
from tui_tuner.tui.records import (
    Checked,
    CheckUp,
    EngineState,
    EvalRow,
    KnobRow,
    Listing,
    ModelRow,
    Pasted,
    Saved,
    Suggestion,
    Surroundings,
)  # fmt: skip

if TYPE_CHECKING:
    from tui_tuner.analysis import points as pt
    from tui_tuner.model.events import AnyEvent, Unknown
    from tui_tuner.model.knobs import Facts
    from tui_tuner.model.load import Load
    from tui_tuner.model.machine import Machine
    from tui_tuner.model.plan import Plan
    from tui_tuner.model.session import Point, Session
    from tui_tuner.prepare.start import Examined
    from tui_tuner.tui.outcome import Outcome
    from tui_tuner.tui.player import Player
    from tui_tuner.tui.view import RunView


def _planned(draft: Draft) -> tuple[Plan | None, tuple[Problem, ...]]:
    """The draft's plan, its files looked for where the app was opened; or what is wrong."""
    from tui_tuner.prepare import planfile

    plan, wrong = draft.plan()
    return planfile.rooted(plan, Path.cwd()) if plan else None, wrong


def _wanted(draft: Draft) -> Plan:
    """The draft's plan. Raises ValueError with what is wrong."""
    plan, wrong = _planned(draft)
    if plan is None:
        raise ValueError(f"{wrong[0].field}: {wrong[0].say}")
    return plan


LOG_TAIL = 256 << 10  # bytes of a log's end that are read
LOG_LINES = 1000


class Services:
    """The real ones. `sessions` and `engine_python` are what the command line said."""

    def __init__(self, sessions: str | None = None, engine_python: str | None = None) -> None:
        self._sessions, self._engine_python = sessions, engine_python
        self._examined: Examined | None = None

    # ---- what is there -------------------------------------------------------------------------------------------

    def folder(self) -> Path:
        from tui_tuner import paths

        return paths.sessions_dir(self._sessions)

    def listing(self) -> Listing:
        """The sessions of the folder, newest first, and why it could not be written to."""
        from tui_tuner.store import library
        from tui_tuner.tui import told

        folder = self.folder()
        rows = tuple(told.session_row(s) for s in library.listing(folder))
        recorded = tuple(told.recorded_row(s) for s in library.recorded())
        return Listing(rows, str(folder), _unwritable(folder), recorded)

    def surroundings(self) -> Surroundings:
        """The machine, and who holds memory of its card."""
        from tui_tuner import gpu

        probe = gpu.probe()
        busy = None
        if probe.machine.gpu is not None:
            sampler = gpu.Sampler(probe.machine)
            try:
                others = sampler.processes()
                if others:
                    names = ", ".join(f"{n.name or n.pid}" for n in others[:3])
                    busy = f"{len(others)} other process{'es' if len(others) > 1 else ''} on the card: {names}"
            finally:
                sampler.close()
        return Surroundings(probe.machine, probe.why, busy)

    def engine(self) -> EngineState:
        """The engine's Python, or why there is none."""
        from tui_tuner import engines

        try:
            return EngineState(engines.find(self._engine_python))
        except engines.NoEngine as error:
            return EngineState(None, str(error))

    def facts(self) -> Facts:
        """What the installed vLLM says of its arguments; slow the first time."""
        from tui_tuner import engines

        return engines.facts(engines.find(self._engine_python))

    def models(self) -> tuple[ModelRow, ...]:
        """The models on the disk, each with its size and whether it fits into this machine's memory."""
        from tui_tuner import gpu
        from tui_tuner.engines import models

        memory = gpu.probe().machine.memory_mib
        rows = []
        for found in models.on_disk():
            fits = None if not found.mib or not memory else found.mib < memory * 0.92
            rows.append(ModelRow(found.name, found.mib, found.source, found.quantization or "", fits))
        return tuple(sorted(rows, key=lambda r: (r.fits is False, r.name.lower())))

    def evalsets(self) -> tuple[EvalRow, ...]:
        """The eval sets that come along."""
        from tui_tuner import evals

        rows = []
        for name in evals.shipped():
            loaded = evals.load(name)
            rows.append(EvalRow(name, len(loaded.items), loaded.licence))
        return tuple(rows)

    def check_up(self) -> tuple[CheckUp, ...]:
        """Machine, engine and folders, with what is missing."""
        from tui_tuner.prepare import doctor

        marks: dict[str, bool | None] = {"ok": True, "warn": None}
        return tuple(
            CheckUp(marks.get(c.mark, False), c.name, c.say + (f". {c.fix}" if c.fix else ""))
            for c in doctor.checks(self._sessions, self._engine_python)
        )

    # ---- the wizard ----------------------------------------------------------------------------------------------

    def first_draft(self) -> Draft:
        """What the wizard starts from: the last session's plan, else the practice sweep."""
        from tui_tuner.prepare import practice
        from tui_tuner.store import library
        from tui_tuner.tui.draft import from_plan

        for summary in library.listing(self.folder()):
            if summary.start is not None and summary.start.kind == "sweep":
                return from_plan(summary.start.plan)
        state = self.engine()
        return from_plan(practice.plan(state.engine.device if state.engine else "cpu"))

    def practice_draft(self) -> Draft:
        from tui_tuner.prepare import practice
        from tui_tuner.tui.draft import from_plan

        state = self.engine()
        return from_plan(practice.plan(state.engine.device if state.engine else "cpu"))

    def draft_of(self, path: Path, fixing: int | None = None) -> Draft:
        """The draft that says what a session's plan says, with what point `fixing`'s failure says to try."""
        from tui_tuner.store import sessionfile
        from tui_tuner.tui import remedy
        from tui_tuner.tui.draft import from_plan

        session = sessionfile.read(path)
        plan = session.start.plan
        point = session.point(fixing) if fixing is not None else None
        tried = remedy.of(point.failed, plan, False) if point else None
        return from_plan(remedy.applied(plan, tried) if tried else plan)

    def knobs(self, draft: Draft) -> tuple[KnobRow, ...]:
        """The catalogue, ranked for the draft's goal, with the installed version's defaults where it can be asked."""
        from tui_tuner.model import knobs
        from tui_tuner.tui import told

        plan, _ = draft.plan()
        load = plan.load if plan else None
        facts = self._facts_or_none()
        rows = [told.knob_row(k, draft.goal, load, facts) for k in knobs.ranked(draft.goal)]
        return tuple(sorted(rows, key=lambda r: r.missing is not None))

    def suggestion(self, draft: Draft) -> Suggestion:
        """Values that can start on this machine, and the baseline where none is named."""
        from tui_tuner import gpu
        from tui_tuner.analysis import estimate
        from tui_tuner.engines import models
        from tui_tuner.model import knobs
        from tui_tuner.tui import told
        from tui_tuner.tui.draft import read_fixed

        knob = knobs.get(draft.knob)
        facts = self._facts_or_none()
        machine = self._machine()
        path = models.locate(draft.model.strip())
        plan, _ = draft.plan()
        fixed = plan.fixed if plan else _or_nothing(lambda: read_fixed(draft.fixed))
        field = facts.fields.get(knob.name) if facts else None
        known = knob.name in fixed or field is not None
        baseline = fixed.get(knob.name, field.effective_default if field else None)
        values = estimate.suggest_values(
            knob,
            machine,
            models.shape(path) if path else None,
            facts,
            _load_of(draft),
            gpu.available_mib(machine),
            baseline,
        )
        return Suggestion(values, baseline, known, knob.when, told.allowed(field))

    def check(self, draft: Draft) -> Checked:
        """What can be told at once: the plan by itself, and whether the model is there."""
        from tui_tuner.prepare import check

        plan, wrong = _planned(draft)
        if plan is None:
            return Checked(wrong)
        model = check.model_problem(plan.model)
        found = [*check.alone(plan), *([model] if model else [])]
        return Checked(tuple(Problem(p.field, p.say, p.suggest) for p in found))

    def check_fully(self, draft: Draft) -> Checked:
        """What this machine and the installed vLLM say of the plan, and what it will take; seconds."""
        from tui_tuner.prepare import start
        from tui_tuner.tui import told

        plan, wrong = _planned(draft)
        if plan is None:
            return Checked(wrong, complete=True)
        examined = start.examine(plan, self._engine_python, sessions=self.folder())
        self._examined = examined
        problems = tuple(told.problem(p, examined) for p in examined.problems)
        return Checked(problems, told.estimated(examined), True)

    def paste(self, text: str) -> Pasted:
        """A command or YAML in use, read and checked against the installed version."""
        from tui_tuner.prepare import serveline

        line = serveline.read(text, self._facts_or_none())
        notes = tuple(f"{n.replace('_', '-')} is the server's, and plays no part in tuning" for n in line.server)
        return Pasted(line.model, line.fixed, line.problems, (*line.notes, *notes))

    # ---- a session -----------------------------------------------------------------------------------------------

    def begin(self, draft: Draft) -> Path:
        """Creates the session and starts its runner. Raises with a sentence; nothing is left then."""
        from tui_tuner.prepare import start
        from tui_tuner.tui import told

        plan = _wanted(draft)
        examined = self._examined
        if examined is None or examined.plan != plan:
            examined = start.examine(plan, self._engine_python, sessions=self.folder())
        if examined.problems:
            raise ValueError("; ".join(told.problem(p, examined).say for p in examined.problems))
        return start.begin(examined, self.folder(), draft.prediction.strip() or None)

    def begin_noise(self, draft: Draft) -> Path:
        """Starts a noise run of the draft: its baseline alone, several times. Raises with a sentence."""
        from tui_tuner.prepare import start

        plan = _wanted(draft)
        examined = start.examine(plan, self._engine_python, sessions=self.folder(), kind="noise")
        return start.begin(examined, self.folder(), kind="noise")

    def resume(self, path: Path) -> Path:
        """Starts a runner for a session that was cut off or stopped. Raises with a sentence."""
        from tui_tuner.prepare import start

        start.resume(path)
        return path

    def recheck(self, path: Path) -> Path:
        """Measures a session's plan again, as a new session on this card and engine."""
        from tui_tuner.prepare import start
        from tui_tuner.store import sessionfile

        old = sessionfile.read(path).start
        examined = start.examine(old.plan, self._engine_python, sessions=self.folder())
        return start.begin(examined, self.folder(), old.prediction)

    def request(
        self, path: Path, what: Literal["stop", "skip", "add", "drop"], n: int | None = None, value: Value = None
    ) -> None:
        """Leaves a request for the session's runner. Raises with a sentence."""
        import time

        from tui_tuner.model import events as ev
        from tui_tuner.store import inbox

        inbox.send(path, ev.Asked(time.time(), what, n, value))

    def refusal(self, session: Session, what: Literal["add", "drop"], n: int | None, value: Value) -> str | None:
        """Why a request would have no effect."""
        from tui_tuner.analysis import schedule
        from tui_tuner.model import events as ev

        return schedule.refusal(session, ev.Asked(session.last_t, what, n, value))

    def source(self, path: Path) -> SessionSource:
        """A session to follow."""
        return SessionSource(path)

    def replay(self, path: Path, player: Player) -> ReplaySource:
        """A session to play back at the player's pace. Raises with a sentence."""
        from tui_tuner.store import sessionfile

        return ReplaySource(sessionfile.events(path), player, sessionfile.is_locked(path))

    def running(self) -> Path | None:
        """The session that is being measured now, if any of the folder is."""
        return next((row.path for row in self.listing().rows if row.state == "running"), None)

    def outcome(self, path: Path) -> Outcome:
        """The verdict and the figures, as the results screen shows them. Raises with a sentence."""
        from tui_tuner.analysis import verdict
        from tui_tuner.store import sessionfile
        from tui_tuner.tui import outcome

        session = sessionfile.read(path)
        return outcome.of(session, sessionfile.is_locked(path), verdict.judge(session))

    def log(self, path: Path, n: int) -> tuple[str, list[str]]:
        """The end of a point's engine log: the file's name and its lines, made safe."""
        from tui_tuner.model.secrets import Redactor
        from tui_tuner.store import library, sessionfile

        point = sessionfile.read(path).point(n)
        file = library.log_of(path, n, point.attempt if point else 1)
        try:
            with file.open("rb") as opened:
                opened.seek(0, os.SEEK_END)
                size = opened.tell()
                opened.seek(max(size - LOG_TAIL, 0))
                raw = opened.read(LOG_TAIL)
        except FileNotFoundError:
            return file.name, ["No log is here: the engine has not said anything, or the log was removed."]
        text = raw.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
        kept = text[1:] if size > LOG_TAIL else text
        # The runner takes secrets out of the file when the engine is gone; until then they are only not shown.
        redactor = Redactor(os.environ)
        return file.name, [plain(redactor.text(line.rpartition("\r")[2]), 1000) for line in kept[-LOG_LINES:]]

    def saved(self, path: Path) -> Saved:
        """The serve line of a decided session, written beside it, and what to do next."""
        from tui_tuner.analysis import chain, export
        from tui_tuner.store import library, sessionfile
        from tui_tuner.tui.onward import decided, next_steps

        session = sessionfile.read(path)
        state = session.state(sessionfile.is_locked(path))
        serve = export.TO["serve"](session, state)
        yaml = export.TO["yaml"](session, state)
        file = path.with_name(path.name.removesuffix(library.SUFFIX) + ".serve.sh")
        said = _write_beside(file, serve)
        links = tuple(link.say for link in chain.beside(path, session))
        return Saved(decided(session), serve.strip(), yaml, said, next_steps(session), links)

    def next_draft(self, path: Path) -> Draft:
        """The next sweep: from the decided configuration, with the next knob for its goal."""
        from tui_tuner.store import sessionfile
        from tui_tuner.tui.draft import from_plan
        from tui_tuner.tui.onward import next_knobs, onward

        session = sessionfile.read(path)
        plan = onward(session)
        following = next_knobs(session)
        draft = from_plan(plan)
        return draft.with_knob(following[0]) if following else draft

    def decide(self, path: Path, choice: Literal["keep", "revert"], value: Value, why: str | None) -> None:
        """Appends the decision. Raises with a sentence."""
        from tui_tuner.prepare import decision

        decision.record(path, choice, value, why=why)

    def _machine(self) -> Machine:
        """The machine as the engine sees it: a CPU engine has no card."""
        from msgspec.structs import replace

        from tui_tuner import gpu

        machine = gpu.probe().machine
        state = self.engine()
        if state.engine is not None and state.engine.device == "cpu":
            return replace(machine, gpu=None, gpus=0)
        return machine

    def _facts_or_none(self) -> Facts | None:
        try:
            return self.facts()
        except Exception:  # noqa: BLE001 (no engine: the catalogue stands by itself)
            return None


class _Figured:
    """What makes snapshots of a session that grows; figures of a point are computed once."""

    def __init__(self) -> None:
        self._figures: OrderedDict[tuple[int, int, int, bool], pt.Figures] = OrderedDict()

    def view(self, session: Session, locked: bool, now: float) -> RunView:
        from tui_tuner.analysis import schedule
        from tui_tuner.tui import view

        return view.snapshot(session, locked, now, schedule.slots(session), self._of)

    def _of(self, point: Point, session: Session) -> pt.Figures:
        from tui_tuner.analysis import points as pt

        key = (point.n, point.attempt, len(point.levels), point.answers is not None)
        if key not in self._figures:
            self._figures[key] = pt.figures(point, session)
        return self._figures[key]


class ReplaySource(_Figured):
    """The events of a session, gone through at a player's pace."""

    problem: str | None = None

    def __init__(self, events: Sequence[AnyEvent | Unknown], player: Player, still_measured: bool = False) -> None:
        from tui_tuner.model.replay import Timeline

        super().__init__()
        self._timeline = Timeline(events)
        self._still_measured = still_measured
        self._player = player
        self._at: float | None = None
        player.begin(self._timeline.length)

    def poll(self) -> Session | None:
        at = self._player.position
        if at == self._at:
            return None
        self._at = at
        return self._timeline.until(at)

    def locked(self) -> bool:
        """A recording is running until its end has been shown; then it is what it was."""
        return self._still_measured or (self._at or 0.0) < self._timeline.length

    def view(self, session: Session, locked: bool, now: float) -> RunView:
        """As at the recorded time, whatever time it is now."""
        return super().view(session, locked, self._timeline.moment(self._at or 0.0))


class SessionSource(_Figured):
    """A session file, followed."""

    def __init__(self, path: Path) -> None:
        from tui_tuner.store import sessionfile

        super().__init__()
        self.path = path
        self._follower = sessionfile.Follower(path)
        self._is_locked: Callable[[Path], bool] = sessionfile.is_locked

    @property
    def problem(self) -> str | None:
        return self._follower.problem

    def poll(self) -> Session | None:
        return self._follower.poll()

    def locked(self) -> bool:
        return self._is_locked(self.path)


def _unwritable(folder: Path) -> str | None:
    """Why no session could be written into `folder`, or None."""
    probe = folder
    while not probe.exists() and probe != probe.parent:
        probe = probe.parent
    if not probe.is_dir():
        return f"{probe} is not a folder: name another with --sessions"
    if not os.access(probe, os.W_OK | os.X_OK):
        return f"{folder} cannot be written: name another folder with --sessions, or set $TUI_TUNER_HOME"
    return None


def _write_beside(file: Path, text: str) -> str:
    """Saves a line beside the session, for its owner alone; where it is, or why it could not be written."""
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as opened:
            opened.write(text.rstrip("\n") + "\n")
    except OSError as error:
        return f"nowhere: {file} cannot be written ({error.strerror or error})"
    return str(file)


def _load_of(draft: Draft) -> Load | None:
    """The draft's load, whatever else is still wrong with the draft."""
    from msgspec.structs import replace

    plan, _ = replace(draft, values=draft.values or "0", baseline="", fixed="").plan()
    return plan.load if plan else None


def _or_nothing(read: Callable[[], dict[str, Value]]) -> dict[str, Value]:
    try:
        return read()
    except ValueError:
        return {}
