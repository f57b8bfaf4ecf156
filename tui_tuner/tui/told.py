"""What the other parts found out, turned into the records that screens show. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tui_tuner.analysis import estimate, schedule
from tui_tuner.model.knobs import Facts, FieldFacts, Knob
from tui_tuner.model.load import Load
from tui_tuner.model.values import label
from tui_tuner.tui import words
from tui_tuner.tui.draft import Problem
from tui_tuner.tui.records import Estimate, EstimateRow, KnobRow, SessionRow

if TYPE_CHECKING:
    from tui_tuner.prepare import check
    from tui_tuner.prepare.start import Examined
    from tui_tuner.store.library import Summary


def session_row(s: Summary) -> SessionRow:
    """One line of the home screen."""
    if s.start is None or s.problem:
        return SessionRow(s.id, s.path, s.last_t, problem=s.problem or "it cannot be read")
    plan = s.start.plan
    outcome = ""
    if s.decision:
        outcome = f"kept {label(s.decision.value)}" if s.decision.choice == "keep" else "went back"
    elif s.state in ("running", "interrupted") and s.point:
        outcome = f"at {s.point.role.replace('_', ' ')} {label(s.point.value)}"
    elif s.state == "finished":
        outcome = "to decide" if s.start.kind == "sweep" else "noise"
    values = ", ".join(label(v) for v in plan.knob.values)
    return SessionRow(s.id, s.path, s.last_t, plan.model, plan.knob.name, values, s.state, outcome)


def recorded_row(s: Summary) -> SessionRow:
    """One line of the sessions that come along."""
    row = session_row(s)
    return replace(row, card=s.start.machine.title) if s.start is not None else row


def problem(found: check.Problem, examined: Examined) -> Problem:
    """A problem of the plan in the app's words: what a command would mend, a key does here."""
    if found.field != "thoroughness":
        return Problem(found.field, found.say, found.suggest)
    each = examined.estimate.get("point_seconds")
    time = f", about {words.seconds(each * schedule.NOISE_LAUNCHES)}" if isinstance(each, (int, float)) else ""
    return Problem(
        found.field,
        "decide needs the noise band of this card, engine, model and load, and none is known yet: "
        f"F6 measures it first ({schedule.NOISE_LAUNCHES} launches of the baseline{time}), or choose standard",
        found.suggest,
    )


def estimated(examined: Examined) -> Estimate | None:
    """`analysis.estimate.before`'s table as the review shows it."""
    told = examined.estimate
    if not told:
        return None
    plan = examined.plan
    rows: list[EstimateRow] = []
    for role, value in [("baseline", examined.baseline), *[("value", v) for v in plan.knob.values]]:
        entry = told.get(label(value))
        if isinstance(entry, dict) and not any(r.value == label(value) for r in rows):
            say = "" if entry.get("starts", True) else "will not start"
            rows.append(EstimateRow(label(value), role, entry.get("kv_tokens"), entry.get("concurrency"), say))
    most = told.get("most_points")
    notes = [told["source"]] if told.get("source") else []
    if most and most != told.get("points"):
        notes.insert(0, f"at most {most} points, {told.get('most_minutes', 0):.0f} min")
    return Estimate(
        points=int(told.get("points", 0)),
        requests=plan.requests_per_level(),
        seconds=float(told["minutes"]) * 60 if "minutes" in told else None,
        cost=told.get("price"),
        currency=str(told.get("currency", "")),
        rows=tuple(rows),
        notes=(*examined.warnings, *notes),
    )


_ARROWS = {"up": "↑", "down": "↓", "flat": "≈", "depends": "±"}


def knob_row(knob: Knob, goal: str, load: Load | None, facts: Facts | None) -> KnobRow:
    """A knob as the goal and the load see it."""
    figure = {"goodput": "throughput", "e2e": "tpot"}.get(goal, goal)
    direction = knob.directions.get(figure, "flat")  # type: ignore[call-overload]
    field = facts.fields.get(knob.name) if facts else None
    missing = None
    if facts is not None and facts.fields and field is None:
        missing = f"vLLM {facts.version} has no argument {knob.name}"
    unsuited = None
    if load is not None and not estimate.load_shows(knob, load):
        unsuited = f"this load cannot show {knob.name}: it needs {knob.load or 'another load'}"
    return KnobRow(
        name=knob.name,
        title=knob.title,
        group=knob.group,
        arrow=_ARROWS.get(direction, "≈"),
        trades=knob.trades,
        when=knob.when,
        load=knob.load,
        declared=label(field.declared_default) if field else "",
        effective=label(field.effective_default) if field else "",
        why=knob.title,
        missing=missing,
        unsuited=unsuited,
    )


def allowed(field: FieldFacts | None) -> str:
    """What the installed version allows, in words."""
    if field is None:
        return ""
    if field.choices:
        return ", ".join(map(str, field.choices[:12]))
    parts = []
    if field.low is not None:
        parts.append(f"{'above' if field.low_open else 'at least'} {field.low:g}")
    if field.high is not None:
        parts.append(f"{'below' if field.high_open else 'at most'} {field.high:g}")
    return ", ".join(parts)
