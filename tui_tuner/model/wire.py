"""What runner and worker say to each other, one JSON message a line."""

from __future__ import annotations

from typing import Any, Union

import msgspec
from msgspec import Struct

from tui_tuner.model.events import PhaseName
from tui_tuner.model.knobs import Facts, Resolution
from tui_tuner.model.load import Load


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag=str.lower):
    pass


# ---- runner to worker ------------------------------------------------------------------------------------------


class Question(Struct, frozen=True):
    """An eval item as the worker sees it: a prompt or chat messages, never the answer."""

    id: str
    messages: list[dict[str, str]] = []
    prompt: str | None = None


class Task(Message, frozen=True):
    """One point's work. `args` are AsyncEngineArgs with an absolute model path."""

    args: dict[str, Any]
    load: Load
    requests: int  # per level
    seed: int
    questions: list[Question] = []
    max_tokens: int = 64
    tick_s: float = 0.5
    # The warm-up ends here if two windows never agreed: after as long as the speed pass will take at the rate of the
    # last window, but not before the first nor after the second of these.
    warmup_least_s: float = 10.0
    warmup_max_s: float = 60.0
    warmup_agree: float = 0.03
    trace: list[dict[str, Any]] = []  # the person's own requests, already read and checked


class Stop(Message, frozen=True):
    """End in order: nothing more is wanted of this point."""


# ---- worker to runner ------------------------------------------------------------------------------------------


class Hello(Message, frozen=True):
    """The first word, before vllm is imported."""

    pid: int
    python: str


class Entered(Message, frozen=True):
    """A phase began."""

    phase: PhaseName
    detail: str | None = None


class Ready(Message, frozen=True):
    """The engine is up: capacity from the engine object first, from the log second, and the resolved configuration."""

    vllm: str
    torch: str
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
    startup_s: float | None = None


class Stats(Message, frozen=True):
    """The engine's own statistics since the last message of this kind."""

    tok_s: float
    running: int
    waiting: int
    kv_usage: float
    preemptions: int


class Warmed(Message, frozen=True):
    """The warm-up is over; fields as in events.Warmed."""

    windows: int
    seconds: float
    limit_s: float
    steady: bool


class Level(Message, frozen=True):
    """The rows of one load level; fields as in events.Requests, whose device columns the runner adds.

    `began` and `ended` are time.time() in the worker, so that the runner can match its own samples.
    """

    level: float
    kind: str
    began: float
    ended: float
    planned: list[float]
    sent: list[float]
    first: list[float | None]
    last: list[float | None]
    prompt_tokens: list[int]
    output_tokens: list[int]
    finish: list[str]
    gaps: list[list[int]]
    prefix_queries: int | None = None
    prefix_hits: int | None = None
    preemptions: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    running_mean: float | None = None
    waiting_mean: float | None = None
    kv_usage_max: float | None = None


class Replies(Message, frozen=True):
    """The raw answers of the quality pass, one row an item, unscored."""

    item: list[str]
    text: list[str]
    finish: list[str]
    tokens: list[int]
    chat_template: bool


class Failed(Message, frozen=True):
    """The worker caught what ended the point; the log has the whole of it."""

    phase: PhaseName
    exception: str
    message: str


class Finished(Message, frozen=True):
    """All work of the point is done and sent; the worker may be killed now."""


# ---- to and from `worker.introspect`: one question on standard input, one answer on standard output ----------------


class Inquiry(Struct, frozen=True):
    """What to ask an engine's Python. Without anything asked it only says who it is, without importing vllm."""

    facts: bool = False
    resolve: list[dict[str, Any]] = []  # sets of AsyncEngineArgs


class Findings(Struct, frozen=True):
    """The answer. `packages` holds the versions of what is installed, by distribution name."""

    python: str = ""  # its version
    packages: dict[str, str] = {}
    facts: Facts | None = None
    resolutions: list[Resolution] = []
    problem: str | None = None  # why vllm could not be asked


ToWorker = Union[Task, Stop]  # noqa: UP007
FromWorker = Union[Hello, Entered, Ready, Stats, Warmed, Level, Replies, Failed, Finished]  # noqa: UP007

_encoder = msgspec.json.Encoder()
to_worker = msgspec.json.Decoder(ToWorker)
from_worker = msgspec.json.Decoder(FromWorker)


def encode(message: ToWorker | FromWorker) -> bytes:
    """One message as a line with its newline."""
    return _encoder.encode(message) + b"\n"
