"""Services without a machine behind them, and a way to look at a screen as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tui import sessions as made
from tui_tuner.analysis import schedule
from tui_tuner.model import events as ev
from tui_tuner.model.session import Session, fold
from tui_tuner.tui import view
from tui_tuner.tui.app import TunerApp
from tui_tuner.tui.draft import Draft, Problem, practice
from tui_tuner.tui.player import Player
from tui_tuner.tui.records import (
    Checked,
    CheckUp,
    EngineState,
    Estimate,
    EstimateRow,
    EvalRow,
    KnobRow,
    Listing,
    ModelRow,
    Pasted,
    SessionRow,
    Suggestion,
    Surroundings,
)  # fmt: skip
from tui_tuner.tui.services import ReplaySource, Services

KNOBS = (
    KnobRow(
        "max_num_seqs", "Sequences in a batch", "batch shape", "↑", "batch width against the latency of each",
        "requests wait while the KV cache has room", None, "128", "128", "a wider batch serves more at once",
    ),
    KnobRow(
        "gpu_memory_utilization", "Share of memory", "capacity", "↑", "headroom on the card",
        "the KV cache is full", "more requests than the KV cache holds", "0.92", "0.92", "more KV blocks",
    ),
    KnobRow(
        "kv_cache_dtype", "Precision of the KV cache", "capacity", "↑", "some precision", "the KV cache is full",
        None, "auto", "auto", "twice the tokens", unsuited="this load cannot show kv_cache_dtype: nothing waits for KV",
    ),
    KnobRow(
        "enable_prefix_caching", "Reuse of shared beginnings", "reuse", "≈", "almost nothing",
        "prompts share a beginning", "a shared prefix", "on", "on", "only with shared prefixes",
    ),
    KnobRow(
        "speculative_config", "Speculative decoding", "latency", "±", "memory and compute", "few requests at once",
        None, "none", "none", "helps a single stream", missing="vLLM 0.32.0 on a CPU has no speculation",
    ),
)  # fmt: skip


class FakeServices(Services):
    """Answers at once, from `events` by session."""

    def __init__(
        self,
        events: dict[str, list[ev.AnyEvent]] | None = None,
        locked: frozenset[str] = frozenset(),
        gpu: bool = False,
        recorded: dict[str, list[ev.AnyEvent]] | None = None,
    ):
        super().__init__(None, None)
        self.recorded = recorded or {}
        self.events = {**(events or {}), **self.recorded}
        self.is_locked = locked
        self.gpu = gpu
        self.asked: list[tuple[Any, ...]] = []
        self.began: list[Draft] = []
        self.noise: list[Draft] = []
        self.decided: list[tuple[Any, ...]] = []

    def session(self, path: Path) -> Session:
        return fold(self.events[path.stem])

    def folder(self) -> Path:
        return Path("/home/me/.local/share/tui-tuner/sessions")

    def listing(self) -> Listing:
        rows, come_along = [], []
        for name, events in self.events.items():
            s = fold(events)
            plan, card = s.start.plan, s.start.machine.title
            if name in self.recorded:
                row = SessionRow(name, Path(f"{name}.jsonl"), made.T0, plan.model, plan.knob.name, "", "finished")
                come_along.append(replace(row, card=card))
                continue
            state = s.state(name in self.is_locked)
            outcome = "kept 8" if s.decision else "to decide" if state == "finished" else "at value 8"
            rows.append(
                SessionRow(
                    name,
                    Path(f"{name}.jsonl"),
                    made.T0 + 300,
                    s.start.plan.model,
                    s.start.plan.knob.name,
                    "2, 8",
                    state,
                    outcome,
                )
            )
        return Listing(tuple(rows), str(self.folder()), recorded=tuple(come_along))

    def surroundings(self) -> Surroundings:
        return Surroundings(made.GPU) if self.gpu else Surroundings(made.CPU, "NVML found no driver")

    def engine(self) -> EngineState:
        return EngineState(made.ENGINE)

    def models(self) -> tuple[ModelRow, ...]:
        return (
            ModelRow("practice", 258, "built in", "", True),
            ModelRow("Qwen/Qwen2.5-7B-Instruct", 14_530, "Hugging Face", "", (not self.gpu and None) or self.gpu),
            ModelRow("/data/models/一个很长的模型名字/Qwen2.5-14B-Instruct-AWQ", 9_520, "folder", "awq", False),
        )

    def evalsets(self) -> tuple[EvalRow, ...]:
        return (EvalRow("basics", 60, "CC0"), EvalRow("arithmetic", 120, "CC0"))

    def check_up(self) -> tuple[CheckUp, ...]:
        return (
            CheckUp(True, "terminal", "80×24, xterm-256color"),
            CheckUp(None, "GPU", "none. The CPU engine works without one"),
        )

    def first_draft(self) -> Draft:
        return practice()

    def draft_of(self, path: Path, fixing: int | None = None) -> Draft:
        from tui_tuner.tui import remedy
        from tui_tuner.tui.draft import from_plan

        session = self.session(path)
        point = session.point(fixing) if fixing is not None else None
        tried = remedy.of(point.failed, session.start.plan, False) if point else None
        return from_plan(remedy.applied(session.start.plan, tried) if tried else session.start.plan)

    def knobs(self, draft: Draft) -> tuple[KnobRow, ...]:
        return KNOBS

    def suggestion(self, draft: Draft) -> Suggestion:
        return Suggestion(
            (2, 8), 128, True, "Fewer sequences than clients make requests wait.", "a whole number from 1 on"
        )

    def check(self, draft: Draft) -> Checked:
        _, wrong = draft.plan()
        return Checked(wrong)

    def check_fully(self, draft: Draft) -> Checked:
        estimate = Estimate(
            4, 64, 232.0, 0.13, "CNY",
            (EstimateRow("128", "baseline", 130_000, 812.0, ""), EstimateRow("2", "value", 130_000, 812.0, ""),
             EstimateRow("8", "value", 130_000, 812.0, "")),
            ("the memory of the CPU engine is a share of NUMA node 0",),
        )  # fmt: skip
        needs = (Problem("thoroughness", "decide needs the noise band: F6 measures it first", "standard"),)
        return Checked(needs if draft.thoroughness == "decide" else (), estimate, True)

    def paste(self, text: str) -> Pasted:
        if "--nope" in text:
            return Pasted(problems=("vLLM 0.32.0 has no argument nope",))
        return Pasted(
            "Qwen/Qwen2.5-7B-Instruct", {"max_model_len": 4096}, (), ("--port is the server's and plays no part",)
        )

    def begin(self, draft: Draft) -> Path:
        self.began.append(draft)
        return Path("running.jsonl")

    def resume(self, path: Path) -> Path:
        self.asked.append(("resume", path))
        return path

    def begin_noise(self, draft: Draft) -> Path:
        self.noise.append(draft)
        return Path("running.jsonl")

    def recheck(self, path: Path) -> Path:
        self.asked.append(("recheck", path))
        return path

    def request(self, path: Path, what: Any, n: int | None = None, value: Any = None) -> None:
        self.asked.append((what, n, value))

    def source(self, path: Path) -> Any:
        return FakeSource(self, path.stem)

    def replay(self, path: Path, player: Player) -> ReplaySource:
        """Stands still at two fifths until a key is pressed."""
        source = ReplaySource(self.events[path.stem], player)
        player.pace = replace(player.pace, at=player.pace.length * 0.4, paused=True)
        return source

    def outcome(self, path: Path) -> Any:
        from tui_tuner.analysis import verdict
        from tui_tuner.tui import outcome

        s = self.session(path)
        return outcome.of(s, path.stem in self.is_locked, verdict.judge(s))

    def saved(self, path: Path) -> Any:
        from tui_tuner.tui.records import Saved

        serve = "vllm serve practice --max-model-len 1024 --enforce-eager --gpu-memory-utilization 0.3 --max-num-seqs 8"
        return Saved(
            "Kept max_num_seqs 8",
            serve,
            "model: practice\nmax-num-seqs: 8\n",
            "/data/sessions/x.serve.sh",
            ("Next: max_num_batched_tokens, the limits leave room.",),
            ("max_num_seqs 128 → 8: +61 % tok/s",),
        )

    def next_draft(self, path: Path) -> Draft:
        return practice().with_knob("max_num_batched_tokens")

    def log(self, path: Path, n: int) -> tuple[str, list[str]]:
        return f"point-{n}.log", [f"INFO line {i}" for i in range(100)] + [made.HOSTILE]

    def decide(self, path: Path, choice: Any, value: Any, why: str | None) -> None:
        self.decided.append((choice, value, why))


class FakeSource:
    problem: str | None = None

    def __init__(self, services: FakeServices, name: str) -> None:
        self.services, self.name, self._seen = services, name, -1

    def poll(self) -> Session | None:
        events = self.services.events.get(self.name)
        if events is None:
            self.problem = f"{self.name}.jsonl cannot be read: no such file"
            return None
        if len(events) == self._seen:
            return None
        self._seen = len(events)
        return fold(events)

    def locked(self) -> bool:
        return self.name in self.services.is_locked

    def view(self, session: Session, locked: bool, now: float) -> view.RunView:
        return view.snapshot(session, locked, session.last_t, schedule.slots(session))


def app(services: FakeServices | None = None, **options: Any) -> TunerApp:
    return TunerApp(services or FakeServices(), look="dark", **options)


def text_of(application: TunerApp) -> str:
    """What stands on the screen, line by line."""
    _, height = application.size
    lines = [""] * height
    screen = application.screen
    for y, strip in enumerate(screen._compositor.render_strips()):
        lines[y] = "".join(segment.text for segment in strip).rstrip()
    return "\n".join(lines[:height]) + "\n"
