"""A runner with short waits, for faults that the real ones would take minutes to notice.

`storage` may make its disk slow, as a network's is ({"slow": seconds a sync}), or let a sync fail once
({"fails": the number of that sync}).
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from pathlib import Path

import msgspec

from tui_tuner.runner import sweep
from tui_tuner.runner.limits import Limits


def ready(problem: str | None) -> None:
    print(problem or "ok", flush=True)


def worsen(slow: float = 0.0, fails: int = 0) -> None:
    sync, count = os.fsync, 0

    def fsync(fd: int) -> None:
        nonlocal count
        count += 1
        time.sleep(slow)
        if count == fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(fd)

    os.fsync = fsync


if __name__ == "__main__":
    given = json.loads(sys.argv[2])
    worsen(**given.pop("storage", {}))
    sys.exit(sweep.run(Path(sys.argv[1]), ready, msgspec.convert(given, Limits)))
