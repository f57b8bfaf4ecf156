"""A command or YAML in use, read into a model and vLLM's argument names. Pure; nothing is ever run.

Flags of the server itself (host, port, keys, names) play no part in tuning and are named as left out.
"""

from __future__ import annotations

import difflib
import re
import shlex
from typing import Any

from tui_tuner.model.knobs import Facts
from tui_tuner.model.values import parse
from tui_tuner.tui.records import Pasted

# Options of the HTTP server around the engine, not of the engine.
_SERVER = frozenset(
    {
        "host", "port", "uds", "api_key", "served_model_name", "chat_template", "response_role", "root_path",
        "ssl_keyfile", "ssl_certfile", "ssl_ca_certs", "allowed_origins", "allowed_methods", "allowed_headers",
        "allow_credentials", "uvicorn_log_level", "log_level", "disable_uvicorn_access_log", "middleware",
        "tool_call_parser", "enable_auto_tool_choice", "api_server_count", "headless", "enable_log_requests",
        "disable_log_requests", "max_log_len", "disable_log_stats", "lora_modules",
        "enable_server_load_tracking", "config",
    }
)  # fmt: skip
_SHORT = {
    "-tp": "tensor_parallel_size",
    "-pp": "pipeline_parallel_size",
    "-dp": "data_parallel_size",
    "-q": "quantization",
}
_YAML = re.compile(r"^\s*([A-Za-z][\w-]*)\s*:\s*(.*)$")
LARGEST = 20_000  # characters


def read(text: str, facts: Facts | None) -> Pasted:
    """`text` as the wizard's fields. What cannot be read, or what `facts` do not know, is a problem with its words."""
    text = text.strip()[:LARGEST]
    yaml = _from_yaml(text)
    try:
        pairs, model, wrong = yaml if yaml is not None else _from_command(text)
    except ValueError as error:
        return Pasted(problems=(f"this is no command line: {error}",))
    fixed: dict[str, Any] = {}
    problems, notes = list(wrong), []
    for name, value in pairs:
        if name == "model":
            model = str(value)
        elif name in _SERVER and not (facts and name in facts.fields and name not in ("served_model_name",)):
            notes.append(f"{name.replace('_', '-')} is the server's, and plays no part in tuning")
        elif facts is not None and facts.fields and name not in facts.fields:
            near = difflib.get_close_matches(name, facts.fields, n=1)
            hint = f": did you mean {near[0]}?" if near else ""
            problems.append(f"vLLM {facts.version} has no argument {name}{hint}")
        else:
            fixed[name] = value
    if model is None and not fixed and not problems:
        problems.append("no model and no flag was found: paste the whole command, or YAML with one setting a line")
    return Pasted(model, fixed, tuple(problems), tuple(notes))


_Read = tuple[list[tuple[str, Any]], str | None, list[str]]


def _from_yaml(text: str) -> _Read | None:
    """Settings of one line each; None if this is no such text. A list or a nested table is said, not guessed."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines or not all(_YAML.match(line) or line.startswith((" ", "-", "\t")) for line in lines):
        return None
    pairs, wrong = [], []
    for line in lines:
        match = _YAML.match(line)
        if match is None or line[0].isspace():
            wrong.append(f"{line.strip()[:60]!r} is nested: write it as a flag, with JSON as its value")
            continue
        value = match[2].split(" #")[0].strip()
        if value.startswith(("'", '"')) and value.endswith(value[0]) and len(value) > 1:
            pairs.append((_name(match[1]), value[1:-1]))
        else:
            pairs.append((_name(match[1]), parse(value) if value else None))
    return pairs, None, wrong


def _from_command(text: str) -> _Read:
    """The flags of a command. Raises ValueError where its quotes do not close."""
    words = shlex.split(text.replace("\\\r\n", " ").replace("\\\n", " "), comments=False)
    words = _after_start(words)
    pairs: list[tuple[str, Any]] = []
    wrong: list[str] = []
    model: str | None = None
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-") or _is_number(word):
            if model is None and not pairs:
                model = word
            else:
                wrong.append(f"{word[:60]!r} belongs to no flag")
            continue
        name, equals, value = word.partition("=")
        key = _SHORT.get(name) or _name(name.lstrip("-"))
        if equals:
            pairs.append((key, parse(value)))
        elif at < len(words) and (not words[at].startswith("-") or _is_number(words[at])):
            pairs.append((key, parse(words[at])))
            at += 1
        elif key.startswith("no_"):
            pairs.append((key.removeprefix("no_"), False))
        else:
            pairs.append((key, True))
    return pairs, model, wrong


def _after_start(words: list[str]) -> list[str]:
    """What follows `vllm serve`, the server module, or a docker image; all words where none is named."""
    for i, word in enumerate(words):
        if word == "serve" and i and words[i - 1].rsplit("/", 1)[-1] == "vllm":
            return words[i + 1 :]
        if word == "vllm.entrypoints.openai.api_server":
            return words[i + 1 :]
    if words[:2] in (["docker", "run"], ["podman", "run"]):
        for i, word in enumerate(words[2:], 2):
            if re.search(r"vllm[\w.-]*(/[\w.-]+)*(:[\w.-]+)?$", word) and not word.startswith("-") and "=" not in word:
                return words[i + 1 :]
    return words


def _name(flag: str) -> str:
    return flag.strip().replace("-", "_")


def _is_number(word: str) -> bool:
    return bool(re.fullmatch(r"-?\d+(\.\d+)?", word))
