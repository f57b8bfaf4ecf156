"""Engines: the Python that has vLLM, what it knows, how one is made, and the models on this disk."""

import importlib
from typing import TYPE_CHECKING

from tui_tuner.engines.inquiry import facts, resolve
from tui_tuner.engines.interpreter import NoEngine, find, save_choice

if TYPE_CHECKING:
    from tui_tuner.engines import models, practice, setup
else:

    def __getattr__(name: str) -> object:
        """Making an engine takes modules that nobody who only looks for one should load and hold."""
        if name in ("models", "practice", "setup"):
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["NoEngine", "facts", "find", "models", "practice", "resolve", "save_choice", "setup"]
