"""Numbers and moments as a person reads them: one way of writing each, with its unit."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tui_tuner.model.values import label
from tui_tuner.tui.clean import plain
from tui_tuner.tui.theme import FAILED, MEETS, RUNNING, Mood

if TYPE_CHECKING:
    from tui_tuner.model.session import State

NOTHING = "–"
STATES: dict[State, tuple[str, Mood]] = {
    "running": (f"{RUNNING} running", "busy"),
    "finished": (f"{MEETS} finished", "good"),
    "stopped": ("○ stopped", "quiet"),
    "failed": (f"{FAILED} failed", "bad"),
    "interrupted": (f"{FAILED} interrupted", "bad"),
}


def number(value: float | None, digits: int = 0) -> str:
    """A number with thousands marked: 1,204 or 0.92; a dash where there is none."""
    return NOTHING if value is None else f"{value:,.{digits}f}"


def rate(value: float | None) -> str:
    """Tokens per second, with as many digits as mean something."""
    return number(value, 1 if value is not None and abs(value) < 100 else 0)


def ms(value: float | None) -> str:
    """Milliseconds, as seconds from ten of them on."""
    if value is None:
        return NOTHING
    if value >= 10_000:
        return f"{value / 1000:,.1f} s"
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms"


def mib(value: float | None) -> str:
    """Memory given in MiB; as GiB from ten of them on."""
    if value is None:
        return NOTHING
    return f"{value / 1024:,.1f} GiB" if value >= 10 * 1024 else f"{value:,.0f} MiB"


def seconds(value: float | None) -> str:
    """A duration: 45 s, 12 min, 1 h 05 min."""
    if value is None:
        return NOTHING
    whole = round(max(value, 0))
    if whole < 100:
        return f"{whole} s"
    minutes = round(whole / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def percent(share: float | None, digits: int = 0) -> str:
    """A share of one as a percentage."""
    return NOTHING if share is None else f"{share * 100:.{digits}f} %"


def difference(share: float | None) -> str:
    """A change against the baseline, always with its sign."""
    if share is None:
        return NOTHING
    digits = 1 if abs(share) < 0.0995 else 0
    text = f"{share * 100:+.{digits}f} %"
    return text.replace("-", "−")


def money(amount: float | None, currency: str) -> str:
    """An amount of money: 0.42 CNY."""
    return NOTHING if amount is None else f"{amount:,.2f} {plain(currency, 8)}"


def moment(t: float, now: float | None = None) -> str:
    """When something was: the time today, the day before that."""
    then, today = time.localtime(t), time.localtime(time.time() if now is None else now)
    if then[:3] == today[:3]:
        return time.strftime("today %H:%M", then)
    return time.strftime("%m-%d %H:%M" if then[0] == today[0] else "%Y-%m-%d", then)


def day(t: float) -> str:
    """The day of something that is long over: 2026-12-01."""
    return time.strftime("%Y-%m-%d", time.localtime(t))


def value(v: Any) -> str:
    """A knob's value, short and safe."""
    return plain(label(v), 200)


def count(n: int, one: str, many: str | None = None) -> str:
    """`3 points`, `1 point`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"
