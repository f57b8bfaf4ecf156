"""A command that a sentence of the product or of its texts names is one that the command line takes as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tui_tuner import cli

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "tui_tuner").rglob("*.py"))
TEXTS = [*ROOT.glob("*.md"), ROOT / "sessions/README.md", *sorted((ROOT / "tui_tuner/tui/help").rglob("*.md"))]


def _said(text: str) -> set[str]:
    spans = re.findall(r"`(?:\.venv/bin/)?(tui-tuner(?: [^`\n]*)?)`", text)
    spans += re.findall(r"^ {4}(?:\.venv/bin/)?(tui-tuner(?: .*)?)$", text, re.MULTILINE)
    return {part.strip() for span in spans for part in re.split(r" \| | > |  #", span) if "tui-tuner" in part}


def _all() -> list[str]:
    # A sentence in a source may be cut into several literals: joined, as the interpreter does.
    joined = (re.sub(r'"\s*\n\s*f?"', "", file.read_text(encoding="utf-8")) for file in SOURCES)
    told = set().union(*(_said(text) for text in joined))
    return sorted(told.union(*(_said(file.read_text(encoding="utf-8")) for file in TEXTS)))


def test_there_are_some() -> None:
    assert len(_all()) > 30


@pytest.mark.parametrize("command", _all())
def test_a_command_that_is_named_exists(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = re.sub(r"\{[^}]*\}", "X", command).replace("'vllm serve …'", "'vllm serve m'")
    words = shlex.split(line)[1:]
    needs_more = {"run": ["PLAN.toml"], "noise": ["PLAN.toml"]}
    if len(words) == 1:  # the command's bare name, or with an option that the person fills in
        words += needs_more.get(words[0], [])
    if words and words[-1].startswith("--") and words[-1] not in ("--ascii", "--yes", "--json", "--recorded"):
        words.append("X")
    try:
        cli.parser().parse_args(words)
    except SystemExit as error:
        pytest.fail(f"{command}: {capsys.readouterr().err or error}")
