# ruff: noqa: E501 (a pattern reads best on one line)
"""Why a point failed: from exit, phase and log to a status, a cause, plain words, and a number to try.

A rule is a pattern of the engine's own words. Words change between versions, so patterns are loose, and where none
fits, the first exception of the log stands for the cause: later ones are consequences of it ("See root cause above").
"""

from __future__ import annotations

import contextlib
import math
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from tui_tuner.model import wire
from tui_tuner.model.events import Fix, PhaseName, Status
from tui_tuner.model.machine import Machine
from tui_tuner.model.secrets import Redactor
from tui_tuner.model.text import safe

_HEAD, _TAIL = 2 << 20, 2 << 20  # bytes of a log that are looked at
_LONGEST = 400  # characters of a cause

DURING: dict[PhaseName, str] = {
    "spawn": "before the engine was started",
    "import": "while vLLM was being imported",
    "load": "while the weights were being loaded",
    "compile": "while the model was being compiled",
    "kv_cache": "while the KV cache was being made",
    "graphs": "while CUDA graphs were being captured",
    "ready": "as the engine became ready",
    "warmup": "during the warm-up",
    "speed": "during the speed pass",
    "quality": "during the quality pass",
    "stop": "while the engine was stopping",
    "clean": "while cleaning up",
}
_RUNNING: tuple[PhaseName, ...] = ("warmup", "speed", "quality", "stop")


class End(Struct, frozen=True):
    """How a point ended, as far as the runner saw it. `exit` is as subprocess has it: a status, or minus a signal."""

    phase: PhaseName
    exit: int | None = None
    log: str = ""
    failed: wire.Failed | None = None
    overdue: str | None = None  # why the runner ended it
    stopped: bool = False  # by SIGSTOP, when the runner ended it
    oom_kill: str | None = None  # what the kernel or the cgroup says about its out-of-memory killer
    garbage: int = 0  # lines on the pipe that were no message
    knob: str = ""
    args: dict[str, Any] = {}
    machine: Machine = Machine()
    holders: str | None = None  # who else holds memory of the card


class Failure(Struct, frozen=True):
    """The body of a `point_failed` event."""

    status: Status
    phase: PhaseName
    cause: str
    say: str
    fix: Fix | None = None


class Raised(Struct, frozen=True):
    """An exception as a log shows it."""

    type: str
    message: str

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


def read_log(path: Path) -> str:
    """The beginning and the end of a log, as text; "" if it cannot be read."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            data = file.read(_HEAD if size > _HEAD + _TAIL else -1)
            if size > _HEAD + _TAIL:
                file.seek(-_TAIL, 2)
                data += b"\n" + file.read()
    except OSError:
        return ""
    return data.decode("utf-8", "replace")


def explain(end: End) -> Failure:
    """The failure in words. Never raises, whatever the log holds."""
    text = plain(end.log)
    raised = exceptions(text)
    if end.overdue is not None:
        return _overdue(end, raised)
    words = errors(text)
    if end.failed:
        words += f"\n{end.failed.exception}: {plain(end.failed.message)}\n"
    for pattern, rule in _RULES:
        if found := pattern.search(words):
            with contextlib.suppress(ValueError, ArithmeticError):  # numbers that are none: then the words alone count
                if failure := rule(found, end):
                    return failure
    if end.exit is not None and end.exit < 0:
        return _killed(end)
    root = _root(raised, end.failed)
    if root:
        return _by_exception(root, end)
    how = "without a word" if end.exit in (None, 0) else f"with exit status {end.exit}"
    if end.exit is not None and end.exit > 128 and end.exit - 128 in (9, 11, 15, 6, 7):
        return _killed(end, end.exit - 128)
    junk = f" {end.garbage} lines on its pipe were no messages." if end.garbage else ""
    return Failure(
        "crash",
        end.phase,
        f"the engine ended {how}",
        f"The engine ended {how} {DURING[end.phase]}, and its log names no exception: read its last lines.{junk}",
    )


# ---- reading a log --------------------------------------------------------------------------------------------

_PREFIX = re.compile(
    r"^(?:\([\w :.-]{1,60} pid=\d{1,10}\) ?)?(?:(DEBUG|INFO|WARNING|ERROR|CRITICAL) [\d-]{4,10} [\d:.,]{5,15} \[[^\]\n]{1,80}\] ?)?"
)
_RAISED = re.compile(r"^((?:[A-Za-z_]\w{0,80}\.){0,8}[A-Z]\w{0,80})(?:: ?(.*))?$")
_WRAPPERS = (
    "Engine core initialization failed",
    "See root cause above",
    "EngineCore encountered an issue",
    "See stack trace",
)
_NO_ERRORS = {
    "KeyboardInterrupt",
    "SystemExit",
    "GeneratorExit",
    "StopIteration",
    "CancelledError",
    "asyncio.CancelledError",
}


def plain(text: str) -> str:
    """A log's text, made safe; what a progress bar wrote over stands on lines of its own."""
    return safe(text.replace("\r\n", "\n").replace("\r", "\n"))


