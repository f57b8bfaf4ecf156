"""Work beside the event loop, in daemon threads: a slow disk or engine delays an answer, never a key or the exit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")
_ARENA_MAX = -8  # M_ARENA_MAX of glibc's malloc.h


def share_memory() -> None:
    """Has all threads allocate from one place, where the C library is glibc: else each of ours, short-lived as they
    are, takes an arena of its own, and the process keeps several megabytes more for good."""
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)


async def apart(job: Callable[[], T]) -> T:
    """What `job` returns or raises, run in a thread of its own.

    The loop's own executor is not used: it is joined at exit, and an answer nobody waits for would hold the terminal.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = job()
        except BaseException as raised:  # noqa: BLE001 (it belongs to whoever awaits)
            error = raised
        with suppress(RuntimeError):  # the app has ended meanwhile
            loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=run, name="tui-service", daemon=True).start()
    return await done
