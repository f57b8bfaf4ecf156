"""The app in a terminal of 80×24: first frame, processor, bytes on the wire and memory, beside a bare Textual app.

The bare app mounts as many widgets of the same kinds (title, lines, list, charts, footer with as many keys) and knows
nothing else. The run screen follows a session that this process writes to twice a second, as a runner would.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import pty
import random
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from benchmarks.measure import ratio
from tui_tuner.model import events as ev
from tui_tuner.model.load import Load
from tui_tuner.model.machine import Engine, Gpu, Machine
from tui_tuner.model.plan import EvalChoice, Plan, Price, Sweep
from tui_tuner.model.slo import Slo
from tui_tuner.store import sessionfile

COLUMNS, ROWS = 80, 24
FRAMES = 9  # first frames of each
SETTLE_S, FOLLOW_S = 8.0, 30.0
HZ = 2.0

BARE = r"""
import sys
from textual.app import App
from textual.containers import Vertical
from textual.widgets import Footer, OptionList, Static

LINES = {"home": 2, "run": 5}

class Bare(App):
    ANIMATION_LEVEL = "none"
    CSS = "Static { height: 1; } OptionList { height: 1fr; } #inner { height: auto; } Footer { height: 1; }"
    BINDINGS = [(key, "quit", f"Action {key}") for key in "abcdef"]

    def compose(self):
        yield Static("Title", markup=False)
        yield Vertical(*(Static(f"Machine   {n}", markup=False) for n in range(3)), id="inner")
        yield from (Static(f"Line {n}", markup=False) for n in range(LINES[sys.argv[1]]))
        yield OptionList("one", "two", "three", "four", markup=False, compact=True)
        yield Footer(show_command_palette=False, compact=True)

Bare().run(mouse=False)
"""


class Terminal:
    """A process in a pseudo-terminal; everything it writes is counted."""

    def __init__(self, command: Sequence[str], env: dict[str, str] | None = None) -> None:
        self._master, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.text = bytearray()
        self._grew = threading.Condition()
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # the app leaves when it has no terminal
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8", **(env or {})},
        )
        os.close(theirs)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:
                data = b""
            with self._grew:
                self.text += data
                self._grew.notify_all()
            if not data:
                return

    def wait_for(self, mark: bytes, seconds: float = 30.0) -> float:
        """Seconds from the start until `mark` was written."""
        with self._grew:
            if not self._grew.wait_for(lambda: mark in self.text, seconds):
                raise SystemExit(f"no {mark!r} within {seconds:.0f} s: {bytes(self.text[-2000:])!r}")
        return time.perf_counter() - self.began

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._thread.join(5.0)
        os.close(self._master)


# ---- a session that grows ----------------------------------------------------------------------------------------

CARD = Gpu("GPU-0", "NVIDIA H200", 0, (9, 0), 143_771, 615, "580.159.04")
MACHINE = Machine("a server", 16, 131_072, None, "Linux", 1, CARD)


def begun(values: Sequence[int], now: float) -> tuple[ev.SessionStart, list[ev.AnyEvent]]:
    """A sweep on a card, all but its last value measured; each point has the ticks of two minutes."""
    plan = Plan(
        "Qwen/Qwen2.5-7B-Instruct",
        Sweep("max_num_seqs", tuple(values)),
        slo=Slo("chat", "throughput", {"ttft_p95_ms": 2000.0, "tpot_p95_ms": 50.0}),
        load=Load("closed", (64,), (), 512, 128, 256),
        evalset=EvalChoice("basics", 60, 64),
        price=Price(2.0),
    )
    t = now - 180.0 * (len(values) + 1)
    start = ev.SessionStart(t, ev.FORMAT, "bench", plan, 256, MACHINE, Engine("python", "bench", "0.26.0", "cuda"))
    made: list[ev.AnyEvent] = [ev.Launched(t, os.getpid(), "bench")]
    for n, value in enumerate((256, *values), 1):
        made += point(n, value, t, n <= len(values))
        t += 180.0
    return start, made


def point(n: int, value: int, t: float, over: bool) -> Iterator[ev.AnyEvent]:
    yield ev.PointStarted(t, n, "baseline" if n == 1 else "value", value)
    for late, phase in enumerate(("spawn", "import", "load", "compile", "kv_cache", "graphs", "ready", "warmup")):
        yield ev.Phase(t + 5 * late, n, phase)  # type: ignore[arg-type]
    yield ev.Capacity(t + 40, n, 11_191, 16, 179_056, 43.7, backend="FLASH_ATTN")
    yield ev.Phase(t + 45, n, "speed")
    for i in range(240):
        yield tick(n, t + 45 + i / HZ, i)
    if not over:
        return
    count, each = 256, 0.08
    sent = [i * each for i in range(count)]
    first = [s + 0.18 + 0.01 * (i % 17) for i, s in enumerate(sent)]
    last = [f + 127 * 0.0062 for f in first]
    yield ev.Requests(
        t + 170, n, 64.0, "closed", count * each, sent, sent, list(first), list(last), [512] * count, [128] * count,
        ["length"] * count, [[62] * 127] * count, 512 * count, 0, 0,
    )  # fmt: skip
    names = [f"item-{i}" for i in range(60)]
    yield ev.Answers(t + 174, n, names, ["42"] * 60, [float(i % 4 > 0) for i in range(60)], ["stop"] * 60, [2] * 60)
    yield ev.PointDone(t + 176, n, "ok", peak_mib=27_671)
    yield ev.Clean(t + 178, n, True, 1.0)


def tick(n: int, t: float, i: int) -> ev.Tick:
    """What a busy engine shows: a rate that trembles, a cache that fills and empties, memory that hardly moves."""
    draw = random.Random(i)
    used = 0.45 + 0.4 * math.sin(i / 9) + draw.uniform(-0.03, 0.03)
    return ev.Tick(
        t, n, 2600 + draw.gauss(0, 90), 48 + draw.randrange(16), draw.randrange(9), used, i // 50,
        27_300 + draw.randrange(40), 640 + draw.gauss(0, 15), 58 + draw.randrange(3), 1980, 4, i * 310.0,
    )  # fmt: skip


@contextlib.contextmanager
def growing(folder: Path) -> Iterator[Path]:
    """The session's file, with its lock held and a tick appended at 2 Hz until the block ends."""
    path = folder / "bench.jsonl"
    start, made = begun((16, 32, 64, 128), time.time())
    sessionfile.create(path, start)
    writer = sessionfile.Writer.open(path)
    for event in made:
        writer.append(event, sync=False)
    over = threading.Event()

    def grow() -> None:
        i = 240
        while not over.wait(1.0 / HZ):
            writer.append(tick(5, time.time(), i), sync=False)
            i += 1

    thread = threading.Thread(target=grow, daemon=True)
    thread.start()
    try:
        yield path
    finally:
        over.set()
        thread.join()
        writer.close()


