"""Drawing the requests of a load from a seed: pure, and the same wherever it runs.

Every value of a knob is measured with the same requests, and no prompt occurs twice within a point, neither
at another level nor in the warm-up: a prompt that the engine has seen is answered from its prefix cache, which
is another experiment. Randomness comes from named streams (seed, purpose, level, number). Lengths and the gaps
between arrivals are drawn once for all levels: the levels differ in how hard they push, not in the work.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tui_tuner.model import prose
from tui_tuner.model.load import Lengths, Load

WARMUP = -1  # the level of a warm-up's first window; its next ones are -2, -3, ...

LAST_WARMUP = -256  # windows beyond it would meet the serial numbers of the highest levels
_PER_LEVEL = 1 << 24  # serial numbers of one level, more than any level sends
_SERIALS = 1 << 34  # and of one point: 512 levels below and above zero
# Characters of natural text made per token wanted: tokenizers average 3 to 5 characters a token on English text
# and code, and too much is cut off.
_CHARS = 8


class Request(Struct, frozen=True):
    """One request to send. `prompt_tokens` and `output_tokens` are its lengths in tokens.

    The prompt is `token_ids`, or text to be made into exactly `prompt_tokens` ids by `prompt_ids`, or, in the
    person's own traffic, `text` or `messages` as they are (then `prompt_tokens` is None). `arrival` is in
    seconds since the level began, or None in a closed loop.
    """

    output_tokens: int
    prompt_tokens: int | None = None
    token_ids: list[int] | None = None
    prefix: str = ""
    prefix_tokens: int = 0
    text: str | None = None
    ending: str = ""
    messages: list[dict[str, Any]] | None = None
    arrival: float | None = None


def stream(*name: object) -> random.Random:
    """A random generator that depends on `name` alone (numbers and texts), on every machine."""
    digest = hashlib.blake2b("\x1f".join(map(str, name)).encode(), digest_size=16).digest()
    return random.Random(int.from_bytes(digest, "big"))


def requests(
    load: Load,
    level: int,
    seed: int,
    count: int,
    allowed: Sequence[int],
    trace: Sequence[dict[str, Any]] = (),
) -> list[Request]:
    """The `count` requests of a load's level (an index into `load.levels()`, or `WARMUP` and below).

    `allowed` are the token ids that may stand in a random prompt. A trace is cut to `count`, never repeated; its
    level, without a concurrency, is the speed at which its arrival times are replayed (2.0: twice as fast), or
    requests a second where it has none. A warm-up has no arrival times.
    Raises ValueError if `allowed` is empty.
    """
    if not allowed:
        raise ValueError("the model's vocabulary has no ordinary token to draw prompts from")
    if load.kind == "trace" and level > WARMUP:
        return _timed(load, level, seed, _from_trace(load, level, seed, count, allowed, trace))
    prompt_lengths = lengths(load.prompt_tokens, count, stream(seed, "prompt lengths"))
    output_lengths = lengths(load.output_tokens, count, stream(seed, "output lengths"))
    if load.kind == "trace":  # the warm-up of a person's traffic: its lengths, but not its words
        for index in range(count if trace else 0):
            row = trace[index % len(trace)]
            prompt_lengths[index] = _size(row) or prompt_lengths[index]
            output_lengths[index] = int(row.get("output_tokens") or output_lengths[index])
    drawn = _prompts(load, level, seed, prompt_lengths, output_lengths, allowed)
    return drawn if level <= WARMUP else _timed(load, level, seed, drawn)


def lengths(wanted: int | Lengths, count: int, rng: random.Random) -> list[int]:
    """`count` lengths in tokens: fixed, or log-normal with the mean and coefficient of variation asked for, cut to
    its bounds (σ² = ln(1 + spread²), μ = ln mean − σ²/2; without an upper bound, four times the mean)."""
    if isinstance(wanted, int):
        return [max(1, wanted)] * count
    low = max(1, wanted.low)
    high = max(low, wanted.high if wanted.high is not None else wanted.mean * 4)
    if not wanted.spread:
        return [min(max(wanted.mean, low), high)] * count
    variance = math.log1p(wanted.spread**2)
    mu, sigma = math.log(wanted.mean) - variance / 2, math.sqrt(variance)
    return [min(max(round(rng.lognormvariate(mu, sigma)), low), high) for _ in range(count)]


def prompt_ids(request: Request, encode: Callable[[str], Sequence[int]]) -> list[int]:
    """The prompt as token ids. Natural text becomes exactly `prompt_tokens` ids: the shared prefix, then the body cut
    to fit (or gone round again where it is short), then the ending if there is room for it."""
    if request.token_ids is not None:
        return request.token_ids
    body = list(encode(request.text or ""))
    if request.prompt_tokens is None:
        return body
    ids = list(encode(request.prefix))[: request.prefix_tokens] if request.prefix_tokens else []
    room = request.prompt_tokens - len(ids)
    ending = list(encode(request.ending)) if request.ending else []
    if len(ending) * 2 > room:
        ending = []
    room -= len(ending)
    if not body:
        raise ValueError("the tokenizer made no token of a whole text")
    while len(body) < room:
        body += body
    return ids + body[:room] + ending


def _timed(load: Load, level: int, seed: int, drawn: list[Request]) -> list[Request]:
    """The requests with their arrival times, in that order; a closed loop has none."""
    if load.kind == "closed" or (load.kind == "trace" and load.concurrency):
        return [replace(request, arrival=None) for request in drawn]
    speed = load.levels()[level]
    if load.kind == "trace" and drawn and all(request.arrival is not None for request in drawn):
        ordered = sorted(drawn, key=lambda request: request.arrival or 0.0)
        began = ordered[0].arrival or 0.0
        return [replace(request, arrival=((request.arrival or 0.0) - began) / speed) for request in ordered]
    rng, now, timed = stream(seed, "arrivals"), 0.0, []
    for request in drawn:
        now += rng.expovariate(1.0) / speed
        timed.append(replace(request, arrival=now))
    return timed


def _prompts(
    load: Load, level: int, seed: int, inputs: list[int], outputs: list[int], allowed: Sequence[int]
) -> list[Request]:
    shared = load.shared_prefix
    count = len(inputs)
    group: dict[int, int] = {}
    if shared and shared.tokens > 0:
        rng = stream(seed, "who shares", level)
        members = rng.sample(range(count), min(count, round(shared.share * count)))
        group = {index: place % max(1, shared.groups) for place, index in enumerate(members)}
    make = _natural if load.text == "natural" else _random
    return [
        make(
            seed, level, index, inputs[index], outputs[index], shared.tokens if shared else 0, group.get(index), allowed
        )
        for index in range(count)
    ]


def _random(
    seed: int, level: int, index: int, size: int, output: int, prefix: int, group: int | None, allowed: Sequence[int]
) -> Request:
    stamp = _stamp(_serial(seed, level, index), allowed)[:size]
    head: list[int] = []
    if group is not None:
        # The prefix is part of the prompt's length; where it would fill all of it, the request's own tokens stay.
        head = stream(seed, "prefix", level, group).choices(allowed, k=prefix)[: size - len(stamp)]
    rest = stream(seed, "prompt", level, index).choices(allowed, k=size - len(head) - len(stamp))
    return Request(output_tokens=output, prompt_tokens=size, token_ids=[*head, *stamp, *rest])


def _natural(
    seed: int, level: int, index: int, size: int, output: int, prefix: int, group: int | None, allowed: Sequence[int]
) -> Request:
    # A document's number takes about a dozen tokens: that much of the prompt is always its own.
    prefix = min(prefix, max(0, size - 16)) if group is not None else 0
    written = prose.document(
        stream(seed, "document", level, index), _serial(seed, level, index), (size - prefix) * _CHARS
    )
    rules = ""
    if prefix:
        rules = prose.instructions(
            stream(seed, "rules", level, group), _serial(seed, level, _PER_LEVEL - 1 - (group or 0)), prefix * _CHARS
        )
    return Request(
        output_tokens=output,
        prompt_tokens=size,
        prefix=rules,
        prefix_tokens=prefix,
        text=written.body,
        ending=written.ending,
    )


def _serial(seed: int, level: int, index: int) -> int:
    """A number that no other request of the point has, scattered so that neighbours look nothing alike."""
    place = (level * _PER_LEVEL + index) % _SERIALS
    rng = stream(seed, "serial")
    factor = rng.randrange(1, _SERIALS, 2)  # odd, so that multiplying modulo a power of two is one to one
    return (place * factor + rng.randrange(_SERIALS)) % _SERIALS


def _stamp(serial: int, allowed: Sequence[int]) -> list[int]:
    """The serial number written in the vocabulary's own digits: prompts differ from their first tokens on, so that
    not even the first block of one is in the prefix cache because of another."""
    base = len(allowed)
    if base < 2:
        return []
    digits = []
    left = _SERIALS
    while left > 1:
        serial, digit = divmod(serial, base)
        digits.append(allowed[digit])
        left = -(-left // base)
    return digits


def _size(row: dict[str, Any]) -> int:
    """About how many tokens a trace's prompt has (four characters each), or 0 if it does not tell."""
    if row.get("prompt_tokens"):
        return int(row["prompt_tokens"])
    text = row.get("prompt") or "".join(str(m.get("content", "")) for m in row.get("messages") or ())
    return len(text) // 4


def _from_trace(
    load: Load, level: int, seed: int, count: int, allowed: Sequence[int], trace: Sequence[dict[str, Any]]
) -> list[Request]:
    rows = list(trace)[:count]
    spare = lengths(load.output_tokens, len(rows), stream(seed, "output lengths"))
    made = []
    for index, row in enumerate(rows):
        arrival = row.get("arrival_s")
        output = int(row.get("output_tokens") or spare[index])
        if row.get("messages"):
            request = Request(output_tokens=output, messages=list(row["messages"]), arrival=arrival)
        elif row.get("prompt"):
            request = Request(output_tokens=output, text=str(row["prompt"]), arrival=arrival)
        else:
            size = int(row.get("prompt_tokens") or 0) or lengths(load.prompt_tokens, 1, stream(seed, "p", index))[0]
            make = _natural if load.text == "natural" else _random
            request = replace(make(seed, level, index, size, output, 0, None, allowed), arrival=arrival)
        made.append(request)
    return made
