"""The catalogue of knobs: what moves in which direction, never by how much.

A knob is one entry of `CATALOGUE` and one help page, `tui/help/knobs/NAME.md`. Types, ranges and defaults are
not here: they are read from the installed vLLM (`Facts`, filled by the worker's `introspect`), because they
differ between versions, cards and models. The facts below were checked against vLLM 0.26.0 to 0.33.0.
"""

from __future__ import annotations

import difflib
from typing import Any, Literal

from msgspec import Struct

from tui_tuner.model.values import Value

Group = Literal["capacity", "batch shape", "reuse", "latency", "scaling"]
Kind = Literal["int", "float", "bool", "choice", "table"]
Direction = Literal["up", "down", "flat", "depends"]  # of the figure itself: ttft "up" means a longer wait
Quality = Literal["measure", "untouched", "check"]
Figure = Literal["throughput", "ttft", "tpot", "itl", "kv_tokens", "vram", "startup"]


class Knob(Struct, frozen=True):
    """One engine argument, as knowledge.

    `directions` tells which way each figure goes when the knob is raised (turned on, or moved from its default to
    the more compact choice), *where it binds*; `when` says when that is. `derived` lists the fields of the
    resolved configuration that follow the knob by themselves, as `section.field` patterns (fnmatch).
    """

    name: str  # vLLM's own argument name
    flag: str
    group: Group
    kind: Kind
    title: str  # a few words
    directions: dict[Figure, Direction]
    trades: str
    when: str
    raise_means: str  # "more memory for the KV cache", for a sentence about the direction
    quality: Quality = "untouched"
    load: str | None = None  # the load in which it can show, in words; None: any
    derived: tuple[str, ...] = ()
    config_field: str | None = None  # where the resolved configuration keeps it: "cache_config.cache_dtype"
    suggested: tuple[Value, ...] = ()  # where no machine fact suggests better
    step: float | None = None  # the smallest sensible step
    warning: str | None = None
    symptoms: tuple[str, ...] = ()  # what a person sees when this is the knob to try


class FieldFacts(Struct, frozen=True):
    """What the installed vLLM says of one engine argument."""

    name: str
    type: str = ""
    declared_default: Any = None
    effective_default: Any = None  # as a server resolves it on this machine
    low: float | None = None
    high: float | None = None
    low_open: bool = False  # `low` itself is not allowed
    high_open: bool = False
    choices: list[str] | None = None
    flags: list[str] = []
    doc: str = ""
    deprecated: bool = False


class Facts(Struct, frozen=True):
    """What introspection of one engine's Python found; cached per version and device."""

    version: str
    device: str  # cuda, cpu, or "" where vLLM could not tell
    torch: str = ""
    package: str = "vllm"
    fields: dict[str, FieldFacts] = {}


class Resolution(Struct, frozen=True):
    """What the installed vLLM makes of one set of arguments: its configuration, or its complaint."""

    resolved: dict[str, Any] = {}
    field: str | None = None
    problem: str | None = None


# ---- the catalogue ---------------------------------------------------------------------------------------------

# The step's budget of tokens, and what vLLM sizes by it.
_BUDGET = (
    "scheduler_config.max_num_batched_tokens", "scheduler_config.max_num_scheduled_tokens",
    "scheduler_config.max_num_encoder_input_tokens", "scheduler_config.encoder_cache_size",
    "compilation_config.compile_ranges_*", "compilation_config.compile_sizes",
)  # fmt: skip
_GRAPHS = ("compilation_config.cudagraph_capture_sizes", "compilation_config.max_cudagraph_capture_size")
_BACKEND = (
    "attention_config.*", "cache_config.block_size", "cache_config.*_block_size", "cache_config.kv_cache_layout",
    "compilation_config.cudagraph_mode", "compilation_config.splitting_ops", "compilation_config.pass_config.*",
)  # fmt: skip

