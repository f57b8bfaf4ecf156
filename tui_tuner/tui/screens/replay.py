"""A recorded session played back on the run screen, said to be one all the time. Nothing is measured or written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from textual.widget import Widget

from tui_tuner.model import replay
from tui_tuner.tui import actions, words
from tui_tuner.tui.follow import Source
from tui_tuner.tui.player import Player
from tui_tuner.tui.screens.run import Watch
from tui_tuner.tui.view import RunView
from tui_tuner.tui.widgets.text import Line


class ReplayScreen(Watch):
    NAME = "replay"
    BINDINGS = actions.bindings("replay")

    def __init__(self, path: Path, speed: float | None = None) -> None:
        super().__init__(path)
        self.player = Player(speed)

    def body(self) -> Iterable[Widget]:
        yield Line("… reading the recording", id="label", classes="problem")
        yield from super().body()

    def source(self) -> Callable[[], Source]:
        return partial(self.tuner.services.replay, self.path, self.player)

    def watch_view(self, old: RunView | None, view: RunView | None) -> None:
        super().watch_view(old, view)
        self._label()

    def _label(self) -> None:
        if self._session is None or self.view is None:
            return
        label = replay.label(self._session.start, words.day(self._session.start.t))
        self.query_one("#label", Line).say([(label, "bold")], layout=False)
        self.title_bar.put(self.view.title, f"{said(self.player)}   point {self.view.at} of {self.view.of}")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("pause", "faster", "slower", "end"):
            return self.view is not None and not self.player.over
        if action == "results":
            return self.view is not None and self.view.state != "running"
        return True

    def action_pause(self) -> None:
        self.player.toggle()
        self._label()

    def action_faster(self) -> None:
        self.player.faster()
        self._label()

    def action_slower(self) -> None:
        self.player.slower()
        self._label()

    def action_end(self) -> None:
        self.player.to_end()
        self._label()

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_results(self) -> None:
        if self._session is not None:
            self.tuner.show_results(self.path, f"recorded on {self._session.start.machine.title}")


def said(player: Player) -> str:
    """How fast the replay is, and how far it has come."""
    pace = player.pace
    how = "at its end" if player.over else "paused" if pace.paused else f"×{pace.speed:g}"
    return f"{how}   {words.seconds(player.position)} of {words.seconds(pace.length)}"
