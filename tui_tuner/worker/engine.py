"""One vLLM engine, started as a server would start it, and what it says of itself.

Works unchanged on vLLM 0.26 to 0.32. vLLM is imported inside functions: the import takes seconds, and is a phase.
"""

from __future__ import annotations

import inspect
import os
import stat
import threading
from collections.abc import Sequence
from typing import Any

from tui_tuner.model import wire
from tui_tuner.worker import logfacts, resolved
from tui_tuner.worker.channel import Channel
from tui_tuner.worker.stats import Recorder

_POLL_S = 0.3


class Log:
    """This process's own log, read back: its standard output and error where they are regular files.

    The engine's core writes to the same files, and while it starts they are the only news of it. `text` is what was
    written since this was made.
    """

    def __init__(self) -> None:
        self._files: dict[tuple[int, int], tuple[int, int]] = {}  # by device and inode: descriptor, where we began
        for number in (1, 2):
            try:
                about = os.fstat(number)
                if not stat.S_ISREG(about.st_mode) or (about.st_dev, about.st_ino) in self._files:
                    continue
                own = os.open(f"/proc/self/fd/{number}", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            self._files[(about.st_dev, about.st_ino)] = (own, about.st_size)
        self._read = {key: begin for key, (_, begin) in self._files.items()}

    def new(self) -> list[str]:
        """What each file grew by since the last call."""
        grown = []
        for key, (descriptor, _) in self._files.items():
            data = _rest(descriptor, self._read[key])
            self._read[key] += len(data)
            grown.append(data.decode(errors="replace"))
        return grown

    def text(self) -> str:
        """All that was written since the beginning."""
        return "\n".join(_rest(fd, begin).decode(errors="replace") for fd, begin in self._files.values())


def _rest(descriptor: int, offset: int) -> bytes:
    parts = []
    while data := os.pread(descriptor, 1 << 20, offset):
        parts.append(data)
        offset += len(data)
    return b"".join(parts)


class Watch:
    """A thread that tells the phases of the engine's start as its log shows them; a context manager."""

    def __init__(self, log: Log, channel: Channel) -> None:
        self._log, self._channel = log, channel
        self._over = threading.Event()
        self._readers: list[logfacts.Reader] = []
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)

    def _run(self) -> None:
        while not self._over.wait(_POLL_S):
            self._look()

    def _look(self) -> None:
        for place, text in enumerate(self._log.new()):
            if place == len(self._readers):
                self._readers.append(logfacts.Reader())
            for found in self._readers[place].feed(text) if text else ():
                self._channel.enter(found.phase, found.detail)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()


def start(args: dict[str, Any], recorder: Recorder) -> Any:
    """An engine from `AsyncEngineArgs` in a server's context (so that its defaults are a server's). Call it inside the
    event loop; it blocks until the engine is ready. Raises whatever vLLM raises."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.metrics.loggers import StatLoggerBase

    class Logger(StatLoggerBase):  # type: ignore[misc]
        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
            self.engine_index = engine_index

        def record(
            self,
            scheduler_stats: Any = None,
            iteration_stats: Any = None,
            mm_cache_stats: Any = None,
            engine_idx: int = 0,
            **_: Any,
        ) -> None:
            recorder.record(scheduler_stats, iteration_stats, engine_idx)

        def log_engine_initialized(self) -> None:
            pass

    context = UsageContext.OPENAI_API_SERVER
    config = AsyncEngineArgs(**args).create_engine_config(context)
    return AsyncLLM.from_vllm_config(
        config,
        usage_context=context,
        stat_loggers=[Logger],
        enable_log_requests=False,
        disable_log_stats=False,
    )


def ready(engine: Any, log: str, startup_s: float) -> wire.Ready:
    """Capacity and resolved configuration: from the engine object where it has them, else from the log's text.

    KV tokens are the engine's own count where there is one: blocks times block size is too many for a model that
    mixes kinds of attention.
    """
    import torch
    import vllm
    from vllm.platforms import current_platform

    config = engine.vllm_config
    cache, seen = config.cache_config, logfacts.capacity(log)
    blocks = getattr(cache, "num_gpu_blocks", None) or seen.kv_blocks
    size = getattr(cache, "block_size", None)
    tokens = getattr(cache, "kv_cache_size_tokens", None) or seen.kv_tokens
    if tokens is None and blocks and size:
        tokens = blocks * size
    concurrency = getattr(cache, "kv_cache_max_concurrency", None) or seen.max_concurrency
    if concurrency is None and tokens:
        concurrency = tokens / config.model_config.max_model_len
    backend = seen.backend
    if backend is None and current_platform.is_cpu():
        backend = "CPU_ATTN"  # the CPU's only one, so that its log does not name it (CPU_MLA is named)
    return wire.Ready(
        vllm=str(vllm.__version__),
        torch=str(torch.__version__),
        kv_blocks=blocks,
        block_size=size,
        kv_tokens=tokens,
        max_concurrency=concurrency and round(concurrency, 2),
        weights_gib=seen.weights_gib,
        kv_gib=seen.kv_gib,
        graph_gib=seen.graph_gib,
        activation_gib=seen.activation_gib,
        backend=backend,
        resolved=resolved.flatten(config),
        startup_s=round(startup_s, 2),
    )


async def tokenizer(engine: Any) -> Any:
    """The engine's tokenizer, or None if it runs without one. (A coroutine in some versions, a function in others.)"""
    if getattr(engine.vllm_config.model_config, "skip_tokenizer_init", False):
        return None
    found = engine.get_tokenizer()
    return await found if inspect.isawaitable(found) else found


def allowed_ids(engine: Any, words: Any) -> Sequence[int]:
    """The token ids that may stand in a random prompt: those of ordinary text that both model and tokenizer know."""
    size = int(engine.vllm_config.model_config.get_vocab_size())
    if words is None:
        return range(size)
    special = set(getattr(words, "all_special_ids", ()) or ())
    special |= set(getattr(words, "added_tokens_decoder", {}) or {})
    known = min(size, len(words))
    return [token for token in range(known) if token not in special]


def exact_length(output_tokens: int) -> Any:
    """Sampling parameters of the speed pass: greedy, exactly so many tokens, handed over as they come.

    Without an end of its own a request has no way to be shorter, so `min_tokens` is left out: it would have the
    sampler mask tokens at every step, which real traffic does not.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=0.0,
        max_tokens=output_tokens,
        ignore_eos=True,
        output_kind=RequestOutputKind.DELTA,
    )


def to_the_end(max_tokens: int) -> Any:
    """Sampling parameters of the quality pass: greedy, seed 0, up to the model's own end."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(temperature=0.0, seed=0, max_tokens=max_tokens, output_kind=RequestOutputKind.FINAL_ONLY)


class NoTokenizer:
    """Stands for the tokenizer of an engine that has none: random prompts need none, everything else is refused."""

    has_template = False

    def encode(self, text: object) -> list[int]:
        raise ValueError(
            "this engine runs without a tokenizer (skip_tokenizer_init): it can be sent random prompts only, "
            "no text and no questions"
        )

    plain = encode

    def chat(self, messages: object) -> list[int]:
        return self.encode(messages)
