"""The work that every point does alike: how many requests, how long, arriving how."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

LoadKind = Literal["closed", "poisson", "trace"]


class Lengths(Struct, frozen=True):
    """Token counts drawn from a log-normal distribution, cut to `low`..`high` (tokens).

    `spread` is the coefficient of variation (standard deviation over mean); 0 means fixed.
    """

    mean: int
    spread: float = 0.0
    low: int = 1
    high: int | None = None


class SharedPrefix(Struct, frozen=True):
    """A prefix of `tokens` tokens that a `share` (0..1) of the requests begin with.

    `groups` different prefixes exist, as in a service with several system prompts.
    """

    tokens: int
    share: float = 1.0
    groups: int = 1


class Load(Struct, frozen=True):
    """One traffic shape, at one or several levels.

    closed   `concurrency` clients, each sending its next request when the last is answered
    poisson  arrivals at `rate` requests a second with exponential gaps, whatever the engine does
    trace    the person's own requests from `file` (JSON lines), at their arrival times if they have any
    """

    kind: LoadKind = "closed"
    concurrency: tuple[int, ...] = ()
    rate: tuple[float, ...] = ()
    prompt_tokens: int | Lengths = 128
    output_tokens: int | Lengths = 32
    requests: int = 64
    text: Literal["random", "natural"] = "random"
    shared_prefix: SharedPrefix | None = None
    file: str | None = None
    preset: str | None = None

    def levels(self) -> tuple[float, ...]:
        """The load levels: numbers of clients of a closed loop, or requests a second."""
        if self.kind == "closed" or (self.kind == "trace" and self.concurrency):
            return tuple(float(c) for c in self.concurrency) or (8.0,)
        return self.rate or (1.0,)

    def longest(self) -> int:
        """The largest prompt plus output a request can have, in tokens."""
        return _longest(self.prompt_tokens) + _longest(self.output_tokens)

    def describe(self) -> str:
        """One line for a screen: what is sent, how."""
        if self.kind == "trace":
            return f"your traffic from {self.file}"
        shape = f"{_say(self.prompt_tokens)} in, {_say(self.output_tokens)} out"
        if self.kind == "closed":
            how = "closed loop at " + ", ".join(f"{int(level)}" for level in self.levels())
        else:
            how = "Poisson at " + ", ".join(f"{level:g}/s" for level in self.levels())
        extra = ""
        if self.shared_prefix:
            extra = f", {self.shared_prefix.share:.0%} share a prefix of {self.shared_prefix.tokens}"
        if self.text == "natural":
            extra += ", natural text"
        return f"{how}, {self.requests} requests of {shape}{extra}"


def _longest(lengths: int | Lengths) -> int:
    if isinstance(lengths, int):
        return lengths
    if lengths.high is not None:
        return lengths.high
    return lengths.mean if not lengths.spread else max(lengths.mean * 4, lengths.low)


def _say(lengths: int | Lengths) -> str:
    if isinstance(lengths, int):
        return f"{lengths}"
    return f"{lengths.mean}±{lengths.spread:.0%}" if lengths.spread else f"{lengths.mean}"


PRESETS: dict[str, tuple[Load, str]] = {
    "chat": (
        Load("closed", (8,), (), Lengths(256, 0.8, 16, 1024), Lengths(128, 0.5, 16, 256), 96, preset="chat"),
        "short questions of mixed length, answers of a few sentences",
    ),
    "rag": (
        Load(
            "closed",
            (8,),
            (),
            Lengths(1536, 0.3, 512, 3072),
            128,
            64,
            shared_prefix=SharedPrefix(512, 1.0, 4),
            preset="rag",
        ),
        "long prompts that begin with one of four shared instructions, short answers",
    ),
    "code": (
        Load("closed", (4,), (), Lengths(512, 0.5, 64, 1536), 64, 64, text="natural", preset="code"),
        "text that repeats itself, a few clients, short completions",
    ),
    "offline": (
        Load("closed", (128,), (), 512, 128, 512, preset="offline"),
        "a full queue of equal requests: what the card can do at most",
    ),
    "mixed": (
        Load("poisson", (), (4.0,), Lengths(512, 1.0, 32, 2048), Lengths(128, 0.5, 16, 256), 128, preset="mixed"),
        "open arrivals of mixed lengths, so that prefill meets running decodes",
    ),
}
