"""Step 1: the model, and the configuration that stays as it is."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace
from textual import on
from textual.widget import Widget

from tui_tuner.model.plan import PRACTICE
from tui_tuner.tui import actions, words
from tui_tuner.tui.draft import Draft, write_fixed
from tui_tuner.tui.records import Known, Pasted
from tui_tuner.tui.screens.step import Step
from tui_tuner.tui.theme import MEETS, MISSES
from tui_tuner.tui.widgets.form import Entry, Field, Pick, Row

_COLUMNS = (30, 9, 12, 20)


class ModelStep(Step):
    NAME = "model"
    LEAD = "Choose the model, and what stays fixed while one knob moves."
    BINDINGS = actions.bindings("model")

    def fields(self) -> Iterable[Widget]:
        yield Pick(_COLUMNS, id="models", right=(1,), grows=0)
        yield Field(
            "Model",
            Entry(self.draft.model, id="model"),
            "From the list above, a folder, a Hugging Face id, or practice: the small model that runs anywhere.",
        )
        yield Field(
            "Fixed",
            Entry(self.draft.fixed, id="fixed"),
            "vLLM's own argument names, the same at every point: max_model_len=4096 enforce_eager=off",
        )

    def on_mount(self) -> None:
        self.query_one("#models").focus()

    def known_changed(self, known: Known) -> None:
        pick = self.query_one(Pick)
        rows = [Row(PRACTICE, ("practice", "", "built in", "SmolLM2-135M, runs on any machine"))]
        for model in known.models or ():
            if model.name == PRACTICE:
                rows[0] = Row(
                    PRACTICE, ("practice", words.mib(model.mib), "built in", f"{MEETS} SmolLM2-135M, runs anywhere")
                )
                continue
            fits = "" if model.fits is None else f"{MEETS} fits" if model.fits else f"{MISSES} does not fit"
            say = " ".join(part for part in (fits, model.say, model.quantization) if part)
            rows.append(Row(model.name, (model.name, words.mib(model.mib), model.source, say)))
        if known.models is None:
            rows.append(Row("", ("… looking on the disk", "", "", ""), quiet=True))
        pick.fill(rows, self.query_one("#model", Entry).value)

    @on(Pick.Moved)
    def _moved(self, event: Pick.Moved) -> None:
        if event.pick.has_focus and event.key:
            self.query_one("#model", Entry).value = event.key

    def read(self) -> Draft:
        return replace(
            self.draft, model=self.query_one("#model", Entry).value, fixed=self.query_one("#fixed", Entry).value
        )

    def action_paste(self) -> None:
        from tui_tuner.tui.screens.paste import PasteScreen

        self.app.push_screen(PasteScreen(), self._pasted)

    def _pasted(self, pasted: Pasted | None) -> None:
        if pasted is None:
            return
        if pasted.model:
            self.query_one("#model", Entry).value = pasted.model
        self.query_one("#fixed", Entry).value = write_fixed(pasted.fixed)
        for note in pasted.notes[:3]:
            self.tell(note)
