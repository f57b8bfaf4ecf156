"""A session as something to take away: the decided configuration, a report, or the rows.

Everything in a session file is untrusted text: commands are quoted for the shell, YAML is written as JSON values
(which YAML reads), and control characters never leave here.
"""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from tui_tuner import paths
from tui_tuner.analysis import bottleneck, details, points, report
from tui_tuner.analysis.chain import Link
from tui_tuner.analysis.verdict import judge
from tui_tuner.model import knobs
from tui_tuner.model.plan import PRACTICE
from tui_tuner.model.session import Point, Session, State
from tui_tuner.model.text import escaped, plain
from tui_tuner.model.values import Value, label

_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_]*$")  # an engine argument; anything else is no flag of vLLM's


def decided(session: Session) -> Value:
    """The value to serve with: the one that was kept, else the baseline's."""
    decision = session.decision
    return decision.value if decision and decision.choice == "keep" else session.start.baseline


def configuration(session: Session) -> dict[str, Any]:
    """The engine arguments of the decided configuration, the knob's written out: server and library defaults differ."""
    args = session.start.plan.args(decided(session))
    if args["model"] == PRACTICE and session.start.model_path:
        args["model"] = session.start.model_path
    # None is the absence of an argument: on a command line there is no way, and no need, to say it.
    return {name: value for name, value in args.items() if value is not None and _NAME.match(name)}


def serve(session: Session, state: State = "finished", chain: Sequence[Link] = ()) -> str:
    """One `vllm serve` line, quoted for the shell. The knob's own argument comes first behind the model."""
    args = configuration(session)
    model = _clean(args.pop("model"))
    words = ["vllm", "serve", model if not model.startswith("-") else f"./{model}"]
    own = session.start.plan.knob.name
    for name in sorted(args, key=lambda n: (n != own, n)):
        words += _flag(name, args[name])
    # The shell expands the home folder only outside quotes.
    return " ".join("~/" + shlex.quote(w[2:]) if w.startswith("~/") else shlex.quote(w) for w in words)


def _flag(name: str, value: Any) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if value is True:
        return [flag]
    if value is False:
        return ["--no-" + name.replace("_", "-")]
    if isinstance(value, (dict, list)):
        return [flag, _clean(msgspec.json.encode(paths.expanded(value)).decode())]
    return [flag, _clean(str(value))]


def yaml(session: Session, state: State = "finished", chain: Sequence[Link] = ()) -> str:
    """The configuration as the file that `vllm serve --config` reads; a comment says where it comes from."""
    args = paths.expanded(configuration(session))  # YAML knows no home folder
    lines = [f"# tui-tuner, session {_clean(session.id)}: {_clean(_why(session))}"]
    for name in ["model", *sorted(n for n in args if n != "model")]:
        lines.append(f"{name.replace('_', '-')}: {escaped(msgspec.json.encode(args[name]).decode(), yaml=True)}")
    return "\n".join(lines)


