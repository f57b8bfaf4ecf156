"""The command or YAML in use, pasted; every flag is checked against the installed version."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from textual.widget import Widget
from textual.widgets import TextArea

from tui_tuner.tui import actions
from tui_tuner.tui.records import Pasted
from tui_tuner.tui.screens.base import TunerScreen
from tui_tuner.tui.widgets.text import Line


class PasteScreen(TunerScreen[Pasted | None]):
    NAME = "paste"
    TITLE_TEXT = "Paste the line in use"
    BINDINGS = actions.bindings("paste")

    def body(self) -> Iterable[Widget]:
        yield Line("A `vllm serve` or `docker run` command, or a YAML configuration. Then F2.", id="lead")
        yield TextArea("", id="pasted", soft_wrap=True, tab_behavior="focus", show_line_numbers=False)
        yield Line("", id="hint")

    def on_mount(self) -> None:
        area = self.query_one(TextArea)
        area.cursor_blink = False
        area.focus()

    def action_use(self) -> None:
        text = self.query_one(TextArea).text
        if not text.strip():
            self._say("! Nothing is there yet: paste the command you start vLLM with.")
            return
        self._say("… checking every flag")
        self.ask(partial(self.tuner.services.paste, text), self._got, lambda e: self._say(f"! {e}"), name="paste")

    def _got(self, pasted: Pasted) -> None:
        if pasted.problems:
            self._say("\n".join(f"! {p}" for p in pasted.problems[:4]))
        else:
            self.dismiss(pasted)

    def _say(self, text: str) -> None:
        hint = self.query_one("#hint", Line)
        hint.set_class(text.startswith("!"), "problem")
        hint.say(text)
