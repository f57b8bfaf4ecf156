"""What can be said before anything starts: KV tokens, what fits, minutes, price. Pure Python.

The memory identity is vLLM's own: KV = share · total − weights − activations − non-torch, from 0.29 on also less the
CUDA graphs. The reserve terms were fitted to logged starts of vLLM 0.26.0 on one H200 with a 7B shape and a 135M
model (within 1.6 % there); elsewhere they are a hypothesis, so bounds of ± 0.15 GiB (0.5 GiB on a CPU) stand with
every number. Times come from earlier points of the same machine and model where there are any, else from the
assumptions below.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from tui_tuner.analysis import schedule
from tui_tuner.model.knobs import Facts, Knob
from tui_tuner.model.load import Load
from tui_tuner.model.machine import Machine, ModelShape
from tui_tuner.model.plan import Plan
from tui_tuner.model.session import Session
from tui_tuner.model.values import Value, label, same

GIB = 2.0**30
ERROR_GIB = 0.15
_BYTES = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2, "auto": 2}
_KV_BYTES = {
    "fp8": 1.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
    "fp8_inc": 1.0,
    "nvfp4": 0.5625,
    "float16": 2.0,
    "bfloat16": 2.0,
}
_LOADING_GIB = 0.10  # what loading adds to the weight files' bytes
_NON_TORCH_GIB = 0.22
# The CPU engine subtracts what its worker holds: the weights, and this much of interpreter and libraries. It varies
# with the machine's memory use, so the bounds are wider there.
_CPU_HELD_GIB, _CPU_ERROR_GIB = 0.82, 0.5
_CONTEXT_GIB = 0.51  # the CUDA context, outside the budget
_FLOOR_GIB = 0.30  # of the activations of a 7B
_GRAPH_GIB = 0.009  # a captured graph of a 7B

# Assumed where no earlier point tells (seconds): what a point takes beside its load.
_STARTUP = {("cuda", False): 75.0, ("cuda", True): 35.0, ("cpu", False): 85.0, ("cpu", True): 40.0}
_STEP_S = {"cuda": 0.005, "cpu": 0.025}  # overhead of a decode step
_BANDWIDTH = {"cuda": 1000.0, "cpu": 20.0}  # GB/s, where the card does not tell
_PREFILL_FLOPS = {"cuda": 60e12, "cpu": 0.25e12}
_WARMUP_S = 8.0


class Reserve(Struct, frozen=True):
    """What the memory budget loses beside the KV cache, in GiB."""

    weights: float
    activations: float
    non_torch: float
    graphs: float  # 0 where the version does not count them in the budget
    graphs_outside: float  # the other way round


class KvEstimate(Struct, frozen=True):
    """KV tokens predicted, with its bounds; `gib` at or below 0 means that it will not start."""

    tokens: int
    low: int
    high: int
    gib: float
    bytes_per_token: float
    reserve: Reserve

    @property
    def starts(self) -> bool:
        return self.gib > 0


def kv_bytes_per_token(shape: ModelShape, kv_cache_dtype: str = "auto", tensor_parallel: int = 1) -> float:
    """Bytes of KV cache a token takes on one card: 2 · layers · KV heads · head size · bytes, and for a latent cache
    (MLA) layers · (KV rank + rotary size) · bytes."""
    size = _KV_BYTES.get(kv_cache_dtype, float(_BYTES.get(shape.dtype, 2)))
    if shape.kv_lora_rank:
        return shape.layers * (shape.kv_lora_rank + (shape.qk_rope_head_dim or 0)) * size
    return 2.0 * shape.layers * max(shape.kv_heads / max(tensor_parallel, 1), 1) * shape.head_dim * size


def parameters(shape: ModelShape) -> float:
    """The parameters of a dense decoder of this shape: embeddings, attention and a gated MLP."""
    attention = shape.hidden * shape.head_dim * (2 * shape.heads + 2 * shape.kv_heads)
    return shape.layers * (attention + 3.0 * shape.hidden * shape.intermediate) + shape.vocab * shape.hidden


def weights_gib(shape: ModelShape, tensor_parallel: int = 1) -> float:
    """GiB of weights on one card: the files' bytes where they are known, else from the shape."""
    size = shape.weight_bytes or parameters(shape) * _BYTES.get(shape.dtype, 2)
    return size / GIB / max(tensor_parallel, 1) + (_LOADING_GIB if size > 2 * GIB else 0.0)


