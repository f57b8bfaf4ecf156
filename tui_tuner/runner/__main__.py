"""`python -m tui_tuner.runner FILE`: measures what is left of a session. Started by `runner.launch`."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path


def main() -> int:
    """Returns the exit status of the sweep."""
    parser = argparse.ArgumentParser(prog="python -m tui_tuner.runner", description="Measures a session to its end.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--ready", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.umask(0o077)

    def ready(problem: str | None) -> None:
        if options.ready is None:
            if problem:
                print(problem, file=sys.stderr)
            return
        with contextlib.suppress(OSError):
            os.write(options.ready, f"{problem or 'ok'}\n".encode())
        with contextlib.suppress(OSError):
            os.close(options.ready)

    if options.ready is not None:
        os.set_inheritable(options.ready, False)
    from tui_tuner.runner import processes, sweep

    processes.adopt_orphans()
    return sweep.run(options.file, ready)


if __name__ == "__main__":
    sys.exit(main())
