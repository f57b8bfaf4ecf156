"""What a person asks of a running sweep: one small file a request, in a folder beside the session."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import msgspec

from tui_tuner.model import events as ev
from tui_tuner.store.library import SUFFIX

_LARGEST = 1 << 20


class NotSent(Exception):
    """The request could not be left for the runner; the text is a sentence."""


def folder_of(path: Path) -> Path:
    """Where the requests to the session's runner are left."""
    return path.with_name(path.name.removesuffix(SUFFIX) + ".asked")


def send(path: Path, asked: ev.Asked) -> None:
    """Leaves a request for the runner of the session, whole or not at all. Raises NotSent."""
    folder = folder_of(path)
    name = f"{time.time_ns():020d}-{os.getpid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        half = folder / f".{name}"
        fd = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(ev.encode(asked))
        half.rename(folder / name)
    except OSError as error:
        raise NotSent(f"the request could not be left in {folder}: {error.strerror or error}") from None


class Inbox:
    """The runner's side."""

    def __init__(self, path: Path) -> None:
        self._folder = folder_of(path)

    def poll(self) -> list[ev.Asked]:
        """The requests since the last call, oldest first, each once. Never raises: what is no request is dropped."""
        try:
            files = sorted(file for file in self._folder.iterdir() if not file.name.startswith("."))
        except OSError:
            return []
        asked: list[ev.Asked] = []
        for file in files:
            try:
                text = file.read_bytes() if file.is_file() and file.stat().st_size <= _LARGEST else b""
                file.unlink()
                event = ev.decode(text)
            except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
                continue
            if isinstance(event, ev.Asked):
                asked.append(event)
        return asked

    def close(self) -> None:
        """Takes the folder away if nothing lies in it."""
        with contextlib.suppress(OSError):
            self._folder.rmdir()
