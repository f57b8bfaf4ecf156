"""Every screen, looked at as text at 80×24 and 120×40, and in windows of every size down to 1×1."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rich.cells import cell_len

from tui import fake, scenes
from tui.scenes import SCENES, Scene
from tui_tuner.tui import actions, theme
from tui_tuner.tui.screens.home import HomeScreen

by_name = pytest.mark.parametrize("scene", SCENES, ids=lambda s: s.name)


@by_name
async def test_at_80x24(scene: Scene, same_screen: Callable[[str, str], None]) -> None:
    """It looks as it did, has six keys at most, comes back from every window size, and escape leads home."""
    app = scenes.app_of(scene)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.play(scene, pilot)
        text = fake.text_of(app)
        assert max(cell_len(line) for line in text.split("\n")) <= 80
        same_screen(f"{scene.name}-80x24", text)
        shown = [b for b in app.screen.active_bindings.values() if b.binding.show and b.enabled]
        assert len(shown) <= actions.SIX
        for size in ((79, 23), (40, 12), (12, 4), (3, 2), (1, 1), (2, 60), (200, 1), (200, 60), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        await scenes.settle(pilot)
        if "log" not in scene.name:
            assert fake.text_of(app) == text
        for _ in range(12):
            if isinstance(app.screen, HomeScreen):
                break
            await pilot.press("escape")
            await scenes.settle(pilot)
        assert isinstance(app.screen, HomeScreen)


@by_name
async def test_at_120x40(scene: Scene, same_screen: Callable[[str, str], None]) -> None:
    app = scenes.app_of(scene)
    async with app.run_test(size=(120, 40)) as pilot:
        await scenes.play(scene, pilot)
        text = fake.text_of(app)
        assert max(cell_len(line) for line in text.split("\n")) <= 120
        same_screen(f"{scene.name}-120x40", text)
        assert theme.ascii_only(text).isascii()


async def test_a_small_window_says_what_it_needs() -> None:
    app = scenes.app_of(SCENES[0])
    async with app.run_test(size=(40, 10)) as pilot:
        await scenes.settle(pilot)
        text = fake.text_of(app)
        assert "40×10" in text and "80×24" in text and "sweep goes on" in text


@pytest.mark.parametrize("name", ["home", "run-card", "results-hostile", "work", "run-stop"])
async def test_nothing_but_ascii_under_ascii(name: str) -> None:
    scene = next(s for s in SCENES if s.name == name)
    events = {name: scenes.EVENTS[name]() for name in scene.sessions}
    locked = frozenset(scene.sessions) if scene.running else frozenset()
    app = fake.app(fake.FakeServices(events, locked, scene.gpu), ascii_only=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.play(scene, pilot)
        assert fake.text_of(app).isascii()


@pytest.mark.parametrize("look", ["dark", "light", "ansi-dark", "ansi-light"])
async def test_every_theme_draws_every_screen(look: str) -> None:
    app = scenes.app_of(SCENES[1])
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.play(SCENES[1], pilot)
        app.theme = look
        await pilot.pause()
        assert "Machine" in fake.text_of(app)
        await pilot.press("n", "enter", "enter", "enter")
        await scenes.settle(pilot)
        assert "max_num_seqs" in fake.text_of(app)


async def test_without_colours_the_words_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    scene = next(s for s in SCENES if s.name == "results")
    app = scenes.app_of(scene)
    async with app.run_test(size=(80, 24)) as pilot:
        await scenes.play(scene, pilot)
        assert app.no_color
        text = fake.text_of(app)
        assert "✓ keep" in text and "✓ meets" in text
        styles = {s.style for strip in app.screen._compositor.render_strips() for s in strip if s.style}
        for style in styles:
            for colour in (style.color, style.bgcolor):
                if colour is not None and colour.triplet is not None:
                    r, g, b = colour.triplet
                    assert max(r, g, b) - min(r, g, b) <= 2
