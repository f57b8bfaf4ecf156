"""Eval sets as JSON lines: loading with a check of every line, and fair samples.

A line is `{"id", "prompt" or "messages", "answer", "scorer", "tags"}`. An item without an answer is not scored; its
text is compared with the baseline's instead.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tui_tuner import paths
from tui_tuner.evals import scorers
from tui_tuner.model.wire import Question

MAX_ITEMS = 20_000
MAX_LINE = 1_000_000  # bytes
FIELDS = ("id", "prompt", "messages", "answer", "scorer", "tags")
ROLES = ("system", "user", "assistant")


class BadEvalSet(ValueError):
    """The set cannot be used; str() says where and why, with line number and field."""


class Item(Struct, frozen=True):
    """One question. Exactly one of `prompt` and `messages` is given; `answer` is None where nothing is scored."""

    id: str
    prompt: str | None = None
    messages: tuple[dict[str, str], ...] = ()
    answer: Any = None
    scorer: str | None = None
    tags: tuple[str, ...] = ()

    def question(self) -> Question:
        """The item without its answer, as the worker is handed it."""
        return Question(id=self.id, prompt=self.prompt, messages=[dict(m) for m in self.messages])

    @property
    def text(self) -> str:
        """What was asked, for a screen."""
        return self.prompt if self.prompt is not None else "\n".join(m.get("content", "") for m in self.messages)


class EvalSet(Struct, frozen=True):
    """A named set of items; `licence` is an SPDX id for the shipped ones, and "not stated" for others."""

    name: str
    items: tuple[Item, ...]
    licence: str = "not stated"
    path: str = ""

    def item(self, id: str) -> Item | None:
        return next((item for item in self.items if item.id == id), None)


def folder() -> Path:
    """Where the shipped sets lie: in the installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parent
    packaged = here / "sets"
    return packaged if packaged.is_dir() else here.parents[1] / "evalsets"


def shipped() -> tuple[str, ...]:
    """The names of the sets that come with tui-tuner."""
    return tuple(sorted(path.stem for path in folder().glob("*.jsonl")))


def file(name: str) -> Path:
    """The file of a shipped set, or the one called `name`, whether it is there or not."""
    return folder() / f"{name}.jsonl" if name in shipped() else Path(paths.expanded(name))


