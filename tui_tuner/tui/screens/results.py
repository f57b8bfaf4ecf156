"""Results: the verdict in one sentence, then the triple per value, the curve, the answers, the prediction."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from textual import events, on
from textual.containers import Vertical, VerticalScroll
from textual.widget import Widget
from textual.widgets import OptionList

from tui_tuner.model.values import same
from tui_tuner.tui import actions, words
from tui_tuner.tui.clean import cut, fit, plain
from tui_tuner.tui.outcome import Measure, Outcome, legend, plot, slo_word
from tui_tuner.tui.screens.base import TunerScreen
from tui_tuner.tui.theme import FAILED, MEETS, SAME, STYLE, Mood
from tui_tuner.tui.widgets.table import Cell, Column, Table
from tui_tuner.tui.widgets.text import Line, Piece, mood

KEY = actions.act("fix", "results").key
PAGES = ("figures", "curve", "answers", "prediction")
CHOICES: dict[str, tuple[str, Mood]] = {
    "keep": (f"{MEETS} keep", "good"),
    "revert": ("← go back", "bad"),
    "no clear difference": (f"{SAME} no clear difference", "same"),
}


def columns(ttft: int, tpot: int) -> tuple[Column, ...]:
    """The results' columns; the latencies carry their percentile, all in milliseconds."""
    return (
        Column("Value", 13),
        Column("Quality, %", 12, True),
        Column("tok/s", 7, True),
        Column("change", 8, True),
        Column(f"TTFT p{ttft}", 8, True),
        Column(f"TPOT p{tpot}", 8, True),
        Column("SLO", 8),
        Column("req/s", 7, True, 100),
        Column("KV tokens", 10, True, 112),
    )