_ALL = (
    Knob(
        name="gpu_memory_utilization",
        flag="--gpu-memory-utilization",
        group="capacity",
        kind="float",
        title="share of the memory",
        directions={
            "throughput": "up", "ttft": "down", "tpot": "flat", "itl": "flat", "kv_tokens": "up", "vram": "up",
            "startup": "flat",
        },
        trades="memory headroom: too high and it does not start, or runs out of memory under load",
        when="only while requests wait or are preempted for KV cache; otherwise more blocks change nothing",
        raise_means="a larger share of the memory, and so more KV blocks",
        load="more requests at once than the KV cache holds",
        config_field="cache_config.gpu_memory_utilization",
        suggested=(0.8, 0.9, 0.94),
        step=0.01,
        warning=(
            "A share of the card's total memory, not of what is free, and no ceiling: CUDA graphs (before vLLM 0.29) "
            "and allocations under load come on top. 1.0 never starts."
        ),
        symptoms=("requests wait while the KV cache is full", "preemptions under load", "out of memory at start"),
    ),
    Knob(
        name="max_num_seqs",
        flag="--max-num-seqs",
        group="batch shape",
        kind="int",
        title="sequences at once",
        directions={
            "throughput": "up", "ttft": "down", "tpot": "up", "itl": "up", "kv_tokens": "flat", "vram": "up",
            "startup": "flat",
        },
        trades="latency of each request: a wider batch makes every step longer",
        when="while requests wait and the KV cache has room; beyond what the KV cache holds the surplus is preempted",
        raise_means="more requests in one step",
        load="more clients than the smallest value",
        derived=(*_BUDGET, *_GRAPHS),
        config_field="scheduler_config.max_num_seqs",
        suggested=(16, 32, 64, 128, 256),
        step=1,
        warning="max_num_batched_tokens must be at least as large.",
        symptoms=("requests wait while the KV cache has room", "TPOT too high with many clients (lower it)"),
    ),
    Knob(
        name="max_num_batched_tokens",
        flag="--max-num-batched-tokens",
        group="batch shape",
        kind="int",
        title="tokens a step",
        directions={
            "throughput": "up", "ttft": "down", "tpot": "depends", "itl": "up", "kv_tokens": "down", "vram": "up",
            "startup": "flat",
        },
        trades="time to first token against smooth token gaps: prefill and decode share one budget a step",
        when=(
            "prompts arrive while others decode. In a closed loop in which all arrive at once, fewer tokens can lower "
            "TTFT too"
        ),
        raise_means="more prompt tokens in one step",
        load="open arrivals and mixed prompt lengths, so that prefill meets running decodes",
        derived=(*_BUDGET, *_GRAPHS, "scheduler_config.max_num_seqs"),
        config_field="scheduler_config.max_num_batched_tokens",
        suggested=(2048, 4096, 8192),
        step=16,
        warning="Must be at least max_num_seqs; without chunked prefill at least max_model_len.",
        symptoms=("TTFT too high without a queue (raise it)", "single long gaps between tokens (lower it)"),
    ),
    Knob(
        name="enable_prefix_caching",
        flag="--enable-prefix-caching",
        group="reuse",
        kind="bool",
        title="prefix caching",
        directions={
            "throughput": "up", "ttft": "down", "tpot": "flat", "itl": "flat", "kv_tokens": "flat", "vram": "flat",
            "startup": "flat",
        },
        trades="almost nothing: a hash per block; cached blocks are given up when memory is short",
        when="prompts share a beginning (a system prompt, a document, a conversation); else it changes nothing",
        raise_means="prompt beginnings that were seen before are not computed again",
        load="a shared prefix",
        derived=("cache_config.mamba_*", "scheduler_config.disable_hybrid_kv_cache_manager"),
        config_field="cache_config.enable_prefix_caching",
        suggested=(True, False),
        symptoms=("TTFT too high although prompts share their beginning",),
    ),
    Knob(
        name="quantization",
        flag="--quantization",
        group="capacity",
        kind="choice",
        title="quantized weights",
        directions={
            "throughput": "up", "ttft": "depends", "tpot": "down", "itl": "down", "kv_tokens": "up", "vram": "down",
            "startup": "depends",
        },
        trades="some output quality: it must be measured",
        when=(
            "decode is bound by memory bandwidth, or the KV cache is short; 4-bit weights gain little in large batches "
            "and long prefills. fp8 arithmetic needs compute capability 8.9"
        ),
        raise_means="smaller weights, which leaves memory for the KV cache and less to read for each token",
        quality="measure",
        derived=(
            "model_config.quantization*", "model_config.dtype", "kernel_config.*", "compilation_config.pass_config.*",
            "compilation_config.custom_ops", "compilation_config.splitting_ops", "cache_config.cache_dtype",
            "load_config.*",
        ),
        config_field="model_config.quantization",
        suggested=(None, "fp8"),
        warning=(
            "AWQ and GPTQ are other checkpoints: name them as variants, { label = \"AWQ\", model = \"…-AWQ\" }. The "
            "flag quantizes nothing by itself except for online methods such as fp8."
        ),
        symptoms=("TPOT too high with few clients", "the weights fill the memory"),
    ),
    Knob(
        name="kv_cache_dtype",
        flag="--kv-cache-dtype",
        group="capacity",
        kind="choice",
        title="KV cache format",
        directions={
            "throughput": "up", "ttft": "flat", "tpot": "flat", "itl": "flat", "kv_tokens": "up", "vram": "flat",
            "startup": "flat",
        },
        trades="KV precision: quality must be measured, on long prompts too",
        when="the KV cache is short or contexts are long; with room to spare it changes nothing",
        raise_means="about twice the KV tokens in the same memory",
        quality="measure",
        load="more requests at once than the KV cache holds, or long contexts",
        derived=(*_BACKEND, "cache_config.calculate_kv_scales"),
        config_field="cache_config.cache_dtype",
        suggested=("auto", "fp8"),
        warning="fp8 may change the attention backend, which can be the larger effect; the log tells.",
        symptoms=("requests wait while the KV cache is full", "preemptions under load"),
    ),
    Knob(
        name="max_model_len",
        flag="--max-model-len",
        group="capacity",
        kind="int",
        title="longest request",
        directions={
            "throughput": "flat", "ttft": "flat", "tpot": "flat", "itl": "flat", "kv_tokens": "flat", "vram": "flat",
            "startup": "flat",
        },
        trades="the longest request: longer ones are refused, not cut",
        when="a start fails because one request of full length would not fit; the KV cache itself does not grow",
        raise_means="longer requests are admitted",
        quality="check",
        derived=(*_BUDGET, *_GRAPHS, "scheduler_config.max_model_len", "model_config.spec_target_max_model_len"),
        config_field="model_config.max_model_len",
        suggested=(2048, 4096, 8192, 16384),
        step=16,
        warning="Set it once, to the longest prompt plus answer that is needed.",
        symptoms=("it does not start: one request of full length does not fit",),
    ),
    Knob(
        name="enforce_eager",
        flag="--enforce-eager",
        group="latency",
        kind="bool",
        title="no graphs, no compiler",
        directions={
            "throughput": "down", "ttft": "flat", "tpot": "up", "itl": "up", "kv_tokens": "depends", "vram": "down",
            "startup": "down",
        },
        trades="decode speed for a quick start and the memory of CUDA graphs",
        when="always on a GPU: graphs save the most where steps are short, with few clients and small models",
        raise_means="every step is launched kernel by kernel",
        derived=("compilation_config.*", "kernel_config.*", "optimization_level"),
        config_field="model_config.enforce_eager",
        suggested=(False, True),
        warning="For debugging and for a card where graph capture runs out of memory; left on by mistake it is costly.",
        symptoms=("TPOT too high with few clients (is it on?)", "out of memory during graph capture"),
    ),
    Knob(
        name="enable_chunked_prefill",
        flag="--enable-chunked-prefill",
        group="batch shape",
        kind="bool",
        title="chunked prefill",
        directions={
            "throughput": "depends", "ttft": "depends", "tpot": "down", "itl": "down", "kv_tokens": "flat",
            "vram": "flat", "startup": "flat",
        },
        trades="the TTFT of a single long prompt for smooth gaps of all others",
        when="long prompts arrive while others decode",
        raise_means="a long prompt is spread over several steps, between the decodes of others",
        load="open arrivals with long prompts",
        derived=(*_BUDGET, *_GRAPHS, "scheduler_config.max_num_seqs"),
        config_field="scheduler_config.enable_chunked_prefill",
        suggested=(True, False),
        warning=(
            "vLLM does not officially support turning it off: the engine may crash or answer wrongly. Off, "
            "max_num_batched_tokens must be at least max_model_len, and is raised to it by default."
        ),
        quality="check",
        symptoms=("the gaps between tokens grow when a long prompt arrives",),
    ),
    Knob(
        name="speculative_config",
        flag="--speculative-config",
        group="latency",
        kind="table",
        title="speculative decoding",
        directions={
            "throughput": "depends", "ttft": "flat", "tpot": "down", "itl": "down", "kv_tokens": "down", "vram": "up",
            "startup": "up",
        },
        trades="computation: drafts that are not accepted are wasted, which hurts in a full batch",
        when="few clients and text that can be foreseen (code, extraction, RAG); it turns against you in large batches",
        raise_means="several tokens are proposed and checked in one step",
        quality="check",
        load="natural text at concurrencies 1, 4 and 16",
        derived=(
            *_BUDGET, *_GRAPHS, "scheduler_config.async_scheduling", "scheduler_config.*lookahead*",
            "parallel_config.disable_nccl_for_dp_synchronization", "compilation_config.cudagraph_mode",
            "compilation_config.pass_config.*", "model_config.spec_target_max_model_len",
            "scheduler_config.max_num_seqs",
        ),
        config_field="speculative_config",
        suggested=(
            {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_min": 2, "prompt_lookup_max": 4},
            {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 2, "prompt_lookup_max": 4},
            {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 2, "prompt_lookup_max": 4},
        ),
        warning=(
            "ngram also switches async scheduling off (through vLLM 0.32), and before 0.30 the model runner: part of "
            "the difference is theirs. Give prompt_lookup_min and prompt_lookup_max both."
        ),
        symptoms=("TPOT too high for a single stream",),
    ),
    Knob(
        name="tensor_parallel_size",
        flag="--tensor-parallel-size",
        group="scaling",
        kind="int",
        title="cards for one model",
        directions={
            "throughput": "up", "ttft": "down", "tpot": "down", "itl": "down", "kv_tokens": "up", "vram": "down",
            "startup": "up",
        },
        trades="cards, and communication between them in every layer",
        when="the model does not fit on one card, or one card is too slow; without NVLink it may not pay",
        raise_means="each layer is split over more cards",
        quality="check",
        derived=(
            *_BUDGET, *_GRAPHS, "parallel_config.*", "compilation_config.*", "kernel_config.*",
            "scheduler_config.max_num_seqs", "scheduler_config.async_scheduling",
        ),
        config_field="parallel_config.tensor_parallel_size",
        suggested=(1, 2, 4),
        step=1,
        warning="The model's attention heads must be divisible by it, and there must be as many cards.",
        symptoms=("the weights do not fit on one card", "TPOT too high and the batch is small"),
    ),
    Knob(
        name="long_prefill_token_threshold",
        flag="--long-prefill-token-threshold",
        group="batch shape",
        kind="int",
        title="tokens a step of one prompt",
        directions={
            "throughput": "depends", "ttft": "depends", "tpot": "flat", "itl": "down", "kv_tokens": "flat",
            "vram": "flat", "startup": "flat",
        },
        trades="the TTFT of long prompts for that of short ones",
        when="short requests starve behind long prompts; 0 is off",
        raise_means="one long prompt may take no more than so many tokens of a step",
        load="open arrivals with mixed prompt lengths",
        derived=("scheduler_config.long_prefill_token_threshold_*",),
        config_field="scheduler_config.long_prefill_token_threshold",
        suggested=(0, 512, 1024, 2048),
        step=16,
        warning="Not above max_model_len.",
        symptoms=("short prompts wait behind long ones", "single long gaps between tokens"),
    ),
    Knob(
        name="max_cudagraph_capture_size",
        flag="--max-cudagraph-capture-size",
        group="latency",
        kind="int",
        title="largest graph",
        directions={
            "throughput": "up", "ttft": "flat", "tpot": "down", "itl": "down", "kv_tokens": "depends", "vram": "up",
            "startup": "up",
        },
        trades="memory and start-up time for graphs of larger batches",
        when="batches are larger than the largest captured size, or capture runs out of memory (lower it)",
        raise_means="larger batches run from a graph",
        load="as many clients as the largest value",
        derived=("compilation_config.cudagraph_capture_sizes", "compilation_config.cudagraph_mode"),
        config_field="compilation_config.max_cudagraph_capture_size",
        suggested=(32, 64, 128, 256),
        step=8,
        warning="Without effect on a CPU and with enforce_eager.",
        symptoms=("out of memory during graph capture",),
    ),
    Knob(
        name="async_scheduling",
        flag="--async-scheduling",
        group="latency",
        kind="bool",
        title="scheduling beside the step",
        directions={
            "throughput": "up", "ttft": "flat", "tpot": "down", "itl": "down", "kv_tokens": "flat", "vram": "flat",
            "startup": "flat",
        },
        trades="nothing known; on by default where it is possible",
        when="steps are short, so that the host's work between them shows; off only to find a fault",
        raise_means="the next step is planned while this one runs",
        derived=("parallel_config.disable_nccl_for_dp_synchronization",),
        config_field="scheduler_config.async_scheduling",
        suggested=(True, False),
        warning="A CPU engine and some speculative methods switch it off whatever is asked.",
        symptoms=("short steps with gaps between them",),
    ),
    Knob(
        name="stream_interval",
        flag="--stream-interval",
        group="latency",
        kind="int",
        title="tokens a message",
        directions={
            "throughput": "up", "ttft": "flat", "tpot": "flat", "itl": "up", "kv_tokens": "flat", "vram": "flat",
            "startup": "flat",
        },
        trades="smooth streaming: after the first, tokens come in groups",
        when="hundreds of streams, where the host's work for each token shows",
        raise_means="more tokens are collected before they are sent",
        load="hundreds of clients",
        config_field="scheduler_config.stream_interval",
        suggested=(1, 4, 8),
        step=1,
        symptoms=("the host is busy and the card is not, with very many streams",),
    ),
    Knob(
        name="attention_backend",
        flag="--attention-backend",
        group="latency",
        kind="choice",
        title="attention kernels",
        directions={
            "throughput": "depends", "ttft": "depends", "tpot": "depends", "itl": "depends", "kv_tokens": "flat",
            "vram": "depends", "startup": "depends",
        },
        trades="portability: another card, model or KV format may refuse it",
        when="long contexts, where attention is a large part of a step",
        raise_means="other kernels compute attention",
        quality="check",
        derived=_BACKEND,
        config_field="attention_config.backend",
        suggested=("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN"),
        warning="A backend that does not fit the card or the KV format fails at start. A CPU engine has only its own.",
        symptoms=("TPOT grows with the length of the context",),
    ),
    Knob(
        name="kv_cache_memory_bytes",
        flag="--kv-cache-memory-bytes",
        group="capacity",
        kind="int",
        title="KV cache in bytes",
        directions={
            "throughput": "up", "ttft": "down", "tpot": "flat", "itl": "flat", "kv_tokens": "up", "vram": "up",
            "startup": "down",
        },
        trades="the safety net: nothing is profiled, so too much runs out of memory",
        when="as for gpu_memory_utilization; exact, so that two launches have the same blocks",
        raise_means="a larger KV cache, exactly",
        load="more requests at once than the KV cache holds",
        config_field="cache_config.kv_cache_memory_bytes",
        suggested=(1 << 30, 2 << 30, 4 << 30),
        step=float(1 << 20),
        warning="It replaces gpu_memory_utilization for the size, but not for the check of free memory at start.",
        symptoms=("the number of KV blocks differs from launch to launch",),
    ),
    Knob(
        name="block_size",
        flag="--block-size",
        group="capacity",
        kind="int",
        title="tokens a KV block",
        directions={
            "throughput": "flat", "ttft": "flat", "tpot": "flat", "itl": "flat", "kv_tokens": "down", "vram": "flat",
            "startup": "flat",
        },
        trades="the grain of prefix hits, and up to a block of waste for each sequence",
        when="rarely; the attention backend chooses a size that suits it",
        raise_means="fewer, larger blocks",
        derived=("cache_config.user_specified_block_size", "cache_config.*block_size", "attention_config.*"),
        config_field="cache_config.block_size",
        suggested=(16, 32, 64),
        step=16,
        warning="On CUDA a multiple of 16 that the attention backend accepts; a wrong one fails only at start.",
    ),
    Knob(
        name="dtype",
        flag="--dtype",
        group="capacity",
        kind="choice",
        title="number format",
        directions={
            "throughput": "depends", "ttft": "depends", "tpot": "depends", "itl": "depends", "kv_tokens": "depends",
            "vram": "depends", "startup": "flat",
        },
        trades="range or precision: float16 can overflow, float32 is slow and takes twice the memory",
        when="a card older than compute capability 8.0, which has no bfloat16; else leave it",
        raise_means="weights and activations in another format",
        quality="measure",
        derived=("kernel_config.*", "compilation_config.*", "cache_config.mamba_*", "attention_config.*"),
        config_field="model_config.dtype",
        suggested=("bfloat16", "float16"),
        symptoms=("it does not start: bfloat16 is not supported",),
    ),
    Knob(
        name="watermark",
        flag="--watermark",
        group="capacity",
        kind="float",
        title="KV blocks kept free",
        directions={
            "throughput": "depends", "ttft": "up", "tpot": "down", "itl": "down", "kv_tokens": "flat", "vram": "flat",
            "startup": "flat",
        },
        trades="admission: requests wait a little longer so that running ones are preempted less",
        when="preemptions under load: recomputing costs more than waiting",
        raise_means="a larger share of the KV blocks is kept for running requests",
        load="more requests at once than the KV cache holds",
        config_field="scheduler_config.watermark",
        suggested=(0.0, 0.01, 0.05),
        step=0.01,
        symptoms=("preemptions under load",),
    ),
    Knob(
        name="max_num_active_seqs",
        flag="--max-num-active-seqs",
        group="batch shape",
        kind="int",
        title="running sequences",
        directions={
            "throughput": "up", "ttft": "down", "tpot": "up", "itl": "up", "kv_tokens": "flat", "vram": "flat",
            "startup": "flat",
        },
        trades="latency of each request, as max_num_seqs, with graphs and buffers left as they are",
        when="the batch is full; not above max_num_seqs",
        raise_means="more requests run at once",
        load="more clients than the smallest value",
        config_field="scheduler_config.max_num_active_seqs",
        suggested=(16, 32, 64),
        step=1,
        symptoms=("TPOT too high with many clients (lower it)",),
    ),
    Knob(
        name="cpu_offload_gb",
        flag="--cpu-offload-gb",
        group="scaling",
        kind="float",
        title="weights in host memory",
        directions={
            "throughput": "down", "ttft": "up", "tpot": "up", "itl": "up", "kv_tokens": "up", "vram": "down",
            "startup": "up",
        },
        trades="speed for fit: these weights come over PCIe at every step",
        when="the model does not fit otherwise",
        raise_means="more GiB of the weights stay in host memory",
        derived=("offload_config.*", "compilation_config.*"),
        config_field="offload_config.uva.cpu_offload_gb",
        suggested=(0, 2, 4, 8),
        step=1,
        symptoms=("the weights do not fit",),
    ),
    Knob(
        name="kv_offloading_size",
        flag="--kv-offloading-size",
        group="reuse",
        kind="float",
        title="KV cache in host memory",
        directions={
            "throughput": "up", "ttft": "down", "tpot": "flat", "itl": "flat", "kv_tokens": "flat", "vram": "flat",
            "startup": "up",
        },
        trades="host memory and PCIe traffic",
        when="prefixes come back after they were evicted (many conversations); it does not stop preemption",
        raise_means="more GiB of host memory keep evicted KV blocks",
        load="more shared prefixes than the KV cache holds",
        derived=("kv_transfer_config*", "cache_config.kv_offloading_*", "scheduler_config.disable_hybrid_*"),
        config_field="cache_config.kv_offloading_size",
        suggested=(4, 8, 16),
        step=1,
        symptoms=("prefix hits are lost when many conversations alternate",),
    ),
)  # fmt: skip

CATALOGUE: dict[str, Knob] = {knob.name: knob for knob in _ALL}

# What to try first for a goal: what costs nothing, then trades within one resource, then capacity, then what touches
# quality, then what moves data or needs more cards.
_FIRST: dict[str, tuple[str, ...]] = {
    "throughput": (
        "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "enable_prefix_caching", "kv_cache_dtype",
        "quantization", "stream_interval", "max_cudagraph_capture_size", "tensor_parallel_size",
    ),
    "goodput": (
        "max_num_batched_tokens", "max_num_seqs", "enable_prefix_caching", "gpu_memory_utilization", "kv_cache_dtype",
        "quantization", "long_prefill_token_threshold", "tensor_parallel_size",
    ),
    "ttft": (
        "enable_prefix_caching", "max_num_batched_tokens", "max_num_seqs", "gpu_memory_utilization", "kv_cache_dtype",
        "quantization", "long_prefill_token_threshold", "kv_offloading_size", "tensor_parallel_size",
    ),
    "tpot": (
        "enforce_eager", "quantization", "speculative_config", "max_num_seqs", "max_num_active_seqs",
        "attention_backend", "tensor_parallel_size", "max_cudagraph_capture_size", "async_scheduling",
    ),
    "itl": (
        "max_num_batched_tokens", "long_prefill_token_threshold", "max_num_seqs", "max_num_active_seqs",
        "enable_chunked_prefill", "watermark", "enforce_eager", "speculative_config", "quantization",
    ),
    "e2e": (
        "enforce_eager", "max_num_seqs", "enable_prefix_caching", "quantization", "max_num_batched_tokens",
        "speculative_config", "gpu_memory_utilization", "kv_cache_dtype", "tensor_parallel_size",
    ),
}  # fmt: skip


def get(name: str) -> Knob:
    """The knob called `name`. Raises KeyError, whose only argument is a sentence with the nearest names."""
    knob = CATALOGUE.get(name)
    if knob is not None:
        return knob
    plain = name.strip().lstrip("-").replace("-", "_").lower()
    near = [plain] if plain in CATALOGUE else difflib.get_close_matches(plain, CATALOGUE, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(CATALOGUE)}"
    raise KeyError(f"there is no knob {name!r}: {hint}")


def ranked(goal: str) -> list[Knob]:
    """All knobs, those to try first for `goal` (a name of `slo.GOALS`) in front. Raises KeyError for another goal."""
    first = _FIRST[goal]
    return [CATALOGUE[name] for name in first] + [knob for knob in _ALL if knob.name not in first]
