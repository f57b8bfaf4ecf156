"""check: a serve line in use, flag by flag, against the installed vLLM. Nothing of it is run."""

from __future__ import annotations

import argparse
import shlex
import sys
import textwrap
from pathlib import Path
from typing import Any

import msgspec

from tui_tuner import cli, engines
from tui_tuner.cli import output
from tui_tuner.model import knobs
from tui_tuner.model.knobs import Facts
from tui_tuner.model.machine import Engine
from tui_tuner.model.text import plain
from tui_tuner.model.values import label
from tui_tuner.prepare import serveline
from tui_tuner.prepare.serveline import Argument, ServeLine

_WIDTH = 80


def check(arguments: argparse.Namespace) -> int:
    """Says of each flag whether it exists, what it means, its value and its default; exit 2 if one cannot be."""
    text = _text(arguments.line)
    try:
        engine = engines.find(arguments.engine_python)
        facts = engines.facts(engine)
        line = serveline.read(text, facts)
        refused, note = _together(line, engine) if not line.problems else (None, None)
    except engines.NoEngine as error:
        output.complain(error)
        return cli.NO_ENGINE
    problems = [*line.problems, *([refused] if refused else [])]
    notes = [*line.notes, *([note] if note else [])]
    if arguments.json:
        found = {
            "version": facts.version,
            "device": facts.device,
            "model": line.model,
            "arguments": [_as_dict(a, facts) for a in line.arguments],
            "server": line.server,
            "problems": problems,
            "notes": notes,
        }
        output.as_json(found)
    else:
        _print(line, facts)
        for said in notes:
            print(textwrap.fill(plain(said), _WIDTH))
    for problem in problems:
        output.complain(problem)
    return cli.BAD_INPUT if problems else cli.OK


def _text(words: list[str]) -> str:
    """The line itself, a file's content, or what stands on standard input. Raises BadInput."""
    if words == ["-"]:
        return sys.stdin.read(serveline.LARGEST)
    if len(words) > 1:
        return shlex.join(words)
    (word,) = words
    if "\0" in word or len(word) > 4000 or any(c.isspace() for c in word.strip()):
        return word
    path = Path(word).expanduser()
    try:
        if path.is_file():
            with path.open(encoding="utf-8") as file:
                return file.read(serveline.LARGEST)
    except (OSError, UnicodeDecodeError) as error:
        raise cli.BadInput(f"{path} cannot be read: {error}") from None
    if path.suffix in (".yaml", ".yml"):
        raise cli.BadInput(f"there is no file {path}: name a YAML configuration, or write the line in quotes")
    return word


def _together(line: ServeLine, engine: Engine) -> tuple[str | None, str | None]:
    """What vLLM says of all arguments at once, if it can be asked; else a note on why it was not."""
    if line.model is None:
        return None, "no model is named: each value was checked by itself, not all together"
    path = engines.models.locate(line.model)
    if path is None:
        return None, f"{line.model} is not on this disk: each value was checked by itself, not all together"
    (answer,) = engines.resolve(engine, [{**line.fixed, "model": str(path)}])
    if answer.problem is None:
        return None, None
    return f"vLLM refuses {answer.field or 'this configuration'} on this machine: {answer.problem}", None


def meaning(name: str, facts: Facts) -> str:
    """What an argument is, in a sentence: our page's where there is one, else vLLM's own words."""
    if name in knobs.CATALOGUE:
        from importlib import resources

        page = resources.files("tui_tuner.tui").joinpath("help", "knobs", f"{name}.md").read_text(encoding="utf-8")
        paragraphs = [block.strip() for block in page.split("\n\n") if block.strip() and not block.startswith("#")]
        return " ".join(paragraphs[0].replace("**", "").replace("`", "").split())
    field = facts.fields.get(name)
    first, dot, _ = field.doc.partition(". ") if field else ("", "", "")
    return first + ("." if dot else "")


def _flag(name: str, facts: Facts) -> str:
    field = facts.fields.get(name)
    own = "--" + name.replace("_", "-")
    return own if field is None or own in field.flags or not field.flags else field.flags[0]


def _as_dict(argument: Argument, facts: Facts) -> dict[str, Any]:
    field = facts.fields.get(argument.name)
    return {
        "name": argument.name,
        "flag": _flag(argument.name, facts) if field else None,
        "value": argument.value,
        "problem": argument.problem,
        "knob": argument.name in knobs.CATALOGUE,
        "meaning": meaning(argument.name, facts) or None,
        "declared_default": field.declared_default if field else None,
        "effective_default": field.effective_default if field else None,
        "deprecated": field.deprecated if field else None,
    }


def _print(line: ServeLine, facts: Facts) -> None:
    print(f"vLLM {facts.version} ({facts.device or 'device unknown'})\n")
    if line.model is not None:
        print(f"  model {plain(line.model)}")
    for argument in line.arguments:
        field = facts.fields.get(argument.name)
        sign = "✓" if argument.problem is None else "✗"
        print(f"{sign} {plain(_flag(argument.name, facts))} = {plain(_shown(argument.value), 200)}")
        if argument.problem:
            _indented(argument.problem)
        if field is None:
            continue
        declared, here = plain(_shown(field.declared_default), 60), plain(_shown(field.effective_default), 60)
        also = f", here {here}" if here != declared else ""
        _indented(f"default {declared}{also}{'; deprecated' if field.deprecated else ''}")
        if said := meaning(argument.name, facts):
            _indented(said)
    for name in line.server:
        print(f"· --{plain(name.replace('_', '-'))}: the HTTP server's, it plays no part in tuning")
    print()


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode() if isinstance(value, (dict, list)) else label(value)


def _indented(text: str) -> None:
    for part in textwrap.wrap(plain(text, 400), _WIDTH, initial_indent="    ", subsequent_indent="    "):
        print(part)
