"""The person's own traffic, for loads of kind `trace`: JSON lines of one of these kinds, also mixed.

    {"prompt": "…", "max_tokens": 64, "arrival_s": 0.4}
    {"messages": [{"role": "user", "content": "…"}], "max_tokens": 64}
    {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": […], …}}   (OpenAI batch)
    {"prompt_tokens": 512, "output_tokens": 128, "arrival_s": 1.25}

Each becomes a dict for the worker with one of `prompt`, `messages`, `prompt_tokens`, and where they are known
`output_tokens` and `arrival_s` (seconds from the first request). Sampling settings are not taken over: the work
is what is held fixed, and the sampling is the plan's.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from tui_tuner import paths
from tui_tuner.evals.evalset import BadEvalSet, _short, json_line, messages_problem

MAX_REQUESTS = 100_000
MAX_TOKENS = 10_000_000
_LENGTHS = ("output_tokens", "max_tokens", "max_completion_tokens")


class BadTraffic(ValueError):
    """The file cannot be used; str() says where and why, with line number and field."""


def read(path: str | Path, limit: int | None = None) -> list[dict[str, Any]]:
    """The requests of a traffic file in its order, at most `limit`. Raises BadTraffic."""
    file = Path(paths.expanded(str(path)))
    try:
        data = file.read_bytes()
    except (OSError, ValueError) as error:  # a null byte in a name is a ValueError
        why = getattr(error, "strerror", None) or error
        raise BadTraffic(f"the traffic file {str(path)!r} cannot be read: {why}") from None
    found: list[dict[str, Any]] = []
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        if limit is not None and len(found) >= limit:
            break
        if len(found) >= MAX_REQUESTS:
            raise BadTraffic(f"{file.name}: more than {MAX_REQUESTS:,} requests")
        found.append(check(line, f"{file.name}, line {number}"))
    if not found:
        raise BadTraffic(f'{file.name}: no requests; a line is {{"prompt": "…"}} or {{"messages": […]}}')
    timed = [r for r in found if "arrival_s" in r]
    if timed and len(timed) != len(found):
        number = next(i for i, r in enumerate(found, 1) if "arrival_s" not in r)
        raise BadTraffic(f"{file.name}: request {number} has no arrival_s, and others have; give it to all or to none")
    if timed:
        start = min(r["arrival_s"] for r in found)
        found = sorted(({**r, "arrival_s": r["arrival_s"] - start} for r in found), key=lambda r: r["arrival_s"])
    return found


def check(line: bytes, where: str) -> dict[str, Any]:
    """One line as a request. Raises BadTraffic: `where`, the field, what is wrong and what would be right."""
    row = json_line(line, where, BadTraffic, '{"prompt": "…"} or {"messages": […]}')
    arrival = row.get("arrival_s")
    if "body" in row:
        if not isinstance(row["body"], dict):
            raise BadTraffic(f"{where}: body is {_short(row['body'])}; it must be the request as an object")
        row = row["body"]
    request = _content(row, where)
    for key in _LENGTHS:
        if row.get(key) is not None:
            request["output_tokens"] = _count(row[key], key, where)
            break
    else:
        if "prompt_tokens" in request:
            raise BadTraffic(f"{where}: output_tokens is missing; a line of lengths needs it")
    if arrival is not None:
        if isinstance(arrival, bool) or not isinstance(arrival, (int, float)) or not math.isfinite(arrival):
            raise BadTraffic(f"{where}: arrival_s is {_short(arrival)}; it must be a number of seconds")
        request["arrival_s"] = float(arrival)
    return request


def _content(row: dict[str, Any], where: str) -> dict[str, Any]:
    given = [key for key in ("prompt", "messages", "prompt_tokens") if row.get(key) is not None]
    if len(given) != 1:
        raise BadTraffic(f"{where}: exactly one of prompt, messages and prompt_tokens must be given, not {len(given)}")
    key = given[0]
    value = row[key]
    if key == "prompt":
        if not isinstance(value, str) or not value:
            raise BadTraffic(f"{where}: prompt is {_short(value)}; it must be a text that is not empty")
        return {"prompt": value}
    if key == "messages":
        try:
            messages_problem(value, where)
        except BadEvalSet as error:
            raise BadTraffic(str(error)) from None
        return {"messages": value}
    return {"prompt_tokens": _count(value, key, where)}


def _count(value: object, key: str, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_TOKENS:
        raise BadTraffic(f"{where}: {key} is {_short(value)}; it must be a whole number of tokens from 1")
    return value