def errors(text: str) -> str:
    """A log without the lines that are only information or warnings, and without the prefixes of the others."""
    kept = []
    for line in text.splitlines():
        prefix = _PREFIX.match(line)
        if not prefix or prefix.group(1) not in ("DEBUG", "INFO", "WARNING"):
            kept.append(line[prefix.end() :] if prefix else line)
    return "\n".join(kept)


def exceptions(text: str) -> list[Raised]:
    """The exceptions of all tracebacks in a log, in its order; warnings that carry a traceback are none."""
    found: list[Raised] = []
    inside = ignored = False
    more: list[str] | None = None  # the indented lines behind an exception belong to its message
    for line in text.splitlines():
        prefix = _PREFIX.match(line)
        body = line[prefix.end() :] if prefix else line
        ignored, was_ignored = body.startswith("Exception ignored in"), ignored
        if prefix and prefix.group(1) in ("DEBUG", "INFO", "WARNING"):
            inside, more = False, None
            continue
        if body.startswith("Traceback (most recent call last)"):
            inside, more = not was_ignored, None
        elif inside and body and not body.startswith((" ", "\t")):
            inside = False
            match = _RAISED.match(body.rstrip())
            if match:
                message = (match.group(2) or "").strip()
                found.append(Raised(match.group(1), message))
                more = [] if "validation error" in message or not message else None
        elif more is not None and len(more) < 3 and (body.startswith("  ") or re.fullmatch(r"[a-z_.0-9]+", body)):
            more.append(body.strip())
            last = found[-1]
            found[-1] = Raised(last.type, f"{last.message} {more[-1]}".strip())
        else:
            more = None
    return found


def _root(raised: list[Raised], failed: wire.Failed | None) -> Raised | None:
    for one in raised:
        if one.type.rpartition(".")[2] not in _NO_ERRORS and not one.message.startswith(_WRAPPERS):
            return one
    if failed:
        return Raised(failed.exception, plain(failed.message))
    return raised[0] if raised else None


