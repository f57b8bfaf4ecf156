"""Starting a runner that outlives whoever starts it."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import time
from pathlib import Path

from tui_tuner.store import library

_WAIT = 60.0  # seconds for a runner to take its locks
_ROOT = Path(__file__).resolve().parents[2]


class NotLaunched(Exception):
    """The runner did not take the session; the text is its own sentence."""


def launch(path: Path) -> int:
    """Starts `python -m tui_tuner.runner FILE` in a session of its own; its pid, once it holds the session's lock.

    Its input is empty and its output goes to runner.log beside the engine's logs. Raises NotLaunched with a sentence.
    """
    path = path.absolute()
    logs = library.logs_dir(path)
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    try:
        logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = os.open(logs / "runner.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "tui_tuner.runner", str(path), "--ready", str(theirs)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=_ROOT,  # `-m` looks there first, so a checkout that is not installed works too
                pass_fds=(theirs,),
                start_new_session=True,
            )
        finally:
            os.close(log)
    except OSError as error:
        os.close(ours)
        raise NotLaunched(f"no runner could be started for {path.stem}: {error.strerror or error} ({logs})") from None
    finally:
        os.close(theirs)
    try:
        words = _first_words(ours)
    finally:
        os.close(ours)
    if words == "ok":
        _forget(process)
        return process.pid
    if words:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10.0)
        raise NotLaunched(words)
    code = process.poll()
    how = "did not answer" if code is None else f"ended with status {code}"
    if code is None:
        process.kill()
        process.wait()
    raise NotLaunched(f"the runner {how}; its last words: {_tail(logs / 'runner.log')}")


def _first_words(fd: int) -> str:
    """What the runner says of itself, "" if it died without a word or said nothing in time."""
    said = b""
    deadline = time.monotonic() + _WAIT
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0 and b"\n" not in said:
            if selector.select(left):
                chunk = os.read(fd, 4096)
                if not chunk:
                    break
                said += chunk
    return said.decode("utf-8", "replace").strip()


def _forget(process: subprocess.Popen[bytes]) -> None:
    # It is meant to outlive this process: no ResourceWarning when the handle goes, and no zombie kept for a poll.
    process.returncode = 0


def _tail(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return "none"
    return " ".join(lines[-3:])[-500:] or "none"
