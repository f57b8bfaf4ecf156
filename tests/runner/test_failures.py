# ruff: noqa: E501 (an engine's words stand on one line)
"""Every symptom in words: on recorded logs, and on the engine's words set into one where none was recorded."""

from __future__ import annotations

import re
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


CPU = Machine("CPU", 2, 24_576, 20_316, "Linux")
ON_A_CPU = {  # the arguments, the status, the phase, what is said, and what to try
    "node-memory": ({"gpu_memory_utilization": 0.99}, "oom_startup", "load", "NUMA node", 0.9),
    "no-kv-memory": ({"gpu_memory_utilization": 0.02}, "oom_startup", "kv_cache", "took 1.07 GiB", 0.07),
    "max-model-len-too-long": ({"max_model_len": 100_000}, "config_error", "load", "8192", 8192),
    "batched-tokens-below-seqs": ({}, "config_error", "load", "contradict", 128),
    "unknown-argument": ({"swap_space": 4}, "config_error", "load", "no argument swap_space", None),
    "quantization-not-of-the-model": ({"quantization": "awq"}, "config_error", "load", "quantization awq", None),
    "no-such-model": ({}, "env_error", "load", "the hub was not reached", None),
    "weights-cut-off": ({}, "env_error", "load", "not whole", None),
}


@pytest.mark.parametrize("name", ON_A_CPU)
def test_failures_recorded_on_a_cpu(name: str) -> None:
    args, status, phase, words, value = ON_A_CPU[name]
    found = explain(End("load", 1, failures.read_log(LOGS / f"v0.32.0-cpu-{name}.log"), args=args, machine=CPU))
    assert (found.status, found.phase) == (status, phase) and words in found.say
    assert found.fix and found.fix.value == value and "other processes" not in found.fix.say


def test_a_cache_that_others_took_the_room_for() -> None:
    line = "ValueError: Available memory on node 0 (4.5/20.0 GiB) on kv cache allocation is less than requested memory for kv "
    found = explain(End("kv_cache", 1, raised(line + "(6.0/10.0 GiB). Reduce CPU memory used by other processes.")))
    assert found.status == "oom_startup" and found.fix and found.fix.value == 0.42, "10 - (6 - 4.5) of 20 GiB"


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


ONE_LINERS = [  # the last line of a traceback, the status, and what the person must be told
    ("ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in KV cache (46320).",
     "oom_startup", "131072"),
    ("ValueError: Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token.", "oom_startup", "nothing is left"),
    ("ValueError: max_num_batched_tokens (2048) is smaller than max_model_len (8192). This effectively limits the maximum",
     "config_error", "8192 or more"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.6 GiB", "oom_startup", "weights"),
    ("RuntimeError: Triton Error [CUDA]: out of memory", "oom_startup", "weights"),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "oom_startup", "weights"),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(handle)`", "crash", "kernel"),
    ("AssertionError: Error in memory profiling. Initial free memory 20.58 GiB, current free memory 22.54 GiB. This happens when other",
     "env_error", "another program"),
    ("ValueError: Total number of attention heads (40) must be divisible by tensor parallel size (3).", "config_error", "tensor_parallel_size 2"),
    ("pydantic_core.ValidationError: World size (4) is larger than the number of available GPUs (2) in this node.", "config_error",
     "tensor_parallel_size 2"),
    ("ValueError: No valid attention backend found for cuda with AttentionSelectorConfig(). Reasons: {FLASH_ATTN: [kv_cache_dtype not supported]}",
     "config_error", "kv_cache_dtype auto"),
    ("ValueError: torch.bfloat16 is not supported for quantization method awq. Supported dtypes: [torch.float16]", "config_error", "dtype to float16"),
    ("ValueError: Model architectures ['Ovis'] are not supported for now. Supported architectures: dict_keys(['A'])", "config_error", "Ovis"),
    ("ValueError: The checkpoint you are trying to load has model type `new_thing` but Transformers does not recognize this architecture.",
     "config_error", "new_thing"),
    ("safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer", "env_error", "cut off"),
    ("RuntimeError: Cannot find any model weights with `/models/x`", "env_error", "cut off"),
    ("RuntimeError: Failed to find C compiler. Please specify via CC environment variable.", "env_error", "gcc"),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'gcc'", "env_error", "gcc"),
    ("RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist", "env_error", "CUDA toolkit"),
    ("OSError: /lib64/libc.so.6: version `GLIBC_2.32' not found (required by /x/vllm/_C.abi3.so)", "env_error", "GLIBC_2.32"),
    ("ImportError: /x/vllm/_C.abi3.so: undefined symbol: _ZN3c104cuda9SetDeviceEab", "env_error", "_ZN3c104cuda9SetDeviceEab"),
    ("RuntimeError: operator torchvision::nms does not exist", "env_error", "torchvision"),
    ("ImportError: libcudart.so.13: cannot open shared object file: No such file or directory", "env_error", "libcudart.so.13"),
    ("RuntimeError: The NVIDIA driver on your system is too old (found version 12020).", "env_error", "driver"),
    ("RuntimeError: No CUDA GPUs are available", "env_error", "doctor"),
    ("RuntimeError: Failed to infer device type", "env_error", "doctor"),
    ("torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device", "env_error", "generation"),
    ("torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered", "crash", "Xid"),
    ("RuntimeError: Unable to determine the device handle for GPU0: GPU is lost. Reboot the system to recover this GPU", "crash", "Xid"),
    ("torch.AcceleratorError: CUDA error: an illegal memory access was encountered", "crash", "kernel"),
    ("ModuleNotFoundError: No module named 'vllm'", "env_error", "vllm"),
    ("ModuleNotFoundError: No module named 'tui_tuner.worker'", "env_error", "own folder"),
    ("ModuleNotFoundError: No module named 'msgspec'", "env_error", "msgspec"),
    ("RuntimeError: the engine's Python cannot be started: no such file", "env_error", "--engine-python"),
    ("OSError: [Errno 28] No space left on device", "env_error", "disk is full"),
    ("OSError: [Errno 24] Too many open files", "env_error", "ulimit"),
    ("OSError: [Errno 98] Address already in use", "env_error", "port"),
    ("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled cuda error", "crash", "NCCL"),
    ("RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes", "oom_startup", "memory"),
    ("huggingface_hub.errors.GatedRepoError: 401 Client Error. Cannot access gated repo", "env_error", "HF_TOKEN"),
    ("OSError: We couldn't connect to 'https://example.org' to load the files", "env_error", "HF_ENDPOINT"),
    ("OSError: x/y is not a local folder and is not a valid model identifier listed on the hub", "env_error", "spelling"),
    ("TypeError: AsyncEngineArgs.__init__() got an unexpected keyword argument 'swap_space'", "config_error", "swap_space"),
    ("ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0.", "config_error", "float16"),
    ("ValueError: The quantization method modelopt is not supported for the current GPU. Minimum capability: 89.", "config_error", "quantized another way"),
    ("ValueError: The repository x contains custom code. Please pass the argument `trust_remote_code=True` to allow custom code to be run.",
     "config_error", "read that code"),
    ("vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.", "crash",
     "killed from outside"),
    ("SomethingNew: a sentence that nobody has listed", "crash", "a sentence that nobody has listed"),
    ("ValueError: a value that nobody has listed", "config_error", "a value that nobody has listed"),
]  # fmt: skip


