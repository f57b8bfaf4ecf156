"""After a decision: what was decided, what follows from it, and the plan of the next sweep. Pure."""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from tui_tuner.analysis import bottleneck, points
from tui_tuner.model.plan import Plan, Sweep
from tui_tuner.model.session import Session
from tui_tuner.model.values import engine_args, is_variant
from tui_tuner.tui import words


def decided(session: Session) -> str:
    """The decision in a sentence."""
    decision, knob = session.decision, session.start.plan.knob.name
    if decision is None:
        return "Nothing has been decided yet: this is the baseline's configuration."
    if decision.choice == "keep":
        return f"Kept {knob} {words.value(decision.value)}" + (", against the verdict" if decision.override else "")
    return f"Went back to {knob} {words.value(session.start.baseline)}" + (
        ", against the verdict" if decision.override else ""
    )


def onward(session: Session) -> Plan:
    """The plan with the decision in its fixed configuration, so that the next knob starts from it."""
    plan, decision = session.start.plan, session.decision
    if decision is None or decision.choice != "keep":
        return plan
    args = engine_args(plan.knob.name, decision.value)
    model = str(args.pop("model")) if is_variant(decision.value) else plan.model
    return replace(plan, model=model, fixed={**plan.fixed, **args}, knob=Sweep(plan.knob.name, plan.knob.values, UNSET))


def next_knobs(session: Session) -> tuple[str, ...]:
    """The knobs to try next, best first, by what held back the point that is built on; fixed ones are left out."""
    kept = session.decision.value if session.decision and session.decision.choice == "keep" else session.start.baseline
    found = bottleneck.next_knobs(session, points.value_point(session, kept))
    return tuple(name for name in found if name not in session.start.plan.fixed)


def next_steps(session: Session) -> tuple[str, ...]:
    """What to do now, in a few lines."""
    steps = []
    following = next_knobs(session)
    if following:
        more = f" (then {', '.join(following[1:3])})" if len(following) > 1 else ""
        steps.append(f"n plans the next sweep from this configuration, with {following[0]} as its knob{more}.")
    if session.start.plan.thoroughness == "quick":
        steps.append("This was measured quickly. Before it is trusted, measure it again as standard or decide.")
    steps.append("Or ship it: serve with the line above, and keep this session as its reason.")
    return tuple(steps)
