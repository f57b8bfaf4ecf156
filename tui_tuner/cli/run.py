"""run, resume, attach, noise: start or find a session, follow it, print what came of it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tui_tuner import cli, engines, paths
from tui_tuner.cli import follow, output
from tui_tuner.model.plan import Plan
from tui_tuner.prepare import planfile, start
from tui_tuner.store import library, sessionfile


def run(arguments: argparse.Namespace) -> int:
    """Measures a plan to its end, or refuses it."""
    return _begin(arguments, read_plan(arguments.plan), arguments.predict, noise=False)


def noise(arguments: argparse.Namespace) -> int:
    """Launches the plan's baseline five times: how far do equal launches differ?"""
    return _begin(arguments, read_plan(arguments.plan), None, noise=True)


def read_plan(name: str) -> Plan:
    """The plan in a file, or on standard input where `name` is -. Raises BadInput."""
    try:
        if name == "-":
            return planfile.rooted(planfile.parse(sys.stdin.read()), Path.cwd())
        return planfile.read(Path(name).expanduser())
    except planfile.BadPlan as error:
        raise cli.BadInput(str(error)) from None


def _begin(arguments: argparse.Namespace, plan: Plan, prediction: str | None, noise: bool) -> int:
    sessions = paths.sessions_dir(arguments.sessions)
    kind: start.Kind = "noise" if noise else "sweep"
    try:
        examined = start.examine(plan, arguments.engine_python, output.say, sessions, kind)
    except engines.NoEngine as error:
        output.complain(error)
        return cli.NO_ENGINE
    if examined.problems:
        for problem in examined.problems:
            output.complain(problem)
        return cli.BAD_INPUT
    for warning in examined.warnings:
        output.say(f"! {warning}")
    try:
        path = start.begin(examined, sessions, prediction, kind)
    except start.Refused as error:
        output.complain(error)
        return cli.BROKEN
    return _to_the_end(path, arguments.json)


def resume(arguments: argparse.Namespace) -> int:
    """Goes on with a session that was cut off or stopped."""
    path = _find(arguments)
    try:
        resumed = start.resume(path)
    except start.Refused as error:
        raise cli.BadInput(str(error)) from None
    if resumed:
        output.say(resumed)
    return _to_the_end(path, arguments.json)


def attach(arguments: argparse.Namespace) -> int:
    """Follows a session that runs, or shows one that does not."""
    return _to_the_end(_find(arguments), arguments.json)


def _find(arguments: argparse.Namespace) -> Path:
    try:
        return library.find(arguments.session, paths.sessions_dir(arguments.sessions))
    except library.NotFound as error:
        raise cli.BadInput(str(error)) from None


def _to_the_end(path: Path, as_json: bool) -> int:
    """Follows the session's runner to the end, then prints the result on stdout."""
    from tui_tuner.analysis import report

    left = follow.follow(path)
    if left:
        return cli.OK
    try:
        session = sessionfile.read(path)
    except sessionfile.Unreadable as error:
        raise cli.BadInput(str(error)) from None
    state = session.state(sessionfile.is_locked(path))
    if as_json:
        output.as_json(report.as_dict(session, state, path))
    else:
        print(report.table(session, state))
        output.say(f"saved in {path}")
    if session.ended and session.ended.say and state != "finished":
        output.say(f"! {session.ended.say}")
    if state == "interrupted":
        output.say(f"! the runner was cut off: `tui-tuner resume {session.id}` goes on where it stopped")
        return cli.BROKEN
    if state == "stopped":
        return cli.STOPPED
    return session.ended.exit if session.ended else cli.OK
