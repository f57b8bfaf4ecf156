from pathlib import Path

import pytest

from tui_tuner import paths


def test_everything_but_the_locks_moves_with_the_home_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TUI_TUNER_HOME", str(tmp_path))
    places = [
        paths.data_dir(), paths.cache_dir(), paths.engines_dir(), paths.models_dir(), paths.facts_dir(),
        paths.sessions_dir(), paths.settings_file(),
    ]  # fmt: skip
    assert all(place.is_relative_to(tmp_path) for place in places)
    locks = paths.locks_dir()
    monkeypatch.delenv("TUI_TUNER_HOME")
    assert paths.locks_dir() == locks
    assert paths.home() is None


def test_an_override_of_the_sessions_folder_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TUI_TUNER_HOME", str(tmp_path / "home"))
    assert paths.sessions_dir(str(tmp_path / "mine")) == tmp_path / "mine"
    assert paths.sessions_dir("~/x") == Path("~/x").expanduser()
