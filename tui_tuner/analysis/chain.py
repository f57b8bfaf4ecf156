"""The chain of decisions behind a configuration: the knobs that were settled before, each on what was kept so far.

It is found by going back: a decision belongs to the chain if the configuration that a later sweep began from holds
what was decided, on the same card. Decisions that were not built upon are no reason for anything, and left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from tui_tuner.model import events as ev
from tui_tuner.model.session import Session
from tui_tuner.model.values import engine_args, label, same


class Link(Struct, frozen=True):
    """One decision: the session that it was made in, what it did, the verdict at that moment, and the person's
    reason where they gave one."""

    id: str
    t: float
    did: str  # "max_num_seqs 128 → 8", "block_size stays 16"
    verdict: str
    why: str | None = None
    override: bool = False

    @property
    def say(self) -> str:
        """The link on one line."""
        reason = f" ({'against the verdict: ' if self.override else ''}{self.why})" if self.why else ""
        return self.did + (f": {self.verdict}" if self.verdict else "") + reason


def link(start: ev.SessionStart, decision: ev.Decision) -> Link:
    """A session's decision as a link of a chain."""
    knob, base = start.plan.knob.name, label(start.baseline)
    did = f"{knob} {base} → {label(decision.value)}" if decision.choice == "keep" else f"{knob} stays {base}"
    return Link(start.id, decision.t, did, str(decision.seen.get("why") or ""), decision.why, decision.override)


def of(session: Session, others: Iterable[tuple[ev.SessionStart, ev.Decision]] = ()) -> tuple[Link, ...]:
    """The decisions that led to `session`, oldest first, its own last. `others` are those of other sessions."""
    here = session.start
    found = [link(here, session.decision)] if session.decision else []
    config = here.plan.args(here.baseline)
    before = [(s, d) for s, d in others if s.id != here.id and s.t < here.t and s.machine.card == here.machine.card]
    for start, decision in sorted(before, key=lambda pair: pair[0].t, reverse=True):
        knob = start.plan.knob.name
        if decision.choice == "keep":
            settled = {"model": start.plan.model, **engine_args(knob, decision.value)}
            built_upon = all(name in config and same(config[name], value) for name, value in settled.items())
        else:
            settled = {"model": start.plan.model, **engine_args(knob, start.baseline)}
            built_upon = all(same(config.get(name, value), value) for name, value in settled.items())
        if built_upon:
            found.append(link(start, decision))
            config |= start.plan.args(start.baseline)
    return tuple(reversed(found))


def beside(path: Path, session: Session) -> tuple[Link, ...]:
    """The chain of `session` among the sessions of its own folder. Never raises."""
    from tui_tuner.store import library

    found = [(s.start, s.decision) for s in library.listing(path.parent) if s.start and s.decision]
    return of(session, found)
