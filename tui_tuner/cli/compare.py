"""compare: two sessions side by side. What makes their figures not comparable is said before any figure."""

from __future__ import annotations

import argparse
import textwrap

from tui_tuner import cli
from tui_tuner.analysis import comparison, words
from tui_tuner.analysis.comparison import Comparison, Figure, Pair, Row, Side
from tui_tuner.cli import output
from tui_tuner.cli.look import read
from tui_tuner.model.session import Session
from tui_tuner.model.text import plain
from tui_tuner.model.values import label

_WIDTH, _COLUMN = 80, 20


def compare(arguments: argparse.Namespace) -> int:
    """Prints B against A."""
    (path_a, a), (path_b, b) = read(arguments, arguments.a), read(arguments, arguments.b)
    found = comparison.compare(a, b)
    if arguments.json:
        said = {"a": {"id": a.id, "file": str(path_a)}, "b": {"id": b.id, "file": str(path_b)}, **found.as_dict()}
        output.as_json(said)
    else:
        print(text(found, a, b))
    return cli.OK


def text(found: Comparison, a: Session, b: Session) -> str:
    """The comparison in lines of at most 80 columns."""
    lines = [_fit(f"{name}  {s.id} · {s.start.machine.title} · vLLM {s.start.engine.version}")
             for name, s in (("A", a), ("B", b))]  # fmt: skip
    lines.append("")
    for sentence in found.say:
        lines += _wrapped(sentence)
    for pair in found.pairs:
        lines += ["", *_pair(pair)]
    return "\n".join(line.rstrip() for line in lines)


def _pair(pair: Pair) -> list[str]:
    lines = [_side("A", pair.a), _side("B", pair.b)]
    if pair.configuration:
        told = ", ".join(
            f"{name} {_value(one)} and {_value(other)}" for name, (one, other) in pair.configuration.items()
        )
        lines += _wrapped(f"Configured differently: {told}.")
    if pair.rows:
        lines += ["", f"{'':<12}{'A':>{_COLUMN}}{'B':>{_COLUMN}}{'B to A':>10}"]
    for row in pair.rows:
        name = row.name if row.unit in ("tok/s", "ms") else f"{row.name}, {row.unit}"
        one, other = _figure(row, row.a), _figure(row, row.b)
        if len(name) > 12:
            lines.append(_fit(name))
            name = ""
        lines.append(f"{name:<12}{one:>{_COLUMN}}{other:>{_COLUMN}}{_change(row):>10}")
        if row.say:
            lines += _wrapped(row.say, "    ")
    for name, side in (("A", pair.a), ("B", pair.b)):
        for problem in side.problems:
            lines += _wrapped(f"! {name}: {problem}")
    if not pair.rows:
        lines.append("Neither was measured.")
    return lines


def _side(name: str, side: Side) -> str:
    count = f"{side.launches} launch{'' if side.launches == 1 else 'es'}"
    return _fit(f"{name}, {side.role}: {side.knob} {label(side.value)} ({count})")


def _value(value: object) -> str:
    return "left to vLLM" if value is None else label(value)


def _figure(row: Row, figure: Figure | None) -> str:
    """The figure with its interval, where both fit into their column."""
    if figure is None:
        return "–"

    def say(value: float) -> str:
        if row.unit == "ms":
            return words.duration(value)
        return f"{value:.0f}" if row.key == "accuracy" else words.number(value)

    middle = say(figure.value)
    if figure.low is None or figure.high is None:
        return middle
    said = [text.partition(" ") for text in (middle, say(figure.low), say(figure.high))]
    (value, _, unit), (low, _, lower), (high, _, upper) = said
    if not unit == lower == upper:
        value, low, high, unit = *(" ".join((number, own)) for number, _, own in said), ""
    spanned = f"{value} ({low}–{high}) {unit}".rstrip()
    return spanned if len(spanned) <= _COLUMN else middle


def _change(row: Row) -> str:
    if row.change is None:
        return ""
    return f"{row.change:+.0f} points".replace("-", "−") if row.key == "accuracy" else words.percent(row.change)


def _fit(line: str) -> str:
    shown = plain(line)
    return shown if len(shown) <= _WIDTH else shown[: _WIDTH - 1] + "…"


def _wrapped(sentence: str, indent: str = "") -> list[str]:
    return textwrap.wrap(plain(sentence), _WIDTH, initial_indent=indent, subsequent_indent=indent)
