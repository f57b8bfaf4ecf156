"""list, show, schema, knobs, export: reading, and printing what was read."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import msgspec

from tui_tuner import cli, paths
from tui_tuner.cli import output
from tui_tuner.model.session import Session
from tui_tuner.model.text import plain
from tui_tuner.model.values import label
from tui_tuner.store import library, sessionfile


def read(arguments: argparse.Namespace, name: str) -> tuple[Path, Session]:
    """The session that a person means by `name`, and its file. Raises BadInput."""
    try:
        path = library.find_to_read(name, paths.sessions_dir(arguments.sessions))
        return path, sessionfile.read(path)
    except (library.NotFound, sessionfile.Unreadable) as error:
        raise cli.BadInput(str(error)) from None


def list(arguments: argparse.Namespace) -> int:
    """The sessions of the folder, newest first, or those that come along."""
    folder = library.recorded_dir() if arguments.recorded else paths.sessions_dir(arguments.sessions)
    found = library.recorded() if arguments.recorded else library.listing(folder)
    if arguments.json:
        output.as_json(
            [
                {
                    "id": s.id,
                    "file": str(s.path),
                    "status": s.state,
                    "knob": s.start.plan.knob.name if s.start else None,
                    "model": s.start.plan.model if s.start else None,
                    "card": s.start.machine.title if s.start else None,
                    "began": s.start.t if s.start else None,
                    "decision": s.decision.choice if s.decision else None,
                    "problem": s.problem,
                }
                for s in found
            ]
        )
        return cli.OK
    if not found:
        way = "none came along" if arguments.recorded else "`tui-tuner` starts one"
        print(f"no sessions in {folder}: {way}", file=sys.stderr)
        return cli.OK
    width = min(max(len(s.id) for s in found), 40)
    for s in found:
        if s.problem or s.start is None:
            print(f"{plain(s.id):<{width}}  ! {plain(s.problem or 'unreadable')}")
            continue
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(s.start.t))
        values = ", ".join(label(v) for v in s.start.plan.knob.values)
        decided = ""
        if s.decision:
            kept = f" {label(s.decision.value)}" if s.decision.choice == "keep" else ""
            decided = f"  {s.decision.choice}{kept}"
        state = f"recorded on {plain(s.start.machine.title, 40)}" if arguments.recorded else f"{s.state or '':<11}"
        print(
            f"{plain(s.id):<{width}}  {when}  {state}  "
            f"{plain(s.start.plan.knob.name)} {plain(values, 40)}{plain(decided)}"
        )
    return cli.OK


def show(arguments: argparse.Namespace) -> int:
    """One session's result, as a table or as JSON."""
    from tui_tuner.analysis import report

    path, session = read(arguments, arguments.session)
    state = session.state(sessionfile.is_locked(path))
    if arguments.json:
        output.as_json(report.as_dict(session, state, path))
    else:
        print(report.table(session, state))
    return cli.OK


def schema(arguments: argparse.Namespace) -> int:
    """The JSON Schema of one line of a session file."""
    from tui_tuner.model.events import AnyEvent

    document = msgspec.json.schema(AnyEvent)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "tui-tuner session event"}
    output.as_json({**head, **document})
    return cli.OK


def knobs(arguments: argparse.Namespace) -> int:
    """The catalogue, with the defaults of the engine found here."""
    from tui_tuner import engines
    from tui_tuner.model import knobs as catalogue
    from tui_tuner.model.slo import GOALS

    if arguments.goal is not None and arguments.goal not in GOALS:
        raise cli.BadInput(f"--for {arguments.goal} is no goal: it is one of {', '.join(GOALS)}")
    try:
        engine = engines.find(arguments.engine_python)
    except engines.NoEngine as error:
        print(f"tui-tuner: {error}", file=sys.stderr)
        return cli.NO_ENGINE
    facts = engines.facts(engine)
    chosen = catalogue.ranked(arguments.goal) if arguments.goal else tuple(catalogue.CATALOGUE.values())
    rows = []
    for knob in chosen:
        field = facts.fields.get(knob.name)
        if field is None:
            continue  # this vLLM does not have it
        rows.append((knob, field))
    if arguments.json:
        output.as_json(
            [
                {
                    "name": k.name, "flag": k.flag, "group": k.group, "title": k.title,
                    "declared_default": f.declared_default, "effective_default": f.effective_default,
                    "directions": k.directions, "trades": k.trades, "when": k.when, "quality": k.quality,
                    "load": k.load, "low": f.low, "high": f.high, "choices": f.choices, "doc": f.doc,
                    "warning": k.warning,
                }
                for k, f in rows
            ]
        )  # fmt: skip
        return cli.OK
    arrows = {"up": "↑", "down": "↓", "flat": "≈", "depends": "±"}
    print(
        f"vLLM {facts.version} ({facts.device or 'device unknown'}): the default here, and what rises (↑) or falls (↓)"
        " when the knob is raised or turned on\n"
    )
    for k, f in rows:
        moves = "  ".join(f"{arrows[d]} {figure}" for figure, d in k.directions.items() if d != "flat")
        print(f"{k.name}  [{k.group}]  default {label(f.effective_default)}\n    {moves}")
        print(f"    {k.when}; trades {k.trades}")
    return cli.OK


def export(arguments: argparse.Namespace) -> int:
    """The session as a serve line, a YAML configuration, a report or a table of rows."""
    from tui_tuner.analysis import chain
    from tui_tuner.analysis import export as exporting

    path, session = read(arguments, arguments.session)
    state = session.state(sessionfile.is_locked(path))
    print(exporting.TO[arguments.to](session, state, chain.beside(path, session)))
    return cli.OK