def version_tuple(version: str) -> tuple[int, int]:
    """ "0.26.0+cu130" as (0, 26); (0, 0) where it cannot be read."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def reserve(shape: ModelShape, args: Mapping[str, Any], facts: Facts | None) -> Reserve:
    """The reserve terms of one configuration.

    Activations ≈ max(floor, batched tokens · 2 B · (3 · intermediate + 4 · hidden) / cards, sequences · vocab · 4 B).
    Graphs are inside the budget from 0.29 on, and outside it before.
    """
    cards = max(int(args.get("tensor_parallel_size") or 1), 1)
    batched = int(_effective(args, facts, "max_num_batched_tokens", 2048))
    seqs = int(_effective(args, facts, "max_num_seqs", 256))
    large = (shape.weight_bytes or parameters(shape) * 2) > 2 * GIB
    activations = max(
        _FLOOR_GIB if large else 0.0,
        batched * 2.0 * (3 * shape.intermediate + 4 * shape.hidden) / cards / GIB,
        seqs * shape.vocab * 4.0 / GIB,
    )
    graphs = 0.0
    if not args.get("enforce_eager") and facts is not None and facts.device == "cuda":
        captured = min(seqs * 2, 512)
        count = 2 * (3 + min(captured, 256) // 8 + max(captured - 256, 0) // 16)
        graphs = count * _GRAPH_GIB * (1.0 if large else 0.45)
    inside = facts is not None and version_tuple(facts.version) >= (0, 29)
    return Reserve(
        weights_gib(shape, cards),
        activations,
        _CPU_HELD_GIB if facts is not None and facts.device == "cpu" else _NON_TORCH_GIB,
        graphs if inside else 0.0,
        0.0 if inside else graphs,
    )


def kv_tokens(
    machine: Machine, shape: ModelShape, args: Mapping[str, Any], facts: Facts | None, known: Reserve | None = None
) -> KvEstimate | None:
    """The KV cache's size in tokens under the engine arguments `args`; None where the memory is not known.

    `known` are the terms that an earlier start logged, which replace the fitted ones.
    """
    per_token = kv_bytes_per_token(
        shape, str(args.get("kv_cache_dtype") or "auto"), int(args.get("tensor_parallel_size") or 1)
    )
    if not per_token:
        return None
    terms = known or reserve(shape, args, facts)
    fixed = args.get("kv_cache_memory_bytes")
    if isinstance(fixed, (int, float)) and not isinstance(fixed, bool) and fixed > 0:
        gib = fixed / GIB
        error = 0.0
    else:
        share = _effective(args, facts, "gpu_memory_utilization", 0.92)
        if not machine.memory_mib:
            return None
        gib = share * machine.memory_mib / 1024 - terms.weights - terms.activations - terms.non_torch - terms.graphs
        error = ERROR_GIB if machine.gpu else _CPU_ERROR_GIB
    block = int(args.get("block_size") or (16 if machine.gpu else 128))

    def tokens(size: float) -> int:
        return max(int(size * GIB / per_token / block), 0) * block

    return KvEstimate(tokens(gib), tokens(gib - error), tokens(gib + error), gib, per_token, terms)


def highest_utilization(total_mib: float, available_mib: float) -> float:
    """The highest gpu_memory_utilization, to two digits, that starts now: vLLM wants share · total to be free."""
    if total_mib <= 0:
        return 0.0
    return max(min(math.floor(available_mib / total_mib * 100 + 1e-9) / 100, 0.99), 0.0)


def headroom_gib(machine: Machine, share: float, terms: Reserve) -> float:
    """What a card has left beyond the budget, its context and the graphs outside it."""
    return machine.memory_mib / 1024 * (1 - share) - _CONTEXT_GIB - terms.graphs_outside


# ---- time and price ---------------------------------------------------------------------------------------------


class Minutes(Struct, frozen=True):
    """How long a sweep takes: seconds a point, points (the fewest and the most), where the seconds are from."""

    point_seconds: float
    points: int
    most_points: int
    source: str

    @property
    def minutes(self) -> float:
        return self.point_seconds * self.points / 60.0

    @property
    def most_minutes(self) -> float:
        return self.point_seconds * self.most_points / 60.0


def point_count(plan: Plan, band: Mapping[str, Any] | None = None, kind: str = "sweep") -> tuple[int, int]:
    """The fewest and the most points that the plan will measure."""
    if kind == "noise":
        return schedule.NOISE_LAUNCHES, schedule.NOISE_LAUNCHES
    values = len(plan.knob.values)
    standard = values + (1 if plan.thoroughness == "quick" and band else 2)
    if plan.thoroughness != "decide":
        return standard, standard
    if band:
        launches = schedule.launches_for(dict(band))
        return standard + 2 * launches, standard + 2 * launches
    return standard + 2 * schedule.MIN_LAUNCHES, standard + 2 * schedule.MAX_LAUNCHES


def point_seconds(plan: Plan, machine: Machine, shape: ModelShape | None, facts: Facts | None = None) -> float:
    """Seconds that one point takes, from stated assumptions: a start-up by device and eager mode, a decode step bound
    by memory bandwidth, prefill by arithmetic."""
    device = machine.device
    eager = bool(plan.fixed.get("enforce_eager"))
    size = (shape.weight_bytes or parameters(shape) * 2) if shape else 2 * GIB
    bandwidth = (machine.gpu.memory_gb_s if machine.gpu and machine.gpu.memory_gb_s else _BANDWIDTH[device]) * 1e9
    step = size / bandwidth / 0.6 + _STEP_S[device]
    seqs = _effective(plan.fixed, facts, "max_num_seqs", 256)
    prefill = 2.0 * (parameters(shape) if shape else 1e9) * _mean(plan.load.prompt_tokens) / _PREFILL_FLOPS[device]
    output = _mean(plan.load.output_tokens)
    requests = plan.requests_per_level()
    seconds = _STARTUP[device, eager] + _WARMUP_S + size / GIB  # weights are read at about 1 GiB/s
    for level in plan.load.levels():
        if plan.load.kind == "poisson":
            seconds += requests / max(level, 1e-3) + output * step
        else:
            width = max(min(level, float(seqs), requests), 1.0)
            seconds += math.ceil(requests / width) * output * step + requests * prefill
    items = plan.evalset.items
    if items and plan.fixed.get("load_format") != "dummy":
        seconds += math.ceil(items / 32) * plan.evalset.max_tokens * 0.6 * step * 2 + items * prefill * 0.3
    return seconds


def minutes(
    plan: Plan,
    machine: Machine,
    shape: ModelShape | None,
    facts: Facts | None = None,
    earlier: Iterable[Session] = (),
    band: Mapping[str, Any] | None = None,
    kind: str = "sweep",
) -> Minutes:
    """How long the plan takes. Earlier points of the same machine, model and work tell best; points of other work on
    the same machine and model tell the start-up; else assumptions do."""
    fewest, most = point_count(plan, band, kind)
    guess = point_seconds(plan, machine, shape, facts)
    same_work: list[float] = []
    starts: list[float] = []
    for session in earlier:
        start = session.start
        if start.machine.card != machine.card or start.plan.model != plan.model:
            continue
        alike = (
            start.plan.load == plan.load
            and start.plan.evalset == plan.evalset
            and start.plan.requests_per_level() == plan.requests_per_level()
            and bool(start.plan.fixed.get("enforce_eager")) == bool(plan.fixed.get("enforce_eager"))
        )
        for point in session.points:
            if point.done is None or point.status != "ok":
                continue
            if alike:
                same_work.append((point.clean.t if point.clean else point.done.t) - point.began)
            begun = next((p.t for p in point.phases if p.name in ("warmup", "speed")), None)
            if begun is not None:
                starts.append(begun - point.began)
    if same_work:
        return Minutes(_median(same_work), fewest, most, f"{len(same_work)} earlier points of the same work")
    if starts:
        known = _median(starts) + guess - _STARTUP[machine.device, bool(plan.fixed.get("enforce_eager"))]
        return Minutes(known, fewest, most, f"start-up from {len(starts)} earlier points, the load assumed")
    return Minutes(guess, fewest, most, "assumptions: nothing was measured here with this model yet")


def price(minutes: float, plan: Plan) -> float | None:
    """What so many minutes cost, in the plan's currency; None without a price."""
    return plan.price.per_hour * minutes / 60.0 if plan.price else None


