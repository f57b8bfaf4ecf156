"""decide and stop: what a person says about a session."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tui_tuner import cli, paths
from tui_tuner.cli import output
from tui_tuner.model import events as ev
from tui_tuner.model.values import label, parse
from tui_tuner.prepare import decision
from tui_tuner.store import inbox, library, sessionfile


def _find(arguments: argparse.Namespace) -> Path:
    try:
        return library.find(arguments.session, paths.sessions_dir(arguments.sessions))
    except library.NotFound as error:
        raise cli.BadInput(str(error)) from None


def decide(arguments: argparse.Namespace) -> int:
    """Records keep or revert, beside what the verdict was."""
    path = _find(arguments)
    if arguments.choice == "keep" and arguments.value is None:
        raise cli.BadInput("keep what? name the value: tui-tuner decide ID keep VALUE")
    if arguments.choice == "revert" and arguments.value is not None:
        raise cli.BadInput("revert goes back to the baseline and takes no value")
    value = parse(arguments.value) if arguments.value is not None else None
    try:
        made = decision.record(path, arguments.choice, value, arguments.value, arguments.why)
    except decision.NotRecorded as error:
        raise cli.BadInput(str(error)) from None
    kept = f"keep {label(made.value)}" if made.choice == "keep" else "revert to the baseline"
    print(f"recorded: {kept}{' (an override)' if made.override else ''}", file=sys.stderr)
    from tui_tuner.analysis import export

    session = sessionfile.read(path)
    print(export.serve(session, session.state(False)))
    return cli.OK


def stop(arguments: argparse.Namespace) -> int:
    """Asks the session's runner to end, and waits until it has tidied up."""
    path = _find(arguments)
    if not sessionfile.is_locked(path):
        print(f"{path.stem} is not running: nothing to stop", file=sys.stderr)
        return cli.OK
    try:
        inbox.send(path, ev.Asked(time.time(), "stop"))
    except inbox.NotSent as error:
        output.complain(error)
        return cli.BROKEN
    print("stopping: the engine is ended and its memory waited for", file=sys.stderr)
    while sessionfile.is_locked(path):
        time.sleep(0.2)
    print("stopped; what was measured is kept", file=sys.stderr)
    return cli.OK
