"""From a plan to a running session: examine it, create its file, start its runner."""

from __future__ import annotations

import contextlib
import hashlib
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from msgspec import UNSET, Struct
from msgspec.structs import replace

from tui_tuner import __version__, engines, evals, gpu, paths
from tui_tuner.analysis import bands, estimate, points
from tui_tuner.engines import models
from tui_tuner.model import events as ev
from tui_tuner.model import knobs
from tui_tuner.model.knobs import Facts
from tui_tuner.model.machine import Engine, Machine, ModelShape
from tui_tuner.model.plan import Plan
from tui_tuner.model.session import Session
from tui_tuner.model.values import Value
from tui_tuner.prepare import check
from tui_tuner.prepare.check import Problem
from tui_tuner.runner import NotLaunched, launch
from tui_tuner.store import library, sessionfile

Say = Callable[[str], None]
Kind = Literal["sweep", "noise"]
_EARLIER = 12  # sessions that are read for their times


class Examined(Struct, frozen=True):
    """A plan and all that is known before its start. It may start if `problems` is empty."""

    plan: Plan
    problems: list[Problem] = []
    warnings: list[str] = []
    machine: Machine = Machine()
    engine: Engine | None = None
    facts: Facts | None = None
    baseline: Value = None
    model_path: Path | None = None
    shape: ModelShape | None = None
    estimate: dict[str, Any] = {}


class Refused(Exception):
    """The session could not begin; the text is a sentence."""


def examine(
    plan: Plan,
    engine_python: str | None = None,
    say: Say = lambda _: None,
    sessions: Path | None = None,
    kind: Kind = "sweep",
) -> Examined:
    """Everything that can be known of a plan before it starts. Starts nothing that stays and writes nothing but caches.

    `sessions` is the folder whose earlier sessions tell how long a point takes here and how noisy it is.

    The circles of `check` are walked from cheap to dear and end at the first that finds something.
    Raises engines.NoEngine.
    """
    problems = check.alone(plan)
    model = check.model_problem(plan.model)
    if problems or model:
        return Examined(plan, problems + ([model] if model else []))
    engine = engines.find(engine_python)
    probe = gpu.probe()
    machine = probe.machine if engine.device == "cuda" else _without_card(probe.machine)
    say(f"asking vLLM {engine.version} what it makes of the plan")
    facts = engines.facts(engine)
    path = models.locate(plan.model)
    shape = models.shape(path) if path else None
    unseen = _unseen(engine, machine)
    available = None if unseen else gpu.available_mib(machine)
    problems = check.known(plan, facts) + check.here(plan, machine, shape, available)
    if problems:
        return Examined(plan, problems, machine=machine, engine=engine, facts=facts, model_path=path, shape=shape)
    baseline, resolutions = _resolve(plan, engine, machine, facts, path)
    examined = Examined(
        plan,
        check.resolved(plan, baseline, resolutions),
        [
            *_warnings(plan),
            *([f"no card is seen here, so nothing is known of its memory: {probe.why}"] if unseen else []),
        ],
        machine,
        engine,
        facts,
        baseline,
        path,
        shape,
    )
    return _with_the_past(examined, sessions, kind)


def _with_the_past(examined: Examined, sessions: Path | None, kind: Kind) -> Examined:
    """What earlier sessions of the folder add: how long a point takes here, and the noise band."""
    plan = examined.plan
    earlier: list[Session] = []
    band = None
    written = plan
    if sessions is not None:
        for summary in library.listing(sessions)[:_EARLIER]:
            with contextlib.suppress(sessionfile.Unreadable):
                earlier.append(sessionfile.read(summary.path))
        line = _line_one(examined, sessions, None, kind)
        band, written = line.band, line.plan  # as earlier sessions spell it
    problems = list(examined.problems)
    warnings = examined.warnings + _too_short(earlier, written, examined.machine)
    if plan.thoroughness == "decide" and kind == "sweep" and band is None:
        problems.append(
            Problem(
                "thoroughness",
                "decide needs the noise band of this card, engine, model and load, and none is known yet: "
                "`tui-tuner noise PLAN.toml` with this plan measures it, or write standard",
                "standard",
            )
        )
    machine = examined.machine
    if examined.engine is not None and _unseen(examined.engine, machine):
        machine = replace(machine, ram_mib=0, numa_mib=None)  # a share of the card's memory is none of the machine's
    before = estimate.before(written, examined.baseline, machine, examined.shape, examined.facts, earlier, band, kind)
    return replace(examined, problems=problems, warnings=warnings, estimate=before)


