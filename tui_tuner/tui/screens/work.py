"""Step 2: the work that every point does alike: traffic and eval set."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace
from textual import on
from textual.containers import Vertical
from textual.widget import Widget

from tui_tuner.model import load as loads
from tui_tuner.tui import actions
from tui_tuner.tui.draft import CUSTOM, Draft
from tui_tuner.tui.records import Known
from tui_tuner.tui.screens.step import Step
from tui_tuner.tui.widgets.form import Choice, Entry, Field, values_of

_PRESETS = [(CUSTOM, "what stands below"), *((name, about) for name, (_, about) in loads.PRESETS.items())]
_KINDS = [
    ("closed", "clients that wait for their answer"),
    ("poisson", "arrivals at a rate, whatever the engine does"),
    ("trace", "your own requests from a file"),
]
_TEXTS = [("random", "random tokens: nothing repeats"), ("natural", "text with repetitions, as code has")]


class WorkStep(Step):
    NAME = "work"
    LEAD = "Every point does this same work, so that only the knob can make a difference."
    BINDINGS = actions.bindings("work")

    def fields(self) -> Iterable[Widget]:
        d = self.draft
        yield Field(
            "Traffic", Choice(_PRESETS, d.load, id="load"), "A starting point; every line below can be changed."
        )
        yield Field("Arrivals", Choice(_KINDS, d.kind, id="kind"), "How requests reach the engine.")
        yield Field(
            "Clients",
            Entry(d.concurrency, id="concurrency"),
            "Clients at once. Several levels give a curve: 1, 8, 32. A knob only shows where the load needs it.",
        )
        yield Field("Rate, req/s", Entry(d.rate, id="rate"), "Requests a second. Several levels give a curve: 1, 2, 4.")
        yield Field(
            "File", Entry(d.file, id="file"), "JSON lines: prompt (or messages), output_tokens, and t if you have it."
        )
        yield Vertical(
            Field(
                "Prompt, tokens", Entry(d.prompt_tokens, id="prompt_tokens"), "128, or mixed lengths: 256 ±80% 16..1024"
            ),
            Field(
                "Output, tokens", Entry(d.output_tokens, id="output_tokens"), "32, or mixed lengths: 128 ±50% 16..256"
            ),
            Field("Text", Choice(_TEXTS, d.text, id="text"), "Speculation by n-grams only shows on text that repeats."),
            Field(
                "Shared prefix",
                Entry(d.shared_prefix, id="shared_prefix"),
                "Empty, or 512 (tokens), or 512 100% 4 (share, groups): what prefix caching can reuse.",
            ),
            id="shape",
        )
        yield Field(
            "Requests", Entry(d.requests, id="requests"), "Per level. More are sent where a percentile needs them."
        )
        yield Field(
            "Eval set",
            Choice([(d.evalset, "")], d.evalset, id="evalset"),
            "Asked at every point at temperature 0: speed without quality is no result.",
        )
        yield Field(
            "Items", Entry(d.items, id="items"), "How many are asked. More items see smaller drops; 0 measures none."
        )
        yield Field(
            "Answer, tokens",
            Entry(d.max_tokens, id="max_tokens"),
            "The longest answer; one that is cut off counts as cut.",
        )

    def on_mount(self) -> None:
        self._show_kind(self.draft.kind)
        self.query_one("#load").focus()

    def known_changed(self, known: Known) -> None:
        if known.evalsets:
            options = [(e.name, f"{e.items} items") for e in known.evalsets]
            self.query_one("#evalset", Choice).offer(options, self.query_one("#evalset", Choice).chosen)

    def _show_kind(self, kind: str) -> None:
        for name, wanted in (("concurrency", "closed"), ("rate", "poisson"), ("file", "trace")):
            parent = self.query_one(f"#{name}").parent
            assert parent is not None
            parent.set_class(kind != wanted, "-off")
        self.query_one("#shape").set_class(kind == "trace", "-off")

    @on(Choice.Turned, "#load")
    def _preset(self, event: Choice.Turned) -> None:
        draft = self.read().with_load(event.value)
        for entry in self.query(Entry):
            entry.value = getattr(draft, entry.id or "", entry.value)
        self.query_one("#kind", Choice).choose(draft.kind)
        self.query_one("#text", Choice).choose(draft.text)
        self._show_kind(draft.kind)

    @on(Choice.Turned, "#kind")
    def _kind(self, event: Choice.Turned) -> None:
        self._show_kind(event.value)
        self.query_one("#load", Choice).choose(CUSTOM)

    def read(self) -> Draft:
        found = replace(self.draft, **values_of(self))
        preset = found.with_load(found.load)
        return found if preset == found else replace(found, load=CUSTOM)