# ---- what is measured --------------------------------------------------------------------------------------------


def first_frame(command: Sequence[str], mark: bytes = b"Machine") -> tuple[float, float]:
    """Seconds until the first frame was written, and the processor seconds that it took."""
    with Terminal(command) as terminal:
        seconds = terminal.wait_for(mark)
        used = psutil.Process(terminal.process.pid).cpu_times()
        return seconds, used.user + used.system


def rss_mib(terminal: Terminal) -> float:
    """Resident memory; what both sides share with others counts on both."""
    return float(psutil.Process(terminal.process.pid).memory_info().rss) / 2**20


def settled_mib(command: Sequence[str], mark: bytes = b"Machine") -> float:
    """The memory of a screen that nobody touches."""
    with Terminal(command) as terminal:
        terminal.wait_for(mark)
        time.sleep(SETTLE_S)
        return rss_mib(terminal)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tt-bench-") as name:
        folder = Path(name)
        script = folder / "bare.py"
        script.write_text(BARE)
        sessions = folder / "sessions"
        sessions.mkdir(mode=0o700)
        app = [sys.executable, "-m", "tui_tuner", "--sessions", str(sessions)]
        bare = [sys.executable, str(script)]
        _frames(app, [*bare, "home"])
        ratio(
            "memory of the home screen / a bare Textual app",
            settled_mib(app), settled_mib([*bare, "home"]), "≤ 1.3", "MiB",
        )  # fmt: skip
        _run_screen(app, [*bare, "run"], sessions)


def _frames(app: Sequence[str], bare: Sequence[str]) -> None:
    first_frame(app), first_frame(bare)  # compiles what is not compiled yet
    pairs = [(*first_frame(app), *first_frame(bare)) for _ in range(FRAMES)]
    ours, used, other, without = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio("first frame / a bare Textual app with the same widgets", ours, other, "≤ 1.3")
    ratio("  of it, processor time", used, without, "printed")


def _run_screen(app: Sequence[str], bare: Sequence[str], sessions: Path) -> None:
    without = settled_mib(bare)
    # The app opens on the session that is running: what a person sees who comes back to a sweep.
    with growing(sessions), Terminal(app) as terminal:
        terminal.wait_for(b"GPU blocks")
        time.sleep(SETTLE_S)
        process = psutil.Process(terminal.process.pid)
        used, sent, began = process.cpu_times(), len(terminal.text), time.perf_counter()
        time.sleep(FOLLOW_S)
        took = time.perf_counter() - began
        now, got = process.cpu_times(), len(terminal.text)
        memory = rss_mib(terminal)
    share = (now.user + now.system - used.user - used.system) / took * 100
    print(f"{'run screen following at 2 Hz, share of a core':<58} {share:6.1f} % (goal ≤ 3 %)", flush=True)
    print(f"{'run screen at 80×24, bytes a second':<58} {(got - sent) / took / 1024:6.1f} KiB/s (goal ≤ 8 KiB/s)")
    ratio("memory of the run screen, its session in it / a bare app", memory, without, "≤ 1.3", "MiB")
