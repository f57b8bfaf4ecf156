"""Without a command: the app, or why it cannot open here and which command works instead."""

from __future__ import annotations

import argparse


def app(arguments: argparse.Namespace) -> int:
    """Opens the app."""
    from tui_tuner.tui.app import run_app

    return run_app(arguments.sessions, arguments.engine_python, arguments.ascii)
