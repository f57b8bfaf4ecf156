"""Text from outside, made safe to show: no escape codes, no control or direction-changing characters."""

from __future__ import annotations

import re
import unicodedata

# Unicode categories. Cc: controls and escapes, Cf: bidi overrides, joiners and other invisible marks, Cs: lone
# surrogates, Co and Cn: private and unassigned, whose width no terminal agrees on; Zl and Zp would break a line.
UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
LONGEST = 4000  # characters of one text that are ever shown, where nothing else is said
# Control sequences, operating system commands such as a window's title or a link (bounded: one that never ends would
# take the rest with it), and escapes of one letter.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]{0,512}(?:\x07|\x1b\\)?|[@-Z\\-_])")


def escaped(document: str, yaml: bool = False) -> str:
    """JSON with every character that a terminal could obey as an escape sequence of JSON's, or of `yaml`'s.

    It is the same data: only strings can hold such characters.
    """
    if document.isascii() and "\x7f" not in document:
        return document
    unsafe = {c for c in set(document) if c not in "\n\t" and unicodedata.category(c) in UNSAFE}
    return document.translate({ord(c): _escape(ord(c), yaml) for c in unsafe})


def _escape(point: int, yaml: bool) -> str:
    if point < 0x10000:
        return f"\\u{point:04x}"
    if yaml:
        return f"\\U{point:08x}"
    point -= 0x10000
    return f"\\u{0xD800 + (point >> 10):04x}\\u{0xDC00 + (point & 0x3FF):04x}"


def plain(text: object, limit: int = LONGEST, keep_lines: bool = False) -> str:
    """`text` without anything that a terminal could obey, on one line, cut to `limit` characters with an ellipsis.

    Escape sequences go as a whole. `keep_lines` lets line feeds through, for text that is shown as a block.
    """
    whole = str(text)
    kept = safe(whole[: 2 * limit])  # what is taken out takes no room, within bounds
    if not keep_lines:
        kept = kept.replace("\n", " ")
    return kept if len(kept) <= limit and len(whole) <= 2 * limit else kept[: limit - 1] + "…"


def safe(text: str) -> str:
    """`text` of any length without escape sequences and anything else that a terminal could obey.

    Lines stay lines; a tab becomes two spaces, another character that is only space one.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\t", "  ")
    unsafe = {c for c in set(text) if c != "\n" and unicodedata.category(c) in UNSAFE}
    return text.translate({ord(c): " " if c.isspace() else None for c in unsafe})