def _short(text: str) -> str:
    text = Redactor().text(" ".join(plain(text).split()))
    text = re.sub(r" \[type=\w+, input_value=.*", "", text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


# ---- what was not said in words --------------------------------------------------------------------------------


def _overdue(end: End, raised: list[Raised]) -> Failure:
    where = DURING[end.phase]
    if end.stopped:
        return Failure(
            "timeout",
            end.phase,
            "stopped by a signal",
            f"The engine had been stopped by a signal (SIGSTOP, or ctrl+z) {where}, and was ended: {end.overdue}.",
        )
    fix = None
    if "no token" in (end.overdue or ""):
        fix = Fix(
            "a request may be larger than the whole KV cache: send shorter requests, or give the cache more memory",
            None,
            None,
        )
    root = _root(raised, end.failed)
    also = f" The log's first exception is {_short(str(root))}." if root else ""
    return Failure(
        "timeout", end.phase, end.overdue or "time-out", f"The point hung {where}: {end.overdue}.{also}", fix
    )


def _killed(end: End, number: int | None = None) -> Failure:
    number = -end.exit if number is None and end.exit else number or 0
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    cause = f"killed by signal {number} ({name})"
    if number == signal.SIGKILL and end.oom_kill:
        status: Status = "oom_runtime" if end.phase in _RUNNING else "oom_startup"
        return Failure(
            status,
            end.phase,
            f"{cause}: {end.oom_kill}",
            f"The kernel's out-of-memory killer ended the engine {DURING[end.phase]}: the machine's memory (not the card's) "
            "ran out.",
            _less_memory(end, "let the engine take less of it, or close other programs"),
        )
    extra = {
        signal.SIGBUS: " Most often /dev/shm is too small: start the container with a larger one (--shm-size).",
        signal.SIGSEGV: " That is a crash in native code, of the driver or of a kernel.",
        signal.SIGABRT: " A library gave up; the log's last lines say which.",
        signal.SIGILL: " The wheel was built for another processor than this one.",
    }
    tail = next((words for sig, words in extra.items() if sig == number), "")
    return Failure(
        "crash", end.phase, cause, f"The engine was killed by signal {number} ({name}) {DURING[end.phase]}.{tail}"
    )


def _by_exception(root: Raised, end: End) -> Failure:
    kind = root.type.rpartition(".")[2]
    running = end.phase in _RUNNING
    status: Status = "crash"
    if kind in ("OutOfMemoryError", "MemoryError") or "out of memory" in root.message.lower():
        status = "oom_runtime" if running else "oom_startup"
    elif kind in (
        "ImportError",
        "ModuleNotFoundError",
        "PackageNotFoundError",
        "PermissionError",
        "FileNotFoundError",
    ) or (not running and kind in ("OSError", "ConnectionError", "HTTPError")):
        status = "env_error"
    elif not running and kind in (
        "ValueError",
        "ValidationError",
        "TypeError",
        "NotImplementedError",
        "KeyError",
        "AssertionError",
    ):
        status = "config_error"
    cause = _short(str(root))
    return Failure(status, end.phase, cause, f"The engine failed {DURING[end.phase]}: {cause}")


# ---- the engine's own words ------------------------------------------------------------------------------------

Rule = Callable[["re.Match[str]", End], "Failure | None"]


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _share(end: End) -> float | None:
    share = end.args.get("gpu_memory_utilization")
    if isinstance(share, (int, float)) and not isinstance(share, bool) and 0 < share <= 1:
        return float(share)
    return None


def _less_memory(end: End, else_say: str) -> Fix:
    share = _share(end)
    if share is None or share <= 0.04:
        return Fix(else_say)
    lower = round(share - 0.02, 4)
    return Fix(f"try gpu_memory_utilization {lower:g}", "gpu_memory_utilization", lower)


def highest_share(free: float, total: float) -> float:
    """The highest gpu_memory_utilization, in hundredths, that starts with `free` of `total` (same unit) at hand."""
    return max(math.floor((free / total - 0.0005) * 100) / 100, 0.0)


def _not_free(m: re.Match[str], end: End) -> Failure:
    free, total, share, wanted = (_number(g) for g in m.groups()[-4:])
    value = highest_share(free, total)
    cpu = "on node" in m.group(0)
    where = "this NUMA node's memory" if cpu else "the card's whole memory"
    rest = "the system and other programs" if cpu else (end.holders or "other processes or the driver")
    fix = (
        Fix(f"{value:g} is the highest value that starts now", "gpu_memory_utilization", value)
        if value >= 0.01
        else Fix("free memory first: there is none to speak of")
    )
    return Failure(
        "oom_startup",
        _at_start(end, "load"),
        _short(m.group(0)),
        f"gpu_memory_utilization {share:g} asks for {wanted:g} of {total:g} GiB, a share of {where}, but only {free:g} GiB are "
        f"free; the rest is with {rest}.",
        fix,
    )


def _no_blocks(m: re.Match[str], end: End) -> Failure:
    text = plain(end.log)
    have = re.findall(r"Available KV cache memory: (-?[\d.]+) GiB", text)
    share, total = _share(end), end.machine.memory_mib / 1024
    fix = None
    if share is not None and have and total:
        missing = max(-float(have[-1]), 0.0) + 0.01 * total
        value = math.ceil((share + missing / total) * 100) / 100
        if value <= 0.97:
            fix = Fix(f"{value:g} would leave room for a small cache", "gpu_memory_utilization", value)
    if fix is None:
        tokens = end.args.get("max_num_batched_tokens")
        if isinstance(tokens, int) and tokens >= 1024:
            fix = Fix(
                f"a smaller or quantized model, or max_num_batched_tokens {tokens // 2}",
                "max_num_batched_tokens",
                tokens // 2,
            )
        else:
            fix = Fix("a higher gpu_memory_utilization, a smaller or quantized model, or fewer batched tokens")
    lack = f" ({float(have[-1]):g} GiB were left)" if have else ""
    return Failure(
        "oom_startup",
        "kv_cache",
        _short(m.group(0)),
        f"Weights and activations fill the whole budget: nothing is left for the KV cache{lack}.",
        fix,
    )


def _cpu_cache(m: re.Match[str], end: End) -> Failure:
    """The CPU engine takes its cache last: what it asks of other processes is not the way out where none is left."""
    free, total, left, budget = (_number(g) for g in m.groups())
    share = _share(end)
    if left > 0:
        fitting = highest_share(max(budget - (left - free), 0.0), total) if total > 0 else 0.0
        say = f"The KV cache was to take {left:g} GiB of this NUMA node's memory, and {free:g} GiB are free by now."
        fix = Fix(f"try gpu_memory_utilization {fitting:g}, or close other programs", "gpu_memory_utilization", fitting)
        return Failure("oom_startup", "kv_cache", _short(m.group(0)), say, fix if fitting > 0 else None)
    say = (
        f"gpu_memory_utilization {share if share is not None else 'as it is'} gives the engine {budget:g} GiB, and weights "
        f"and activations took {budget - left:.2f} GiB: nothing is left for the KV cache."
    )
    value = math.ceil((budget - left) / total * 100 + 1) / 100 if total > 0 else 1.0
    fix = (
        Fix(f"{value:g} would leave room for a small cache", "gpu_memory_utilization", value)
        if value <= 0.97
        else Fix("a smaller or quantized model, or fewer batched tokens")
    )
    return Failure("oom_startup", "kv_cache", _short(m.group(0)), say, fix)


def _too_long(m: re.Match[str], end: End) -> Failure:
    asked = int(_number(m.group(1)))
    text = plain(end.log) + (plain(end.failed.message) if end.failed else "")
    longest = re.search(r"estimated maximum model length is ([\d,]+)", text)
    gib = re.search(r"\(([\d.]+) GiB KV cache is needed.{0,80}?\(([\d.]+) GiB\)", text, re.S)
    need = f" {gib.group(1)} GiB of KV cache are needed for it, {gib.group(2)} GiB are there." if gib else ""
    value = int(_number(longest.group(1))) if longest else 0
    fix = (
        Fix(
            f"max_model_len {value} fits; set it in the fixed configuration, for all points alike",
            "max_model_len",
            value,
        )
        if value > 0
        else Fix("a smaller max_model_len in the fixed configuration, or more memory for the cache", "max_model_len")
    )
    return Failure(
        "oom_startup",
        "kv_cache",
        _short(m.group(0)),
        f"One request of max_model_len {asked} does not fit into the KV cache.{need}",
        fix,
    )


def _sampler(m: re.Match[str], end: End) -> Failure:
    seqs = int(_number(m.group(1)))
    half = max(seqs // 2, 1)
    return Failure(
        "oom_startup",
        _at_start(end, "kv_cache"),
        _short(m.group(0)),
        f"The logits of {seqs} sequences at once do not fit beside everything else: this is the edge of max_num_seqs.",
        Fix(f"try max_num_seqs {half}", "max_num_seqs", half),
    )


def _cuda_oom(m: re.Match[str], end: End) -> Failure:
    text = plain(end.log)
    graphs = end.phase == "graphs" or ("apturing CUDA graph" in text and "Graph capturing finished" not in text)
    phase: PhaseName = "graphs" if graphs and end.phase not in _RUNNING else end.phase
    status: Status = "oom_runtime" if phase in _RUNNING else "oom_startup"
    if phase == "load":
        say = "The weights alone do not fit on the card."
        fix = Fix("a smaller or quantized model, or a card with more memory")
    elif (
        phase in _RUNNING
        and isinstance(end.args.get("max_num_batched_tokens"), int)
        and end.knob == "max_num_batched_tokens"
    ):
        half = max(end.args["max_num_batched_tokens"] // 2, 1)
        say = f"A step needed more memory than the engine had set aside, {DURING[phase]}."
        fix = Fix(f"try max_num_batched_tokens {half}", "max_num_batched_tokens", half)
    else:
        eager = " enforce_eager would free the graphs' memory, and costs decode speed." if phase == "graphs" else ""
        say = f"The card ran out of memory {DURING[phase]}: the share left outside the engine's budget was too small.{eager}"
        fix = _less_memory(end, "a lower gpu_memory_utilization: step back by 0.02")
    return Failure(status, phase, _short(m.group(0)), say, fix)


def _host_oom(m: re.Match[str], end: End) -> Failure:
    status: Status = "oom_runtime" if end.phase in _RUNNING else "oom_startup"
    return Failure(
        status,
        end.phase,
        _short(m.group(0)),
        f"The machine's memory (not the card's) ran out {DURING[end.phase]}.",
        _less_memory(end, "close other programs, or take a smaller model"),
    )


def _contradiction(m: re.Match[str], end: End) -> Failure:
    tokens, seqs = int(_number(m.group(1))), int(_number(m.group(2)))
    if end.knob == "max_num_seqs":
        fix = Fix(f"max_num_seqs can be {tokens} at most here", "max_num_seqs", tokens)
    else:
        fix = Fix(f"max_num_batched_tokens must be {seqs} or more", "max_num_batched_tokens", seqs)
    return Failure(
        "config_error",
        _at_start(end, "import"),
        _short(m.group(0)),
        f"Two settings contradict: max_num_batched_tokens {tokens} is below max_num_seqs {seqs}, and each running sequence "
        "needs at least one token a step.",
        fix,
    )


def _batched_below_len(m: re.Match[str], end: End) -> Failure:
    tokens, length = int(_number(m.group(1))), int(_number(m.group(2)))
    return Failure(
        "config_error",
        _at_start(end, "import"),
        _short(m.group(0)),
        f"Without chunked prefill a whole prompt must fit into one step: max_num_batched_tokens {tokens} is below "
        f"max_model_len {length}.",
        Fix(f"max_num_batched_tokens {length} or more, or turn chunked prefill on", "max_num_batched_tokens", length),
    )


def _longer_than_model(m: re.Match[str], end: End) -> Failure:
    asked = int(_number(m.group(1)))
    derived = re.search(r"(?:=|\()([\d.]+)", m.group(2))
    value = int(float(derived.group(1))) if derived else 0
    return Failure(
        "config_error",
        _at_start(end, "import"),
        _short(m.group(0)),
        f"max_model_len {asked} is longer than this model's positions allow" + (f" ({value})." if value else "."),
        Fix(f"{value} is the longest", "max_model_len", value) if value else None,
    )


def _out_of_range(m: re.Match[str], end: End) -> Failure:
    field, sentence = m.group(1), m.group(2).strip().rstrip(".")
    bound = re.search(r"(less|greater) than (or equal to )?(-?[\d.]+)", sentence)
    fix = None
    if field == "gpu_memory_utilization":
        fix = Fix("a share above 0 and below 1: 0.95 leaves room for what the engine does not count", field, 0.95)
    elif bound and bound.group(2):
        value = float(bound.group(3))
        fix = Fix(
            f"{value:g} is the {'largest' if bound.group(1) == 'less' else 'smallest'} allowed", field, _int(value)
        )
    return Failure(
        "config_error",
        _at_start(end, "import"),
        _short(f"{field}: {sentence}"),
        f"{field} cannot be {end.args.get(field, 'that')}: {sentence[:1].lower()}{sentence[1:]}.",
        fix,
    )


def _unknown_argument(m: re.Match[str], end: End) -> Failure:
    field = m.group(1)
    return Failure(
        "config_error",
        _at_start(end, "import"),
        _short(m.group(0)),
        f"The installed vLLM has no argument {field}: it came later, or is gone.",
        Fix(f"take {field} out of the plan, or install a version that has it", field),
    )


def _heads(m: re.Match[str], end: End) -> Failure:
    heads, size = int(m.group(1)), int(m.group(2))
    value = next(n for n in range(max(min(size, heads), 1), 0, -1) if heads % n == 0)
    return Failure(
        "config_error",
        _at_start(end, "import"),
        _short(m.group(0)),
        f"The model's {heads} attention heads cannot be shared out evenly among {size} cards.",
        Fix(f"tensor_parallel_size {value} would do", "tensor_parallel_size", value),
    )


def _too_few_cards(m: re.Match[str], end: End) -> Failure:
    asked, there = int(m.group(1)), int(m.group(2))
    fix = Fix(f"tensor_parallel_size {there} is the largest here", "tensor_parallel_size", there)
    return Failure(
        "config_error",
        _at_start(end, "import"),
        _short(m.group(0)),
        f"{asked} cards are asked for, and this machine has {there} that the engine can see.",
        fix if there else Fix("see `tui-tuner doctor`"),
    )


def _no_attention(m: re.Match[str], end: End) -> Failure:
    kind = end.args.get("kv_cache_dtype", "auto")
    if kind != "auto" and "kv_cache_dtype" in m.group(0):
        fix = Fix("kv_cache_dtype auto runs everywhere", "kv_cache_dtype", "auto")
    elif end.args.get("attention_backend"):
        fix = Fix("leave attention_backend to the engine", "attention_backend")
    else:
        fix = Fix("another dtype, kv_cache_dtype or block_size; the log gives each kernel's reason")
    return Failure(
        "config_error",
        _at_start(end, "import"),
        _short(m.group(0)),
        "No attention kernel of this vLLM can run this configuration on this card.",
        fix,
    )


def _dtype(m: re.Match[str], end: End) -> Failure:
    had, method, can = m.groups()
    return Failure(
        "config_error",
        _at_start(end, "import"),
        _short(m.group(0)),
        f"The quantization {method} does not compute in {had}.",
        Fix(f"set dtype to {can} in the fixed configuration", "dtype", can) if can else None,
    )


def _says(status: Status, say: str, fix: str | None = None, field: str | None = None, value: Any = None) -> Rule:
    """A rule whose words do not depend on numbers. `{0}` is what its group found, `{during}` the phase."""

    def rule(m: re.Match[str], end: End) -> Failure:
        shown: Status = "oom_runtime" if status == "oom_startup" and end.phase in _RUNNING else status
        words = [_short(g) for g in m.groups() if g]  # of two ways to say it, the one that was used
        return Failure(
            shown,
            end.phase,
            _short(m.group(0)),
            say.format(*words, during=DURING[end.phase]),
            Fix(fix.format(*words), field, value) if fix else None,
        )

    return rule


def _engine_died(m: re.Match[str], end: End) -> Failure | None:
    others = [r for r in exceptions(plain(end.log)) if "EngineDead" not in r.type]
    if any(not r.message.startswith(_WRAPPERS) and r.type not in _NO_ERRORS for r in others):
        return None  # one of them says why
    if end.oom_kill:
        return _killed(End(end.phase, -9, oom_kill=end.oom_kill, args=end.args))
    return Failure(
        "crash",
        end.phase,
        _short(m.group(0)),
        f"The engine's core process died {DURING[end.phase]} without an exception: it was killed from outside, or crashed in "
        "native code.",
    )


def _at_start(end: End, phase: PhaseName) -> PhaseName:
    """The phase the engine's words belong to, where the worker could not say more than that it had begun."""
    return phase if end.phase in ("spawn", "import") else end.phase


def _int(value: float) -> int | float:
    return int(value) if value == int(value) else value


def _re(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_RULES: list[tuple[re.Pattern[str], Rule]] = [
    (_re(r"Free memory on device [^(\n]{0,40}\(([\d.]+)/([\d.]+) GiB\) on startup is less than desired GPU memory utilization "
         r"\(([\d.]+), ([\d.]+) GiB\)"), _not_free),
    (_re(r"Available memory on node \d+ \(([\d.]+)/([\d.]+) GiB\) on startup is less than desired CPU memory utilization "
         r"\(([\d.]+), ([\d.]+) GiB\)"), _not_free),
    (_re(r"Available memory on node \d+ \(([\d.]+)/([\d.]+) GiB\) on kv cache allocation is less than requested memory for kv "
         r"\((-?[\d.]+)/([\d.]+) GiB\)"), _cpu_cache),
    (_re(r"To serve at least one request with the model'?s max(?:imum)? seq(?:uence)? len(?:gth)? \(?([\d,]+)\)?[^\n]{0,400}"),
     _too_long),
    (_re(r"model'?s max seq len \(([\d,]+)\) is larger than the maximum number of tokens that can be stored in KV cache[^\n]{0,200}"),
     _too_long),
    (_re(r"No available memory for the cache blocks[^\n]{0,60}|Cannot auto-fit max_model_len[^\n]{0,80}"), _no_blocks),
    (_re(r"out of memory occurred when warming up sampler with ([\d,]+) dummy requests"), _sampler),
    (_re(r"max_num_batched_tokens \(?([\d,]+)\)? must be greater than or equal to max_num_seqs \(?([\d,]+)\)?"), _contradiction),
    (_re(r"max_num_batched_tokens \(?([\d,]+)\)? is smaller than max_model_len \(?([\d,]+)\)?"), _batched_below_len),
    (_re(r"max_model_len \(?([\d,]+)\)? is greater than the derived max_model_len (\([^\n]{0,120})"), _longer_than_model),
    (_re(r"validation errors? for \w+\s*\n(?:\([^\n)]{0,60}\) [^\n\]]{0,80}\] ?)?([a-z_][\w.]{0,80})\s*\n[^\n]{0,120}?"
         r"(Input should be [^\[\n]{1,160})"), _out_of_range),
    (_re(r"__init__\(\) got an unexpected keyword argument '([\w-]{1,80})'"), _unknown_argument),
    (_re(r"(?:torch\.)?(?:cuda\.)?OutOfMemoryError: [^\n]{0,200}|CUDA out of memory[^\n]{0,160}|CUDA error: out of memory|"
         r"Triton Error \[CUDA\]: out of memory|CUDA_ERROR_OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED[^\n]{0,80}"), _cuda_oom),
    (_re(r"Error in memory profiling[^\n]{0,200}"),
     _says("env_error", "While the engine was finding out how much memory it may take, another program gave some of the card's back, "
           "so that its sum no longer held.", "wait until the other program is done, then resume")),
    (_re(r"DefaultCPUAllocator: [^\n]{0,40}allocate memory[^\n]{0,80}|std::bad_alloc|Cannot allocate memory|\bMemoryError\b"), _host_oom),
    (_re(r"number of attention heads \((\d{1,6})\) must be divisible by tensor parallel size \((\d{1,6})\)"), _heads),
    (_re(r"World size \((\d{1,6})\) is larger than the number of available GPUs \((\d{1,6})\)"), _too_few_cards),
    (_re(r"No valid attention backend found[^\n]{0,400}|Selected backend [^\n]{0,80} is not valid for this configuration[^\n]{0,200}"),
     _no_attention),
    (_re(r"torch\.(\w{1,20}) is not supported for quantization method ([\w-]{1,40})\.(?: Supported dtypes: \[(?:torch\.)?(\w{1,20}))?"), _dtype),
    (_re(r"Model architectures \[([^\]\n]{1,120})\] are not supported|has model type `([^`\n]{1,60})` but Transformers does not recogni[sz]e"),
     _says("config_error", "This vLLM does not know the model's architecture, {0}.",
           "install a newer vLLM (`tui-tuner setup --engine-version V`), or take another model")),
    (_re(r"SafetensorError: [^\n]{0,120}|Error while deserializing header[^\n]{0,60}|PytorchStreamReader failed[^\n]{0,80}|"
         r"Cannot find any model weights with [^\n]{0,120}"),
     _says("env_error", "The model's weights are not whole on this disk: a download was cut off, or only pointers to them are here.",
           "fetch the model anew")),
    (_re(r"Failed to find C compiler|No working C\+\+ compiler found|No such file or directory: '(?:gcc|g\+\+|cc|c\+\+|clang)'|"
         r"Python\.h: No such file"),
     _says("env_error", "The engine compiles kernels as it starts, and this machine has no C compiler, or not Python's headers.",
           "install both (gcc and python3-dev, or what they are called here)")),
    (_re(r"Could not find nvcc[^\n]{0,80}|No such file or directory: '[^'\n]{0,120}nvcc'|cannot find -lcuda"),
     _says("env_error", "Kernels are compiled for this card as the engine starts, and CUDA's compiler is not there, or not whole.",
           "install the CUDA toolkit, or set VLLM_USE_FLASHINFER_SAMPLER=0 in the environment")),
    (_re(r"version [`'‘]?(GLIBC[A-Z]*_[\d.]+)['’]? not found"),
     _says("env_error", "This system is older than the installed vLLM needs: it lacks {0}.",
           "use a newer system, or a container with one")),
    (_re(r"undefined symbol: ?(\w{1,60})"),
     _says("env_error", "Two libraries of the engine's environment do not fit each other (undefined symbol {0}): mostly another torch "
           "than vLLM was built for.", "let `tui-tuner setup` make an environment")),
    (_re(r"operator torchvision::nms does not exist"),
     _says("env_error", "torchvision was built for another torch than the installed one, and vLLM cannot be imported beside it.",
           "remove torchvision, torchaudio and torchcodec from the engine's environment: text models need none of them")),
    (_re(r"(libcudart\.so[.\d]*|libcuda\.so[.\d]*|libnvrtc\.so[.\d]*|libcublas\.so[.\d]*): cannot open shared object file"),
     _says("env_error", "{0} is missing: the installed vLLM was built for another CUDA than this machine has.",
           "let `tui-tuner setup` choose a version that this driver can serve")),
    (_re(r"NVIDIA driver on your system is too old[^\n]{0,80}|CUDA driver version is insufficient[^\n]{0,60}"),
     _says("env_error", "The card's driver is older than the installed vLLM needs.",
           "update the driver, or let `tui-tuner setup` choose a version for it")),
    (_re(r"No CUDA GPUs are available|Failed to infer device type|no CUDA-capable device is detected"),
     _says("env_error", "The engine found no card it could use: it is hidden from this process, or its driver does not answer.",
           "see `tui-tuner doctor`")),
    (_re(r"no kernel image is available for execution on the device"),
     _says("env_error", "The installed vLLM holds no code for this card's generation.",
           "install a version built for this card's compute capability")),
    (_re(r"uncorrectable ECC error[^\n]{0,60}|fallen off the bus|GPU is lost|CUDA error: unspecified launch failure"),
     _says("crash", "The card itself failed {during}: the driver reports a hardware error.",
           "look at `dmesg` for an Xid number; the card may need a reset, or to be exchanged")),
    (_re(r"CUDA error: an illegal memory access[^\n]{0,60}|CUDA error: device-side assert[^\n]{0,60}|CUDNN_STATUS_\w+|CUBLAS_STATUS_\w+"),
     _says("crash", "A kernel on the card crashed {during}: this configuration meets a fault in vLLM or a library.",
           "try the value's neighbours, or enforce_eager, to see whether it is the value")),
    (_re(r"(?:gated repo|401 Client Error|403 Client Error|Access to model [^\n]{0,80} is restricted)[^\n]{0,80}"),
     _says("env_error", "The model hub refuses this model without permission.",
           "accept its licence there, and set HF_TOKEN in the environment")),
    (_re(r"We couldn'?t connect to [^\n]{0,80}|Max retries exceeded|Temporary failure in name resolution|Connection (?:refused|timed out)|"
         r"LocalEntryNotFoundError[^\n]{0,80}|OfflineModeIsEnabled[^\n]{0,60}"),
     _says("env_error", "The model could not be fetched: the hub was not reached.",
           "name a model that is on this disk, or set a mirror (HF_ENDPOINT) or VLLM_USE_MODELSCOPE")),
    (_re(r"(?:is not a local folder and is not a valid model identifier|Repository Not Found|Invalid repository ID or local directory)"
         r"[^\n]{0,120}"),
     _says("env_error", "There is no model of that name, on this disk or on the hub.", "check its spelling")),
    (_re(r"No space left on device|Disk quota exceeded"),
     _says("env_error", "The disk is full {during}.", "free some space: model and compile caches are the largest")),
    (_re(r"bfloat16 is only supported on GPUs with compute capability of at least 8\.0[^\n]{0,60}|Bfloat16 is only supported[^\n]{0,80}"),
     _says("config_error", "This card cannot compute in bfloat16.", "set dtype to float16 in the fixed configuration", "dtype", "float16")),
    (_re(r"quantization method ([\w-]{1,40}) is not supported for the current GPU[^\n]{0,120}|"
         r"Unknown quantization method: ?([\w-]{0,40})[^\n]{0,80}"),
     _says("config_error", "This card, or this vLLM, cannot run that quantization.", "choose a checkpoint quantized another way")),
    (_re(r"Cannot find the config file for ([\w-]{1,40})"),
     _says("config_error", "This checkpoint holds nothing of the quantization {0}: it was not made with it.",
           "take quantization out of the plan (vLLM reads it from the checkpoint), or choose a checkpoint made with it")),
    (_re(r"Please pass the argument `?trust_remote_code=True`?|requires you to execute the configuration file"),
     _says("config_error", "This model brings code of its own, which is not run unless you allow it.",
           "read that code, then set trust_remote_code in the fixed configuration", "trust_remote_code", True)),
    (_re(r"Timed out waiting for engine core processes? to start[^\n]{0,80}"),
     _says("timeout", "The engine's core did not start in time {during}: a slow disk, a download or a long compilation.",
           "try again: the caches are warmer now; VLLM_ENGINE_READY_TIMEOUT_S sets how long vLLM waits")),
    (_re(r"No module named '?(vllm[\w.]*)'?"),
     _says("env_error", "This Python has no {0}.", "name another with --engine-python, or run `tui-tuner setup`")),
    (_re(r"No module named '?(tui_tuner[\w.]*)'?"),
     _says("env_error", "The engine's Python could not import {0} from the folder it was handed.",
           "check that tui-tuner's own folder can be read by this user")),
    (_re(r"No module named '?([\w.]{1,60})'?"),
     _says("env_error", "The engine's environment lacks {0}.", "install it there, or let `tui-tuner setup` make an environment")),
    (_re(r"the engine's Python cannot be started: ([^\n]{1,300})"),
     _says("env_error", "The engine's Python cannot be started: {0}.",
           "name another with --engine-python, or run `tui-tuner setup`")),
    (_re(r"Too many open files"),
     _says("env_error", "The limit of open files was reached {during}.", "raise it: ulimit -n 65536")),
    (_re(r"Address already in use"),
     _says("env_error", "A port that the engine wanted is taken by another program.", "resume: another port will be chosen")),
    (_re(r"NCCL error[^\n]{0,120}|ncclUnhandledCudaError[^\n]{0,80}"),
     _says("crash", "The cards could not talk to each other (NCCL) {during}.", "see the log; NCCL_DEBUG=INFO makes it say more")),
    (_re(r"Engine core proc\w* [^\n]{0,60}died unexpectedly[^\n]{0,60}|EngineDeadError[^\n]{0,120}"), _engine_died),
]  # fmt: skip
