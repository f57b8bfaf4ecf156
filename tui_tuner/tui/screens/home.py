"""Home: the sessions, the machine, the engine, and the way into a new sweep."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from textual import events, on
from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import OptionList

from tui_tuner.tui import actions, words
from tui_tuner.tui.clean import fit
from tui_tuner.tui.records import CheckUp, EngineState, Known, Listing, SessionRow, Surroundings
from tui_tuner.tui.screens.base import TunerScreen
from tui_tuner.tui.theme import FAILED, MEETS
from tui_tuner.tui.widgets.form import Pick, Row, grown
from tui_tuner.tui.widgets.text import Line, Piece, mood

_COLUMNS = (11, 15, 22, 13, 9)
_RECORDED = (10, 13, 22, 27)
_GROWS = 1
_HEAD = ("Last event", "Model", "Knob", "State", "Outcome")


class HomeScreen(TunerScreen[None]):
    NAME = "home"
    TITLE_TEXT = "tui-tuner"
    BINDINGS = actions.bindings("home")

    def __init__(self) -> None:
        super().__init__()
        self._shown_running = False
        self._rows: dict[str, SessionRow] = {}

    def body(self) -> Iterable[Widget]:
        yield Vertical(
            Line([mood("Machine   ", "quiet"), "… looking"], id="machine"),
            Line([mood("Engine    ", "quiet"), "… looking"], id="engine"),
            Line([mood("Sessions  ", "quiet"), "… looking"], id="folder"),
            id="known",
        )
        yield Line("", id="head")
        yield Pick(_COLUMNS, id="sessions", grows=_GROWS)
        yield Line("", id="empty")
        yield Line("Recorded on real cards: enter reads one, p plays it back", id="recorded-head")
        yield Pick(_RECORDED, id="recorded", grows=_GROWS)

    def on_mount(self) -> None:
        self.query_one("#sessions").focus()
        self.watch(self.app, "known", self._known)
        self.call_after_refresh(self.tuner.find_out)

    def resumed(self) -> None:
        if self.tuner.known.listing is not None:
            self.tuner.look_again("listing")

    def _known(self, known: Known) -> None:
        if known.surroundings:
            self.query_one("#machine", Line).say(machine_line(known.surroundings))
        if known.engine:
            self.query_one("#engine", Line).say(engine_line(known.engine))
        if known.listing:
            self._list(known.listing)

    def _list(self, listing: Listing) -> None:
        self._rows = {str(row.path): row for row in (*listing.rows, *listing.recorded)}
        folder: list[Piece] = [mood("Sessions  ", "quiet"), listing.folder]
        if listing.problem:
            folder = [mood("Sessions  ", "quiet"), mood(f"{FAILED} {listing.problem}", "bad")]
        self.query_one("#folder", Line).say(folder)
        pick = self.query_one("#sessions", Pick)
        pick.fill([_row(row) for row in listing.rows])
        recorded = self.query_one("#recorded", Pick)
        recorded.fill([_recorded_row(row) for row in listing.recorded])
        recorded.display = self.query_one("#recorded-head").display = bool(listing.recorded)
        pick.display = bool(listing.rows)
        self.query_one("#head").display = bool(listing.rows)
        self.query_one("#empty", Line).say(
            ""
            if listing.rows
            else "No session yet.\n\nn starts one: six short steps, each filled in already. Enter, enter, … and F2 "
            "measures the small practice model:\na sweep of a few minutes on any machine, with or without a GPU."
        )
        self.query_one("#empty").display = not listing.rows
        if not listing.rows and not listing.recorded:
            self.set_focus(None)
        elif self.is_current and (self.focused is None or not self.focused.display):
            (pick if listing.rows else recorded).focus()
        if not self._shown_running:
            self._shown_running = True
            running = next((row for row in listing.rows if row.state == "running"), None)
            if running and self.is_current:
                self.tuner.show_run(running.path)

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        widths = grown(_COLUMNS, _GROWS, event.size.width - 2)
        self.query_one("#head", Line).say(
            "  ".join(fit(text, width) for text, width in zip(_HEAD, widths, strict=True))
        )

    @property
    def chosen(self) -> SessionRow | None:
        """The session under the cursor, in the list that has the focus."""
        recorded = self.query_one("#recorded", Pick)
        pick = recorded if recorded.has_focus else self.query_one("#sessions", Pick)
        return self._rows.get(pick.key or "") if pick.display else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        row = self.chosen if self.is_mounted else None
        if action in ("open", "again", "recheck"):
            return row is not None and row.problem is None
        if action == "replay":
            return row is not None and row.problem is None and row.state != "running"
        if action == "resume":
            return row is not None and row.state == "interrupted" and not row.card
        return True

    @on(Pick.Moved)
    def _moved(self) -> None:
        self.refresh_bindings()

    def on_descendant_focus(self) -> None:
        self.refresh_bindings()

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_open()

    def action_open(self) -> None:
        row = self.chosen
        if row is None:
            return
        if row.problem:
            self.tell(row.problem)
        elif row.card:
            self.tuner.show_results(row.path, f"recorded on {row.card}")
        elif row.state == "running" or row.state == "interrupted":
            self.tuner.show_run(row.path)
        else:
            self.tuner.show_results(row.path)

    def action_replay(self) -> None:
        if self.chosen:
            self.tuner.show_replay(self.chosen.path)

    def action_new(self) -> None:
        self.ask(self.tuner.services.first_draft, self.tuner.start_wizard, name="draft")

    def action_again(self) -> None:
        if self.chosen:
            self.ask(partial(self.tuner.services.draft_of, self.chosen.path), self.tuner.start_wizard, name="draft")

    def action_resume(self) -> None:
        if self.chosen:
            self.ask(partial(self.tuner.services.resume, self.chosen.path), self._resumed, name="resume")

    def action_recheck(self) -> None:
        if self.chosen:
            self.ask(partial(self.tuner.services.recheck, self.chosen.path), self._resumed, name="resume")

    def _resumed(self, path: Path) -> None:
        self.tuner.show_run(path)

    def action_doctor(self) -> None:
        self.tell("… looking", warn=False)
        self.ask(self.tuner.services.check_up, self._checked, name="doctor")

    def _checked(self, found: tuple[CheckUp, ...]) -> None:
        from tui_tuner.tui.screens.confirm import Details

        text = "\n\n".join(f"- {MEETS if c.ok else FAILED} **{c.name}** {c.say}" for c in found)
        self.app.push_screen(Details("Check-up", text))

    def action_light(self) -> None:
        self.tuner.action_toggle_theme()

    def action_quit(self) -> None:
        self.app.exit(0)


def _row(row: SessionRow) -> Row:
    when = words.moment(row.when)
    if row.problem:
        return Row(str(row.path), (when, row.id, "", f"{FAILED} unreadable", row.problem), quiet=True)
    state = words.STATES[row.state][0] if row.state else ""
    model = row.model.rstrip("/").rpartition("/")[2] or row.model
    return Row(str(row.path), (when, model, row.knob, state, row.outcome))


def _recorded_row(row: SessionRow) -> Row:
    if row.problem:
        return Row(str(row.path), (words.day(row.when), row.id, "", f"{FAILED} unreadable"), quiet=True)
    model = row.model.rstrip("/").rpartition("/")[2] or row.model
    return Row(str(row.path), (words.day(row.when), model, row.knob, f"on {row.card}"))


def machine_line(s: Surroundings) -> list[Piece]:
    """The machine in one line."""
    machine = s.machine
    label = mood("Machine   ", "quiet")
    if machine.gpu is None:
        why = f"   no GPU: {s.why}" if s.why else "   no GPU"
        return [label, f"{machine.title}, {machine.cores} cores, {words.mib(machine.memory_mib)}", mood(why, "quiet")]
    card = machine.gpu
    more = f" (card {card.index} of {machine.gpus})" if machine.gpus > 1 else ""
    pieces: list[Piece] = [label, f"{card.name}, {words.mib(card.vram_mib)}{more}"]
    if card.driver:
        pieces.append(mood(f"   driver {card.driver}", "quiet"))
    if s.busy:
        pieces.append(mood(f"   {FAILED} {s.busy}", "bad"))
    return pieces


def engine_line(e: EngineState) -> list[Piece]:
    """The engine in one line."""
    label = mood("Engine    ", "quiet")
    if e.engine is None:
        return [label, mood(f"{FAILED} {e.problem}", "bad")]
    kind = "CUDA" if e.engine.device == "cuda" else "CPU"
    return [label, f"vLLM {e.engine.version} ({kind})", mood(f"   {e.engine.how}", "quiet")]
