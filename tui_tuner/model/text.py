"""Text from outside, made safe to show: no escape codes, no control or direction-changing characters."""

from __future__ import annotations

import unicodedata

# Unicode categories. Cc: controls and escapes, Cf: bidi overrides, joiners and other invisible marks, Cs: lone
# surrogates, Co and Cn: private and unassigned, whose width no terminal agrees on; Zl and Zp would break a line.
UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def plain(text: str, limit: int = 2000, keep_lines: bool = False) -> str:
    """`text` with every character that a terminal could obey replaced by `·`, cut to `limit` characters.

    `keep_lines` lets line feeds and tabs through, for text that is shown as a block.
    """
    kept = "".join(
        c if (keep_lines and c in "\n\t") or unicodedata.category(c) not in UNSAFE else ("·" if c.strip() else " ")
        for c in text[:limit]
    )
    return kept + ("…" if len(text) > limit else "")
