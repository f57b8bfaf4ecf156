"""Scoring an answer: 1 right, 0 wrong. Nothing here trusts the text or the pattern.

Patterns and model outputs come from outside, and Python's regular expressions can be made to run for ever. So a
pattern is at most 200 characters, may not repeat what itself varies in length (such as `(a+)+`), refer back or look
around, its worst case over the text is bounded before it is used, and no more than the first and last 250 characters
of an answer are searched. Texts for the other scorers are cut at 20,000 characters.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Protocol

MAX_TEXT = 20_000
MAX_PATTERN = 200
REGEX_TEXT = 500
MAX_WORK = 1e9  # upper bound of matching steps, far from tight

_NUMBER = re.compile(r"(?<![\w.])-?(?:\d{1,3}(?:,\d{3}){1,6}|\d{1,30})(?:\.\d{1,30})?(?:\s?/\s?\d{1,15})?")
_MARK = re.compile(r"(?:####|answer\s?(?:is|:|=)|final answer|result\s?(?:is|:|=))", re.IGNORECASE)
_CHOICE_MARK = re.compile(
    r"(?i:answer|choice|option)(?i: is)?:?\s{0,3}[(*\[\"']{0,3}(?:([A-H])(?![\w'])|([a-h])(?=[)\]]))"
)
_CHOICE_START = re.compile(r"^[\s(*\[\"']{0,5}([A-Ha-h])(?=[\s]*(?:$|[).:,\]*\"'\n]))")
_CHOICE_BRACKET = re.compile(r"[(*\[]([A-H])[)*\]]")
_CHOICE_ALONE = re.compile(r"(?<![\w'])([B-H])(?![\w'])")


class Scored(Protocol):
    """What a scorer needs of an item."""

    @property
    def scorer(self) -> str | None: ...
    @property
    def answer(self) -> Any: ...


def score(item: Scored, text: str) -> float | None:
    """1.0 if `text` answers the item, 0.0 if not, None if the item has no answer to compare with."""
    if item.answer is None or item.scorer is None:
        return None
    return 1.0 if SCORERS[item.scorer](item.answer, text[:MAX_TEXT]) else 0.0


def default(answer: object) -> str:
    """The scorer of an item that names none: number for numbers, exact for texts."""
    return "number" if isinstance(answer, (int, float)) and not isinstance(answer, bool) else "exact"


def problem(scorer: str, answer: object) -> str | None:
    """Why `answer` cannot be used with `scorer`, as the second half of a sentence, or None."""
    if scorer == "number":
        return None if number_of(answer) is not None else "it must be a number, such as 12 or 3/4"
    if scorer == "choice":
        ok = isinstance(answer, str) and len(answer) == 1 and answer.upper() in "ABCDEFGH"
        return None if ok else "it must be one letter, A to H"
    if scorer == "regex":
        if not isinstance(answer, str):
            return "it must be a regular expression as a text"
        return pattern_problem(answer)
    texts = answer if isinstance(answer, list) else [answer]
    if not texts or not all(isinstance(t, str) and normal(t) for t in texts):
        return "it must be a text, or a list of texts of which one is enough"
    return None


def normal(text: str) -> str:
    """Folded for comparison: case, width, accents' form, punctuation at the edges of words and spaces."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = [word.strip("\"'`“”‘’.,;:!?()[]{}*_#。，！？：；（）") for word in folded.split()]
    return " ".join(word for word in words if word)


def _exact(answer: Any, text: str) -> bool:
    """The whole answer, or its first or last line, is the text asked for."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    seen = {normal(text)} | ({normal(lines[0]), normal(lines[-1])} if lines else set())
    return any(normal(a) in seen for a in _texts(answer))


def _contains(answer: Any, text: str) -> bool:
    """The text asked for stands in the answer as whole words (or, in scripts without spaces, anywhere)."""
    inside = normal(text)
    padded = f" {inside} "
    return any(f" {a} " in padded or (not a.isascii() and a in inside) for a in map(normal, _texts(answer)))


def _number(answer: Any, text: str) -> bool:
    """The number after the last "answer is", "=" of a result or "####"; else the last number of the text."""
    wanted = number_of(answer)
    marks = list(_MARK.finditer(text))
    found = _NUMBER.search(text, marks[-1].end()) if marks else None
    if found is None:
        for found in _NUMBER.finditer(text):  # noqa: B007 (the last one is wanted)
            pass
    got = number_of(found[0]) if found else None
    return wanted is not None and got is not None and math.isclose(got, wanted, rel_tol=1e-6, abs_tol=1e-9)


def number_of(value: object) -> float | None:
    """A number from JSON or text ("1,024", "-3.5", "3/4"); None if it is none."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return float(value) if math.isfinite(value) else None
    if not isinstance(value, str) or not _NUMBER.fullmatch(value.strip()):
        return None
    top, _, bottom = value.replace(",", "").replace(" ", "").partition("/")
    try:
        return float(top) / float(bottom) if bottom else float(top)
    except ZeroDivisionError:
        return None


def _choice(answer: Any, text: str) -> bool:
    """The letter after "answer is", at the start, in brackets, or standing alone (there "A" is an article)."""
    for pattern in (_CHOICE_MARK, _CHOICE_START, _CHOICE_BRACKET, _CHOICE_ALONE):
        found = pattern.search(text)
        if found:
            return next(g for g in found.groups() if g).upper() == str(answer).upper()
    return False


def _regex(answer: Any, text: str) -> bool:
    half = REGEX_TEXT // 2
    shown = text if len(text) <= REGEX_TEXT else f"{text[:half]}\n{text[-half + 1 :]}"
    pattern = str(answer)
    return pattern_problem(pattern) is None and re.search(pattern, shown, re.IGNORECASE) is not None


SCORERS: dict[str, Callable[[Any, str], bool]] = {
    "exact": _exact,
    "number": _number,
    "choice": _choice,
    "contains": _contains,
    "regex": _regex,
}


@lru_cache(maxsize=4096)
def pattern_problem(pattern: str) -> str | None:
    """Why a pattern is not used, as the second half of a sentence; None if its worst case is bounded."""
    if len(pattern) > MAX_PATTERN:
        return f"a pattern may have {MAX_PATTERN} characters at most"
    try:
        tree = _parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"it is no regular expression ({error})"
    try:
        work = _work(tree, repeated=False) * REGEX_TEXT
    except _Refused as refused:
        return str(refused)
    return None if work <= MAX_WORK else "it has too many open repeats (+ * {n,}), and could run for very long"


class _Refused(Exception):
    pass


def _work(tree: Any, repeated: bool) -> float:
    """A bound on how many ways the matcher can try `tree` from one start. Raises _Refused."""
    work = 1.0
    for op, argument in tree:
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT) or op is getattr(sre, "POSSESSIVE_REPEAT", None):
            low, high, inner = argument
            high = min(int(high), REGEX_TEXT)
            if repeated and low != high:
                raise _Refused(
                    "it repeats something that itself varies in length, such as (a+)+, which can run for ever"
                )
            work *= (high - int(low) + 1) * _work(inner, repeated or high > 1)
        elif op is sre.BRANCH:
            if repeated:
                raise _Refused("it repeats a choice of different lengths, such as (a|ab)+, which can run for ever")
            work *= sum(_work(branch, repeated) for branch in argument[1])
        elif op is sre.SUBPATTERN:
            work *= _work(argument[-1], repeated)
        elif op in (sre.GROUPREF, sre.GROUPREF_EXISTS, sre.ASSERT, sre.ASSERT_NOT) or op is getattr(
            sre, "ATOMIC_GROUP", None
        ):
            raise _Refused("back references, look-arounds and atomic groups are not allowed")
    return work


def _texts(answer: Any) -> list[str]:
    return [str(a) for a in answer] if isinstance(answer, list) else [str(answer)]