def left(session: Session) -> tuple[int, int, float | None]:
    """(the running or next point's place from 1, all points, seconds left at the session's last event).

    From the measured points once there is one, from the estimate before the start until then.
    """
    slots = schedule.slots(session)
    done = [p for p in session.points if p.status is not None]
    ended = [(p.clean.t if p.clean else p.ended or p.began) - p.began for p in done if p.status == "ok"]
    place = next((i for i, s in enumerate(slots, 1) if not _over(session, s.n)), len(slots))
    each: float | None = sum(ended) / len(ended) if ended else None
    if each is None:
        said = session.start.estimate.get("point_seconds")
        each = float(said) if isinstance(said, (int, float)) and not isinstance(said, bool) else None
    if each is None:
        return place, len(slots), None
    seconds = 0.0
    for slot in slots:
        point = session.point(slot.n)
        if point is None:
            seconds += each
        elif point.status is None:
            seconds += max(each - (session.last_t - point.began), 0.0)
    start = session.start
    if start.kind == "sweep" and start.plan.thoroughness == "decide" and start.band and not session.bands:
        rounds = schedule.launches_for(start.band)
        seconds += 2 * rounds * each
        return place, len(slots) + 2 * rounds, seconds
    return place, len(slots), seconds


def _over(session: Session, n: int) -> bool:
    point = session.point(n)
    return point is not None and point.status is not None


