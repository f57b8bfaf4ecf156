"""The card's lock: one tuner at a time on a card, whoever runs it and wherever their sessions lie."""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import re
from pathlib import Path

import msgspec
from msgspec import Struct

from tui_tuner import paths


class CardBusy(Exception):
    """Another tuner measures on this card; the text says who."""


class _Holder(Struct):
    session: str = ""
    pid: int = 0
    user: str = ""


class CardLock:
    """Held until `close`, or until this process ends in any way."""

    def __init__(self, card: str, session_id: str, folder: Path | None = None) -> None:
        """Raises CardBusy with the holder's words, OSError if the lock cannot be made."""
        folder = folder or paths.locks_dir()
        name = re.sub(r"[^A-Za-z0-9._-]", "_", card) or "card"
        self._fd = _open(folder, folder / f"{name}.lock")
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = _read(self._fd)
            os.close(self._fd)
            raise CardBusy(
                f"another tuner measures on {'this CPU' if card == 'cpu' else f'card {card}'}: {who}; "
                "two at once would measure each other"
            ) from None
        with contextlib.suppress(OSError):  # another user's file can be locked, though not written
            holder = _Holder(session_id, os.getpid(), _user())
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, msgspec.json.encode(holder) + b"\n", 0)

    def close(self) -> None:
        """Lets go of the card."""
        os.close(self._fd)


def _open(folder: Path, file: Path) -> int:
    if not folder.is_dir():
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            folder.chmod(0o1777)  # several users share it, as they share /tmp
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    for mode in (os.O_RDWR, os.O_RDONLY):  # not O_CREAT: a sticky folder refuses that for another user's file
        with contextlib.suppress(FileNotFoundError, PermissionError):
            return os.open(file, mode | flags)
    try:
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, 0o666)
    except FileExistsError:
        return os.open(file, os.O_RDONLY | flags)
    os.fchmod(fd, 0o666)
    return fd


def _read(fd: int) -> str:
    try:
        holder = msgspec.json.decode(os.pread(fd, 4096, 0), type=_Holder)
    except (OSError, msgspec.MsgspecError, ValueError):
        return "it does not say who it is"
    session = re.sub(r"[^\w.-]", "?", holder.session[:80])
    user = re.sub(r"[^\w.-]", "?", holder.user[:40])
    return f"session {session or '?'} of {user or 'somebody'}, process {holder.pid}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
