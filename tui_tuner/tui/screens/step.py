"""A step of the wizard: one screen, prefilled; enter accepts it, escape goes back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import events, on
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widget import Widget
from textual.widgets import Input, OptionList

from tui_tuner.tui.draft import STEPS, Draft, Problem, step_of
from tui_tuner.tui.records import Known
from tui_tuner.tui.screens.base import TunerScreen
from tui_tuner.tui.widgets.form import Entry, Field
from tui_tuner.tui.widgets.prose import Prose, page
from tui_tuner.tui.widgets.text import Line

NAMES = {
    "model": "Model and fixed configuration",
    "work": "Work: the traffic and the eval set",
    "slo": "SLO: the goal and its limits",
    "knob": "Knob: the one thing that changes",
    "values": "Values to try",
    "review": "Review",
}


class Step(TunerScreen[bool]):
    """One step. A subclass yields its `fields` and turns them into the draft in `read`.

    Opened from the review, `returning` is true, and accepting goes back there.
    """

    BINDINGS = [Binding("up", "app.focus_previous", show=False), Binding("down", "app.focus_next", show=False)]
    LEAD: ClassVar[str] = ""  # one sentence under the title

    def __init__(self, returning: bool = False) -> None:
        super().__init__()
        self.returning = returning
        self._problem_shown = False

    @property
    def draft(self) -> Draft:
        return self.tuner.draft

    def body(self) -> Iterable[Widget]:
        form = VerticalScroll(*self.fields(), id="form", can_focus=False)
        left = Vertical(Line(self.LEAD, id="lead"), form, Line("", id="hint"), id="left")
        yield Horizontal(left, Prose("", id="aside"), id="split")

    def fields(self) -> Iterable[Widget]:
        """The form."""
        return ()

    def read(self) -> Draft:
        """The draft with what stands in this form."""
        return self.draft

    def topic(self) -> str:
        """The help text that stands beside the form."""
        return self.NAME

    def on_mount(self) -> None:
        number = STEPS.index(self.NAME) + 1
        self.title_bar.put(NAMES[self.NAME], f"step {number} of {len(STEPS)}")
        self.show_aside()
        self.watch(self.app, "known", self._known_changed)

    def _known_changed(self, known: Known) -> None:
        if self.alive:
            self.known_changed(known)

    def known_changed(self, known: Known) -> None:
        """Something was found out meanwhile."""

    def show_aside(self) -> None:
        """Puts the explanation beside the form."""
        self.query_one("#aside", Prose).show(page(self.topic()) or "")

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        if not self._problem_shown:
            self.show_hint()

    def show_hint(self) -> None:
        """The hint of the field that has the focus."""
        node: object = self.focused
        while node is not None and not isinstance(node, Field):
            node = getattr(node, "parent", None)
        self._problem_shown = False
        hint = self.query_one("#hint", Line)
        hint.set_class(False, "problem")
        hint.say(node.hint if isinstance(node, Field) else self.standing_hint())

    def standing_hint(self) -> str:
        """What stands in the hint's place where no field has one."""
        return ""

    def complain(self, problem: Problem) -> None:
        """Says what is wrong, and goes to the field."""
        name = problem.field.rpartition(".")[2]
        for entry in self.query(Entry):
            if entry.id in (name, problem.field.replace(".", "-")):
                entry.focus()
                break
        self._problem_shown = True
        hint = self.query_one("#hint", Line)
        hint.set_class(True, "problem")
        hint.say(f"! {problem.say}")

    def problems(self, draft: Draft) -> list[Problem]:
        """What is wrong with this step's fields."""
        return [p for p in draft.plan()[1] if step_of(p.field) == self.NAME]

    def accept(self) -> bool:
        """Takes the form into the draft; false, and says why, if a field is wrong."""
        draft = self.read()
        wrong = self.problems(draft)
        if wrong:
            self.complain(wrong[0])
            return False
        self.tuner.draft = draft
        return True

    def action_next(self) -> None:
        if self.accept():
            if self.returning:
                self.dismiss(True)
            else:
                self.tuner.go_to_step(STEPS[STEPS.index(self.NAME) + 1])

    def action_to_review(self) -> None:
        if self.accept():
            if self.returning:
                self.dismiss(True)
            else:
                self.tuner.go_to_step("review")

    def action_back(self) -> None:
        self.tuner.draft = self.read()
        self.dismiss(False)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        if self._problem_shown:
            self.show_hint()

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_next()
