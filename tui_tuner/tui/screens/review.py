"""Step 6: everything on one page, with what it will cost; each line can be changed; only Start writes anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from msgspec.structs import replace
from textual import on
from textual.widget import Widget
from textual.widgets import Input

from tui_tuner.tui import actions, words
from tui_tuner.tui.draft import Draft, Problem, step_of
from tui_tuner.tui.records import Checked, Estimate
from tui_tuner.tui.screens.step import Step
from tui_tuner.tui.widgets.form import Button, Choice, Entry, Field, Jump, values_of
from tui_tuner.tui.widgets.text import Line, Piece, mood

THOROUGHNESS = [
    ("quick", "each value once: indicative"),
    ("standard", "baseline twice, random order: measured"),
    ("decide", "launched again and again: tested"),
]


class ReviewStep(Step):
    NAME = "review"
    LEAD = "Nothing is on disk yet. Enter on a line changes it; F2 starts."
    BINDINGS = actions.bindings("review")

    def __init__(self, returning: bool = False) -> None:
        super().__init__(returning)
        self._checked: Checked | None = None
        self._starting = False

    def fields(self) -> Iterable[Widget]:
        yield Jump("Model", "model")
        yield Jump("Work", "work")
        yield Jump("Goal", "slo")
        yield Jump("Knob", "knob")
        yield Jump("Values", "values")
        yield Field(
            "How", Choice(THOROUGHNESS, self.draft.thoroughness, id="thoroughness"), "How far the verdict may go."
        )
        yield Field(
            "Price per hour", Entry(self.draft.price, id="price"), "What the machine costs, if you want the price."
        )
        yield Field("Currency", Entry(self.draft.currency, id="currency"), "USD, CNY, EUR, …")
        yield Field(
            "Your prediction",
            Entry(self.draft.prediction, id="prediction"),
            "What do you expect? It stands beside the outcome.",
        )
        yield Button("Start", id="start-button")
        yield Line("", id="checked")

    def on_mount(self) -> None:
        self.query_one("#start-button").focus()
        self.refresh_plan()

    def resumed(self) -> None:
        self.refresh_plan()

    def refresh_plan(self) -> None:
        """Shows the draft, and has it checked."""
        d = self.draft
        for step, text in lines(d).items():
            self.query_one(f"#jump-{step}", Jump).put(text)
        self._checked = None
        self.query_one("#checked", Line).say([mood("… checking the plan against this machine and engine", "quiet")])
        self.ask(partial(self.tuner.services.check, d), self._got, self._failed, name="check")

    def _got(self, checked: Checked) -> None:
        self._checked = checked
        self.query_one("#checked", Line).say(said(checked))
        if not checked.problems and not checked.complete:
            self.ask(partial(self.tuner.services.check_fully, self.draft), self._got, self._failed, name="check")

    def _failed(self, why: str) -> None:
        self.query_one("#checked", Line).say([mood(f"! {why}", "bad")])

    def read(self) -> Draft:
        return replace(self.draft, **values_of(self))

    @on(Choice.Turned)
    @on(Input.Blurred)
    def _changed(self) -> None:
        new = self.read()
        if new != self.draft:
            self.tuner.draft = new
            self.refresh_plan()

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        event.stop()
        if isinstance(event.button, Jump):
            self.tuner.edit_step(event.button.step)
        else:
            self.action_start()

    def action_edit(self) -> None:
        if isinstance(self.focused, Button):
            self.focused.action_press()
        else:
            self.focus_next()

    def action_start(self) -> None:
        self._start(self.tuner.services.begin)

    def action_noise(self) -> None:
        """The baseline alone, launched again and again; that the band is not known yet is no hindrance."""
        self._start(self.tuner.services.begin_noise, but="thoroughness")

    def _start(self, begin: Callable[[Draft], Path], but: str | None = None) -> None:
        if self._starting:
            return
        self.tuner.draft = self.read()
        plan, wrong = self.draft.plan()
        known = self._checked.problems if self._checked else ()
        found: tuple[Problem, ...] = wrong or tuple(p for p in known if p.field != but)
        if plan is None or found:
            self.complain(found[0])
            for jump in self.query(Jump):
                if jump.step == step_of(found[0].field):
                    jump.focus()
            return
        self._starting = True
        self.query_one("#start-button", Button).relabel("… starting")
        self.ask(partial(begin, self.draft), self._started, self._refused, name="begin")

    def _started(self, path: Path) -> None:
        self._starting = False
        self.tuner.show_run(path)

    def _refused(self, why: str) -> None:
        self._starting = False
        self.query_one("#start-button", Button).relabel("Start")
        self.complain(Problem("start", why))

    def help_topics(self) -> tuple[str, ...]:
        return (self.NAME,)


def lines(d: Draft) -> dict[str, str]:
    """The draft in one line a step."""
    plan, _ = d.plan()
    limits = [f"{m.upper()} {text}" for m in ("ttft", "tpot", "itl", "e2e") if (text := getattr(d, m))]
    quality = f"{d.evalset}, {d.items} items" if d.items.strip() not in ("", "0") else "no eval set"
    work = plan.load.describe() if plan else f"{d.kind}, {d.requests} requests"
    return {
        "model": f"{d.model}   {d.fixed}".rstrip(),
        "work": f"{work}; {quality}",
        "slo": f"{d.goal}" + (f", at most {', '.join(limits)} ms" if limits else ", no limits"),
        "knob": d.knob,
        "values": f"{d.values}   baseline {d.baseline or 'as fixed, else default'}",
    }


def said(checked: Checked) -> list[Piece]:
    """What the check found, and what the sweep will take."""
    pieces: list[Piece] = []
    for problem in checked.problems[:4]:
        pieces += [mood(f"! {problem.field}: {problem.say}", "bad"), "\n"]
    if checked.estimate:
        pieces += cost(checked.estimate)
    return pieces or ["✓ nothing is wrong with this plan"]


def cost(e: Estimate) -> list[Piece]:
    price = f", about {words.money(e.cost, e.currency)}" if e.cost is not None else ""
    time = f"about {words.seconds(e.seconds)}" if e.seconds is not None else "time unknown"
    pieces: list[Piece] = [
        (f"{words.count(e.points, 'point')}, {time}{price}", "bold"),
        mood(f"  {e.requests} requests a level", "quiet"),
    ]
    shown = [row for row in e.rows if row.kv_tokens is not None or row.say]
    if shown:
        pieces += ["\n", mood(f"{'Value':<16}{'KV tokens':>12}{'at once':>10}   estimate", "quiet")]
    for row in shown[:6]:
        fits = words.number(row.concurrency, 1) if row.concurrency is not None else words.NOTHING
        from tui_tuner.tui.clean import fit

        pieces += ["\n", f"{fit(row.value, 16)}{words.number(row.kv_tokens):>12}{fits:>10}   {row.say}"]
    for note in e.notes[:4]:
        pieces += ["\n", mood(f"· {note}", "bad" if note.startswith("this load") else "quiet")]
    return pieces
