"""What the services hand to the screens: frozen, ready to be shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tui_tuner.model.machine import Engine, Machine
from tui_tuner.model.values import Value
from tui_tuner.tui.draft import Problem

if TYPE_CHECKING:
    from tui_tuner.model.session import State


class SessionRow(Struct, frozen=True):
    """One line of the home screen."""

    id: str
    path: Path
    when: float = 0.0
    model: str = ""
    knob: str = ""
    values: str = ""
    state: State | None = None
    outcome: str = ""  # the decision, or where the sweep is
    problem: str | None = None
    card: str = ""  # of one that comes along: what it was recorded on


class Replay(Struct, frozen=True):
    """A session to play back, and how many times as fast as it was; None: in about a minute."""

    path: Path
    speed: float | None = None


class Listing(Struct, frozen=True):
    """The folder of sessions, and those that come along."""

    rows: tuple[SessionRow, ...] = ()
    folder: str = ""
    problem: str | None = None  # why it cannot be written
    recorded: tuple[SessionRow, ...] = ()


class Surroundings(Struct, frozen=True):
    """The machine as far as it was looked at."""

    machine: Machine
    why: str | None = None  # why no GPU, in words
    busy: str | None = None  # who holds memory of the card


class EngineState(Struct, frozen=True):
    """The engine that would be used, or the sentence that says why there is none."""

    engine: Engine | None = None
    problem: str | None = None


class ModelRow(Struct, frozen=True):
    """A model on the disk."""

    name: str
    mib: int | None = None
    source: str = ""
    quantization: str = ""
    fits: bool | None = None
    say: str = ""


class EvalRow(Struct, frozen=True):
    """An eval set."""

    name: str
    items: int
    licence: str = ""


class KnobRow(Struct, frozen=True):
    """A knob as the goal sees it."""

    name: str
    title: str
    group: str
    arrow: str  # which way the goal's figure goes when it is raised: ↑ ↓ ≈ ±
    trades: str
    when: str
    load: str | None = None
    declared: str = ""
    effective: str = ""
    why: str = ""
    missing: str | None = None  # why the installed version cannot turn it
    unsuited: str | None = None  # "this load cannot show this knob"


class Suggestion(Struct, frozen=True):
    """Values to try on this machine, and the baseline that holds if none is named."""

    values: tuple[Value, ...]
    baseline: Value = None
    has_baseline: bool = False
    why: str = ""
    range: str = ""  # what the installed version allows


class EstimateRow(Struct, frozen=True):
    """What is expected of one value before it runs."""

    value: str
    role: str
    kv_tokens: int | None = None
    concurrency: float | None = None  # requests of the load's length that fit into the KV cache at once
    say: str = ""


class Estimate(Struct, frozen=True):
    """Points, time and money before the start."""

    points: int
    requests: int
    seconds: float | None = None
    cost: float | None = None
    currency: str = ""
    rows: tuple[EstimateRow, ...] = ()
    notes: tuple[str, ...] = ()


class Checked(Struct, frozen=True):
    """What the review says of a draft."""

    problems: tuple[Problem, ...] = ()
    estimate: Estimate | None = None
    complete: bool = False  # the installed vLLM has been asked, too


class Pasted(Struct, frozen=True):
    """A command or YAML in use, as the wizard's fields."""

    model: str | None = None
    fixed: dict[str, Any] = {}
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Saved(Struct, frozen=True):
    """A decision's yield."""

    decision: str
    serve: str
    yaml: str
    file: str  # where the serve line was saved
    steps: tuple[str, ...] = ()
    chain: tuple[str, ...] = ()  # the decisions of earlier sessions that led here


class CheckUp(Struct, frozen=True):
    """One line of the check-up."""

    ok: bool | None
    name: str
    say: str


class Known(Struct, frozen=True):
    """What has been found out since the app opened; None: not yet."""

    listing: Listing | None = None
    surroundings: Surroundings | None = None
    engine: EngineState | None = None
    models: tuple[ModelRow, ...] | None = None
    evalsets: tuple[EvalRow, ...] | None = None
