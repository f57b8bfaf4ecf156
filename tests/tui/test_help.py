"""Help texts: every screen and every knob has one, and the keys they name exist."""

from __future__ import annotations

from importlib import resources

import pytest

from tui_tuner.model import knobs
from tui_tuner.tui import actions
from tui_tuner.tui.screens.help import keys
from tui_tuner.tui.widgets.prose import page, render

SCREENS = ("home", *actions.WIZARD, "run", "replay", "results", "decide", "saved", "logs")


@pytest.mark.parametrize("name", SCREENS)
def test_every_screen_explains_itself(name: str) -> None:
    text = page(name)
    assert text is not None and text.startswith("# ")


@pytest.mark.parametrize("name", list(knobs.CATALOGUE))
def test_every_knob_has_its_page(name: str) -> None:
    text = page(f"knobs/{name}")
    assert text is not None and text.startswith(f"# {name}\n")
    assert len(text.splitlines()) >= 5


def test_no_page_without_a_knob() -> None:
    folder = resources.files("tui_tuner.tui").joinpath("help", "knobs")
    assert {f.name.removesuffix(".md") for f in folder.iterdir()} == set(knobs.CATALOGUE)


@pytest.mark.parametrize("name", ["../app", "/etc/passwd", "knobs/../../x", "", "knobs/none_such", "a b"])
def test_only_help_is_ever_read(name: str) -> None:
    assert page(name) is None


def test_markdown_becomes_text_and_nothing_is_markup() -> None:
    shown = render("# A [red]head[/]\n\nSome **strong** `code`\ngoes on.\n\n- one\n- two\n  more\n").plain
    assert shown == "A [red]head[/]\n\nSome strong code goes on.\n\n• one\n• two more"


@pytest.mark.parametrize("name", SCREENS)
def test_the_help_lists_every_action_of_its_screen(name: str) -> None:
    text = keys(name)
    for act in actions.of(name):
        assert act.says in text and f"**{act.key}" in text
