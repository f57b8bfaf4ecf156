"""Wall time of a whole point, as a session records it, against the same work in a bare engine process.

The bare process imports vLLM, starts one AsyncLLM with the same arguments, warms up with as many windows as the point
before it took, sends as many requests of the same lengths, asks the same questions, and is killed when its results are
in. What is left is what the product adds: processes, pipe, file, statistics, sampling.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.measure import ratio
from tui_tuner import engines, evals
from tui_tuner.model import events as ev
from tui_tuner.model.load import Load
from tui_tuner.model.plan import EvalChoice, Plan, Sweep
from tui_tuner.model.session import Point
from tui_tuner.prepare import start
from tui_tuner.store import inbox, sessionfile

ROUNDS = 3
LIMIT_S = 600.0
FIXED = {"max_model_len": 1024, "enforce_eager": True, "gpu_memory_utilization": 0.3}
CLIENTS, PROMPT, OUTPUT, REQUESTS, QUESTIONS, ANSWER = 8, 128, 32, 64, 20, 64

BARE = r"""
import asyncio, json, random, sys

async def work(told):
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.sampling_params import RequestOutputKind
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.async_llm import AsyncLLM

    context = UsageContext.OPENAI_API_SERVER
    config = AsyncEngineArgs(**told["args"]).create_engine_config(context)
    engine = AsyncLLM.from_vllm_config(config, usage_context=context, disable_log_stats=False)
    words = engine.get_tokenizer()
    words = await words if asyncio.iscoroutine(words) else words
    draw = random.Random(0)
    fixed = SamplingParams(
        temperature=0.0, max_tokens=told["output"], ignore_eos=True, output_kind=RequestOutputKind.DELTA
    )
    natural = SamplingParams(
        temperature=0.0, seed=0, max_tokens=told["answer"], output_kind=RequestOutputKind.FINAL_ONLY
    )

    async def load(name, count):
        prompts = [[draw.randrange(100, 40000) for _ in range(told["prompt"])] for _ in range(count)]
        waiting = iter(range(count))

        async def client():
            for i in waiting:
                async for _ in engine.generate({"prompt_token_ids": prompts[i]}, fixed, f"{name}-{i}"):
                    pass

        await asyncio.gather(*(client() for _ in range(told["clients"])))

    async def ask(i, question):
        messages = question["messages"] or [{"role": "user", "content": question["prompt"]}]
        text = words.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = words.encode(text, add_special_tokens=False)
        async for _ in engine.generate({"prompt_token_ids": ids}, natural, f"question-{i}"):
            pass

    for window in range(told["windows"]):
        await load(f"warmup{window}", told["clients"])
    await load("speed", told["requests"])
    await asyncio.gather(*(ask(i, question) for i, question in enumerate(told["questions"])))
    print("results are in", flush=True)
    await asyncio.sleep(3600)

if __name__ == "__main__":
    asyncio.run(work(json.loads(sys.argv[1])))
"""


def plan() -> Plan:
    """A sweep whose first point is what is timed; it is stopped before the second one has done anything."""
    return Plan(
        "practice",
        Sweep("max_num_seqs", (64,)),
        fixed=dict(FIXED),
        load=Load("closed", (CLIENTS,), (), PROMPT, OUTPUT, REQUESTS),
        evalset=EvalChoice("basics", QUESTIONS, ANSWER),
    )


def ours(engine: str, sessions: Path) -> Point:
    """The baseline of a session of its own, from the runner's first word of it to its last."""
    examined = start.examine(plan(), engine, sessions=sessions)
    path = start.begin(examined, sessions)
    until = time.monotonic() + LIMIT_S
    follower = sessionfile.Follower(path)
    point = None
    asked = False
    while time.monotonic() < until:
        session = follower.poll()
        point = session.point(1) if session else point
        if point and point.ended is not None and not asked:
            asked = True
            inbox.send(path, ev.Asked(time.time(), "stop"))
        if asked and not sessionfile.is_locked(path):
            break
        time.sleep(0.2)
    if point is None or point.status != "ok":
        raise SystemExit(f"the point is {point.status if point else 'missing'}: {point.say if point else ''}")
    return point


def windows(point: Point) -> int:
    """How many windows its warm-up took."""
    return sum(1 for phase in point.phases if phase.name == "warmup" and (phase.detail or "").startswith("window"))


def bare(engine: str, model: str, count: int) -> float:
    """Seconds from the start of the bare process until its results are in."""
    drawn = evals.sample(evals.load("basics"), QUESTIONS, 0)
    questions = [
        {"messages": question.messages, "prompt": question.prompt} for question in (i.question() for i in drawn)
    ]
    told = {
        "args": {"model": model, **FIXED}, "clients": CLIENTS, "prompt": PROMPT, "output": OUTPUT,
        "requests": REQUESTS, "answer": ANSWER, "windows": count, "questions": questions,
    }  # fmt: skip
    env = {**os.environ, "VLLM_WORKER_MULTIPROC_METHOD": "spawn", "VLLM_NO_USAGE_STATS": "1"}
    with tempfile.TemporaryDirectory(prefix="tt-bench-") as folder, (Path(folder) / "log").open("wb") as log:
        script = Path(folder) / "bare.py"
        script.write_text(BARE)
        began = time.perf_counter()
        process = subprocess.Popen(
            [engine, str(script), json.dumps(told)], cwd=folder, env=env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=log, start_new_session=True, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            # vLLM may write on standard output too.
            found = any(line.startswith("results are in") for line in process.stdout)
            seconds = time.perf_counter() - began
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()
        if not found:
            raise SystemExit((Path(folder) / "log").read_text(errors="replace")[-3000:])
    time.sleep(2.0)
    return seconds


def main() -> None:
    engine = engines.find()
    model = str(engines.practice.ensure(engine))
    mine, other, shares = [], [], []
    with tempfile.TemporaryDirectory(prefix="tt-bench-") as folder:
        bare(engine.python, model, 1)  # the files of the engine and the model come from memory from here on
        for _ in range(ROUNDS):
            point = ours(engine.python, Path(folder))
            assert point.ended is not None
            mine.append(point.ended - point.began)
            other.append(bare(engine.python, model, windows(point)))
            shares.append(mine[-1] / other[-1])
            print(
                f"  a point {mine[-1]:.1f} s, bare {other[-1]:.1f} s, {windows(point)} windows of warm-up each: "
                f"{shares[-1]:.2f}",
                flush=True,
            )
    ratio(
        "a point / the same work in a bare engine process", statistics.median(mine), statistics.median(other), "≤ 1.05"
    )
    print(f"  median of the pairs' own ratios {statistics.median(shares):.2f}", flush=True)
