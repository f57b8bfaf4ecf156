"""Help texts: the little of Markdown that they use, as text that wraps."""

from __future__ import annotations

import re
from importlib import resources

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content

from tui_tuner.tui.clean import lines
from tui_tuner.tui.widgets.text import Line

_MARK = re.compile(r"(\*\*[^*]+\*\*|`[^`]+`)")


def page(name: str) -> str | None:
    """The help text called `name` (`work`, `knobs/max_num_seqs`), or None if there is none."""
    if not re.fullmatch(r"(knobs/)?[a-z0-9_]+", name):
        return None
    file = resources.files("tui_tuner.tui").joinpath("help", *f"{name}.md".split("/"))
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, FileNotFoundError):
        return None


def render(markdown: str) -> Content:
    """Headings, paragraphs, bullets, **strong** and `code` as content; anything else is plain text."""
    blocks: list[Content] = []
    paragraph: list[str] = []

    def flush() -> None:
        if paragraph:
            blocks.append(_inline(" ".join(paragraph)))
            paragraph.clear()

    for line in [*lines(markdown, 20_000), ""]:
        bare = line.strip()
        if not bare:
            flush()
            if blocks and blocks[-1].plain:
                blocks.append(Content(""))
        elif bare.startswith("#"):
            flush()
            blocks.append(Content.styled(bare.lstrip("# "), "bold $primary"))
        elif bare.startswith("- "):
            flush()
            paragraph.append("• " + bare[2:])
        else:
            paragraph.append(bare)
    while blocks and not blocks[-1].plain:
        blocks.pop()
    return Content("\n").join(blocks)


def _inline(text: str) -> Content:
    pieces: list[str | tuple[str, str]] = []
    for part in _MARK.split(text):
        if part.startswith("**"):
            pieces.append((part[2:-2], "bold"))
        elif part.startswith("`"):
            pieces.append((part[1:-1], "$secondary"))
        else:
            pieces.append(part)
    return Content.assemble(*pieces)


class Prose(VerticalScroll):
    """A help text that scrolls."""

    def __init__(
        self, markdown: str = "", id: str | None = None, classes: str | None = None, verbatim: bool = False
    ) -> None:
        super().__init__(id=id, classes=classes, can_focus=False)
        self._line = Line(markdown if verbatim else render(markdown))

    def compose(self) -> ComposeResult:
        yield self._line

    def show(self, markdown: str) -> None:
        self._line.say(render(markdown))
        self.scroll_home(animate=False)
