"""What of this machine is ready, each with a way out where it is not."""

from __future__ import annotations

import locale
import os
import shutil
import sys
from pathlib import Path
from typing import Literal

from msgspec import Struct

from tui_tuner import engines, gpu, paths
from tui_tuner.engines import models
from tui_tuner.model.plan import PRACTICE

Mark = Literal["ok", "warn", "bad"]
SYMBOLS: dict[Mark, str] = {"ok": "✓", "warn": "!", "bad": "✗"}
_ENGINE_GIB = {"cpu": 5, "cuda": 14}  # what `setup` needs: the environment and the downloads beside it


class Check(Struct, frozen=True):
    """One thing looked at: its state, what was seen, and the way out."""

    name: str
    mark: Mark
    say: str
    fix: str | None = None


def checks(sessions: str | None = None, engine_python: str | None = None) -> list[Check]:
    """All checks, in the order of need. Never raises; nothing is started and nothing written."""
    probe = gpu.probe()
    found = [terminal(), _card(probe), _driver(probe)]
    found += _engine(engine_python, probe)
    found += [_models(), _disk(probe), _folder(sessions)]
    return [check for check in found if check]


def terminal() -> Check:
    """Whether the app could open on this terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return Check("terminal", "warn", "none: the app cannot open here", "`tui-tuner run` works without one")
    if os.environ.get("TERM", "") in ("", "dumb"):
        return Check("terminal", "bad", "TERM says that this terminal cannot draw", "export TERM=xterm-256color")
    if "utf" not in locale.getpreferredencoding(False).lower():
        return Check("terminal", "warn", "the locale is not UTF-8", "export LC_ALL=C.UTF-8, or `tui-tuner --ascii`")
    size = shutil.get_terminal_size()
    if size.columns < 80 or size.lines < 24:
        say = f"{size.columns}×{size.lines} is small"
        return Check("terminal", "warn", say, "the screens are made for 80×24 and more")
    return Check("terminal", "ok", f"{size.columns}×{size.lines}, {os.environ.get('TERM')}")


def _card(probe: gpu.Probe) -> Check:
    card = probe.machine.gpu
    if card is None:
        memory = f"{probe.machine.memory_mib / 1024:.1f} GiB for an engine"
        return Check(
            "GPU", "warn", f"none ({probe.why or 'NVML found no card'}); CPU: {probe.machine.title}, {memory}",
            "the CPU engine and recorded sessions work without one",
        )  # fmt: skip
    memory = f", {card.vram_mib / 1024:.0f} GiB" if card.vram_mib else ""
    more = f"; {len(probe.cards)} cards, this one is used" if len(probe.cards) > 1 else ""
    return Check("GPU", "ok", f"{card.name}{memory}{more}")


def _driver(probe: gpu.Probe) -> Check | None:
    card = probe.machine.gpu
    if card is None:
        return None
    if card.driver is None:
        return Check("driver", "warn", "NVML does not tell the driver's version")
    problem = engines.setup.driver_problem(card.driver)
    if problem:
        return Check("driver", "warn", f"{card.driver} (CUDA {card.cuda or 'unknown'})", problem)
    return Check("driver", "ok", f"{card.driver} (CUDA {card.cuda or 'unknown'})")


def _engine(engine_python: str | None, probe: gpu.Probe) -> list[Check]:
    try:
        engine = engines.find(engine_python)
    except engines.NoEngine as error:
        return [Check("engine", "bad", str(error), "tui-tuner setup")]
    say = f"vLLM {engine.version} ({engine.device}), {engine.how}: {engine.python}"
    if probe.machine.gpu and engine.device == "cpu":
        return [Check("engine", "warn", say, "this machine has a card: `tui-tuner setup --engine cuda` uses it")]
    if not probe.machine.gpu and engine.device == "cuda":
        return [Check("engine", "bad", f"{say} needs a card, and none was found", "tui-tuner setup --engine cpu")]
    return [Check("engine", "ok", say)]


def _models() -> Check:
    found = models.on_disk()
    practice = models.locate(PRACTICE)
    others = [m for m in found if m.name != PRACTICE]
    if not practice and not others:
        fix = "`tui-tuner setup` makes the practice model; a Hugging Face id is downloaded"
        return Check("models", "warn", "none on this disk", fix)
    total = sum(m.mib for m in others) / 1024
    say = "the practice model" if practice else "no practice model"
    if others:
        say += f" and {len(others)} more, {total:.1f} GiB"
    return Check("models", "ok" if practice else "warn", say, None if practice else "tui-tuner setup")


def _disk(probe: gpu.Probe) -> Check:
    place = _nearest(paths.cache_dir())
    free = shutil.disk_usage(place).free / 2**30
    needed = _ENGINE_GIB["cuda" if probe.machine.gpu else "cpu"]
    if free < 1:
        fix = "free some, or set TUI_TUNER_HOME to a larger volume"
        return Check("disk", "bad", f"{free:.1f} GiB free at {place}", fix)
    if free < needed:
        return Check(
            "disk", "warn", f"{free:.1f} GiB free at {place}",
            f"an engine takes up to {needed} GiB: `tui-tuner setup --dir` takes a folder on a larger volume",
        )  # fmt: skip
    return Check("disk", "ok", f"{free:.0f} GiB free at {place}")


def _folder(sessions: str | None) -> Check:
    folder = paths.sessions_dir(sessions)
    place = _nearest(folder)
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        fix = "name another folder with --sessions or TUI_TUNER_HOME"
        return Check("sessions", "bad", f"{folder} cannot be written", fix)
    count = sum(1 for _ in folder.glob("*.jsonl")) if folder.is_dir() else 0
    return Check("sessions", "ok", f"{count} in {folder}" if count else f"will be in {folder}")


def _nearest(path: Path) -> Path:
    """The path, or the closest folder above it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path
