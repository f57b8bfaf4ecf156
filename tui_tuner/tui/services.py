"""All that a screen may ask of the outside. Each function may be slow and may raise with a sentence; none is called
in the event loop. Imports are inside: the first frame waits for none of them.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tui_tuner.model.values import Value, label
from tui_tuner.tui.draft import Draft, Problem
from tui_tuner.tui.records import (
    Checked,
    CheckUp,
    EngineState,
    Estimate,
    EvalRow,
    KnobRow,
    Listing,
    ModelRow,
    Pasted,
    SessionRow,
    Suggestion,
    Surroundings,
)  # fmt: skip

if TYPE_CHECKING:
    from tui_tuner.analysis import points as pt
    from tui_tuner.model.knobs import Facts
    from tui_tuner.model.session import Point, Session
    from tui_tuner.prepare.start import Examined
    from tui_tuner.store.library import Summary
    from tui_tuner.tui.outcome import Outcome
    from tui_tuner.tui.view import RunView


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

        folder = self.folder()
        rows = tuple(_session_row(s) for s in library.listing(folder))
        return Listing(rows, str(folder), _unwritable(folder))

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

    def draft_of(self, path: Path) -> Draft:
        """The draft that says what a session's plan says."""
        from tui_tuner.store import sessionfile
        from tui_tuner.tui.draft import from_plan

        return from_plan(sessionfile.read(path).start.plan)

    def knobs(self, draft: Draft) -> tuple[KnobRow, ...]:
        """The catalogue, ranked for the draft's goal, with the installed version's defaults where it can be asked."""
        from tui_tuner.prepare import knobs as ranking

        return ranking.rows(draft, self._facts_or_none())  # type: ignore[attr-defined,no-any-return]

    def suggestion(self, draft: Draft) -> Suggestion:
        """Values that can start on this machine."""
        raise NotImplementedError

    def check(self, draft: Draft) -> Checked:
        """What can be told at once: the plan by itself, and whether the model is there."""
        from tui_tuner.prepare import check

        plan, wrong = draft.plan()
        if plan is None:
            return Checked(wrong)
        model = check.model_problem(plan.model)
        found = [*check.alone(plan), *([model] if model else [])]
        return Checked(tuple(Problem(p.field, p.say, p.suggest) for p in found))

    def check_fully(self, draft: Draft) -> Checked:
        """What this machine and the installed vLLM say of the plan, and what it will take; seconds."""
        from tui_tuner.prepare import start

        plan, wrong = draft.plan()
        if plan is None:
            return Checked(wrong, complete=True)
        examined = start.examine(plan, self._engine_python)
        self._examined = examined
        problems = tuple(Problem(p.field, p.say, p.suggest) for p in examined.problems)
        return Checked(problems, _estimate(examined), True)

    def paste(self, text: str) -> Pasted:
        """A command or YAML in use, read and checked."""
        raise NotImplementedError

    # ---- a session -----------------------------------------------------------------------------------------------

    def begin(self, draft: Draft) -> Path:
        """Creates the session and starts its runner. Raises with a sentence; nothing is left then."""
        from tui_tuner.prepare import start

        plan, wrong = draft.plan()
        if plan is None:
            raise ValueError(f"{wrong[0].field}: {wrong[0].say}")
        examined = self._examined
        if examined is None or examined.plan != plan:
            examined = start.examine(plan, self._engine_python)
        return start.begin(examined, self.folder(), draft.prediction.strip() or None)

    def resume(self, path: Path) -> Path:
        """Starts a runner for an interrupted session."""
        from tui_tuner.runner import launch

        launch.launch(path)
        return path

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

    def decide(self, path: Path, choice: Literal["keep", "revert"], value: Value, why: str | None) -> None:
        """Appends the decision. Raises with a sentence."""
        from tui_tuner.prepare import decision

        decision.record(path, choice, value, why=why)

    def _facts_or_none(self) -> Facts | None:
        try:
            return self.facts()
        except Exception:  # noqa: BLE001 (no engine: the catalogue stands by itself)
            return None


class SessionSource:
    """A session file, followed; figures of a point are computed once."""

    def __init__(self, path: Path) -> None:
        from tui_tuner.store import sessionfile

        self.path = path
        self._follower = sessionfile.Follower(path)
        self._is_locked: Callable[[Path], bool] = sessionfile.is_locked
        self._figures: OrderedDict[tuple[int, int, int, bool], pt.Figures] = OrderedDict()

    @property
    def problem(self) -> str | None:
        return self._follower.problem

    def poll(self) -> Session | None:
        return self._follower.poll()

    def locked(self) -> bool:
        return self._is_locked(self.path)

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


def _session_row(s: Summary) -> SessionRow:
    if s.start is None or s.problem:
        return SessionRow(s.id, s.path, s.last_t, problem=s.problem or "it cannot be read")
    plan = s.start.plan
    outcome = ""
    if s.decision:
        outcome = f"kept {label(s.decision.value)}" if s.decision.choice == "keep" else "went back"
    elif s.state in ("running", "interrupted") and s.point:
        outcome = f"at {s.point.role.replace('_', ' ')} {label(s.point.value)}"
    elif s.state == "finished":
        outcome = "to decide" if s.start.kind == "sweep" else "noise"
    values = ", ".join(label(v) for v in plan.knob.values)
    return SessionRow(s.id, s.path, s.last_t, plan.model, plan.knob.name, values, s.state, outcome)


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


def _estimate(examined: Examined) -> Estimate | None:
    raise NotImplementedError
