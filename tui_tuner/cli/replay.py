"""replay: a recorded session as it was measured. In the app where there is a terminal, else as lines."""

from __future__ import annotations

import argparse
import sys
import time

from tui_tuner import cli
from tui_tuner.cli import follow
from tui_tuner.cli.look import read
from tui_tuner.model import replay as playing
from tui_tuner.model.text import plain
from tui_tuner.store import sessionfile


def replay(arguments: argparse.Namespace) -> int:
    """Plays a session back to its end, then shows what came of it. The file is only read."""
    path, session = read(arguments, arguments.session)
    if all(f is not None and f.isatty() for f in (sys.stdin, sys.stdout, sys.stderr)):
        from tui_tuner.tui.app import run_app
        from tui_tuner.tui.records import Replay

        wanted = Replay(path, arguments.speed)
        return run_app(arguments.sessions, arguments.engine_python, arguments.ascii, replay=wanted)
    try:
        timeline = playing.Timeline(sessionfile.events(path))
    except sessionfile.Unreadable as error:
        raise cli.BadInput(str(error)) from None
    speed = arguments.speed or 0.0  # nobody watches: at once, unless a speed is asked for
    pace = playing.pace(timeline.length, speed, time.monotonic())
    day = time.strftime("%Y-%m-%d", time.gmtime(session.start.t))
    how = "at once" if speed == 0 else f"{pace.speed:g} times as fast"
    print(f"{plain(playing.label(session.start, day))}, {how}", file=sys.stderr, flush=True)
    screen = follow.Screen()
    for mark in timeline.marks():
        left = (mark - pace.position(time.monotonic())) / pace.speed
        if left > 0:
            time.sleep(left)
        screen.show(timeline.until(mark))
    screen.close()
    from tui_tuner.analysis import report

    print(report.table(timeline.until(timeline.length), session.state(sessionfile.is_locked(path))))
    return cli.OK
