"""Step 3: the service-level objective."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace
from textual import on
from textual.widget import Widget

from tui_tuner.model import slo as slos
from tui_tuner.tui import actions
from tui_tuner.tui.draft import CUSTOM, Draft
from tui_tuner.tui.screens.step import Step
from tui_tuner.tui.widgets.form import Choice, Entry, Field, values_of
from tui_tuner.tui.widgets.text import Line

GOALS = [
    ("throughput", "most output tokens a second"),
    ("goodput", "most requests a second inside all limits"),
    ("ttft", "shortest wait for the first token"),
    ("tpot", "shortest time per token after the first"),
    ("itl", "shortest wait between two tokens"),
    ("e2e", "shortest time from question to full answer"),
]
_LIMITS = [
    ("ttft", "TTFT, ms", "Time to first token, at most."),
    ("tpot", "TPOT, ms", "Time per output token after the first, at most."),
    ("itl", "ITL, ms", "Wait between two tokens, at most."),
    ("e2e", "E2E, ms", "From the request to its last token, at most."),
]
_PRESETS = [(CUSTOM, "your own"), *((name, "") for name in slos.PRESETS)]


class SloStep(Step):
    NAME = "slo"
    LEAD = "Name the goal and the limits first: no configuration is fast in general."
    BINDINGS = actions.bindings("slo")

    def fields(self) -> Iterable[Widget]:
        d = self.draft
        yield Field(
            "Preset", Choice(_PRESETS, d.slo, id="slo"), "A starting point; change it to what your service needs."
        )
        yield Line("", id="source", classes="quiet")
        yield Field("Goal", Choice(GOALS, d.goal, id="goal"), "The figure that a change must improve to be kept.")
        for metric, label, hint in _LIMITS:
            yield Field(
                label,
                Entry(getattr(d, metric), id=metric),
                f"{hint} Empty: no limit. 5000 means p95; or p50 200, p99 900.",
            )
        yield Line("No change may newly break a limit. p95 needs 59 requests, p99 needs 299.", classes="quiet note")

    def on_mount(self) -> None:
        self._source(self.draft.slo)
        self.query_one("#slo").focus()

    def _source(self, preset: str) -> None:
        about = slos.PRESETS[preset][1] if preset in slos.PRESETS else ""
        self.query_one("#source", Line).say(about)

    @on(Choice.Turned, "#slo")
    def _preset(self, event: Choice.Turned) -> None:
        draft = self.read_fields().with_slo(event.value)
        for entry in self.query(Entry):
            entry.value = getattr(draft, entry.id or "")
        self.query_one("#goal", Choice).choose(draft.goal)
        self._source(event.value)

    def read_fields(self) -> Draft:
        return replace(self.draft, **values_of(self))

    def read(self) -> Draft:
        """The fields; a preset's name stays where the person changed its numbers, as the SLO's name."""
        return self.read_fields()
