# ruff: noqa: E501 (an engine's words stand on one line)
"""Every symptom in words: on recorded logs, and on the engine's words set into one where none was recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui_tuner.model import wire
from tui_tuner.model.machine import Gpu, Machine
from tui_tuner.runner import failures
from tui_tuner.runner.failures import End, explain, highest_share

LOGS = Path(__file__).resolve().parents[1] / "logs"
H200 = Machine(gpu=Gpu("GPU-1", "H200", vram_mib=143_771))

RECORDED = {
    "batched-tokens-below-seqs": ("config_error", "max_num_batched_tokens", 1024),
    "gpu-already-used": ("oom_startup", "gpu_memory_utilization", 0.99),
    "max-model-len-too-long": ("config_error", "max_model_len", 32768),
    "no-kv-memory": ("oom_startup", "gpu_memory_utilization", 0.11),
    "utilization-out-of-range": ("config_error", "gpu_memory_utilization", 0.95),
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_failures(name: str) -> None:
    log = failures.read_log(LOGS / f"v0.26.0-h200-{name}.log")
    args = {"gpu_memory_utilization": 0.098 if name == "no-kv-memory" else 0.998, "max_num_batched_tokens": 8192}
    found = explain(End("import", 1, log, args=args, machine=H200))
    assert found.fix and (found.status, found.fix.field, found.fix.value) == RECORDED[name]
    assert "root cause" not in found.cause and "increas" not in found.say.lower()
    assert str(found.fix.value) in found.fix.say


@pytest.mark.parametrize(
    "log", [*sorted(p.name for p in LOGS.glob("v*-ready*.log")), "v0.26.0-h200-serve-under-load.log"]
)
def test_a_good_log_is_not_blamed(log: str) -> None:
    found = explain(End("speed", -9, failures.read_log(LOGS / log)))
    assert (found.status, found.cause) == ("crash", "killed by signal 9 (SIGKILL)")


def synthetic(name: str) -> str:
    text = (LOGS / f"synthetic-{name}.log").read_text()
    assert text.startswith("# synthetic"), "a log that nobody recorded says so"
    return text


SYNTHETIC = [
    # log, phase, args, status, phase told, field, value
    ("cpu-node-memory", "load", {}, "oom_startup", "load", "gpu_memory_utilization", 0.88),
    ("rtx-free-memory", "load", {}, "oom_startup", "load", "gpu_memory_utilization", 0.89),
    ("max-seq-len-does-not-fit", "kv_cache", {}, "oom_startup", "kv_cache", "max_model_len", 34736),
    ("sampler-warm-up", "kv_cache", {}, "oom_startup", "kv_cache", "max_num_seqs", 512),
    ("graphs-out-of-memory", "graphs", {"gpu_memory_utilization": 0.98}, "oom_startup", "graphs", "gpu_memory_utilization", 0.96),
    ("core-timed-out", "load", {}, "timeout", "load", None, None),
]  # fmt: skip


@pytest.mark.parametrize("case", SYNTHETIC, ids=[c[0] for c in SYNTHETIC])
def test_synthetic_logs(case: tuple[str, str, dict[str, object], str, str, str | None, object]) -> None:
    name, phase, args, status, told, field, value = case
    found = explain(End(phase, 1, synthetic(name), args=args, machine=H200))  # type: ignore[arg-type]
    assert (found.status, found.phase) == (status, told)
    assert found.fix and (found.fix.field, found.fix.value) == (field, value)
    assert "increas" not in f"{found.say} {found.fix.say}".lower()


ONE_LINERS = [
    ("RuntimeError: operator torchvision::nms does not exist", "env_error", "torchvision"),
    ("ImportError: libcudart.so.13: cannot open shared object file: No such file or directory", "env_error", "libcudart.so.13"),
    ("ModuleNotFoundError: No module named 'vllm'", "env_error", "vllm"),
    ("torch.AcceleratorError: CUDA error: an illegal memory access was encountered", "crash", "kernel"),
    ("OSError: [Errno 28] No space left on device", "env_error", "disk is full"),
    ("RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes", "oom_startup", "memory"),
    ("huggingface_hub.errors.GatedRepoError: 401 Client Error. Cannot access gated repo", "env_error", "HF_TOKEN"),
    ("OSError: x/y is not a local folder and is not a valid model identifier listed on the hub", "env_error", "spelling"),
    ("TypeError: AsyncEngineArgs.__init__() got an unexpected keyword argument 'swap_space'", "config_error", "swap_space"),
    ("ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0.", "config_error", "float16"),
    ("SomethingNew: a sentence that nobody has listed", "crash", "a sentence that nobody has listed"),
    ("ValueError: a value that nobody has listed", "config_error", "a value that nobody has listed"),
]  # fmt: skip


@pytest.mark.parametrize("case", ONE_LINERS, ids=[c[0][:40] for c in ONE_LINERS])
def test_last_words(case: tuple[str, str, str]) -> None:
    line, status, words = case
    prefix = "(EngineCore pid=7) ERROR 11-30 18:26:00 [core.py:1330] "
    log = f'{prefix}Traceback (most recent call last):\n{prefix}  File "x.py", line 1, in f\n{prefix}{line}\n'
    log += (
        'Traceback (most recent call last):\n  File "y.py", line 2\nRuntimeError: Engine core initialization failed. '
    )
    log += "See root cause above. Failed core proc(s): {}\n"
    found = explain(End("load", 1, log, wire.Failed(phase="load", exception="RuntimeError", message="Engine core ...")))
    assert found.status == status
    assert words in f"{found.say} {found.cause} {found.fix.say if found.fix else ''}"


def test_information_is_not_an_error() -> None:
    log = "INFO 11-30 18:26:00 [x.py:1] No space left on device was seen last week\nException ignored in: <f>\n"
    log += 'Traceback (most recent call last):\n  File "x.py"\nTypeError: nothing\n'
    assert explain(End("load", 3, log)).cause == "the engine ended with exit status 3"


def test_the_killer_is_only_named_when_the_kernel_says_so() -> None:
    assert explain(End("speed", -9)).status == "crash"
    told = explain(End("speed", -9, oom_kill="its cgroup counts a kill", args={"gpu_memory_utilization": 0.5}))
    assert told.status == "oom_runtime" and "out-of-memory" in told.say
    assert explain(End("load", 137)).cause == "killed by signal 9 (SIGKILL)"


def test_what_fits_is_rounded_down() -> None:
    assert highest_share(11.57, 13.09) == 0.88
    assert highest_share(19.77, 22.05) == 0.89
    assert highest_share(9.0, 10.0) == 0.89, "not a hair above what is free"


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=400) | st.binary(max_size=400).map(lambda b: b.decode("utf-8", "replace")))
def test_any_log_is_explained(text: str) -> None:
    for log in (text, f"Traceback (most recent call last):\n  x\n{text}"):
        found = explain(End("load", 1, log))
        assert found.say and found.cause and "\x1b" not in found.say + found.cause


def test_a_log_of_one_endless_line_costs_no_more_than_its_length() -> None:
    for piece in (
        "max_num_batched_tokens ",
        "Traceback (most recent call last):",
        "://",
        "a.",
        "\x1b]0;",
        "1 validation error for X\n",
    ):
        assert explain(End("load", 1, piece * (1_000_000 // len(piece)))).say