def before(
    plan: Plan,
    baseline: Value,
    machine: Machine,
    shape: ModelShape | None,
    facts: Facts | None,
    earlier: Iterable[Session] = (),
    band: Mapping[str, Any] | None = None,
    kind: str = "sweep",
) -> dict[str, Any]:
    """The estimate that a session's first line keeps: time and price of the whole, and by each value's label the KV
    tokens with their bounds, the concurrency that they allow, and whether it is expected to start."""
    time = minutes(plan, machine, shape, facts, earlier, band, kind)
    found: dict[str, Any] = {
        "point_seconds": round(time.point_seconds, 1),
        "points": time.points,
        "most_points": time.most_points,
        "minutes": round(time.minutes, 1),
        "most_minutes": round(time.most_minutes, 1),
        "source": time.source,
    }
    cost = price(time.minutes, plan)
    if cost is not None and plan.price:
        found |= {"price": round(cost, 2), "currency": plan.price.currency}
        found["most_price"] = round(price(time.most_minutes, plan) or 0.0, 2)
    if shape is None:
        return found
    mean_length = _mean(plan.load.prompt_tokens) + _mean(plan.load.output_tokens)
    seen: list[Value] = []
    for value in (baseline, *plan.knob.values):
        if any(same(value, other) for other in seen) or (isinstance(value, dict) and "model" in value):
            continue  # another checkpoint has another shape
        seen.append(value)
        kv = kv_tokens(machine, shape, plan.args(value), facts)
        if kv is None:
            continue
        found[label(value)] = {
            "kv_tokens": kv.tokens,
            "kv_low": kv.low,
            "kv_high": kv.high,
            "kv_gib": round(kv.gib, 2),
            "weights_gib": round(kv.reserve.weights, 2),
            "concurrency": round(kv.tokens / mean_length, 1) if mean_length else None,
            "starts": kv.starts,
        }
    return found


