"""Engines: the Python that has vLLM, what it knows, how one is made, and the models on this disk."""

from tui_tuner.engines import models, practice, setup
from tui_tuner.engines.inquiry import facts, resolve
from tui_tuner.engines.interpreter import NoEngine, find, save_choice

__all__ = ["NoEngine", "facts", "find", "models", "practice", "resolve", "save_choice", "setup"]
