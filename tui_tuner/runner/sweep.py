"""The sweep: one point after another, each in a fresh engine, every fact written down as it happens."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from msgspec.structs import replace

from tui_tuner import evals, gpu, paths
from tui_tuner.analysis import schedule
from tui_tuner.evals import traffic
from tui_tuner.model import events as ev
from tui_tuner.model import wire
from tui_tuner.model.secrets import Redactor
from tui_tuner.model.session import Fold, Session
from tui_tuner.model.values import Value, label
from tui_tuner.runner import clean, logs, processes
from tui_tuner.runner.card import CardBusy, CardLock
from tui_tuner.runner.child import Guard
from tui_tuner.runner.limits import Limits
from tui_tuner.runner.point import Ended, PointRun
from tui_tuner.store import library, sessionfile
from tui_tuner.store.inbox import Inbox

FAILED, BASELINE, STOPPED = 1, 4, 130  # exit statuses beside 0

Ready = Callable[[str | None], None]


class CannotRun(Exception):
    """The sweep cannot begin; the text is a sentence for the person."""


def run(path: Path, ready: Ready, limits: Limits | None = None) -> int:
    """Measures what is left of a session, from here to its end. Returns the exit status.

    `ready` is called once: with None when the locks are held, or with the sentence why nothing will happen.
    """
    try:
        writer = sessionfile.Writer.open(path)
    except (sessionfile.Unreadable, sessionfile.Locked) as error:
        ready(str(error))
        return FAILED
    with writer, contextlib.ExitStack() as stack:
        try:
            session = sessionfile.read(path)
            lock = CardLock(session.start.machine.card, session.id)
            stack.callback(lock.close)
            sweep = Sweep(path, writer, session, limits or Limits())
            stack.callback(sweep.close)
        except (sessionfile.Unreadable, CardBusy, CannotRun, OSError) as error:
            ready(str(error))
            return FAILED
        ready(None)
        return sweep.go()


class Sweep:
    """One runner's work on one session."""

    def __init__(self, path: Path, writer: sessionfile.Writer, session: Session, limits: Limits) -> None:
        """Raises CannotRun if the eval set or the traffic file cannot be read."""
        self.path = path
        self.limits = limits
        self.plan = session.start.plan
        self.start = session.start
        self._writer = writer
        self._fold = Fold()
        self._fold.add_all(sessionfile.events(path))
        self.items = self._items()
        self.trace = self._trace()
        self.sampler = gpu.Sampler(self.start.machine)
        self.guard = Guard()
        self._inbox = Inbox(path)
        self._pending: list[ev.Asked] = []
        self._began = time.time()
        self._last_t = session.last_t
        self._stop: str | None = None
        self._skip: int | None = None
        self._baseline_mib: int | None = None
        self._told = False  # whether NVML told anything when last asked
        self._signals()

    # ---- what a point needs of the sweep -----------------------------------------------------------------------

    @property
    def session(self) -> Session:
        """The session so far."""
        return self._fold.session()

    def now(self) -> float:
        """The time for an event (seconds since the epoch): never before that of an earlier event."""
        self._last_t = max(time.time(), self._last_t)
        return self._last_t

    def emit(self, event: ev.AnyEvent, sync: bool = True) -> None:
        """Writes an event down. Raises sessionfile.WriteFailed."""
        self._writer.append(event, sync)
        self._fold.add(event)

    def note(self, say: str, level: str = "warn") -> None:
        """A sentence for the person."""
        self.emit(ev.Noted(self.now(), say, "warn" if level == "warn" else "info"))

    def sample(self, pgid: int | None) -> gpu.Sample:
        """One look at the device. When a card falls silent the person is told, once."""
        sample = self.sampler.sample(pgid)
        told, self._told = self._told, sample != gpu.Sample()
        if told and not self._told and self.start.machine.gpu is not None:
            self.note(
                "NVML tells nothing of the card any more, as if it had fallen off the bus: memory, heat and throttling "
                "are not seen from here on; `dmesg` may name an Xid"
            )
        return sample

    def asked(self, running: int | None) -> Ended | None:
        """Takes what the person has asked for meanwhile; how the running point must end, if it must."""
        pending, self._pending = [*self._pending, *self._inbox.poll()], []
        for asked in pending:
            if asked.what in ("stop", "skip") and asked.t < self._began - 1.0:
                continue  # meant for a runner that is gone
            asked = replace(asked, t=self.now())
            if asked.what == "stop":
                self._stop = "on request"
            elif asked.what == "skip" and running is not None and asked.n in (None, running):
                self.emit(replace(asked, n=running))
                self._skip = running
            elif asked.what != "skip" or asked.n is not None:
                if refusal := schedule.refusal(self.session, asked):
                    self.note(refusal)
                else:
                    self.emit(asked)
        if self._stop:
            return "stop"
        if self._skip is not None and self._skip == running:
            self._skip = None
            return "skip"
        return None

    def args(self, value: Value) -> dict[str, Any]:
        """The engine arguments of a point, with the model as a path where it lies on this disk."""
        args = self.plan.args(value)
        if args["model"] == self.plan.model and self.start.model_path:
            args["model"] = self.start.model_path
        elif args["model"] != self.plan.model:
            from tui_tuner.engines import models

            if found := models.locate(args["model"]):
                args["model"] = str(found)
        made: dict[str, Any] = paths.expanded(args)
        return made

    def task(self, value: Value) -> wire.Task:
        """The work of one point, as its worker is told."""
        return wire.Task(
            args=self.args(value),
            load=self.plan.load,
            requests=self.plan.requests_per_level(),
            seed=self.plan.seed,
            questions=[item.question() for item in self.items],
            max_tokens=self.plan.evalset.max_tokens,
            tick_s=self.limits.tick,
            trace=self.trace,
        )

    # ---- the sweep ---------------------------------------------------------------------------------------------

    def go(self) -> int:
        """Everything that is left to do. Returns the exit status."""
        try:
            return self._go()
        except sessionfile.WriteFailed as error:
            print(error, file=sys.stderr)
            return self._last_words(f"{error}: what was measured is kept; make room and resume")
        except Exception as error:  # noqa: BLE001 (whatever it is, the session must say that it ended)
            text = Redactor(os.environ).text("".join(traceback.format_exception(error)))
            print(text, file=sys.stderr)
            return self._last_words(f"tui-tuner itself failed, see runner.log ({type(error).__name__}: {error})")

    def _go(self) -> int:
        if not self._open():
            return 0
        while True:
            self.asked(None)
            if self._stop:
                return self._end("stopped", f"stopped {self._stop}", STOPPED)
            session = self.session
            slot = schedule.next_slot(session)
            if slot is None:
                if band := schedule.band_event(session, self.now()):
                    self.emit(band)
                    continue
                return self._finish(session)
            self._wait_for_card(slot)
            if self._stop:
                continue
            outcome = PointRun(self, slot, self._baseline_mib).go()
            if outcome.say is not None:
                return self._end("failed", outcome.say, FAILED)

    def _open(self) -> bool:
        """Takes the session over; whether there is anything to do."""
        session = self.session
        boot = processes.boot_id()
        segment, why = session.segment, "start"
        if session.launches:
            why = "resume"
            if session.launches[-1].boot_id != boot:
                segment, why = segment + 1, "resume after a reboot"
            elif time.time() - session.last_t > self.limits.new_segment:
                segment, why = segment + 1, "resume after a pause"
            elif _lost_baseline(session):
                segment, why = segment + 1, "resume after the baseline failed"
        launched = ev.Launched(max(self.now(), session.last_t + 1e-6), os.getpid(), boot, segment, why)
        trial = Fold()
        self._pending = self._inbox.poll()
        trial.add_all([*sessionfile.events(self.path), launched, *(a for a in self._pending if a.what == "add")])
        if schedule.next_slot(trial.session()) is None and schedule.band_event(session, launched.t) is None:
            if session.ended is None:
                self.emit(launched)
                self._finish(self.session)
            return False
        self._last_t = launched.t
        self.emit(launched)
        if self._writer.repaired:
            self.note(
                f"the last line of the file was torn ({len(self._writer.repaired)} bytes) and was cut off", "info"
            )
        self._clean_up_after_others(session, boot)
        return True

    def _clean_up_after_others(self, session: Session, boot: str) -> None:
        for leftover in clean.leftovers(session, boot):
            self.note(leftover.say)
            left = clean.end_leftover(leftover, session.id)
            if left:
                self.note(f"still there: {', '.join(left)}")
        for point in session.points:
            if point.status is None:
                logs.redact(library.log_of(self.path, point.n, point.attempt))

    def _wait_for_card(self, slot: schedule.Slot) -> None:
        """Waits a little for a card that somebody else is using, then says so and goes on."""
        used = self.sampler.used_mib()
        if used is None:
            return
        if self._baseline_mib is None:
            others = self.sampler.processes()
            if others:
                self.note(f"somebody else is on this card: {clean.holders(self.sampler)}; figures may suffer")
        elif used > self._baseline_mib + clean.TOLERANCE_MIB:
            deadline = time.monotonic() + self.limits.busy
            while time.monotonic() < deadline and not self._stop:
                time.sleep(0.2)
                used = self.sampler.used_mib()
                if used is None or used <= self._baseline_mib + clean.TOLERANCE_MIB:
                    break
            else:
                more = f"{(used or 0) - self._baseline_mib:,} MiB more than at the start"
                who = clean.holders(self.sampler)
                self.note(f"before point {slot.n} ({label(slot.value)}) the card held {more}: {who}")
        if used is not None:
            self._baseline_mib = used if self._baseline_mib is None else max(used, self._baseline_mib)

    def _finish(self, session: Session) -> int:
        lost = _lost_baseline(session)
        if lost:
            return self._end("failed", f"the baseline could not be measured: {lost}", BASELINE)
        return self._end("finished", None, 0)

    def _end(self, why: str, say: str | None, status: int) -> int:
        if why == "stopped":
            self.emit(ev.Asked(self.now(), "stop"))
        self.emit(
            ev.SweepEnded(
                self.now(), "stopped" if why == "stopped" else "failed" if status else "finished", say, status
            )
        )
        return status

    def _last_words(self, say: str) -> int:
        with contextlib.suppress(sessionfile.WriteFailed):
            self.emit(ev.SweepEnded(self.now(), "failed", say, FAILED))
        return FAILED

    def close(self) -> None:
        """Lets guard, sampler and inbox go."""
        self.guard.close()
        self.sampler.close()
        self._inbox.close()

    def _items(self) -> tuple[evals.Item, ...]:
        choice = self.plan.evalset
        if choice.items <= 0 or self.start.dummy_weights:
            return ()
        try:
            return tuple(evals.sample(evals.load(choice.name), choice.items, self.plan.seed))
        except evals.BadEvalSet as error:
            raise CannotRun(str(error)) from None

    def _trace(self) -> list[dict[str, Any]]:
        if self.plan.load.kind != "trace":
            return []
        try:
            return traffic.read(self.plan.load.file or "")
        except traffic.BadTraffic as error:
            raise CannotRun(str(error)) from None

    def _signals(self) -> None:
        def stop(number: int, frame: FrameType | None) -> None:
            self._stop = f"by {signal.Signals(number).name}"

        def ignore(number: int, frame: FrameType | None) -> None:
            pass  # a terminal that closes is no reason; a handler, because SIG_IGN would be inherited by the engine

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT):
            signal.signal(number, ignore)


def _lost_baseline(session: Session) -> str | None:
    """Why the segment's own baseline gave no figures, if so."""
    for point in session.points:
        if (
            point.role == "baseline"
            and point.segment == session.segment
            and (point.failed or point.status == "aborted")
        ):
            return point.say or "it was skipped"
    return None
