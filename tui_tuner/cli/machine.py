"""doctor, setup, plan: what this machine can do, making it able, and a plan to start from."""

from __future__ import annotations

import argparse
import sys

from tui_tuner import cli
from tui_tuner.cli import output
from tui_tuner.model.text import plain


def doctor(arguments: argparse.Namespace) -> int:
    """Prints every check; exit 3 if no engine can be used."""
    from tui_tuner.prepare import doctor as examination

    found = examination.checks(arguments.sessions, arguments.engine_python)
    if arguments.json:
        output.as_json(found)
    else:
        for check in found:
            print(f"{examination.SYMBOLS[check.mark]} {check.name:<9} {plain(check.say)}")
            if check.fix:
                print(f"            → {plain(check.fix)}")
    return cli.NO_ENGINE if any(c.name == "engine" and c.mark == "bad" for c in found) else cli.OK


def plan(arguments: argparse.Namespace) -> int:
    """Writes a plan: the practice sweep, with whatever was named instead."""
    from msgspec.structs import replace

    from tui_tuner import gpu
    from tui_tuner.model import knobs
    from tui_tuner.model.plan import Sweep
    from tui_tuner.model.slo import GOALS
    from tui_tuner.model.values import parse
    from tui_tuner.prepare import planfile, practice

    made = practice.plan(gpu.probe().machine.device)
    if arguments.model:
        made = replace(made, model=arguments.model)
        if arguments.model != "practice":
            made = replace(made, fixed={})
    if arguments.goal:
        if arguments.goal not in GOALS:
            raise cli.BadInput(f"--goal {arguments.goal} is no goal: it is one of {', '.join(GOALS)}")
        made = replace(made, slo=replace(made.slo, goal=arguments.goal))
    if arguments.thoroughness:
        made = replace(made, thoroughness=arguments.thoroughness)
    if arguments.knob:
        try:
            knob = knobs.get(arguments.knob)
        except KeyError as error:
            raise cli.BadInput(f"--knob: {error.args[0]}") from None
        values = tuple(parse(v) for v in arguments.values) if arguments.values else knob.suggested
        if not values:
            raise cli.BadInput(f"--values are needed for {knob.name}: its values depend on your model")
        made = replace(made, knob=Sweep(knob.name, values))
        made = replace(made, fixed={k: v for k, v in made.fixed.items() if k != knob.name})
    elif arguments.values:
        made = replace(made, knob=Sweep(made.knob.name, tuple(parse(v) for v in arguments.values)))
    try:
        print(planfile.write(made), end="")
    except ValueError as error:
        raise cli.BadInput(str(error)) from None
    return cli.OK


def setup(arguments: argparse.Namespace) -> int:
    """Makes an engine's environment and the practice model; quick when both are there."""
    from tui_tuner.engines import setup as making

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        intended = making.plan(arguments.engine, arguments.engine_version, arguments.dir)
        if intended.needed and not arguments.yes:
            say(intended.say)
            if not sys.stdin.isatty():
                raise cli.BadInput("nothing was downloaded: say --yes where nobody can be asked")
            if input("Go on? [y/N] ").strip().lower() not in ("y", "yes"):
                say("nothing was changed")
                return cli.OK
        engine = making.run(intended, say)
    except making.CannotSetUp as error:
        output.complain(error)
        return cli.NO_ENGINE
    say(f"ready: vLLM {engine.version} ({engine.device}) in {engine.python}")
    return cli.OK
