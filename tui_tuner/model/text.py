"""Text from outside, made safe to show: no escape codes, no control or direction-changing characters."""

from __future__ import annotations

import unicodedata

# Cc control, Cf format (bidi overrides, zero-width), Cs surrogates, Co private, Zl/Zp line separators.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def plain(text: str, limit: int = 2000, keep_lines: bool = False) -> str:
    """`text` with every character that a terminal could obey replaced by `·`, cut to `limit` characters.

    `keep_lines` lets line feeds and tabs through, for text that is shown as a block.
    """
    kept = "".join(
        c if (keep_lines and c in "\n\t") or unicodedata.category(c) not in _HIDDEN else ("·" if c.strip() else " ")
        for c in text[:limit]
    )
    return kept + ("…" if len(text) > limit else "")