def markdown(session: Session, state: State = "finished", chain: Sequence[Link] = ()) -> str:
    """A report for somebody else: what was held fixed, what was measured, what was decided and why.

    `chain` are the decisions that led here, as `analysis.chain` finds them.
    """
    start, plan = session.start, session.start.plan
    rows = [
        f"# {_text(plan.knob.name)} on {_text(plan.model)}",
        "",
        f"*{_text(start.machine.title)}, vLLM {_text(start.engine.version)}, session {_text(session.id)} ({state})*",
        "",
        _text(judge(session).why),
        "",
        "| value | status | KV tokens | tok/s | difference | TTFT p50 | TPOT p50 | accuracy |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for point in session.points:
        here = points.figures(point, session)
        best = here.best
        tokens = point.capacity.kv_tokens if point.capacity else None
        change = report.difference(point, session)
        asked = here.quality if not start.dummy_weights else None
        cells = [
            _called(point),
            point.status or report.status_words(point, state)[1],
            f"{tokens:,}" if tokens else "",
            f"{best.output_tok_s:,.0f}" if best else "",
            f"{change:+.1f} %" if change is not None else "",
            f"{best.ttft.p50:,.0f} ms" if best and best.ttft.p50 is not None else "",
            f"{best.tpot.p50:,.1f} ms" if best and best.tpot.p50 is not None else "",
            f"{asked.right:.0f} of {asked.scored}" if asked and asked.scored else "",
        ]
        rows.append("| " + " | ".join(cells) + " |")
        if point.failed:
            rows.append(f"| | {_text(point.failed.say)} | | | | | | |")
    for grid in details.grids(session):
        rows += ["", f"{grid.title.capitalize()}:", "", "| value | " + " | ".join(grid.head) + " |"]
        rows.append("| --- |" + " ---: |" * len(grid.head))
        rows += ["| " + " | ".join((_called(row.point), *row.cells)) + " |" for row in grid.rows]
    rows += ["", f"Load: {_text(plan.load.describe())}. SLO: {_text(_slo(session))}.", ""]
    if start.dummy_weights:
        rows += ["Dummy weights: speed and memory are real, answers mean nothing and were not asked for.", ""]
    held = ", ".join(f"{_text(k)} = {_text(label(v))}" for k, v in plan.fixed.items()) or "nothing but the model"
    rows += [f"Held fixed: {held}.", ""]
    if start.prediction:
        rows += [f"Expected before: {_text(start.prediction)}", ""]
    if session.decision:
        rows += [f"Decided: {_text(_why(session))}.", ""]
    if chain:
        rows += ["The decisions that led here:", ""]
        rows += [f"{number}. {_text(link.say)} ({_text(link.id)})" for number, link in enumerate(chain, 1)] + [""]
    rows += ["```sh", serve(session, state), "```"]
    return "\n".join(rows)


def _called(point: Point) -> str:
    return _text(label(point.value)) + ("" if point.role == "value" else f" ({point.role.replace('_', ' ')})")


def _slo(session: Session) -> str:
    slo = session.start.plan.slo
    bounds = [f"{b.metric.upper()} p{b.percentile} ≤ {b.ms:g} ms" for b in slo.bounds()]
    return "; ".join([f"goal {slo.goal}", *bounds])


def _why(session: Session) -> str:
    decision = session.decision
    if decision is None:
        return "no decision yet: the baseline's configuration"
    said = f", because {decision.why}" if decision.why else ""
    name = session.start.plan.knob.name
    if decision.choice == "keep":
        return f"keep {name} {label(decision.value)}{said}"
    return f"revert to {name} {label(session.start.baseline)}{said}"


def rows_csv(session: Session, state: State = "finished", chain: Sequence[Link] = ()) -> str:
    """Every request of every point, one a row: the raw figures, for whoever wants to compute their own."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["n", "role", "value", "attempt", "status", "level", "planned_s", "sent_s", "first_s", "last_s",
         "prompt_tokens", "output_tokens", "finish", "longest_gap_ms"]
    )  # fmt: skip
    for point in session.points:
        for level in point.levels:
            for i in range(len(level.sent)):
                gaps = level.gaps[i] if i < len(level.gaps) else []
                writer.writerow(
                    [point.n, point.role, _cell(label(point.value)), point.attempt, point.status or "", level.level]
                    + [_at(c, i) for c in (level.planned, level.sent, level.first, level.last)]
                    + [_at(c, i) for c in (level.prompt_tokens, level.output_tokens)]
                    + [_cell(str(_at(level.finish, i))), max(gaps) / 10 if gaps else ""]
                )
    return out.getvalue().rstrip("\n")


def _at(column: list[Any], i: int) -> Any:
    return column[i] if i < len(column) and column[i] is not None else ""


def _cell(text: str) -> str:
    """A spreadsheet would run a cell that begins like a formula."""
    cleaned = _clean(text)
    return f"'{cleaned}" if cleaned[:1] in ("=", "+", "-", "@") else cleaned


def _clean(value: Any) -> str:
    return plain(str(value), 20_000)


def _text(value: Any) -> str:
    """Text in Markdown: no markup of its own, no way out of a table's cell."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", _clean(value))


def html(session: Session, state: State = "finished", chain: Sequence[Link] = ()) -> str:
    """One self-contained web page: see `analysis.page`, which is loaded when it is asked for."""
    from tui_tuner.analysis import page

    return page.html(session, state, chain)


def next_step(session: Session) -> str | None:
    """The knob to try next, with why; None where nothing suggests one."""
    if not points.baselines(session):
        return None
    for name in bottleneck.next_knobs(session):
        knob = knobs.CATALOGUE.get(name)
        if knob is not None and name != session.start.plan.knob.name:
            return f"next: {knob.name} ({knob.title})"
    return None


class Export(Protocol):
    """What a session is turned into: text, ready for standard output."""

    def __call__(self, session: Session, state: State = "finished", chain: Sequence[Link] = ()) -> str: ...


TO: dict[str, Export] = {
    "serve": serve,
    "yaml": yaml,
    "markdown": markdown,
    "html": html,
    "csv": rows_csv,
}
