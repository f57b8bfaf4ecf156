"""What all screens share: the title line, help, answers from the services, and the notice in a window too small."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Footer

from tui_tuner.tui import terminal
from tui_tuner.tui.background import apart
from tui_tuner.tui.clean import plain
from tui_tuner.tui.widgets.text import Line, TitleBar

if TYPE_CHECKING:
    from tui_tuner.tui.app import TunerApp

T = TypeVar("T")
A = TypeVar("A")
WIDE = 100  # columns from which an explanation stands beside the form


class TunerScreen(Screen[T]):
    """`NAME` is the screen's name in the table of actions, and that of its help text."""

    NAME: ClassVar[str] = ""
    TITLE_TEXT: ClassVar[str] = ""
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (34, "-tall")]

    _focused_before: Widget | None = None

    @property
    def tuner(self) -> TunerApp:
        """The app, by its own type."""
        return cast("TunerApp", self.app)

    def compose(self) -> ComposeResult:
        yield TitleBar(self.TITLE_TEXT)
        yield from self.body()
        yield Footer(show_command_palette=False, compact=True)
        yield Line("", id="too-small")

    def body(self) -> Iterable[Widget]:
        """What stands between title and footer."""
        return ()

    @property
    def title_bar(self) -> TitleBar:
        return self.query_one(TitleBar)

    def on_resize(self, event: events.Resize) -> None:
        notice = terminal.too_small(event.size.width, event.size.height)
        if notice is not None and not self.has_class("-too-small"):
            self._focused_before = self.focused  # what is hidden loses the focus
        self.set_class(notice is not None, "-too-small")
        if notice is None and self._focused_before is not None:
            self.call_after_refresh(self._focus_again)
        self.query_one("#too-small", Line).say(notice or "")

    def _focus_again(self) -> None:
        if self._focused_before is not None and self._focused_before.is_attached:
            self.set_focus(self._focused_before)
        self._focused_before = None

    @property
    def alive(self) -> bool:
        """Whether the screen is still among those that can be shown: a late answer must find its widgets."""
        return self.is_attached and any(screen is self for screen in self.app.screen_stack)

    def on_screen_resume(self) -> None:
        # Closing several screens at once resumes each for a moment.
        if self.is_current and self.alive:
            self.resumed()

    def resumed(self) -> None:
        """The screen is on top again (or for the first time)."""

    def ask(
        self,
        job: Callable[[], A],
        then: Callable[[A], None],
        failed: Callable[[str], None] | None = None,
        name: str = "",
    ) -> None:
        """Has `job` done beside the event loop and hands its result to `then`.

        An error becomes a sentence for `failed`, or a notice. A newer question of the same `name` replaces the older.
        """

        async def wait() -> None:
            try:
                result = await apart(job)
            except Exception as error:  # noqa: BLE001 (whatever a service raises is told, not fatal)
                if self.alive:
                    (failed or self.tell)(sentence(error))
                return
            if self.alive:
                then(result)

        self.run_worker(wait(), name=name or None, group=name or "ask", exclusive=bool(name), exit_on_error=True)

    def tell(self, text: str, warn: bool = True) -> None:
        """A notice at the edge of the screen."""
        self.notify(
            plain(text, 600), severity="warning" if warn else "information", markup=False, timeout=8 if warn else 4
        )

    def action_help(self) -> None:
        from tui_tuner.tui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen(self.NAME, self.help_topics()))

    def help_topics(self) -> tuple[str, ...]:
        """The help texts that belong to what is on the screen, the screen's own first."""
        return (self.NAME,)

    def action_close(self) -> None:
        self.dismiss(None)


def sentence(error: BaseException) -> str:
    """An error in words; its type only where it has none."""
    return plain(str(error) or type(error).__name__, 800)
