"""The detached process that measures: it alone writes to a session while it lives."""

from tui_tuner.runner.launch import NotLaunched, launch

__all__ = ["NotLaunched", "launch"]
