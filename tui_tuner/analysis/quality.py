"""Quality against the baseline: the same items, answered twice, counted pair by pair."""

from __future__ import annotations

from msgspec import Struct

from tui_tuner.analysis import stats
from tui_tuner.model import events as ev

ALPHA = 0.05


class Flip(Struct, frozen=True):
    """An item whose score changed: `won` is true where the baseline had it wrong."""

    item: str
    won: bool
    before: str
    after: str


class Comparison(Struct, frozen=True):
    """The answers of a point beside those of its baseline. Shares are 0..1, `could_see` an accuracy difference.

    fell / rose   more items lost than won (or won than lost) with exact McNemar p below 0.05
    unlike        why these are not answers to build on: more of them cut off, or without sense, than at the baseline
    """

    items: int
    scored: int
    accuracy: float | None
    base_accuracy: float | None
    lost: int
    won: int
    p: float
    fell: bool
    rose: bool
    could_see: float | None
    identical: float
    cut_off: int
    base_cut_off: int
    length_ratio: float | None
    unlike: str | None = None
    agreement: bool = False  # nothing is scored: texts were compared with the baseline's
    flips: tuple[Flip, ...] = ()

    @property
    def flip_share(self) -> float:
        return (self.lost + self.won) / self.scored if self.scored else 0.0


def compare(base: ev.Answers | None, here: ev.Answers | None, again: ev.Answers | None = None) -> Comparison | None:
    """`here` against `base` over the items that both hold; None where there are none.

    `again` is the repeated baseline: its flips are the yardstick for what two equal launches change, and where
    nothing is scored, its disagreements with the first baseline stand against the point's.
    """
    if base is None or here is None:
        return None
    before = {item: i for i, item in enumerate(base.item)}
    pairs = [(before[item], j) for j, item in enumerate(here.item) if item in before]
    if not pairs:
        return None
    scored = [(i, j) for i, j in pairs if base.score[i] is not None and here.score[j] is not None]
    flips = [
        Flip(here.item[j], (here.score[j] or 0) > (base.score[i] or 0), base.text[i], here.text[j])
        for i, j in scored
        if base.score[i] != here.score[j]
    ]
    lost, won = sum(not f.won for f in flips), sum(f.won for f in flips)
    yard = compare(base, again) if again is not None else None
    agreement = not scored
    if agreement:
        lost, won = _disagreements(base, here, again)
    p = stats.mcnemar(lost, won)
    count = len(scored) or len(pairs)
    accuracy = sum(here.score[j] or 0 for _, j in scored) / len(scored) if scored else None
    base_accuracy = sum(base.score[i] or 0 for i, _ in scored) / len(scored) if scored else None
    base_tokens = sum(base.tokens[i] for i, _ in pairs if i < len(base.tokens))
    tokens = sum(here.tokens[j] for _, j in pairs if j < len(here.tokens))
    could_see = stats.detectable_drop(count, round(yard.flip_share, 3) if yard else 0.0)
    if could_see is not None and base_accuracy is not None and could_see > base_accuracy:
        could_see = None  # there is not that much to lose
    return Comparison(
        items=len(pairs),
        scored=len(scored),
        accuracy=accuracy,
        base_accuracy=base_accuracy,
        lost=lost,
        won=won,
        p=p,
        fell=p < ALPHA and lost > won,
        rose=p < ALPHA and won > lost,
        could_see=could_see,
        identical=sum(base.text[i] == here.text[j] for i, j in pairs) / len(pairs),
        cut_off=sum(here.finish[j] == "length" for _, j in pairs),
        base_cut_off=sum(base.finish[i] == "length" for i, _ in pairs),
        length_ratio=tokens / base_tokens if base_tokens else None,
        unlike=_unlike(base, here, pairs),
        agreement=agreement,
        flips=tuple(flips),
    )


def _disagreements(base: ev.Answers, here: ev.Answers, again: ev.Answers | None) -> tuple[int, int]:
    """Items in which only the point, and only the repeated baseline, departs from the baseline's text."""
    if again is None:
        return 0, 0
    texts, repeated = dict(zip(base.item, base.text, strict=True)), dict(zip(again.item, again.text, strict=True))
    lost = won = 0
    for item, text in zip(here.item, here.text, strict=True):
        if item in texts and item in repeated:
            departs, departed = text != texts[item], repeated[item] != texts[item]
            lost += departs and not departed
            won += departed and not departs
    return lost, won


def _unlike(base: ev.Answers, here: ev.Answers, pairs: list[tuple[int, int]]) -> str | None:
    cut = [(base.finish[i] == "length", here.finish[j] == "length") for i, j in pairs]
    more, fewer = sum(b and not a for a, b in cut), sum(a and not b for a, b in cut)
    if stats.mcnemar(more, fewer) < ALPHA:
        a, b = sum(x for x, _ in cut), sum(x for _, x in cut)
        return f"another number of answers was cut off at the token limit ({b} of {len(pairs)}, the baseline {a})"
    garbage = [(senseless(base.text[i]), senseless(here.text[j])) for i, j in pairs]
    more, fewer = sum(b and not a for a, b in garbage), sum(a and not b for a, b in garbage)
    if more > fewer and stats.mcnemar(more, fewer) < ALPHA:
        return f"{sum(b for _, b in garbage)} of {len(pairs)} answers are garbage"
    return None


def senseless(text: str) -> bool:
    """Whether a text is empty, hardly holds a letter or digit, or says the same over and over."""
    stripped = text.strip()
    if not any(c.isalnum() for c in stripped):
        return True
    if stripped.count("\ufffd") * 5 > len(stripped):
        return True
    if len(stripped) < 40:
        return False
    if len(set(stripped)) <= 4:
        return True
    words = stripped.split()
    return len(words) >= 12 and len(set(words)) * 5 < len(words)