@pytest.mark.parametrize("case", ONE_LINERS, ids=[c[0][:40] for c in ONE_LINERS])
def test_last_words(case: tuple[str, str, str]) -> None:
    line, status, words = case
    args = {"kv_cache_dtype": "fp8"}
    failed = wire.Failed(phase="load", exception="RuntimeError", message="Engine core ...")
    found = explain(End("load", 1, raised(line), failed, args=args))
    assert found.status == status
    assert words in f"{found.say} {found.cause} {found.fix.say if found.fix else ''}"
    assert "root cause above" not in found.say and "increas" not in found.say.lower()


def raised(line: str) -> str:
    """A log in which the engine's core raises, and its parent what it always does."""
    prefix = "(EngineCore pid=7) ERROR 11-30 18:26:00 [core.py:1330] "
    log = f'{prefix}Traceback (most recent call last):\n{prefix}  File "x.py", line 1, in f\n{prefix}{line}\n'
    log += 'Traceback (most recent call last):\n  File "y.py", line 2\n'
    return log + "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"


def test_no_rule_is_without_a_log_that_it_explains() -> None:
    logs = [failures.read_log(file) for file in sorted(LOGS.glob("*.log"))] + [
        raised(line) for line, _, _ in ONE_LINERS
    ]
    texts = [failures.errors(failures.plain(log)) for log in logs]
    used = {next((i for i, (pattern, _) in enumerate(failures._RULES) if pattern.search(text)), None) for text in texts}
    unused = [pattern.pattern for i, (pattern, _) in enumerate(failures._RULES) if i not in used]
    assert not unused


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


NUMBERED = [
    *[line for line, _, _ in ONE_LINERS if any(c.isdigit() for c in line)],
    "ValueError: Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less than desired GPU memory utilization (0.9, 19.84 GiB).",
    "ValueError: To serve at least one request with the model's max seq len (262144), (24.0 GiB KV cache is needed, which is larger than "
    "the available KV cache memory (3.18 GiB). Based on the available memory, the estimated maximum model length is 34736.",
    "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests.",
    "ValueError: Available memory on node 0 (17.69/19.84 GiB) on kv cache allocation is less than requested memory for kv (-0.67/0.4 GiB).",
    "ValueError: max_num_batched_tokens (512) must be greater than or equal to max_num_seqs (1024).",
    "ValueError: User-specified max_model_len (65536) is greater than the derived max_model_len (max_position_embeddings=32768).",
]  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_numbers_that_are_none_are_explained_as_well(data: st.DataObject) -> None:
    odd = st.sampled_from(["0", "0.0", "1.2.3", ".", ",", "9" * 400, "9" * 5000, "007"])
    line = re.sub(
        r"\d[\d.,]*",
        lambda m: data.draw(odd) if data.draw(st.booleans()) else m[0],
        data.draw(st.sampled_from(NUMBERED)),
    )
    share = data.draw(st.sampled_from([0.9, 0.0, -1, 10**400, "auto", None]))
    found = explain(End("load", 1, raised(line), args={"gpu_memory_utilization": share, "max_num_batched_tokens": 0}))
    assert found.say and found.cause
    assert found.fix is None or found.fix.value is None or found.fix.value == found.fix.value, (
        "a number, if there is one"
    )


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