def _too_short(earlier: list[Session], plan: Plan, machine: Machine) -> list[str]:
    """What the newest baseline of the same work said of the length of its speed pass."""
    for session in earlier:
        was = session.start
        same_work = (was.plan.model, was.plan.load, was.plan.requests_per_level()) == (
            plan.model,
            plan.load,
            plan.requests_per_level(),
        )
        if was.machine.card == machine.card and same_work and (measured := points.baselines(session)):
            note = points.brevity(measured[-1])
            return [f"{note} (as in {session.id})"] if note else []
    return []


def _unseen(engine: Engine, machine: Machine) -> bool:
    """Whether the engine is one for a card, and NVML names none: absent, or hidden from this process."""
    return engine.device == "cuda" and machine.gpu is None


def _without_card(machine: Machine) -> Machine:
    """The machine as a CPU engine sees it: its card, if there is one, plays no part."""
    return Machine(machine.cpu, machine.cores, machine.ram_mib, machine.numa_mib, machine.os)


def _resolve(
    plan: Plan, engine: Engine, machine: Machine, facts: Facts, path: Path | None
) -> tuple[Value, list[knobs.Resolution]]:
    """The baseline's value (named, fixed, or what vLLM resolves) and what vLLM makes of each point's arguments."""
    knob = knobs.get(plan.knob.name)
    where = {"model": str(path)} if path else {}
    held = {"model": plan.model, **plan.fixed}
    base_args = plan.args(plan.knob.baseline) if plan.knob.baseline is not UNSET else held
    sets: list[dict[str, Any]] = [base_args | where] + [
        args if "model" in _variant(value) else args | where
        for value in plan.knob.values
        for args in [_located(plan.args(value))]
    ]
    resolutions = engines.resolve(engine, paths.expanded(sets), card=machine.gpu.uuid if machine.gpu else None)
    if plan.knob.baseline is not UNSET:
        baseline: Value = plan.knob.baseline
    elif knob.name in plan.fixed:
        baseline = plan.fixed[knob.name]
    else:
        field = facts.fields.get(knob.name)
        fallback = field.effective_default if field else None
        baseline = resolutions[0].resolved.get(knob.config_field or "", fallback)
    return baseline, resolutions


def _variant(value: Value) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _located(args: dict[str, Any]) -> dict[str, Any]:
    """The arguments with a model on this disk as its absolute path."""
    path = models.locate(str(args["model"]))
    return args | {"model": str(path)} if path else args


def _warnings(plan: Plan) -> list[str]:
    """What a person should know at Review and may still want."""
    knob = knobs.get(plan.knob.name)
    found = [f"{knob.name}: {knob.warning}"] if knob.warning else []
    needed = plan.requests_per_level()
    if needed > plan.load.requests:
        found.append(
            f"{needed} requests are sent at each level instead of {plan.load.requests}: the SLO's percentiles need them"
        )
    if knob.load and not estimate.load_shows(knob, plan.load):
        found.append(f"this load cannot show {knob.name}: it needs {knob.load}")
    if plan.fixed.get("load_format") == "dummy":
        found.append("dummy weights: speed and memory are real, answers mean nothing and are not asked for")
    return found


def begin(
    examined: Examined,
    sessions: Path,
    prediction: str | None = None,
    kind: Kind = "sweep",
) -> Path:
    """Creates the session and starts its runner; returns the session's file.

    Raises Refused with a sentence: nothing runs then, and no file is left.
    """
    if examined.problems or examined.engine is None:
        raise Refused("; ".join(map(str, examined.problems)) or "there is no engine")
    try:
        files = {name: _digest(file) for name, file in _files(examined.plan).items()}
    except OSError as error:
        raise Refused(f"{error.filename} cannot be read any more: {error.strerror}") from None
    start = replace(_line_one(examined, sessions, prediction, kind), files=files)
    path = library.path_of(sessions, start.id)
    try:
        sessionfile.create(path, start)
    except (sessionfile.WriteFailed, FileExistsError) as error:
        raise Refused(str(error)) from None
    try:
        launch(path)
    except NotLaunched as error:
        # The runner never took the session: a file that measured nothing would only be in the way.
        with contextlib.suppress(OSError):
            path.unlink()
        raise Refused(str(error)) from None
    return path