def load(name_or_path: str | Path) -> EvalSet:
    """A shipped set by name, or a file. Raises BadEvalSet with a sentence naming line and field."""
    name = str(name_or_path)
    path, licence = file(name), "CC0-1.0" if name in shipped() else "not stated"
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise BadEvalSet(
            f"there is no eval set '{name}': it must be one of {', '.join(shipped())}, or the path of a .jsonl file"
        ) from None
    except (OSError, ValueError) as error:  # a null byte in a name is a ValueError
        raise BadEvalSet(f"the eval set {name!r} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return EvalSet(path.stem, tuple(_items(data, path.name)), licence, str(path))


def _items(data: bytes, where: str) -> list[Item]:
    items: list[Item] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        item = check(line, f"{where}, line {number}")
        if item.id in seen:
            raise BadEvalSet(f"{where}, line {number}: id {item.id!r} was used in line {seen[item.id]} already")
        seen[item.id] = number
        items.append(item)
        if len(items) > MAX_ITEMS:
            raise BadEvalSet(f"{where}: more than {MAX_ITEMS:,} items; a sweep asks a few hundred at most")
    if not items:
        raise BadEvalSet(f'{where}: no items; a line is {{"id": "1", "prompt": "2 + 2 = ?", "answer": 4}}')
    return items


def json_line(line: bytes, where: str, refuse: type[ValueError], such: str) -> dict[str, Any]:
    """One line as a JSON object. Raises `refuse` with `where`, what is wrong, and `such` as an example."""
    if len(line) > MAX_LINE:
        raise refuse(f"{where}: the line is longer than {MAX_LINE:,} bytes")
    try:
        row = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise refuse(f"{where}: this is no JSON ({error})") from None
    if not isinstance(row, dict):
        raise refuse(f"{where}: this is no JSON object; a line is {such}")
    return row


def check(line: bytes, where: str) -> Item:
    """One line as an item. Raises BadEvalSet: `where`, the field, what is wrong and what would be right."""
    row = json_line(line, where, BadEvalSet, '{"id": …, "prompt": …, "answer": …}')
    unknown = sorted(set(row) - set(FIELDS))
    if unknown:
        raise BadEvalSet(f"{where}: {unknown[0]!r} is no field; there are {', '.join(FIELDS)}")
    id_ = row.get("id")
    if isinstance(id_, int) and not isinstance(id_, bool):
        id_ = str(id_)
    if not isinstance(id_, str) or not id_:
        raise BadEvalSet(f"{where}: id is {_short(row.get('id'))}; it must be a text that no other line has")
    prompt, messages = row.get("prompt"), row.get("messages")
    if (prompt is None) == (messages is None):
        raise BadEvalSet(f"{where}: exactly one of prompt and messages must be given")
    if prompt is not None and (not isinstance(prompt, str) or not prompt.strip()):
        raise BadEvalSet(f"{where}: prompt is {_short(prompt)}; it must be a text that is not empty")
    if messages is not None:
        messages_problem(messages, where)
    scorer = row.get("scorer")
    answer = row.get("answer")
    if answer is None:
        if scorer is not None:
            raise BadEvalSet(
                f"{where}: answer is missing, which the scorer {scorer!r} needs; "
                "leave both out to compare the text with the baseline's"
            )
    else:
        if scorer is None:
            scorer = scorers.default(answer)
        if scorer not in scorers.SCORERS:
            raise BadEvalSet(f"{where}: scorer is {_short(scorer)}; it must be one of {', '.join(scorers.SCORERS)}")
        problem = scorers.problem(scorer, answer)
        if problem:
            raise BadEvalSet(f"{where}: answer is {_short(answer)}; {problem}")
    tags = row.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise BadEvalSet(f'{where}: tags is {_short(tags)}; it must be a list of texts, such as ["level-2"]')
    return Item(id_, prompt, tuple(messages or ()), answer, scorer, tuple(tags))


def messages_problem(messages: object, where: str) -> None:
    """Raises BadEvalSet unless `messages` are chat messages of the OpenAI kind with plain text."""
    if not isinstance(messages, list) or not messages:
        raise BadEvalSet(f'{where}: messages must be a list such as [{{"role": "user", "content": "…"}}]')
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            raise BadEvalSet(f"{where}: messages[{i}] must have exactly role and content")
        if message["role"] not in ROLES:
            raise BadEvalSet(f"{where}: messages[{i}].role is {_short(message['role'])}; one of {', '.join(ROLES)}")
        if not isinstance(message["content"], str):
            raise BadEvalSet(f"{where}: messages[{i}].content must be a text")


def sample(of: EvalSet, k: int, seed: int = 0) -> tuple[Item, ...]:
    """`k` items, a fair mix of the set's levels; all of them where the set has fewer.

    The order is fixed by the seed and the first k of it are taken, so a smaller sample is part of a larger one. Each
    level (tag `level-…`, else the first tag) is shuffled, and its i-th item of m gets the place (i + u) / m with one
    random u for the level: every prefix holds each level in proportion, to within one item of it.
    """
    strata: dict[str, list[Item]] = {}
    for item in of.items:
        strata.setdefault(stratum(item), []).append(item)
    rng = random.Random(f"{of.name} {seed}")
    placed: list[tuple[float, str, Item]] = []
    for name in sorted(strata):
        items = strata[name]
        rng.shuffle(items)
        offset = rng.random()
        placed += [((i + offset) / len(items), name, item) for i, item in enumerate(items)]
    placed.sort(key=lambda place: place[:2])
    return tuple(item for _, _, item in placed[: max(k, 0)])


def stratum(item: Item) -> str:
    """The group that an item is drawn from: its level, else its first tag."""
    return next((tag for tag in item.tags if tag.startswith("level-")), item.tags[0] if item.tags else "")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
