"""The catalogue of knobs: what moves in which direction, never by how much.

A knob is one entry of `CATALOGUE` and one help page, `tui/help/knobs/NAME.md`. Types, ranges and defaults are
not here: they are read from the installed vLLM (`Facts`, filled by the worker's `introspect`), because they
differ between versions, cards and models. The facts below were checked against vLLM 0.26.0 to 0.33.0.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from tui_tuner.model.values import Value

Group = Literal["capacity", "batch shape", "reuse", "latency", "scaling"]
Kind = Literal["int", "float", "bool", "choice", "table"]
Direction = Literal["up", "down", "flat", "depends"]  # of the figure itself: ttft "up" means a longer wait
Quality = Literal["measure", "untouched", "check"]
Figure = Literal["throughput", "ttft", "tpot", "itl", "kv_tokens", "vram", "startup"]


class Knob(Struct, frozen=True):
    """One engine argument, as knowledge.

    `directions` tells which way each figure goes when the knob is raised (turned on, or moved from its default to
    the more compact choice), *where it binds*; `when` says when that is. `derived` lists the fields of the
    resolved configuration that follow the knob by themselves, as `section.field` patterns (fnmatch).
    """

    name: str  # vLLM's own argument name
    flag: str
    group: Group
    kind: Kind
    title: str  # a few words
    directions: dict[Figure, Direction]
    trades: str
    when: str
    raise_means: str  # "more memory for the KV cache", for a sentence about the direction
    quality: Quality = "untouched"
    load: str | None = None  # the load in which it can show, in words; None: any
    derived: tuple[str, ...] = ()
    config_field: str | None = None  # where the resolved configuration keeps it: "cache_config.cache_dtype"
    suggested: tuple[Value, ...] = ()  # where no machine fact suggests better
    step: float | None = None  # the smallest sensible step
    warning: str | None = None
    symptoms: tuple[str, ...] = ()  # what a person sees when this is the knob to try


class FieldFacts(Struct, frozen=True):
    """What the installed vLLM says of one engine argument."""

    name: str
    type: str = ""
    declared_default: Any = None
    effective_default: Any = None  # as a server resolves it on this machine
    low: float | None = None
    high: float | None = None
    low_open: bool = False  # `low` itself is not allowed
    high_open: bool = False
    choices: list[str] | None = None
    flags: list[str] = []
    doc: str = ""
    deprecated: bool = False


class Facts(Struct, frozen=True):
    """What introspection of one engine's Python found; cached per version and device."""

    version: str
    device: str  # cuda, cpu, or "" where vLLM could not tell
    torch: str = ""
    package: str = "vllm"
    fields: dict[str, FieldFacts] = {}


class Resolution(Struct, frozen=True):
    """What the installed vLLM makes of one set of arguments: its configuration, or its complaint."""

    resolved: dict[str, Any] = {}
    field: str | None = None
    problem: str | None = None