class ResultsScreen(TunerScreen[None]):
    NAME = "results"
    BINDINGS = actions.bindings("results")

    def __init__(self, path: Path, recorded: str = "") -> None:
        super().__init__()
        self.path = path
        self.recorded = recorded  # in words that it is only there to be read; empty for one's own
        self.outcome: Outcome | None = None
        self._page = 0
        self._placed = False  # whether the cursor has been put on the verdict's value

    def body(self) -> Iterable[Widget]:
        yield Line("… judging", id="sentence")
        yield Vertical(
            Table(columns(95, 95), "figures"),
            Line("", id="under"),
            id="page-figures",
        )
        yield VerticalScroll(Line("", id="other"), id="page-other", can_focus=False)

    def on_mount(self) -> None:
        self.title_bar.put(self.path.stem, "")
        self.query_one("#page-other").display = False
        self.query_one(Table).body.focus()
        self._load()

    def resumed(self) -> None:
        if self.outcome is not None:
            self._load()

    def _load(self) -> None:
        self.ask(partial(self.tuner.services.outcome, self.path), self._got, self._failed, name="outcome")

    def _failed(self, why: str) -> None:
        self.query_one("#sentence", Line).say([mood(f"{FAILED} {why}", "bad")])

    def _got(self, outcome: Outcome) -> None:
        self.outcome = outcome
        recorded = [mood(f"{self.recorded[:1].upper()}{self.recorded[1:]}\n", "quiet")] if self.recorded else []
        self.query_one("#sentence", Line).say([*recorded, *sentence(outcome)])
        table = self.query_one(Table)
        table.shape(columns(*outcome.percentiles))
        table.fill([(str(row.n), cells(row)) for row in outcome.rows])
        first = self._page == 0 and not self._placed
        if first:
            self._placed = True
            at = next((r for r in outcome.rows if same(r.value, outcome.judged.value) and r.tok_s is not None), None)
            if at is not None:
                table.point_at(str(at.n))
        self.query_one("#under", Line).say(under(outcome, self._row()))
        self._turn(0)
        self.refresh_bindings()

    def _turn(self, by: int) -> None:
        self._page = (self._page + by) % len(PAGES)
        name = PAGES[self._page]
        self.query_one("#page-figures").display = name == "figures"
        self.query_one("#page-other").display = name != "figures"
        if self.outcome is None:
            return
        self.title_bar.put(self.outcome.title, f"{name}, page {self._page + 1} of {len(PAGES)}")
        other = self.query_one("#other", Line)
        scroll = self.query_one("#page-other", VerticalScroll)
        scroll.can_focus = name != "figures"
        if name == "figures":
            self.query_one(Table).body.focus()
        else:
            width = max(min(self.size.width, 120) - 5, 20)
            draw = {"curve": curve, "answers": answers, "prediction": prediction}[name]
            other.say(draw(self.outcome, width, max(min(self.size.height - 18, 16), 5)))
            scroll.focus()
            scroll.scroll_home(animate=False)

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        if self.outcome is not None:
            self._turn(0)

    # ---- what a person may do ------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if self.recorded and action in ("decide", "resume", "logs"):
            return False
        if action in ("decide", "page"):
            return self.outcome is not None and (action != "decide" or self.outcome.state != "running")
        if action == "fix":
            row = self._row() if self.is_mounted else None
            return row is not None and row.remedy is not None and not row.remedy.joins
        if action == "resume":
            return self.outcome is not None and self.outcome.state in ("interrupted", "stopped")
        if action in ("again", "recheck"):
            return self.outcome is not None and self.outcome.state != "running"
        return True

    def action_page(self) -> None:
        self._turn(1)

    def action_back(self) -> None:
        self.dismiss(None)

    def action_decide(self) -> None:
        from tui_tuner.tui.screens.decide import DecideScreen

        if self.outcome is not None:
            self.app.push_screen(DecideScreen(self.path, self.outcome))

    @on(OptionList.OptionHighlighted)
    def _moved(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        if self.outcome is not None:
            self.query_one("#under", Line).say(under(self.outcome, self._row()))
            self.refresh_bindings()

    def _row(self) -> Measure | None:
        key = self.query_one(Table).key
        return next((r for r in self.outcome.rows if str(r.n) == key), None) if self.outcome else None

    def action_logs(self) -> None:
        from tui_tuner.tui.screens.logs import LogsScreen

        row = self._row()
        if row is not None:
            self.app.push_screen(LogsScreen(self.path, row.n))

    def action_fix(self) -> None:
        row = self._row()
        if row is not None:
            self.ask(partial(self.tuner.services.draft_of, self.path, row.n), self.tuner.start_wizard, name="draft")

    def action_resume(self) -> None:
        self.ask(partial(self.tuner.services.resume, self.path), self.tuner.show_run, name="resume")

    def action_recheck(self) -> None:
        self.ask(partial(self.tuner.services.recheck, self.path), self.tuner.show_run, name="resume")

    def action_again(self) -> None:
        self.ask(partial(self.tuner.services.draft_of, self.path), self.tuner.start_wizard, name="draft")


def sentence(o: Outcome) -> list[Piece]:
    """The verdict first, in one sentence; what the person decided after it."""
    pieces: list[Piece] = []
    word, how = CHOICES.get(o.judged.choice, ("", "plain"))
    if o.judged.measured:
        pieces += [(word, f"bold {STYLE[how]}"), mood(f"   {o.judged.strength}", "quiet"), "\n"]
    pieces.append(plain(o.judged.sentence, 600))
    for note in o.judged.notes[:2]:
        pieces += ["\n", mood(cut(note, 150), "quiet")]
    if o.decision:
        pieces += ["\n", ("Decided: ", "bold"), o.decision]
    return pieces


def cells(row: Measure) -> list[Cell]:
    """A point as the table's cells."""
    change: Cell = (words.difference(row.change), "plain")
    if row.better is not None and not row.baseline:
        change = (change[0], "good" if row.better else "bad")
    if row.mood == "bad" and row.tok_s is None:
        return [(row.label, "plain"), (f"{row.state}: {row.say}" if row.say else row.state, "bad")]
    return [
        (row.label, "quiet" if row.baseline else "plain"),
        (quality(row), "plain"),
        (words.rate(row.tok_s), "plain"),
        change,
        (words.number(row.ttft_ms), "plain"),
        (words.number(row.tpot_ms, 1), "plain"),
        slo_word(row),
        (words.number(row.requests_s, 2), "plain"),
        (words.number(row.kv_tokens), "plain"),
    ]


def quality(row: Measure) -> str:
    """Accuracy with its 95 % interval: 90 (70–97)."""
    if row.accuracy is None:
        return words.NOTHING
    span = f" ({row.low * 100:.0f}–{row.high * 100:.0f})" if row.low is not None and row.high is not None else ""
    return f"{row.accuracy * 100:.0f}{span}"


def under(o: Outcome, row: Measure | None = None) -> list[Piece]:
    """Below the table: the limits, and what is to be said of the row under the cursor."""
    pieces: list[Piece] = [
        mood("Latency in ms. Quality with its 95 % interval. ", "quiet"),
        mood("Limits: " + (", ".join(o.limits) or "none"), "quiet"),
    ]
    if row is None:
        return pieces
    pieces += ["\n\n", (row.label, "bold"), f"  {row.state}"]
    if row.lost or row.won:
        pieces.append(f"  {row.lost} answers lost, {row.won} won")
    for held in row.held:
        word, how = ("✓", "good") if held.meets else ("✗", "bad") if held.meets is False else ("?", "quiet")
        value = words.ms(held.ms) if held.ms is not None else "too few requests"
        pieces += ["\n", mood(f"  {word} ", how), f"{held.name} {value}, limit {words.ms(held.limit)}"]  # type: ignore[arg-type]
    facts = []
    if row.kv_tokens:
        facts.append(f"{words.number(row.kv_tokens)} KV tokens")
    if row.peak_mib:
        facts.append(f"peak {words.mib(row.peak_mib)}")
    if row.per_million is not None:
        facts.append(f"{words.money(row.per_million, o.currency)} per million tokens")
    if row.joules is not None:
        facts.append(f"{row.joules:.2f} J per token")
    if facts:
        pieces += ["\n", "  " + ", ".join(facts)]
    if row.between:
        pieces += ["\n", f"  {row.between}"]
    if row.bound:
        pieces += ["\n", f"  {plain(row.bound, 300)}"]
    if row.interval:
        pieces += ["\n", f"  between launches {row.interval[0]:+.1f} to {row.interval[1]:+.1f} %"]
    texts = [row.say, *row.invalid] if row.mood == "bad" or row.invalid else []
    for text in dict.fromkeys(t for t in texts if t):
        pieces += ["\n", mood(f"  {FAILED} {text}", "bad")]
    if row.remedy and not row.remedy.joins:
        pieces += ["\n", (f"  {KEY} ", "bold $primary"), row.remedy.say]
    return pieces


def curve(o: Outcome, width: int, height: int) -> list[Piece]:
    """All load levels: throughput against latency."""
    lines = plot(o.dots, width, height)
    if not lines:
        return ["Nothing has been measured yet."]
    pieces: list[Piece] = [mood(f"tok/s against {o.picture}\n", "quiet"), "\n".join(lines), "\n\n"]
    letters = legend(o.dots)
    pieces.append(
        mood(f"   {fit('Value', 18)}  {'level':>7}  {'tok/s':>9}  {o.picture.split(',')[0].lower():>12}\n", "quiet")
    )
    for dot in o.dots:
        word, how = ("✓ meets", "good") if dot.meets else ("✗ misses", "bad") if dot.meets is False else ("", "plain")
        pieces += [
            (f"{letters[dot.value]}  ", "bold"),
            f"{fit(dot.value, 18)}  {dot.level:>7g}  {dot.tok_s:>9,.1f}  {dot.ms:>12,.1f}  ",
            mood(word, how),  # type: ignore[arg-type]
            "\n",
        ]
    return pieces


def answers(o: Outcome, width: int, height: int) -> list[Piece]:
    """The answers that changed their score, each beside its twin."""
    if not o.asked:
        return ["No eval set was asked in this session, so nothing is known of its answers."]
    pieces: list[Piece] = []
    for value, text in o.compared:
        pieces += [(f"{value}  ", "bold"), text, "\n"]
    if not o.flips:
        return [*pieces, "\n", "No answer changed its score."]
    for flip in o.flips[:60]:
        word, how = ("won", "good") if flip.won else ("lost", "bad")
        pieces += ["\n", (f"{plain(flip.item, 60)}", "bold"), "  at ", (flip.value, "bold"), "  ", mood(word, how)]  # type: ignore[arg-type]
        pieces += ["\n", mood(f"{'baseline':<10}", "quiet"), _short(flip.before, width - 10)]
        pieces += ["\n", mood(f"{'here':<10}", "quiet"), _short(flip.after, width - 10), "\n"]
    return pieces


def _short(text: str, width: int) -> str:
    """An answer in at most three lines of `width`."""
    line = plain(text)
    most = max(width, 10) * 3
    return line if len(line) <= most else line[: most - 1] + "…"


def prediction(o: Outcome, width: int, height: int) -> list[Piece]:
    """What was expected beside what came."""
    pieces: list[Piece] = [mood("You expected\n", "quiet"), o.prediction or "Nothing was written down this time."]
    pieces += ["\n\n", mood("It came\n", "quiet"), o.judged.sentence or "nothing yet"]
    rows = [r for r in o.rows if r.kv_tokens is not None]
    if rows:
        pieces += ["\n\n", mood(f"{fit('Value', 20)}{'KV estimated':>14}{'KV measured':>14}{'off by':>10}", "quiet")]
    for row in rows:
        off = row.kv_tokens / row.expected_kv - 1 if row.expected_kv and row.kv_tokens is not None else None
        expected, measured = words.number(row.expected_kv), words.number(row.kv_tokens)
        pieces += ["\n", f"{fit(row.label, 20)}{expected:>14}{measured:>14}{words.difference(off):>10}"]
    return pieces