# ---- what to try ------------------------------------------------------------------------------------------------


def load_shows(knob: Knob, load: Load) -> bool:
    """Whether a knob can show under this load at all."""
    if knob.name == "enable_prefix_caching":
        return load.shared_prefix is not None or load.kind == "trace"
    if knob.name == "speculative_config":
        return load.text == "natural" or load.kind == "trace"
    if knob.name in ("max_num_batched_tokens", "enable_chunked_prefill", "long_prefill_token_threshold"):
        mixed = not isinstance(load.prompt_tokens, int) and load.prompt_tokens.spread > 0
        return load.kind == "trace" or (load.kind == "poisson" and mixed)
    return True


def suggest_values(
    knob: Knob,
    machine: Machine,
    shape: ModelShape | None = None,
    facts: Facts | None = None,
    load: Load | None = None,
    available_mib: int | None = None,
    baseline: Value = None,
) -> tuple[Value, ...]:
    """Values to sweep from, by what the machine and the load allow; the baseline's own value is left out."""
    found = _suggested(knob, machine, shape, facts, load, available_mib)
    field = facts.fields.get(knob.name) if facts else None
    kept: list[Value] = []
    for value in found:
        if same(value, baseline) or any(same(value, other) for other in kept):
            continue
        if field and isinstance(value, (int, float)) and not isinstance(value, bool):
            if field.low is not None and (value < field.low or (field.low_open and value == field.low)):
                continue
            if field.high is not None and (value > field.high or (field.high_open and value == field.high)):
                continue
        if field and field.choices and isinstance(value, str) and value not in field.choices:
            continue
        kept.append(value)
    return tuple(kept)


def _suggested(
    knob: Knob,
    machine: Machine,
    shape: ModelShape | None,
    facts: Facts | None,
    load: Load | None,
    available_mib: int | None,
) -> tuple[Value, ...]:
    levels = load.levels() if load else (8.0,)
    if knob.name == "gpu_memory_utilization":
        top = (
            highest_utilization(machine.memory_mib, available_mib) if available_mib else (0.95 if machine.gpu else 0.7)
        )
        if machine.gpu:
            return tuple(v for v in (0.80, 0.85, 0.90, 0.92, 0.94, 0.95) if v <= top)[-4:] or (top,)
        return tuple(v for v in (0.2, 0.3, 0.4, 0.5, 0.6) if v <= top - 0.05)[-3:] or (max(round(top - 0.05, 2), 0.05),)
    if knob.name == "max_num_seqs":
        width = max(int(max(levels)), 1) if load is None or load.kind != "poisson" else 64
        tries = sorted({max(width // 4, 1), max(width // 2, 1), width, width * 2})
        batched = _effective({}, facts, "max_num_batched_tokens", 2048)
        return tuple(v for v in tries if v <= batched)
    if knob.name == "max_num_batched_tokens":
        seqs = _effective({}, facts, "max_num_seqs", 256)
        return tuple(v for v in (512, 1024, 2048, 4096, 8192, 16384) if v >= seqs)[: (5 if machine.gpu else 3)]
    if knob.name == "max_model_len":
        longest = load.longest() if load else 1024
        start = 1 << max(math.ceil(math.log2(max(longest, 2))), 8)
        top = shape.max_position if shape and shape.max_position else start * 4
        return tuple(v for v in (start, start * 2, start * 4) if v <= top) or (top,)
    if knob.name == "tensor_parallel_size":
        return tuple(v for v in (1, 2, 4, 8) if v <= machine.gpus and (shape is None or shape.heads % v == 0))
    return knob.suggested


def _effective(args: Mapping[str, Any], facts: Facts | None, name: str, fallback: float) -> float:
    """An argument's value: the one given, else what a server resolves here, else `fallback`."""
    given = args.get(name)
    if given is None and facts is not None and name in facts.fields:
        given = facts.fields[name].effective_default
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        return fallback
    return float(given)


def _mean(lengths: Any) -> float:
    return float(lengths) if isinstance(lengths, int) else float(lengths.mean)


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]
