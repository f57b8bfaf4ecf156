"""The command line: data on stdout, progress and complaints on stderr, exit codes that mean something.

0 done · 2 the input is wrong · 3 no usable engine · 4 the baseline could not be measured · 130 stopped.
Each command is a module of its own and imported when it is asked for, so that none pays for another.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence

from tui_tuner import __version__

OK, BROKEN, BAD_INPUT, NO_ENGINE, NO_BASELINE, STOPPED = 0, 1, 2, 3, 4, 130


class BadInput(Exception):
    """What was typed cannot be used; the text is a sentence that says what would be right."""


def parser() -> argparse.ArgumentParser:
    """The whole command line as one parser."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--sessions", metavar="DIR", default=argparse.SUPPRESS, help="where session files are")
    common.add_argument("--engine-python", metavar="PATH", default=argparse.SUPPRESS, help="the Python that has vLLM")
    top = argparse.ArgumentParser(
        prog="tui-tuner",
        parents=[common],
        description="Tune one vLLM knob at a time: quality, throughput and latency, measured together.",
        epilog="Without a command the app opens.",
    )
    top.add_argument("--version", action="version", version=f"tui-tuner {__version__}")
    top.add_argument("--ascii", action="store_true", help="draw the app with ASCII symbols")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")

    def command(name: str, say: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, parents=[common], help=say, description=say[:1].upper() + say[1:] + ".")

    def session(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("session", metavar="ID|FILE", help="a session's id, the beginning of one, or a session file")

    run = command("run", "measure a plan, and follow it to its end")
    run.add_argument("plan", metavar="PLAN.toml", help="a plan file, or - for standard input")
    run.add_argument("--json", action="store_true", help="print the session as JSON")
    run.add_argument("--predict", metavar="TEXT", help="what you expect, kept beside the outcome")

    plan = command("plan", "write a plan to standard output: for the practice model, or with what you name")
    plan.add_argument("--model", help="a Hugging Face id, a folder, or practice")
    plan.add_argument("--knob", help="the one knob")
    plan.add_argument("--values", nargs="+", metavar="VALUE", help="its values, as JSON or as words (on, off, fp8)")
    plan.add_argument("--goal", help="what should get better")
    plan.add_argument("--thoroughness", choices=("quick", "standard", "decide"))

    resume = command("resume", "go on with a session that was cut off or stopped, to its end")
    session(resume)
    resume.add_argument("--json", action="store_true", help="print the session as JSON")

    attach = command("attach", "follow a running session; leaving it does not stop it")
    session(attach)
    attach.add_argument("--json", action="store_true", help="print the session as JSON at the end")

    session(command("stop", "end a running session after tidying up; what was measured is kept"))

    listing = command("list", "the sessions on this machine")
    listing.add_argument("--recorded", action="store_true", help="those that come along, measured on real cards")
    listing.add_argument("--json", action="store_true")

    show = command("show", "a session's result")
    session(show)
    show.add_argument("--json", action="store_true")

    replay = command("replay", "play a recorded session back as it was measured, faster; nothing is written")
    session(replay)
    replay.add_argument(
        "--speed",
        type=_speed,
        metavar="N",
        help="times as fast as it was, 0: at once; else a minute (without a terminal 0)",
    )

    compare = command("compare", "two sessions side by side: what was not held alike, then the figures")
    compare.add_argument("a", metavar="A", help="a session's id, the beginning of one, or a session file")
    compare.add_argument("b", metavar="B", help="the other one")
    compare.add_argument("--json", action="store_true")

    decide = command("decide", "record what you decided")
    session(decide)
    decide.add_argument("choice", choices=("keep", "revert"))
    decide.add_argument("value", nargs="?", help="the value to keep")
    decide.add_argument("--why", help="your reason, needed where it overrides the verdict")

    export = command("export", "a session as something else: the decided configuration, or a report")
    session(export)
    export.add_argument("--to", choices=("serve", "yaml", "markdown", "html", "csv"), default="serve")

    check = command("check", "check a serve line in use against the installed vLLM: every flag, its value and default")
    check.add_argument(
        "line", nargs="+", metavar="LINE|FILE",
        help="'vllm serve …' or 'docker run …' in quotes, a YAML configuration file, or - for standard input",
    )  # fmt: skip
    check.add_argument("--json", action="store_true")

    noise = command("noise", "measure how far equal launches of a plan's baseline differ")
    noise.add_argument("plan", metavar="PLAN.toml", help="a plan file, or - for standard input")
    noise.add_argument("--json", action="store_true", help="print the session as JSON")

    knob = command("knobs", "the knobs: defaults here, directions, what each trades")
    knob.add_argument("--for", dest="goal", metavar="GOAL", help="only those that may help: throughput, ttft, tpot, …")
    knob.add_argument("--json", action="store_true")

    doctor = command("doctor", "what of this machine is ready, and the way out where it is not")
    doctor.add_argument("--json", action="store_true")

    setup = command("setup", "make an environment with vLLM, and the practice model")
    setup.add_argument("--engine", choices=("cpu", "cuda"), help="without it, what this machine can use")
    setup.add_argument("--engine-version", metavar="V", help="another vLLM version")
    setup.add_argument("--dir", metavar="DIR", help="where to make it (a data volume, on a rented machine)")
    setup.add_argument("--yes", action="store_true", help="do not ask before downloading")

    command("schema", "the JSON Schema of session files")
    return top


def _speed(text: str) -> float:
    """A speed-up as typed. Raises what argparse turns into a sentence and exit code 2."""
    try:
        speed = float(text)
    except ValueError:
        speed = -1.0
    if not 0 <= speed <= 100_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no speed: a number from 0 (at once) to 100000")
    return speed


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. Never shows a traceback for a fault of the input."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a ? where the terminal's character set has no such sign
    arguments = parser().parse_args(argv)
    arguments.sessions = getattr(arguments, "sessions", None)
    arguments.engine_python = getattr(arguments, "engine_python", None)
    name = arguments.command or "app"
    module = importlib.import_module(f"tui_tuner.cli.{_ROOMS.get(name, name)}")
    try:
        return int(getattr(module, name)(arguments))
    except BadInput as error:
        from tui_tuner.cli import output

        output.complain(error)
        return BAD_INPUT
    except KeyboardInterrupt:
        return STOPPED
    except BrokenPipeError:
        # Whoever read our output has left: nothing to tell them, and nothing to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"tui-tuner: {error.filename or 'the output'}: {error.strerror or error}", file=sys.stderr)
        return BROKEN


# Commands that share a module; the others live in one of their own name.
_ROOMS = {
    "resume": "run", "attach": "run", "noise": "run",
    "list": "look", "show": "look", "schema": "look", "knobs": "look", "export": "look",
    "decide": "act", "stop": "act",
    "doctor": "machine", "setup": "machine", "plan": "machine",
}  # fmt: skip
