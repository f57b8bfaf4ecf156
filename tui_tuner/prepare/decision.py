"""Recording what a person decided, beside what the verdict was at that moment."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

import msgspec

from tui_tuner.analysis import verdict
from tui_tuner.model import events as ev
from tui_tuner.model.session import Session
from tui_tuner.model.values import Value, label, same
from tui_tuner.store import library, sessionfile


class NotRecorded(Exception):
    """The decision was not taken; the text says why and what would be."""


def overrides(session: Session, choice: Literal["keep", "revert"], value: Value) -> bool:
    """Whether the decision goes against the verdict: going back is the default wherever it does not say keep."""
    seen = verdict.judge(session)
    if choice == "revert":
        return seen.choice == "keep"
    return not (seen.choice == "keep" and same(seen.value, value))


def record(
    path: Path, choice: Literal["keep", "revert"], value: Value, typed: str | None = None, why: str | None = None
) -> ev.Decision:
    """Appends the decision to the session. `typed` is the value as a person wrote it, matched by its label too.

    Raises NotRecorded: while the sweep runs, for a value that was not measured, for an override without a reason.
    """
    if library.is_recorded(path):
        raise NotRecorded(f"{path.stem} came along to be read: decide in a session of your own (`tui-tuner list`)")
    try:
        session = sessionfile.read(path)
    except sessionfile.Unreadable as error:
        raise NotRecorded(str(error)) from None
    if choice == "keep":
        value = _measured(session, value, typed)
    against = overrides(session, choice, value)
    if against and not (why or "").strip():
        seen = verdict.judge(session)
        raise NotRecorded(f"the verdict is {seen.choice!r} ({seen.why}): give your reason to decide otherwise (--why)")
    made = ev.Decision(
        time.time(), choice, value if choice == "keep" else session.start.baseline, why, _seen(session), against
    )
    try:
        with sessionfile.Writer.open(path) as writer:
            writer.append(made)
    except sessionfile.Locked:
        raise NotRecorded("the sweep is still running: decide when it has ended, or stop it first") from None
    except (sessionfile.Unreadable, sessionfile.WriteFailed) as error:
        raise NotRecorded(str(error)) from None
    return made


def _measured(session: Session, value: Value, typed: str | None) -> Value:
    points = [p for p in session.points if p.role in ("value", "finalist")]
    found = [p for p in points if same(p.value, value) or (typed is not None and label(p.value) == typed)]
    if not found:
        known = ", ".join(dict.fromkeys(label(p.value) for p in points)) or "none yet"
        raise NotRecorded(f"{typed or label(value)} was not measured: the values are {known}")
    if not any(p.status == "ok" for p in found):
        raise NotRecorded(f"{label(found[0].value)} could not be measured ({found[-1].say}): it cannot be kept")
    return found[0].value


def _seen(session: Session) -> dict[str, Any]:
    seen = verdict.judge(session)
    plain = msgspec.to_builtins(seen)
    return {key: plain.get(key) for key in ("choice", "value", "why", "strength")}
