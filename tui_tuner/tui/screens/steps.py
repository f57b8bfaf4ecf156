"""The wizard's steps by name."""

from __future__ import annotations

from tui_tuner.tui.screens.knob import KnobStep
from tui_tuner.tui.screens.model import ModelStep
from tui_tuner.tui.screens.review import ReviewStep
from tui_tuner.tui.screens.slo import SloStep
from tui_tuner.tui.screens.step import Step
from tui_tuner.tui.screens.values import ValuesStep
from tui_tuner.tui.screens.work import WorkStep

STEP: dict[str, type[Step]] = {
    "model": ModelStep,
    "work": WorkStep,
    "slo": SloStep,
    "knob": KnobStep,
    "values": ValuesStep,
    "review": ReviewStep,
}
