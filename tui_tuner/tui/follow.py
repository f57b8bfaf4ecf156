"""A thread that follows the session file and posts one frozen snapshot whenever there is something new."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from textual.message import Message
from textual.message_pump import MessagePump

from tui_tuner.model.session import Session
from tui_tuner.tui.view import RunView

EVERY = 0.5  # seconds between looks at the file: a screen repaints no more often


class Source(Protocol):
    """Where a session comes from."""

    @property
    def problem(self) -> str | None:
        """Why there is nothing to read."""

    def poll(self) -> Session | None:
        """The session if there is anything new, else None."""

    def locked(self) -> bool:
        """Whether a runner holds it."""

    def view(self, session: Session, locked: bool, now: float) -> RunView:
        """The snapshot."""


@dataclass
class Changed(Message):
    """The session was looked at; `view` is None where it cannot be read, and `problem` says why."""

    view: RunView | None
    session: Session | None
    problem: str | None = None

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, Changed)


class Follow:
    """Polls a source in a daemon thread until stopped."""

    def __init__(self, source: Callable[[], Source], target: MessagePump, every: float = EVERY) -> None:
        self._make, self._target, self._every = source, target, every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tui-follow", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Asks the thread to end; does not wait for it."""
        self._stop.set()

    def _run(self) -> None:
        try:
            source = self._make()
        except Exception as error:  # noqa: BLE001 (told on the screen)
            self._target.post_message(Changed(None, None, str(error)))
            return
        session: Session | None = None
        last: object = None
        while not self._stop.is_set():
            try:
                new = source.poll()
                session = new or session
                locked = source.locked()
                if session is None:
                    if source.problem and source.problem != last:
                        last = source.problem
                        self._target.post_message(Changed(None, None, source.problem))
                else:
                    view = source.view(session, locked, time.time() if locked else session.last_t)
                    if view != last:
                        last = view
                        self._target.post_message(Changed(view, session))
            except Exception as error:  # noqa: BLE001 (a slow or failing disk is a state, not the end)
                if str(error) != last:
                    last = str(error)
                    self._target.post_message(Changed(None, session, str(error) or type(error).__name__))
            self._stop.wait(self._every)
