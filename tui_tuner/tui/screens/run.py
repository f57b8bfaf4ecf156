"""The run: what is being measured now, and the table of points so far. It only follows the session's file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Literal

from textual import on
from textual.containers import Vertical
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import OptionList

from tui_tuner.model.session import Session
from tui_tuner.model.values import parse
from tui_tuner.tui import actions, remedy, words
from tui_tuner.tui.follow import Changed, Follow, Source
from tui_tuner.tui.screens.base import TunerScreen
from tui_tuner.tui.screens.confirm import Ask, Confirm, Details
from tui_tuner.tui.theme import STYLE
from tui_tuner.tui.view import PointRow, RunView, Series
from tui_tuner.tui.widgets.chart import Chart
from tui_tuner.tui.widgets.table import Cell, Column, Table
from tui_tuner.tui.widgets.text import Line, Piece, mood

COLUMNS = (
    Column("Point", 18),
    Column("State", 16),
    Column("tok/s", 8, True),
    Column("TTFT ms", 8, True),
    Column("TPOT ms", 8, True),
    Column("change", 8, True),
    Column("quality", 7, True, 96),
    Column("KV tokens", 10, True, 96),
    Column("SLO", 8, False, 112),
)


class Watch(TunerScreen[None]):
    """A session as it grows: phase, charts, points. What can be done about it is its subclasses' part."""

    # What differs is repainted by the lines and charts themselves, not the whole screen.
    view: reactive[RunView | None] = reactive(None, init=False, repaint=False)

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._session: Session | None = None
        self._follow: Follow | None = None

    def body(self) -> Iterable[Widget]:
        yield Line("… reading the session", id="phase")
        yield Line("", id="now")
        yield Vertical(Chart("kv"), Chart("memory"), Chart("speed"), id="charts")
        yield Table(COLUMNS, "points")
        yield Line("", id="time")
        yield Line("", id="note")

    def on_mount(self) -> None:
        self.title_bar.put(self.path.stem, "")
        self.query_one(Table).body.focus()
        self._follow = Follow(self.source(), self)
        self._follow.start()

    def source(self) -> Callable[[], Source]:
        """What makes the source that is followed; called in the thread that follows it."""
        return partial(self.tuner.services.source, self.path)

    def action_results(self) -> None:
        """Shows what came of it."""
        self.tuner.show_results(self.path)

    def on_unmount(self) -> None:
        if self._follow:
            self._follow.stop()

    def on_changed(self, event: Changed) -> None:
        event.stop()
        if not self.alive:
            return
        if event.session is not None:
            self._session = event.session
        if event.problem:
            self.query_one("#note", Line).say([mood(f"! {event.problem}", "bad")])
        if event.view is not None:
            self.view = event.view

    def watch_view(self, old: RunView | None, view: RunView | None) -> None:
        if view is None:
            return
        state, _ = words.STATES[view.state]
        self.title_bar.put(view.title, f"{state}   point {view.at} of {view.of}" if view.at else state)
        self.query_one("#phase", Line).say(phase(view), layout=False)
        self.query_one("#now", Line).say(now(view), layout=False)
        self._charts(view)
        self.query_one(Table).fill([(str(row.n), cells(row)) for row in view.rows])
        self.query_one("#time", Line).say(times(view), layout=False)
        self._noted(view)
        if old is None or (old.state, old.n, old.measured, old.decided) != (
            view.state,
            view.n,
            view.measured,
            view.decided,
        ):
            self.refresh_bindings()
        if old is not None and old.state == "running" and view.state == "finished" and self.is_current:
            self.action_results()

    def _charts(self, view: RunView) -> None:
        unit = "GPU" if view.gpu else "CPU"
        blocks = words.number(view.kv_blocks)
        tokens = f"{words.number(view.kv_tokens)} tokens" if view.kv_tokens else ""
        used = f"{words.percent(view.kv_usage)} in use" if view.kv_usage is not None else ""
        self.query_one("#kv", Chart).show(
            (f"# {unit} blocks {blocks}", tokens, used), words.number(view.kv.top or None), *both(view.kv)
        )
        name = "VRAM" if view.gpu else "RAM"
        peak = max((row.peak_mib for row in view.rows if row.n == view.n and row.peak_mib), default=None)
        self.query_one("#memory", Chart).show(
            (f"{name} {words.mib(view.memory_now)}", f"peak {words.mib(peak)}" if peak else ""),
            words.mib(view.memory.top or None),
            *both(view.memory),
        )
        self.query_one("#speed", Chart).show(
            (f"tok/s {words.rate(view.tok_s)}", ""), words.number(view.speed.top or None), *both(view.speed)
        )

    def _noted(self, view: RunView) -> None:
        note = view.end if view.end and not view.note else view.note
        self.query_one("#note", Line).say([mood(note, "bad" if view.warn else "quiet"), *self.hint(note)])

    def hint(self, note: str) -> list[Piece]:
        """What can be done about the point under the cursor, where the footer has no room for it."""
        return []

    def _row(self) -> PointRow | None:
        if self.view is None:
            return None
        key = self.query_one(Table).key
        return next((row for row in self.view.rows if str(row.n) == key), None)

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_why()

    @on(OptionList.OptionHighlighted)
    def _moved(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        if self.view is not None:
            self._noted(self.view)
        self.refresh_bindings()

    def action_why(self) -> None:
        row = self._row()
        if row is not None and self._session is not None:
            self.app.push_screen(Details(f"{row.role} {row.value}", details(self._session, row)))


class RunScreen(Watch):
    NAME = "run"
    BINDINGS = actions.bindings("run")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        view = self.view
        running = view is not None and view.state == "running"
        if action in ("stop", "add"):
            return running
        if action == "fix":
            return self.is_mounted and self._remedy() is not None
        if action == "skip":
            return view is not None and running and view.n is not None
        if action == "drop":
            row = self._row() if self.is_mounted else None
            return running and row is not None and not row.started and row.role == "value"
        if action == "resume":
            return view is not None and view.state == "interrupted"
        if action == "results":
            return view is not None and (view.measured > 0 or view.state in ("finished", "failed"))
        if action == "logs":
            return view is not None and any(row.started for row in view.rows)
        return True

    def action_leave(self) -> None:
        if self.view is not None and self.view.state == "running":
            self.app.notify("The sweep goes on. tui-tuner shows it again at any time.", markup=False)
        self.dismiss(None)

    def action_stop(self) -> None:
        def stop(yes: bool | None) -> None:
            if yes:
                self._request("stop")

        text = "The running point is ended, what was measured is kept, and the card is freed. Resume finishes it later."
        self.app.push_screen(Confirm("Stop this sweep?", text, "Stop"), stop)

    def action_skip(self) -> None:
        view = self.view
        if view is None or view.n is None:
            return
        n = view.n

        def skip(yes: bool | None) -> None:
            if yes:
                self._request("skip", n)

        text = f"{view.point} is ended without a result; the sweep goes on with the next point."
        self.app.push_screen(Confirm("Skip this point?", text, "Skip"), skip)

    def action_add(self) -> None:
        if self._session is None:
            return
        session = self._session

        def wrong(text: str) -> str | None:
            if not text.strip():
                return "write a value"
            return self.tuner.services.refusal(session, "add", None, parse(text))

        def add(text: str | None) -> None:
            if text:
                self._request("add", value=parse(text))

        knob = session.start.plan.knob.name
        self.app.push_screen(
            Ask("Add a value", f"A further value of {knob}, measured before the sweep ends.", "", wrong), add
        )

    def _remedy(self) -> remedy.Remedy | None:
        """What the failure under the cursor says to try, unless it is in the sweep already."""
        row, session = self._row(), self._session
        point = session.point(row.n) if row is not None and session is not None else None
        if point is None or session is None or self.view is None:
            return None
        tried = remedy.of(point.failed, session.start.plan, self.view.state == "running")
        if tried and tried.joins and self.tuner.services.refusal(session, "add", None, tried.value):
            return None
        return tried

    def hint(self, note: str) -> list[Piece]:
        tried = self._remedy()
        return [("  " + actions.act("fix", "run").key, "bold $primary"), f" {tried.after(note)}"] if tried else []

    def action_fix(self) -> None:
        tried, row = self._remedy(), self._row()
        if tried is None or row is None:
            return
        if tried.joins:
            self._request("add", value=tried.value)
        else:
            self.ask(partial(self.tuner.services.draft_of, self.path, row.n), self.tuner.start_wizard, name="draft")

    def action_drop(self) -> None:
        row = self._row()
        if row is not None:
            self._request("drop", row.n)

    def _request(
        self, what: Literal["stop", "skip", "add", "drop"], n: int | None = None, value: object = None
    ) -> None:
        said = {
            "stop": "Stopping",
            "skip": "Skipping the point",
            "add": "Adding the value",
            "drop": "Dropping the value",
        }[what]
        self.ask(
            partial(self.tuner.services.request, self.path, what, n, value),
            lambda _: self.tell(f"{said}: the runner has been asked.", warn=False),
        )

    def action_resume(self) -> None:
        self.tell("… starting a runner", warn=False)
        self.ask(partial(self.tuner.services.resume, self.path), lambda _: None, name="resume")

    def action_logs(self) -> None:
        from tui_tuner.tui.screens.logs import LogsScreen

        view, row = self.view, self._row()
        started = [r.n for r in view.rows if r.started] if view else []
        n = (
            row.n
            if row is not None and row.started
            else view.n
            if view and view.n is not None
            else started[-1]
            if started
            else None
        )
        if n is not None:
            self.app.push_screen(LogsScreen(self.path, n))


def both(series: Series) -> tuple[tuple[float | None, ...], float]:
    return series.values, series.top


def phase(view: RunView) -> list[Piece]:
    """What is going on, in one line."""
    if view.state != "running":
        word, how = words.STATES[view.state]
        return [
            (word, f"bold {STYLE[how]}"),
            f"   {view.measured} of {words.count(view.of, 'point')} measured",
        ]
    if not view.phase:
        return [mood("… the next point is about to start", "quiet")]
    return [(view.point, "bold"), f"   {view.phase}", mood(f"   {view.detail}" if view.detail else "", "quiet")]


def now(view: RunView) -> list[Piece]:
    """The live figures that have no chart."""
    parts = [f"running {words.number(view.running)}", f"waiting {words.number(view.waiting)}"]
    if view.preemptions:
        parts.append(f"preempted {view.preemptions:,}")
    if view.power_w is not None:
        parts.append(f"{view.power_w:,.0f} W")
    if view.temp_c is not None:
        parts.append(f"{view.temp_c} °C")
    return [mood("   ".join(parts), "quiet")]


def times(view: RunView) -> list[Piece]:
    """Time and money."""
    parts = [f"{words.seconds(view.elapsed_s)} so far"]
    if view.left_s is not None:
        parts.append(f"about {words.seconds(view.left_s)} left")
    if view.cost is not None:
        parts.append(f"{words.money(view.cost, view.currency)} so far")
    return [mood("   ".join(parts), "quiet")]


def cells(row: PointRow) -> list[Cell]:
    """A point as the table's cells."""
    change: Cell = (words.difference(row.change), "plain")
    if row.better is not None:
        change = (change[0], "good" if row.better else "bad")
    name = {"baseline again": "base again"}.get(row.role, row.role)
    quality = words.percent(row.accuracy)
    slo: Cell = (row.slo, "good" if "meets" in row.slo else "bad" if row.slo else "plain")
    return [
        (f"{name} {row.value}", "plain" if row.started else "quiet"),
        (row.state if row.over or not row.started else "… running" if row.mood == "busy" else row.state, row.mood),
        (words.rate(row.tok_s), "plain"),
        (words.number(row.ttft_ms), "plain"),
        (words.number(row.tpot_ms, 1), "plain"),
        change,
        (quality, "plain"),
        (words.number(row.kv_tokens), "plain"),
        slo,
    ]


def details(session: Session, row: PointRow) -> str:
    """All that is known of a point, as a help text."""
    from tui_tuner.tui.clean import plain

    point = session.point(row.n)
    parts = [f"- State: {row.state}"]
    if point is None:
        return "\n\n".join([*parts, "- It has not started."])
    if point.failed:
        f = point.failed
        parts += [f"- Phase: {f.phase}", f"- {plain(f.say)}", f"- Cause: {plain(f.cause)}"]
        if f.fix:
            parts.append(f"- **What to try:** {plain(f.fix.say)}")
    elif row.say:
        parts.append(f"- {plain(row.say)}")
    c = point.capacity
    if c:
        parts.append(
            f"- KV cache: {words.number(c.kv_blocks)} blocks of {words.number(c.block_size)}, "
            f"{words.number(c.kv_tokens)} tokens"
        )
        if c.max_concurrency:
            parts.append(f"- Requests of the full context at once: {c.max_concurrency:.1f}")
        if c.backend:
            parts.append(f"- Attention: {plain(c.backend)}")
        if c.changed:
            for title, table in (("Followed the knob", c.changed.derived), ("Foreign", c.changed.foreign)):
                names = ", ".join(f"{plain(k)} {plain(v[0])} → {plain(v[-1])}" for k, v in list(table.items())[:8])
                if names:
                    parts.append(f"- {title}: {names}")
    if point.peak_mib:
        parts.append(f"- Peak memory: {words.mib(point.peak_mib)}")
    if point.attempt > 1:
        parts.append(f"- Attempt {point.attempt}")
    if point.clean:
        parts.append(f"- Clean: {'yes' if point.clean.ok else 'no'}, after {words.seconds(point.clean.seconds)}")
    for p in point.phases[-12:]:
        parts.append(f"- {words.moment(p.t)} {p.name} {plain(p.detail or '')}".rstrip())
    return "\n\n".join(parts)
