"""What an engine's log tells, by patterns loose enough for several versions of vLLM. Pure functions of text.

The engine's core is another process: while it starts, its log is the only news of it. Numbers are taken from the
engine object where it has them; these are for what it does not have, and for older versions.
"""

from __future__ import annotations

import re

from msgspec import Struct

from tui_tuner.model.events import PhaseName


class LogCapacity(Struct, frozen=True):
    """Capacity as the log tells it; what it does not tell is None. Memory in GiB, of one card's share."""

    kv_blocks: int | None = None
    kv_tokens: int | None = None
    max_concurrency: float | None = None
    weights_gib: float | None = None
    kv_gib: float | None = None
    graph_gib: float | None = None
    activation_gib: float | None = None
    backend: str | None = None


_NUMBER = r"([\d,]+(?:\.\d+)?)"
_KV_BLOCKS = re.compile(rf"#\s*(?:GPU|CUDA|\w+)\s+blocks:\s*{_NUMBER}")
_KV_TOKENS = re.compile(rf"KV cache size:\s*{_NUMBER}\s*tokens")
_CONCURRENCY = re.compile(rf"[Mm]aximum concurrency for\s+[\d,]+\s+tokens per request:\s*{_NUMBER}\s*x")
_WEIGHTS = (
    re.compile(rf"Actual usage is\s+{_NUMBER}\s*GiB for weights?\b"),
    re.compile(rf"[Mm]odel loading took\s+{_NUMBER}\s*Gi?B"),
    re.compile(rf"Loading model weights took\s+{_NUMBER}\s*Gi?B"),
    re.compile(rf"Checkpoint size:\s*{_NUMBER}\s*GiB"),
)
_KV = (
    re.compile(rf"[Cc]urrent kv cache memory in use is\s+{_NUMBER}\s*GiB"),
    re.compile(rf"Available KV cache memory:\s*{_NUMBER}\s*GiB"),
    re.compile(rf"set \({_NUMBER}/[\d.]+\)\s*GiB for KV cache"),
)
_GRAPHS = (
    re.compile(rf"Graph capturing finished in .*?took\s+{_NUMBER}\s*GiB"),
    re.compile(rf"{_NUMBER}\s*GiB for CUDAGraph memory"),
)
_ACTIVATION = (
    re.compile(rf"{_NUMBER}\s*GiB for peak activation"),
    re.compile(rf"PyTorch activation peak memory takes\s+{_NUMBER}\s*GiB"),
)
# "Using FLASH_ATTN attention backend out of ...", "Using Flash Attention backend on V1 engine.",
# "Using FLASHINFER backend.", "Using AttentionBackendEnum.FLASH_ATTN backend."
_BACKEND = re.compile(
    r"Using (?:AttentionBackendEnum\.)?([A-Za-z][\w ]*?)(?: attention)? [Bb]ackend"
    r"(?: out of| on V1| \(selected|\.\s*$|\s*$)",
    re.MULTILINE,
)
_NOT_ATTENTION = re.compile(r"\b(vit|ViT|SSM|GDN|MoE|Mxfp4|distributed|guided|executor|sampl\w*)\b", re.IGNORECASE)


def capacity(text: str) -> LogCapacity:
    """The capacity lines of a log that ends after the engine's start.

    With several workers each prints its own share; the first is taken.
    """
    return LogCapacity(
        kv_blocks=_integer(_first(text, _KV_BLOCKS)),
        kv_tokens=_integer(_first(text, _KV_TOKENS)),
        max_concurrency=_first(text, _CONCURRENCY),
        weights_gib=_first(text, *_WEIGHTS),
        kv_gib=_first(text, *_KV),
        graph_gib=_first(text, *_GRAPHS),
        activation_gib=_first(text, *_ACTIVATION),
        backend=_backend(text),
    )


def _first(text: str, *patterns: re.Pattern[str]) -> float | None:
    for pattern in patterns:
        found = pattern.search(text)
        if found:
            try:
                return float(found[1].replace(",", ""))
            except ValueError:
                continue
    return None


def _integer(number: float | None) -> int | None:
    return None if number is None else int(number)


def _backend(text: str) -> str | None:
    for found in _BACKEND.finditer(text):
        begin = text.rfind("\n", 0, found.start()) + 1
        end = text.find("\n", found.end())
        line = text[begin : end if end >= 0 else len(text)]
        if not _NOT_ATTENTION.search(line):
            return found[1].strip()
    return None


class Progress(Struct, frozen=True):
    """A phase of the engine's start, and how far it is ("1 of 2 shards")."""

    phase: PhaseName
    detail: str | None = None


_ORDER: tuple[PhaseName, ...] = ("load", "compile", "kv_cache", "graphs")
_SHARDS = re.compile(r"checkpoint shards:.*?\|\s*(\d+)/(\d+)\s*\[")
_CAPTURES = re.compile(r"Capturing CUDA ?graph[^:|]*?(?:\(([^):]*)\)[^:|]*)?:.*?\|\s*(\d+)/(\d+)\s*\[", re.IGNORECASE)
_WORDS: tuple[tuple[PhaseName, re.Pattern[str]], ...] = (
    ("graphs", re.compile(r"Capturing (?:CUDA|the model|cuda ?graph)|Graph capturing finished", re.IGNORECASE)),
    ("kv_cache", re.compile(r"KV cache size:|Available KV cache memory|GiB for KV cache|#\s*\w+\s+blocks:")),
    (
        "compile",
        re.compile(
            r"Dynamo bytecode|torch_compile_cache|[Cc]ompiling (?:a|the|model)\b|for the compilation"
            r"|torch\.compile (?:took|takes)"
        ),
    ),
    ("load", re.compile(r"[Ll]oading model|load model|[Ll]oading weights|checkpoint shards")),
)


def progress(line: str) -> Progress | None:
    """The phase that a line of the log belongs to, or None if it tells of none."""
    shards = _SHARDS.search(line)
    if shards:
        return Progress("load", f"{shards[1]} of {shards[2]} shards")
    captures = _CAPTURES.search(line)
    if captures:
        mode = (captures[1] or "").split(",")[0].strip().lower()
        kind = {"piecewise": "piecewise graphs", "full": "full graphs"}.get(mode, "graphs")
        return Progress("graphs", f"{captures[2]} of {captures[3]} {kind}")
    for phase, words in _WORDS:
        if words.search(line):
            return Progress(phase)
    return None


class Reader:
    """Follows a growing log: `feed` takes what was appended and gives the phases that it shows, in order.

    Phases never go back (a late line about weights is about a draft model, or another worker), and of the details of
    one phase within one call only the last is given. Progress bars rewrite their line, so a carriage return ends one.
    """

    def __init__(self) -> None:
        self._rest = ""
        self._last = Progress("load")

    def feed(self, text: str) -> list[Progress]:
        lines = re.split(r"[\r\n]+", self._rest + text)
        # A bar's last state has no line end before its next: it is read as it stands, and again when it grows.
        self._rest = lines[-1][-4096:]
        shown: list[Progress] = []
        for line in lines:
            found = progress(line)
            if found is None or _ORDER.index(found.phase) < _ORDER.index(self._last.phase):
                continue
            if found.phase == self._last.phase and (found.detail is None or found.detail == self._last.detail):
                continue
            self._last = found
            if shown and shown[-1].phase == found.phase:
                shown[-1] = found
            else:
                shown.append(found)
        return shown
