"""One point: a worker watched from its start to the clean machine behind it."""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from tui_tuner import evals, gpu, paths
from tui_tuner.analysis import points
from tui_tuner.analysis.schedule import Slot
from tui_tuner.model import changes, wire
from tui_tuner.model import events as ev
from tui_tuner.model.knobs import CATALOGUE
from tui_tuner.model.secrets import Redactor
from tui_tuner.runner import clean, failures, logs, processes
from tui_tuner.runner.child import Child
from tui_tuner.runner.limits import Watch
from tui_tuner.runner.oom import OomCounter
from tui_tuner.store import library

if TYPE_CHECKING:
    from tui_tuner.runner.sweep import Sweep

Ended = Literal["finished", "died", "overdue", "stop", "skip"]
_LAST_WORDS = 2.0  # seconds that a worker has to end by itself after it said that it failed


class Outcome(Struct, frozen=True):
    """`say` is why the sweep cannot go on after this point, or None."""

    say: str | None = None


class PointRun:
    """Measures one slot."""

    def __init__(self, sweep: Sweep, slot: Slot, baseline_mib: int | None) -> None:
        before = sweep.session.point(slot.n)
        self._sweep, self._slot, self._baseline_mib = sweep, slot, baseline_mib
        self._attempt = before.attempt + 1 if before else 1
        self._log = library.log_of(sweep.path, slot.n, self._attempt)
        self._samples: list[tuple[float, gpu.Sample]] = []
        self._stats: wire.Stats | None = None
        self._failed: wire.Failed | None = None
        self._levels: list[ev.Requests] = []
        self._answers: ev.Answers | None = None
        self._finished = False
        self._said_failed = 0.0
        self._overdue: str | None = None
        self._stopped = False
        self._watch = Watch(sweep.limits)

    def go(self) -> Outcome:
        """From the spawn to the `clean` event. Raises sessionfile.WriteFailed, with the engine ended."""
        sweep, slot = self._sweep, self._slot
        task = sweep.task(slot.value)
        oom = OomCounter()
        machine = sweep.start.machine
        python, card = paths.expanded(sweep.start.engine.python), machine.gpu.uuid if machine.gpu else None
        try:
            child = Child(python, sweep.session.id, self._log, card)
        except OSError as error:
            return self._not_started(error)
        names = clean.SharedNames(child.pid, child.work.path)
        try:
            sweep.guard.arm(child.pid, child.started, child.work.path)
            sweep.emit(
                ev.PointStarted(
                    sweep.now(), slot.n, slot.role, slot.value, self._attempt, sweep.session.segment,
                    child.pid, child.started, task.args, str(child.work.path),
                )
            )  # fmt: skip
            sweep.emit(ev.Phase(sweep.now(), slot.n, "spawn"))
            child.go(task)
            ended = self._follow(child, names)
            if ended == "finished":
                self._done()
            grace = 0.0 if ended in ("finished", "died") else sweep.limits.term
            code = child.exit_code()
        except BaseException:
            clean.after(child, sweep.guard, names, None, None, sweep.limits, 0.0)
            raise
        outcome = clean.after(
            child, sweep.guard, names, sweep.sampler if machine.gpu else None, self._baseline_mib, sweep.limits, grace
        )
        if ended in ("died", "overdue"):
            self._explain(ended, code, child.garbage, oom.since())
        elif ended == "skip":
            sweep.emit(ev.PointDone(sweep.now(), slot.n, "aborted", "skipped on request", self._peak()))
        if child.garbage:
            sweep.note(
                f"point {slot.n}: {child.garbage} lines on the worker's pipe were no messages and were passed over"
            )
        logs.redact(self._log)
        sweep.emit(
            ev.Clean(
                sweep.now(),
                slot.n,
                outcome.ok,
                outcome.seconds,
                outcome.vram_mib,
                outcome.baseline_mib,
                outcome.left,
                outcome.say,
            )
        )
        return Outcome(outcome.say)

    def _not_started(self, error: OSError) -> Outcome:
        sweep, slot = self._sweep, self._slot
        sweep.emit(ev.PointStarted(sweep.now(), slot.n, slot.role, slot.value, self._attempt, sweep.session.segment))
        why = f"{error.strerror or error}{f' ({error.filename})' if error.filename else ''}"
        sweep.emit(
            ev.PointFailed(
                sweep.now(),
                slot.n,
                "env_error",
                "spawn",
                f"{type(error).__name__}: {error}",
                f"No worker could be started: {why}.",
            )
        )
        return Outcome()

    # ---- while it runs -----------------------------------------------------------------------------------------

    def _follow(self, child: Child, names: clean.SharedNames) -> Ended:
        sweep, limits = self._sweep, self._sweep.limits
        next_tick = time.monotonic()
        while True:
            for message in child.poll(min(0.1, max(next_tick - time.monotonic(), 0.0))):
                self._take(message)
            if self._finished:
                return "finished"
            if child.exit_code() is not None:
                for message in child.drain():
                    self._take(message)
                return "finished" if self._finished else "died"
            now = time.monotonic()
            sweep.guard.shm(names.look())
            if self._said_failed and now - self._said_failed > _LAST_WORDS:
                return "died"
            if now >= next_tick:
                next_tick = max(next_tick + limits.tick, now)
                self._tick(child)
                if how := sweep.asked(self._slot.n):
                    return how
                if sweep.guard.check():
                    sweep.note("the guard process had been killed, another one has taken its place")
                if self._late(child, now):
                    return "overdue"

    def _late(self, child: Child, now: float) -> bool:
        watch, limits = self._watch, self._sweep.limits
        try:
            size = self._log.stat().st_size
        except OSError:
            size = 0
        watch.log(size, now)
        if watch.phase in ("import", "load", "compile"):
            watch.io(processes.io_bytes(processes.group(child.pid)), now)
        self._overdue = watch.overdue(now)
        if self._overdue is None and size > limits.log_bytes:
            self._overdue = f"its log grew beyond {limits.log_bytes >> 20:,} MiB"
        if self._overdue is None:
            return False
        self._stopped = processes.stopped(child.pid)
        return True

    def _tick(self, child: Child) -> None:
        sweep = self._sweep
        sample = self._sample(child.pid)
        stats, self._stats = self._stats, None
        sweep.emit(
            ev.Tick(
                sweep.now(), self._slot.n,
                tok_s=stats.tok_s if stats else None,
                running=stats.running if stats else None,
                waiting=stats.waiting if stats else None,
                kv_usage=stats.kv_usage if stats else None,
                preemptions=stats.preemptions if stats else None,
                vram_mib=sample.vram_mib, power_w=sample.power_w, temp_c=sample.temp_c, sm_mhz=sample.sm_mhz,
                throttle=sample.throttle, energy_j=sample.energy_j,
            ),
            sync=False,
        )  # fmt: skip

    def _sample(self, pgid: int | None) -> gpu.Sample:
        sample = self._sweep.sample(pgid)
        self._samples.append((time.time(), sample))
        return sample

    def _take(self, message: wire.FromWorker) -> None:
        sweep, n, now = self._sweep, self._slot.n, time.monotonic()
        if isinstance(message, wire.Stats):
            self._watch.stats(message.tok_s, message.running, message.waiting, now)
            self._stats = message
        elif isinstance(message, wire.Entered):
            fresh = message.phase != self._watch.phase
            self._watch.enter(message.phase, now)
            if fresh or message.detail:
                sweep.emit(ev.Phase(sweep.now(), n, message.phase, message.detail), sync=fresh)
        elif isinstance(message, wire.Ready):
            self._watch.results(now)
            sweep.emit(self._capacity(message))
        elif isinstance(message, wire.Warmed):
            self._watch.results(now)
            sweep.emit(
                ev.Warmed(sweep.now(), n, message.windows, message.seconds, message.limit_s, message.steady), sync=False
            )
        elif isinstance(message, wire.Level):
            self._watch.results(now)
            self._levels.append(self._requests(message))
            sweep.emit(self._levels[-1])
        elif isinstance(message, wire.Replies):
            self._watch.results(now)
            self._answers = self._scored(message)
            sweep.emit(self._answers)
        elif isinstance(message, wire.Failed):
            self._failed, self._said_failed = message, now
        elif isinstance(message, wire.Finished):
            self._finished = True

    # ---- from the wire to events -------------------------------------------------------------------------------

    def _capacity(self, ready: wire.Ready) -> ev.Capacity:
        session = self._sweep.session
        base = next(
            (
                p for p in session.points
                if p.role in ("baseline", "baseline_again") and p.segment == session.segment and p.n != self._slot.n
                and p.capacity and p.capacity.resolved
            ),
            None,
        )  # fmt: skip
        changed = None
        # As it is written: a resumed sweep compares with what it reads.
        resolved = Redactor(os.environ).value(ready.resolved)
        knob = CATALOGUE.get(self._sweep.plan.knob.name)
        if base and base.capacity and knob:
            changed = changes.compare(base.capacity.resolved, resolved, knob, self._slot.value)
        return ev.Capacity(
            self._sweep.now(), self._slot.n,
            ready.kv_blocks, ready.block_size, ready.kv_tokens, ready.max_concurrency,
            ready.weights_gib, ready.kv_gib, ready.graph_gib, ready.activation_gib,
            ready.backend, resolved, changed, ready.startup_s,
        )  # fmt: skip

    def _requests(self, rows: wire.Level) -> ev.Requests:
        self._sample(None)
        device = over(self._samples, rows.began, rows.ended)
        return ev.Requests(
            self._sweep.now(), self._slot.n, rows.level, rows.kind, max(rows.ended - rows.began, 0.0),
            rows.planned, rows.sent, rows.first, rows.last, rows.prompt_tokens, rows.output_tokens, rows.finish,
            rows.gaps,
            rows.prefix_queries, rows.prefix_hits, rows.preemptions, rows.draft_tokens, rows.accepted_tokens,
            device.energy_j, rows.running_mean, rows.waiting_mean, rows.kv_usage_max,
            device.throttle, device.sm_mhz, device.temp_c,
        )  # fmt: skip

    def _scored(self, replies: wire.Replies) -> ev.Answers:
        items = {item.id: item for item in self._sweep.items}
        score = [
            evals.score(items[id_], text) if id_ in items else None
            for id_, text in zip(replies.item, replies.text, strict=False)
        ]
        return ev.Answers(
            self._sweep.now(),
            self._slot.n,
            replies.item,
            replies.text,
            score,
            replies.finish,
            replies.tokens,
            replies.chat_template,
        )

    # ---- how it ended ------------------------------------------------------------------------------------------

    def _done(self) -> None:
        sweep = self._sweep
        status, say = self._validity()
        sweep.emit(ev.PointDone(sweep.now(), self._slot.n, status, say, self._peak()))

    def _validity(self) -> tuple[ev.Status, str | None]:
        wanted, got = len(self._sweep.plan.load.levels()), len(self._levels)
        if got < wanted:
            return "unclean", f"{got} of {wanted} load levels came in"
        reasons = 0
        for rows in self._levels:
            reasons |= rows.throttle or 0
        if gpu.spoils(reasons):
            words = ", ".join(gpu.throttle_words(reasons))
            return "throttled", f"the card was throttled during the speed pass ({words})"
        for rows in self._levels:
            figures = points.level_figures(rows, self._sweep.plan.slo)
            if points.late(figures):
                return "client_limited", (
                    f"at level {rows.level:g} requests were sent up to {figures.lag_p99_ms or 0:.0f} ms late (p99): "
                    "the load generator was measured, not the engine"
                )
        return "ok", None

    def _explain(self, ended: Ended, code: int | None, garbage: int, oom_kill: str | None) -> None:
        sweep, slot = self._sweep, self._slot
        machine = sweep.start.machine
        failure = failures.explain(
            failures.End(
                phase=self._failed.phase if self._failed else self._watch.phase,
                exit=code,
                log=failures.read_log(self._log),
                failed=self._failed,
                overdue=self._overdue if ended == "overdue" else None,
                stopped=self._stopped,
                oom_kill=oom_kill,
                garbage=garbage,
                knob=sweep.plan.knob.name,
                args=sweep.args(slot.value),
                machine=machine,
                holders=clean.holders(sweep.sampler) if machine.gpu and sweep.sampler.processes() else None,
            )
        )
        sweep.emit(
            ev.PointFailed(
                sweep.now(),
                slot.n,
                failure.status,
                failure.phase,
                failure.cause,
                failure.say,
                failure.fix,
                self._peak(),
            )
        )

    def _peak(self) -> int | None:
        return max((s.vram_mib for _, s in self._samples if s.vram_mib is not None), default=None)


