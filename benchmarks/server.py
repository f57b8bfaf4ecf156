"""Our speed pass against vLLM's own benchmark client and its own server: same arguments, lengths and concurrency.

Both sides get prompts that their engine has never seen, after a warm-up of other prompts. Launches alternate. In
process there is no HTTP between client and engine, so a ratio a little above 1 in tok/s is what one expects.

    python -m benchmarks server --model PATH --concurrency 16 128 --launches 3 --arg gpu_memory_utilization=0.17
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tui_tuner
from tui_tuner.analysis import points
from tui_tuner.model import events as ev
from tui_tuner.model import wire
from tui_tuner.model.load import Load
from tui_tuner.model.slo import Slo

METRICS = ("tok/s", "TTFT p50 ms", "TPOT p50 ms")
LOW, HIGH = 0.95, 1.10
PRACTICE = {"max_model_len": 1024, "enforce_eager": True, "gpu_memory_utilization": 0.3}
READY_S, QUIET_S = 900.0, 1800.0
# The `vllm` command may be missing where the library is whole, so that its modules are called.
CLIENT = """
import sys
from vllm.benchmarks import serve
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
serve.add_cli_args(parser)
serve.main(parser.parse_args(sys.argv[1:]))
"""

Figures = tuple[float, float, float]  # as METRICS


def options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks server", description=__doc__)
    parser.add_argument("--engine-python", help="the Python that has vLLM; without it, the one that tui-tuner finds")
    parser.add_argument("--model", help="a folder or a hub's id; without it, the practice model")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[8])
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--output-tokens", type=int, default=32)
    parser.add_argument("--requests", type=int, help="at each level; without it, four a client and at least 64")
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument(
        "--arg", action="append", default=[], metavar="NAME=JSON", help="an engine argument by vLLM's name, repeatable"
    )
    chosen = parser.parse_args(argv)
    chosen.requests = chosen.requests or max(64, 4 * max(chosen.concurrency))
    chosen.args = {} if chosen.model else dict(PRACTICE)
    for text in chosen.arg:
        name, _, value = text.partition("=")
        try:
            chosen.args[name.replace("-", "_")] = json.loads(value)
        except ValueError:
            chosen.args[name.replace("-", "_")] = value
    if not chosen.engine_python or not chosen.model:
        from tui_tuner import engines

        engine = engines.find(chosen.engine_python)
        chosen.engine_python = chosen.engine_python or engine.python
        chosen.model = chosen.model or str(engines.practice.ensure(engine))
    return chosen


# ---- both sides ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def started(command: Sequence[str], folder: Path, env: dict[str, str], fds: tuple[int, ...] = ()) -> Iterator[Any]:
    """A process in a group of its own that is gone when the block ends; its output is in `folder`/log."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "VLLM_WORKER_MULTIPROC_METHOD": "spawn", "VLLM_NO_USAGE_STATS": "1", **env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=fds,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        until = time.monotonic() + 60
        while _members(process.pid) and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(2.0)  # a card's memory is given back a moment later


def _members(group: int) -> bool:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, _, of = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(of) == group and state != "Z":
                    return True
    return False


def tail(folder: Path) -> str:
    return (folder / "log").read_text(errors="replace")[-3000:]


# ---- ours: the worker, spoken to as the runner does --------------------------------------------------------------


def ours(chosen: argparse.Namespace, seed: int) -> list[Figures]:
    """One launch; the figures of each level."""
    load = Load("closed", tuple(chosen.concurrency), (), chosen.prompt_tokens, chosen.output_tokens)
    args = {"model": chosen.model, **chosen.args}
    return _point(chosen.engine_python, wire.Task(args=args, load=load, requests=chosen.requests, seed=seed))


def _point(python: str, task: wire.Task) -> list[Figures]:
    with tempfile.TemporaryDirectory(prefix="tt-bench-") as name:
        folder = Path(name)
        (folder / "lib").mkdir()
        (folder / "lib" / "tui_tuner").symlink_to(Path(tui_tuner.__file__).parent)
        theirs_in, to = os.pipe()
        from_, theirs_out = os.pipe()
        command = [python, "-m", "tui_tuner.worker", "--in", str(theirs_in), "--out", str(theirs_out)]
        env = {"PYTHONPATH": str(folder / "lib")}
        with started(command, folder, env, (theirs_in, theirs_out)):
            os.close(theirs_in)
            os.close(theirs_out)
            os.write(to, wire.encode(task))
            found: list[Figures] = []
            with os.fdopen(from_, "rb") as lines:
                for line in lines:
                    message = wire.from_worker.decode(line)
                    if isinstance(message, wire.Level):
                        found.append(figures(message))
                    elif isinstance(message, wire.Failed):
                        raise SystemExit(f"our engine failed: {message.exception}: {message.message}\n{tail(folder)}")
                    elif isinstance(message, wire.Finished):
                        break
            os.close(to)
            if len(found) < len(task.load.levels()):
                raise SystemExit(f"our engine ended before its results were in\n{tail(folder)}")
    return found


def figures(rows: wire.Level) -> Figures:
    """As the product works them out."""
    event = ev.Requests(
        0.0, 1, rows.level, rows.kind, rows.ended - rows.began, rows.planned, rows.sent, rows.first, rows.last,
        rows.prompt_tokens, rows.output_tokens, rows.finish, rows.gaps, rows.prefix_queries, rows.prefix_hits,
    )  # fmt: skip
    level = points.level_figures(event, Slo())
    if rows.prefix_hits:
        print(f"  note: {rows.prefix_hits:,} of {rows.prefix_queries:,} prompt tokens were in the prefix cache")
    return level.output_tok_s, level.ttft.p50 or 0.0, level.tpot.p50 or 0.0