def _line_one(examined: Examined, sessions: Path, prediction: str | None, kind: Kind) -> ev.SessionStart:
    assert examined.engine is not None
    plan, engine = examined.plan, examined.engine
    now = time.time()
    start = ev.SessionStart(
        t=now,
        format=ev.FORMAT,
        id=library.new_id(sessions, plan.knob.name if kind == "sweep" else "noise", now),
        plan=plan,
        baseline=examined.baseline,
        machine=examined.machine,
        engine=engine,
        versions={
            "tui_tuner": __version__,
            "python": platform.python_version(),
            engine.package: engine.version,
            "torch": engine.torch,
        },
        prediction=prediction,
        model_path=str(examined.model_path) if examined.model_path else None,
        shape=examined.shape,
        estimate=examined.estimate,
        dummy_weights=plan.fixed.get("load_format") == "dummy",
        kind=kind,
    )
    return bands.known(sessionfile.as_written(start), sessions)


def _files(plan: Plan) -> dict[str, Path]:
    """The files that a plan's work is read from at every start of its runner, by their names in the plan."""
    found = {}
    if plan.evalset.items > 0 and plan.fixed.get("load_format") != "dummy":
        found[plan.evalset.name] = evals.file(plan.evalset.name)
    if plan.load.kind == "trace" and plan.load.file:
        found[plan.load.file] = Path(paths.expanded(plan.load.file))
    return found


def _digest(file: Path) -> str:
    """A file's SHA-256. Raises OSError."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _changed(start: ev.SessionStart) -> list[str]:
    """What became of the files that the session was started with, as sentences; none where they are what they were."""
    found = []
    for name, file in _files(start.plan).items():
        was = start.files.get(name)
        try:
            if was is not None and _digest(file) != was:
                found.append(f"{name} has changed since the start: put it back as it was")
        except FileNotFoundError:
            found.append(f"{name} is gone: put it back where it was")
        except OSError as error:
            found.append(f"{name} cannot be read any more ({error.strerror})")
    return found


def resume(path: Path) -> str | None:
    """Starts a runner on a session that was cut off or stopped; returns a sentence for the person, or None.

    A running session is left alone. Raises Refused where the session is finished, where its eval set or traffic file
    is not what it was, or this is another machine: figures of other work or from another card, driver or vLLM do not
    belong into one session.
    """
    if sessionfile.is_locked(path):
        return "it is running already"
    if library.is_recorded(path):
        raise Refused(f"{path.stem} came along to be read: nothing is added to it")
    try:
        session = sessionfile.read(path)
    except sessionfile.Unreadable as error:
        raise Refused(str(error)) from None
    state = session.state(False)
    if state == "finished":
        raise Refused(f"{session.id} is finished: there is nothing left to measure")
    before = session.start
    if changed := _changed(before):
        raise Refused(
            f"{session.id} cannot go on, for all its points must do the same work: {'; '.join(changed)}, "
            "or start a new session with `tui-tuner run`"
        )
    try:
        engine = engines.find(str(Path(before.engine.python).expanduser()))
    except engines.NoEngine as error:
        raise Refused(f"the engine of this session is gone: {error}") from None
    now = gpu.probe(before.machine.gpu.uuid if before.machine.gpu else None).machine
    differs = _differences(before, engine, now)
    if differs:
        raise Refused(f"{session.id} cannot go on here, for the figures would not compare: {'; '.join(differs)}")
    try:
        launch(path)
    except NotLaunched as error:
        raise Refused(str(error)) from None
    return f"going on with {session.id}"


def _differences(before: ev.SessionStart, engine: Engine, now: Machine) -> list[str]:
    found = []
    if engine.version != before.engine.version:
        found.append(f"vLLM was {before.engine.version} and is {engine.version}")
    was, is_ = before.machine.gpu, now.gpu
    if was and is_ and was.uuid != is_.uuid:
        found.append(f"the card was {was.name} ({was.uuid}) and is {is_.name} ({is_.uuid})")
    elif was and is_ is None:
        found.append(f"the card {was.name} is not here")
    if was and is_ and was.driver != is_.driver:
        found.append(f"the driver was {was.driver} and is {is_.driver}")
    if was is None and before.machine.cpu and before.machine.cpu != now.cpu:
        found.append(f"the CPU was {before.machine.cpu} and is {now.cpu}")
    return found