class Device(Struct, frozen=True):
    """What the card did over a span of time."""

    energy_j: float | None = None
    throttle: int | None = None
    sm_mhz: float | None = None
    temp_c: float | None = None


def over(samples: list[tuple[float, gpu.Sample]], began: float, ended: float) -> Device:
    """The samples between `began` and `ended` (time.time()) as one: the energy counter's difference, interpolated to
    both ends, all throttle reasons or-ed, the mean clock, the highest temperature."""
    inside = [s for t, s in samples if began <= t <= ended]
    throttle = [s.throttle for s in inside if s.throttle is not None]
    clocks = [s.sm_mhz for s in inside if s.sm_mhz is not None]
    heat = [s.temp_c for s in inside if s.temp_c is not None]
    counter = [(t, s.energy_j) for t, s in samples if s.energy_j is not None]
    first, last = _at(counter, began), _at(counter, ended)
    reasons = 0
    for bits in throttle:
        reasons |= bits
    return Device(
        energy_j=round(last - first, 3) if first is not None and last is not None and last >= first else None,
        throttle=reasons if throttle else None,
        sm_mhz=round(sum(clocks) / len(clocks), 1) if clocks else None,
        temp_c=max(heat) if heat else None,
    )


def _at(counter: list[tuple[float, float]], t: float) -> float | None:
    """A counter's value at a time between two of its samples; None outside of them."""
    i = bisect_right([when for when, _ in counter], t)
    if i == 0 or not counter:
        return None
    if i == len(counter):
        return counter[-1][1] if t - counter[-1][0] < 0.05 else None
    (t0, v0), (t1, v1) = counter[i - 1], counter[i]
    return v0 + (v1 - v0) * (t - t0) / (t1 - t0) if t1 > t0 else v0
