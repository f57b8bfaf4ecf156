"""What a session file holds: one event a line, each a fact with its time.

The envelope (`type` and `t`) is read first, the event after it: a type from a newer tui-tuner is kept and
skipped, not an error. Fields may be added with a default; none ever changes its meaning. Times are seconds
since the epoch (UTC); durations are seconds; memory is MiB unless the name says GiB.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Union

import msgspec
from msgspec import Struct

from tui_tuner.model.machine import Engine, Machine, ModelShape
from tui_tuner.model.plan import Plan
from tui_tuner.model.values import Value

FORMAT = 1

Role = Literal["baseline", "value", "baseline_again", "finalist"]
Status = Literal[
    "ok", "oom_startup", "oom_runtime", "config_error", "env_error", "timeout", "crash",
    "throttled", "client_limited", "unclean", "aborted",
]  # fmt: skip
PhaseName = Literal[
    "spawn", "import", "load", "compile", "kv_cache", "graphs", "ready", "warmup", "speed", "quality", "stop", "clean"
]
Choice = Literal["keep", "revert", "no clear difference"]


def _tag(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")


# Before 1970, or beyond the year 9999, no clock has written it, and calendars raise.
Time = Annotated[float, msgspec.Meta(ge=0.0, le=253_402_300_799.0)]
Score = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class Event(Struct, frozen=True, omit_defaults=True, tag_field="type", tag=_tag):
    """A fact and when it became one."""

    t: Time


class SessionStart(Event, frozen=True, tag="session"):
    """Line 1: everything that was decided before the sweep."""

    format: int
    id: str
    plan: Plan
    baseline: Value  # the knob's value at the baseline points, resolved
    machine: Machine
    engine: Engine
    versions: dict[str, str] = {}
    prediction: str | None = None  # what the person expects, in their words
    model_path: str | None = None  # what `model` resolved to, with the home folder written as ~
    shape: ModelShape | None = None
    estimate: dict[str, Any] = {}  # what analysis.estimate said before the start, by value's label
    dummy_weights: bool = False  # load_format is dummy: no quality figure is ever shown
    band: dict[str, Any] | None = None  # the noise band known at the start: {"percent", "pairs", ...}
    kind: Literal["sweep", "noise"] = "sweep"
    based_on: str | None = None  # the session that this one rechecks
    files: dict[str, str] = {}  # the SHA-256 of the eval set and of the traffic file, by their names in the plan


class Launched(Event, frozen=True):
    """A runner took the session. After a resume there is another."""

    pid: int
    boot_id: str
    segment: int = 0
    why: str = "start"


class PointStarted(Event, frozen=True):
    """A worker was started: `n` is the point's place in the sweep, `attempt` counts its launches.

    `pgid` and `started` (the process's own start time, clock ticks since boot) tell a leftover from a stranger.
    """

    n: int
    role: Role
    value: Value
    attempt: int = 1
    segment: int = 0
    pgid: int = 0
    started: int = 0
    args: dict[str, Any] = {}
    work: str = ""  # the point's private folder: working directory and temporary files


class Phase(Event, frozen=True):
    n: int
    name: PhaseName
    detail: str | None = None  # "0 of 2 shards", "window 3: 1,204 tok/s"


class Changed(Struct, frozen=True):
    """How a point's resolved configuration differs from the baseline's: `{field: [baseline, here]}`."""

    knob: dict[str, list[Any]] = {}
    derived: dict[str, list[Any]] = {}
    foreign: dict[str, list[Any]] = {}


class Capacity(Event, frozen=True):
    """What the engine made of its memory, once it was ready."""

    n: int
    kv_blocks: int | None = None
    block_size: int | None = None
    kv_tokens: int | None = None
    max_concurrency: float | None = None
    weights_gib: float | None = None
    kv_gib: float | None = None
    graph_gib: float | None = None
    activation_gib: float | None = None
    backend: str | None = None
    resolved: dict[str, Any] = {}
    changed: Changed | None = None
    startup_s: float | None = None


class Warmed(Event, frozen=True):
    """The warm-up: so many windows of equal work in so many seconds. `steady` tells whether the output tok/s of the
    last two agreed; without that it ended at its limit, `limit_s`."""

    n: int
    windows: int
    seconds: float
    limit_s: float
    steady: bool


class Tick(Event, frozen=True, gc=False):
    """The live state, twice a second: the engine's own statistics and NVML's."""

    n: int
    tok_s: float | None = None
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None  # 0..1
    preemptions: int | None = None  # since the point's start
    vram_mib: int | None = None  # of the device, or resident memory of the engine on a CPU
    power_w: float | None = None
    temp_c: int | None = None
    sm_mhz: int | None = None
    throttle: int | None = None  # NVML's bit mask of clock event reasons
    energy_j: float | None = None  # NVML's counter; differences count


class Requests(Event, frozen=True, weakref=True):
    """All requests of one load level: columns of equal length.

    `planned`, `sent`, `first`, `last` are seconds since the level began; `gaps` holds each request's waits
    between tokens in tenths of a millisecond, one a token after the first.
    """

    n: int
    level: float
    kind: str  # of the load: closed, poisson, trace
    seconds: float
    planned: list[float] = []
    sent: list[float] = []
    first: list[float | None] = []
    last: list[float | None] = []
    prompt_tokens: list[int] = []
    output_tokens: list[int] = []
    finish: list[str] = []
    gaps: list[list[int]] = []
    prefix_queries: int | None = None  # tokens asked of the prefix cache during the level
    prefix_hits: int | None = None
    preemptions: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    energy_j: float | None = None
    running_mean: float | None = None  # over the level, from the engine's statistics
    waiting_mean: float | None = None
    kv_usage_max: float | None = None
    throttle: int | None = None  # all reasons seen during the level, or-ed
    sm_mhz: float | None = None  # mean of the level
    temp_c: float | None = None


class Answers(Event, frozen=True):
    """The quality pass: columns of equal length, one row an item. `score` is 1 right, 0 wrong, None unscored.

    Columns that are not equally long are refused with a ValueError: their rows are no answers to anything.
    """

    n: int
    item: list[str] = []
    text: list[str] = []
    score: list[Score | None] = []
    finish: list[str] = []
    tokens: list[int] = []
    chat_template: bool = True

    def __post_init__(self) -> None:
        columns = (self.item, self.text, self.score, self.finish, self.tokens)
        if len({len(column) for column in columns}) > 1:
            raise ValueError("the columns of these answers differ in length")


class PointDone(Event, frozen=True):
    """The point's work is over. Any status but `ok` says why it is not a result to build on."""

    n: int
    status: Status
    say: str | None = None
    peak_mib: int | None = None


class Fix(Struct, frozen=True):
    """A way out: in words, and where it is a value, which field and what to try."""

    say: str
    field: str | None = None
    value: Value = None


class PointFailed(Event, frozen=True):
    """The point could not be measured, and why: a result."""

    n: int
    status: Status
    phase: PhaseName
    cause: str  # the root exception's type and sentence, or "killed by signal 9"
    say: str  # plain words
    fix: Fix | None = None
    peak_mib: int | None = None


class Clean(Event, frozen=True):
    """What was left after the point, and whether the device is back where it was."""

    n: int
    ok: bool
    seconds: float
    vram_mib: int | None = None
    baseline_mib: int | None = None
    left: list[str] = []
    say: str | None = None


class Asked(Event, frozen=True):
    """A person's request that the runner took: stop, skip a point, add or drop a value."""

    what: Literal["stop", "skip", "add", "drop"]
    n: int | None = None
    value: Value = None


class Noted(Event, frozen=True):
    """A sentence for the person: a torn line cut off, leftovers removed, a neighbour on the card."""

    say: str
    level: Literal["info", "warn"] = "info"


class Band(Event, frozen=True):
    """The number of finalist launches, fixed before the first from the noise that was known."""

    finalist_n: int
    finalist: Value
    launches: int
    percent: float


class SweepEnded(Event, frozen=True):
    why: Literal["finished", "stopped", "failed"]
    say: str | None = None
    exit: int = 0


class Decision(Event, frozen=True):
    """What the person decided, beside what the verdict was at that moment."""

    choice: Literal["keep", "revert"]
    value: Value = None
    why: str | None = None
    seen: dict[str, Any] = {}
    override: bool = False


AnyEvent = Union[  # noqa: UP007 (msgspec reads this on 3.10, where the engine may live)
    SessionStart, Launched, PointStarted, Phase, Capacity, Warmed, Tick, Requests, Answers, PointDone, PointFailed,
    Clean, Asked, Noted, Band, SweepEnded, Decision,
]  # fmt: skip


class Envelope(Struct, frozen=True):
    """The part of an event that every version understands."""

    type: str
    t: Time = 0.0


KNOWN: frozenset[str] = frozenset(
    str(cls.__struct_config__.tag)
    for cls in AnyEvent.__args__  # type: ignore[attr-defined]
)
_decoder = msgspec.json.Decoder(AnyEvent)
_envelope = msgspec.json.Decoder(Envelope)
_encoder = msgspec.json.Encoder()


class Unknown(Struct, frozen=True):
    """A line of a type that this version does not know."""

    type: str
    t: float


def decode(line: bytes) -> AnyEvent | Unknown:
    """One line as an event. Raises msgspec.DecodeError (ValidationError included) if it is none.

    A known line costs one pass; the envelope is only consulted when that fails.
    """
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError:
        envelope = _envelope.decode(line)
        if envelope.type in KNOWN:
            raise
        return Unknown(envelope.type, envelope.t)


def encode(event: AnyEvent) -> bytes:
    """One event as a line with its newline, ready for a single write. NaN and infinity become null."""
    return _encoder.encode(event) + b"\n"
