"""The web page: whole, without anything that runs or asks the network, and text from a session stays text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import making as m
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tui_tuner.analysis import page
from tui_tuner.model import events as ev
from tui_tuner.model.plan import Sweep
from tui_tuner.model.session import Session, fold
from tui_tuner.store import sessionfile

RECORDED = sorted((Path(__file__).parents[2] / "sessions").glob("*.jsonl"))
EVIL = "</style></pre><script>alert(1)</script>&amp;\"'><img src=http://x onerror=y>\x1b[31m\u202e"
VOID = {"meta"}


class Read(HTMLParser):
    """What a browser would see: elements in balance, their attributes, their text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.append((self.open[-1], data))

    def words(self, tag: str) -> str:
        return " ".join(text for own, text in self.texts if own == tag)


def read(session: Session) -> Read:
    found = Read(page.html(session))
    allowed = {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "div", "table", "tr", "th", "td", "svg",
        "rect", "path", "circle", "text", "ul", "ol", "li", "dl", "dt", "dd", "details", "summary", "pre",
    }  # fmt: skip
    assert {tag for tag, _ in found.seen} <= allowed
    for tag, attributes in found.seen:
        assert not {name for name in attributes if name.startswith("on") or name in ("src", "href", "style")}, tag
    return found


def whole() -> Session:
    texts = m.answers(12, n=2, text="another answer")
    session = m.quick(
        m.point(2, "value", 8, 150.0, given=texts), m.point(3, "value", 9, tok_s=None, status="oom_startup")
    )
    return replace(session, start=replace(session.start, plan=m.plan(knob=Sweep("max_num_seqs", (8, 9)))))


def test_the_page_says_what_the_session_says() -> None:
    found = read(whole())
    assert "+50 % tok/s" in found.words("p") and "no memory is left try 0.90" in found.words("td")
    assert [a["colspan"] for tag, a in found.seen if tag == "td" and "colspan" in a] == ["10"]
    assert "150" in found.words("text") and "TTFT p95, limit 5 s" in found.words("h2")
    assert "0 lost, 2 won of 20" in found.words("h2") and found.words("summary").count("won") == 2
    assert "vllm serve practice --max-num-seqs 1" in found.words("pre")


def test_bars_are_as_long_as_their_figures_and_a_near_limit_is_drawn() -> None:
    text = page.html(m.quick(m.point(2, "value", 8, 200.0, ttft_ms=4000.0, tpot_ms=100.0)))
    chart = text.split("Output tokens a second", 1)[1].split("</svg>")[0]
    widths = [float(w) for w in re.findall(r'<rect [^>]*width="([\d.]+)"', chart)]
    assert widths == [pytest.approx(widths[1] / 2, abs=0.1), max(widths), pytest.approx(widths[1] / 2, abs=0.1)]
    assert 'class="limit"' in text.split("TTFT p95, limit")[1].split("</svg>")[0]
    assert 'class="limit"' not in chart


def test_several_levels_are_one_line_in_the_curve() -> None:
    levels = tuple(m.rows(t, level=c, ttft_ms=f) for c, t, f in ((1.0, 40.0, 100.0), (8.0, 200.0, 900.0)))
    curve = page.html(m.quick(m.point(2, "value", 8, levels=levels))).split("each load level")[1].split("</svg>")[0]
    assert curve.count("<circle") == 3 and len(re.findall(r'class="path"', curve)) == 1
    places = [(float(x), float(y)) for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', curve)]
    assert places[2][0] > places[1][0] and places[2][1] < places[1][1]  # slower to the right, faster upwards


def test_dummy_weights_say_nothing_of_quality() -> None:
    session = m.quick(m.point(2, "value", 8, 150.0, given=m.answers(3, n=2)), begin=m.start(dummy_weights=True))
    found = read(session)
    assert "nothing is said of quality" in found.words("dd")
    assert "Accuracy, with its 95 % interval" not in found.words("h2") and not found.words("summary")


def test_hostile_text_is_text_everywhere() -> None:
    plan = m.plan(model=EVIL, knob=Sweep("max_num_seqs", (EVIL,)), fixed={EVIL: EVIL, "dtype": EVIL})
    begin = m.start(plan, prediction=EVIL)
    point = m.point(2, "value", EVIL, 150.0, given=m.answers(3, n=2, text=EVIL))
    broken = m.point(3, "value", EVIL, tok_s=None)
    failed = replace(broken, failed=ev.PointFailed(1.0, 3, "crash", "load", EVIL, EVIL, ev.Fix(EVIL)))
    session = m.quick(point, failed, begin=begin)
    found = read(replace(session, decisions=(ev.Decision(1.0, "keep", EVIL, EVIL, override=True),)))
    text = page.html(session)
    assert "<script" not in text and "\x1b" not in text and "\u202e" not in text
    assert "<script>" in found.words("td")  # shown, not obeyed


@given(st.floats(allow_nan=False, width=64), st.floats(min_value=0.0, allow_infinity=True))
def test_nothing_leaves_the_picture(value: float, top: float) -> None:
    assert 0.0 <= page._share(value, top) <= 1.0


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.stem)
def test_every_part_of_a_recorded_session_is_a_page(path: Path) -> None:
    events = [e for e in sessionfile.events(path) if not isinstance(e, ev.Tick)]
    for k in range(1, len(events) + 1):
        read(fold(events[:k]))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 400))
def test_many_flips_are_cut_short(lost: int) -> None:
    base = m.point(1, "baseline", 1, right=400, given=m.answers(400, 400, n=1))
    session = m.quick(m.point(2, "value", 8, given=m.answers(400 - lost, 400, n=2)), base=base)
    assert page.html(session).count("<summary>") == min(lost, 40)