# ---- theirs: vLLM's server and its benchmark client --------------------------------------------------------------


def theirs(chosen: argparse.Namespace, seed: int) -> list[Figures]:
    """One launch of the server, and the client at each level, each after a warm-up of other prompts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [chosen.engine_python, "-m", "vllm.entrypoints.openai.api_server", "--model", chosen.model]
    command += ["--host", "127.0.0.1", "--port", str(port), *flags(chosen.args)]
    with tempfile.TemporaryDirectory(prefix="tt-bench-") as name:
        folder = Path(name)
        (folder / "client").mkdir()
        with started(command, folder, {}) as server:
            _ready(server, port, folder)
            found: list[Figures] = []
            _client(chosen, folder, port, chosen.concurrency[0], seed * 1000)
            for number, level in enumerate(chosen.concurrency, 1):
                told = _client(chosen, folder, port, level, seed * 1000 + number)
                found.append((told["output_throughput"], told["median_ttft_ms"], told["median_tpot_ms"]))
    return found


def flags(args: dict[str, Any]) -> list[str]:
    """Engine arguments as a command line has them."""
    found: list[str] = []
    for name, value in args.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            found.append(flag if value else f"--no-{name.replace('_', '-')}")
        elif value is not None:
            found += [flag, json.dumps(value) if isinstance(value, dict | list) else str(value)]
    return found


def _ready(server: Any, port: int, folder: Path) -> None:
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        if server.poll() is not None:
            raise SystemExit(f"vLLM's server ended with {server.returncode}\n{tail(folder)}")
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return
        time.sleep(0.5)
    raise SystemExit(f"vLLM's server was not ready after {READY_S:.0f} s\n{tail(folder)}")


def _client(chosen: argparse.Namespace, folder: Path, port: int, level: int, seed: int) -> dict[str, Any]:
    """One run of the client; `seed` decides its prompts."""
    requests = chosen.requests
    result = folder / f"result-{seed}.json"
    command = [
        chosen.engine_python, "-c", CLIENT,
        "--backend", "openai", "--base-url", f"http://127.0.0.1:{port}", "--endpoint", "/v1/completions",
        "--model", chosen.model, "--dataset-name", "random", "--seed", str(seed),
        "--random-input-len", str(chosen.prompt_tokens), "--random-output-len", str(chosen.output_tokens),
        "--random-range-ratio", "0", "--num-prompts", str(requests), "--max-concurrency", str(level),
        "--request-rate", "inf", "--ignore-eos", "--temperature", "0", "--disable-tqdm",
        # The ready check sends the first prompt, which would be in the cache when it counts.
        "--ready-check-timeout-sec", "0",
        "--save-result", "--result-dir", str(folder), "--result-filename", result.name,
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=folder / "client", stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=QUIET_S
    )
    if done.returncode or not result.exists():
        raise SystemExit(f"vLLM's benchmark client failed\n{(done.stdout + done.stderr)[-3000:]}")
    told: dict[str, Any] = json.loads(result.read_text())
    if told["completed"] != requests:
        raise SystemExit(f"vLLM's client had {told['completed']} of {requests} answers\n{done.stdout[-2000:]}")
    if told["total_output_tokens"] != requests * chosen.output_tokens:
        print(f"  note: vLLM's client counted {told['total_output_tokens']:,} output tokens")
    return told


# ---- the table -------------------------------------------------------------------------------------------------


def judge(mine: Sequence[float], other: Sequence[float]) -> str:
    """Whether the ratio of the medians is within the goal, and if not, whether the launches' own spread explains it:
    then the two ranges, each widened by itself once, still meet."""
    ratio = statistics.median(mine) / statistics.median(other)
    if LOW <= ratio <= HIGH:
        return "within"
    if len(mine) < 2 or len(other) < 2:
        return "outside; one launch has no spread"
    slack = (max(mine) - min(mine) + max(other) - min(other)) / 2
    apart = max(min(mine) - max(other), min(other) - max(mine), 0.0)
    return "outside, and the spread explains it" if apart <= slack else "outside"


def spread(values: Sequence[float]) -> str:
    """The median, and the lowest and highest where there are several."""
    middle = f"{statistics.median(values):,.1f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):,.1f} to {max(values):,.1f})"


def main(argv: Sequence[str] = ()) -> None:
    chosen = options(argv)
    print(
        f"server: {Path(chosen.model).name}, {chosen.prompt_tokens} in, {chosen.output_tokens} out, "
        f"{chosen.launches} launches each, alternating; engine arguments {json.dumps(chosen.args)}",
        flush=True,
    )
    runs: tuple[list[list[Figures]], list[list[Figures]]] = ([], [])
    for launch in range(chosen.launches):
        for side, (name, measure) in enumerate((("ours", ours), ("vLLM", theirs))):
            runs[side].append(measure(chosen, launch + 1))
            told = "; ".join(
                f"at {level}: " + ", ".join(f"{v:,.1f} {m}" for v, m in zip(row, METRICS, strict=True))
                for level, row in zip(chosen.concurrency, runs[side][-1], strict=True)
            )
            print(f"  launch {launch + 1} {name:<5} {told}", flush=True)
    print(
        f"{'':<24} {'ratio':>6}   {'ours, median (range)':<34} {'vLLM client and server':<34} goal {LOW} to {HIGH:.2f}"
    )
    for place, level in enumerate(chosen.concurrency):
        for number, metric in enumerate(METRICS):
            mine = [run[place][number] for run in runs[0]]
            other = [run[place][number] for run in runs[1]]
            ratio = statistics.median(mine) / statistics.median(other)
            print(
                f"{f'{metric} at {level}':<24} {ratio:6.2f}   {spread(mine):<34} {spread(other):<34} "
                f"{judge(mine, other)}",
                flush=True,
            )
