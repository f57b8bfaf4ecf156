"""How figures and values are said: one wording for the verdict, the report and the screens."""

from __future__ import annotations

from tui_tuner.model.slo import Slo
from tui_tuner.model.values import Value, label

_NOUNS = {
    "max_num_seqs": "{} sequences",
    "max_num_batched_tokens": "{} batched tokens",
    "gpu_memory_utilization": "{} of the memory",
    "kv_cache_dtype": "{} KV cache",
    "enable_prefix_caching": "prefix caching {}",
    "enable_chunked_prefill": "chunked prefill {}",
    "enforce_eager": "eager mode {}",
    "max_model_len": "context of {}",
    "tensor_parallel_size": "{} cards",
    "quantization": "quantization {}",
    "speculative_config": "speculation {}",
}
METRICS = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "end to end"}


def called(knob: str, value: Value) -> str:
    """A value as a sentence calls it: "8 sequences"."""
    noun = _NOUNS.get(knob)
    if isinstance(value, dict) and "label" in value:
        return label(value)
    return noun.format(label(value)) if noun else f"{knob} {label(value)}"


def figure_name(what: str, slo: Slo) -> str:
    """The goal's or a limit's figure in words: "tok/s", "TTFT p95"."""
    if what == "throughput":
        return "tok/s"
    if what == "goodput":
        return "requests/s within the SLO"
    metric, _, rest = what.partition("_")
    percentile = rest.split("_")[0] if rest else f"p{slo.goal_percentile}"
    return f"{METRICS.get(metric, metric)} {percentile}"


def duration(ms: float | None) -> str:
    """Milliseconds, or seconds from one second on: "182 ms", "2.2 s"."""
    if ms is None:
        return "–"
    if ms >= 999.5:
        seconds = ms / 1000.0
        return f"{seconds:.1f} s" if seconds < 99.5 else f"{seconds:.0f} s"
    return f"{ms:.0f} ms" if ms >= 99.5 else f"{ms:.1f} ms" if ms >= 1 else f"{ms:.2f} ms"


def limit(ms: float) -> str:
    """A limit as it was set: "5 s", "1.5 s", "200 ms"."""
    return f"{ms / 1000.0:g} s" if ms >= 1000 else f"{ms:g} ms"


def span(a_ms: float, b_ms: float) -> str:
    """Two durations with one unit: "3.0 → 2.2 s"."""
    a, b = duration(a_ms), duration(b_ms)
    return f"{a[:-2].rstrip()} → {b}" if a.endswith(" s") and b.endswith(" s") else f"{a} → {b}"


def percent(change: float) -> str:
    """A change with its sign: "+62 %", "−0.8 %"."""
    size = abs(change)
    text = f"{size:.0f}" if size >= 9.95 else f"{size:.1f}"
    return f"{'−' if change < 0 else '+'}{text} %"


def number(value: float | None) -> str:
    """A rate with three significant digits or all before the point: "1,234", "62.1", "0.83"."""
    if value is None:
        return "–"
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"
