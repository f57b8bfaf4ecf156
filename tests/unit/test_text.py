from __future__ import annotations

import json
import re
import unicodedata

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tui_tuner.model.text import UNSAFE, escaped, plain, safe

HOSTILE = st.text(
    st.sampled_from('\x1b\x07\x00\x7f\x85\x9b\u200d\u202e\u2028\ue000\U000e0001\U0010ffff ab\n\t"\\é模😀')
)


def obeyed(text: str) -> set[str]:
    """What a terminal might obey."""
    return {c for c in text if c not in "\n\t" and unicodedata.category(c) in UNSAFE}


@given(st.dictionaries(HOSTILE, HOSTILE | st.lists(HOSTILE)))
def test_escaped_json_is_the_same_data(value: dict[str, object]) -> None:
    document = escaped(msgspec.json.format(msgspec.json.encode(value), indent=1).decode())
    assert json.loads(document) == value and not obeyed(document)


@given(HOSTILE)
def test_escaped_yaml_is_one_escape_a_character(text: str) -> None:
    document = escaped(msgspec.json.encode(text).decode(), yaml=True)
    assert not obeyed(document)
    pairs = re.sub(r"\\U([0-9a-f]{8})", lambda m: chr(int(m[1], 16)), document)
    assert json.loads(pairs, strict=False) == text


@given(st.text(), st.integers(1, 50), st.booleans())
def test_plain_text_is_one_that_no_terminal_obeys(text: str, limit: int, keep_lines: bool) -> None:
    shown = plain(text, limit, keep_lines)
    assert not obeyed(shown) and len(shown) <= limit + 1
    assert keep_lines or not set("\n\t") & set(shown)


def test_escape_sequences_go_as_a_whole_and_one_that_never_ends_takes_no_more_than_its_line() -> None:
    assert plain("\x1b[31mred\x1b[0m \x1b]0;title\x07rest\x1b]8;;http://x\x1b\\link\x1bM") == "red restlink"
    log = safe("\x1b]0;" + "t" * 600 + "\nValueError: no\r\n\tat x")
    assert log.endswith("\nValueError: no\n  at x") and not obeyed(log)
    assert plain("x" * 100, 10) == "x" * 9 + "…" and plain(None) == "None"
