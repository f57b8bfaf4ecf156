"""The line in use, `vllm serve`, `docker run` or YAML, read into a model and vLLM's argument names. Pure; nothing of
it is ever run.

With the facts of an installed vLLM each argument is checked against them: whether there is such a one, and whether
it can have that value. Options of the HTTP server around the engine play no part in tuning; only their names are
kept, since keys are among their values.
"""

from __future__ import annotations

import difflib
import itertools
import re
import shlex
from typing import Any

import msgspec
from msgspec import Struct

from tui_tuner.model.knobs import Facts, FieldFacts
from tui_tuner.model.values import Value, parse
from tui_tuner.prepare.check import range_problem

_SWITCHES = frozenset(
    {
        "allow_credentials", "disable_fastapi_docs", "disable_frontend_multiprocessing", "disable_log_requests",
        "disable_log_stats", "disable_uvicorn_access_log", "enable_auto_tool_choice", "enable_force_include_usage",
        "enable_log_outputs", "enable_log_requests", "enable_prompt_tokens_details", "enable_request_id_headers",
        "enable_server_load_tracking", "enable_ssl_refresh", "enable_tokenizer_info_endpoint", "headless",
        "return_tokens_as_token_ids", "trust_request_chat_template",
    }
)  # fmt: skip
_SERVER = _SWITCHES | {
    "allowed_headers", "allowed_methods", "allowed_origins", "api_key", "api_server_count", "chat_template",
    "chat_template_content_format", "config", "default_chat_template_kwargs", "grpc",
    "h11_max_header_count", "h11_max_incomplete_event_size", "host", "log_config_file", "log_level", "lora_modules",
    "max_log_len", "middleware", "port", "response_role", "root_path", "served_model_name", "ssl_ca_certs",
    "ssl_cert_reqs", "ssl_certfile", "ssl_ciphers", "ssl_keyfile", "tool_call_parser", "tool_parser_plugin",
    "tool_server", "uds", "uvicorn_log_level",
}  # fmt: skip
_SHORT = {
    "-tp": "tensor_parallel_size",
    "-pp": "pipeline_parallel_size",
    "-dp": "data_parallel_size",
    "-q": "quantization",
}
# Whole numbers that vLLM takes as 4k (4,000) or 4K (4,096) as well.
_READABLE = frozenset(
    {
        "kv_cache_memory_bytes", "max_model_len", "max_num_batched_tokens", "max_num_queued_tokens",
        "max_num_scheduled_tokens", "safetensors_prefetch_block_size",
    }
)  # fmt: skip
_SIZES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_YAML = re.compile(r"^\s*([A-Za-z][\w.-]*)\s*:\s*(.*)$")
_IMAGE = re.compile(r"vllm[\w.-]*(/[\w.-]+)*(:[\w.-]+)?(@sha256:\w+)?$")
_TAG = re.compile(r"vllm[\w.-]*(?:/[\w.-]+)*:v?(\d+\.\d+\.\d+)(?=[\s@'\"-]|$)")
_SHELL = frozenset({"&", "&&", "|", "||", ";", ">", ">>", "2>", "2>&1", "&>", "<"})
LARGEST = 20_000  # characters


class Argument(Struct, frozen=True):
    """One engine argument by vLLM's own name; `problem` is why the installed version would not take it."""

    name: str
    value: Value
    problem: str | None = None


class ServeLine(Struct, frozen=True):
    """What the line says. `server` names the options that are the HTTP server's; `problems` tells all that is wrong,
    the arguments' own included; `notes` what else should be known."""

    model: str | None = None
    arguments: tuple[Argument, ...] = ()
    server: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def fixed(self) -> dict[str, Value]:
        """The arguments that can be; of one given twice the last, as vLLM has it."""
        return {a.name: a.value for a in self.arguments if a.problem is None}


class _Missing:
    """A flag stood alone: no value followed it."""


class _Given(Struct, frozen=True):
    """A flag that takes none was given a value."""

    value: Value


def read(text: str, facts: Facts | None) -> ServeLine:
    """`text` as a serve line. What cannot be read, or what `facts` do not know, is a problem with its words."""
    text = text.strip()[:LARGEST]
    fields = facts.fields if facts else {}
    try:
        pairs, model, wrong = _from_yaml(text) or _from_command(text, fields)
    except ValueError as error:
        return ServeLine(problems=(f"this is no command line: {error}",))
    found: list[Argument] = []
    server: list[str] = []
    for name, value in pairs:
        if name in ("model", "model_tag") and isinstance(value, str):
            model = value
        elif name == "served_model_name" or (name in _SERVER and name not in fields):
            server.append(name)
        else:
            found.append(_argument(name, value, facts))
    if model is None and not found and not wrong and not server:
        wrong.append("no model and no flag was found: paste the whole command, or YAML with one setting a line")
    problems = (*wrong, *(a.problem for a in found if a.problem))
    return ServeLine(model, tuple(found), tuple(dict.fromkeys(server)), problems, _notes(text, facts))


def _notes(text: str, facts: Facts | None) -> tuple[str, ...]:
    """That the line's container image has another version than the one that the line is checked against."""
    tag = _TAG.search(text)
    if tag is None or facts is None or facts.version.partition("+")[0] == tag[1]:
        return ()
    return (f"the line's image has vLLM {tag[1]}; it was read with {facts.version}, where flags may differ",)


def _argument(name: str, value: Any, facts: Facts | None) -> Argument:
    if facts is None or not facts.fields:
        return Argument(name, _plain(value))
    field = facts.fields.get(name)
    if field is None:
        near = difflib.get_close_matches(name, facts.fields, n=2)
        hint = f": did you mean {' or '.join(near)}?" if near else ""
        return Argument(name, _plain(value), f"vLLM {facts.version} has no argument {name}{hint}")
    if isinstance(value, _Missing) and field.type != "bool":
        return Argument(name, None, f"{name} needs a value")
    if isinstance(value, _Given):
        flag = "--" + name.replace("_", "-")
        return Argument(name, value.value, f"{name} takes no value: write {flag} or --no-{flag[2:]}")
    value = _sized(name, _plain(value))
    return Argument(name, value, _problem(field, value))


def _plain(value: Any) -> Value:
    return True if isinstance(value, _Missing) else value.value if isinstance(value, _Given) else value


def _sized(name: str, value: Value) -> Value:
    """4k as 4,000 and 4K as 4,096 where vLLM reads them so; `auto` for the model's own length is −1."""
    if name not in _READABLE or not isinstance(value, str):
        return value
    if name == "max_model_len" and value.lower() == "auto":
        return -1
    match = _SIZE.fullmatch(value)
    if match is None or ("." in match[1] and match[2].isupper()):
        return value
    return int(float(match[1]) * _SIZES[match[2]])


def _problem(field: FieldFacts, value: Value) -> str | None:
    """Why the installed version would not take `value`, or None where it would, or can only tell itself."""
    many = value if isinstance(value, list) else [value]
    if field.type == "int" and not all(v is None or (isinstance(v, int) and not isinstance(v, bool)) for v in many):
        return f"{_say(value)} cannot be: {field.name} takes a whole number"
    if field.type == "float" and not all(
        v is None or (isinstance(v, (int, float)) and not isinstance(v, bool)) for v in many
    ):
        return f"{_say(value)} cannot be: {field.name} takes a number"
    if field.type == "bool" and value is not None and not isinstance(value, bool):
        return f"{_say(value)} cannot be: {field.name} is on or off"
    if field.type == "table" and isinstance(value, str) and value[:1] in ("{", "["):
        return f"{_say(value)} cannot be: {field.name} takes JSON, and this is none"
    return range_problem(field, value)


def _say(value: Value) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return f"{text[:60]}…" if len(text) > 60 else text


_Read = tuple[list[tuple[str, Any]], str | None, list[str]]


def _from_yaml(text: str) -> _Read | None:
    """Settings of one line each; None if this is no such text. A list or a nested table is said, not guessed."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    lines = [line for line in lines if line.strip() not in ("---", "...")]
    if not lines or not all(_YAML.match(line) or line.startswith((" ", "-", "\t")) for line in lines):
        return None
    if not _YAML.match(lines[0]):
        return None
    pairs: list[tuple[str, Any]] = []
    wrong: list[str] = []
    for line in lines:
        match = _YAML.match(line)
        if match is None or line[0].isspace():
            wrong.append(f"{line.strip()[:60]!r} is nested: write it as a flag, with JSON as its value")
            continue
        value = match[2].split(" #")[0].strip()
        if value.startswith(("'", '"')) and value.endswith(value[0]) and len(value) > 1:
            pairs.append((_name(match[1]), parse(value[1:-1]) if value[1:2] in ("{", "[") else value[1:-1]))
        else:
            pairs.append((_name(match[1]), parse(value) if value else None))
    return pairs, None, wrong


def _from_command(text: str, fields: dict[str, FieldFacts]) -> _Read:
    """The flags of a command. Raises ValueError where its quotes do not close."""
    words = shlex.split(text.replace("\\\r\n", " ").replace("\\\n", " "), comments=False)
    words = _after_start(words)
    short = _SHORT | {flag: f.name for f in fields.values() for flag in f.flags if not flag.startswith("--")}
    pairs: list[tuple[str, Any]] = []
    nested: dict[str, dict[str, Any]] = {}
    wrong: list[str] = []
    model: str | None = None
    at = 0

    def is_value(index: int) -> bool:
        return index < len(words) and (not words[index].startswith("-") or _is_number(words[index]))

    while at < len(words):
        word = words[at]
        at += 1
        if word in _SHELL:
            break
        if not word.startswith("-") or _is_number(word):
            last = pairs[-1][1] if pairs else None
            if isinstance(last, (int, list)) and not isinstance(last, bool) and _is_number(word):
                pairs[-1] = (pairs[-1][0], [*(last if isinstance(last, list) else [last]), parse(word)])  # 1 2 4 8
            elif model is None:
                model = word
            else:
                wrong.append(f"{word[:60]!r} belongs to no flag")
            continue
        if re.fullmatch(r"-O=?\d", word):
            pairs.append(("optimization_level", int(word[-1])))
            continue
        flag, equals, value = word.partition("=")
        head, dot, rest = flag.partition(".")
        key = short.get(head) or _name(head.lstrip("-"))
        if dot:
            if not equals and is_value(at):
                value, at = words[at], at + 1
            if key not in nested:
                nested[key] = {}
                pairs.append((key, nested[key]))
            _put(nested[key], rest, value)
        elif key.startswith("no_") and key not in fields and not equals:
            pairs.append((key.removeprefix("no_"), False))
        elif key in _SWITCHES or (key in fields and fields[key].type == "bool"):
            stray = value if equals else words[at] if is_value(at) and words[at].lower() in ("true", "false") else None
            at += stray is not None and not equals
            pairs.append((key, _Missing() if stray is None else _Given(parse(stray))))
        elif equals:
            pairs.append((key, parse(value)))
        elif is_value(at):
            pairs.append((key, parse(words[at])))
            at += 1
        else:
            pairs.append((key, _Missing()))
    return pairs, model, wrong


def _put(table: dict[str, Any], path: str, text: str) -> None:
    """Sets `a.b` in nested tables, as vLLM reads `--speculative-config.method ngram`; `a+` takes a list."""
    *heads, last = path.split(".")
    for head in heads:
        inner = table.setdefault(head, {})
        if not isinstance(inner, dict):
            return
        table = inner
    if last.endswith("+"):
        before = table.get(last[:-1])
        table[last[:-1]] = [*(before if isinstance(before, list) else []), *(parse(part) for part in text.split(","))]
    else:
        table[last] = parse(text)


def _after_start(words: list[str]) -> list[str]:
    """What follows `vllm serve`, the server module, or a docker image; all words where none is named."""
    for i, word in enumerate(words):
        if word == "serve" and i and words[i - 1].rsplit("/", 1)[-1] == "vllm":
            return words[i + 1 :]
        if word == "vllm.entrypoints.openai.api_server":
            return words[i + 1 :]
    for i, pair in enumerate(itertools.pairwise(words)):
        if pair in (("docker", "run"), ("podman", "run")):
            return _after_image(words[i + 2 :]) or words
    return words


def _after_image(words: list[str]) -> list[str] | None:
    """What follows the image among the words behind `docker run`; a container may be called vllm, too."""
    images = [
        i
        for i, word in enumerate(words)
        if _IMAGE.search(word) and not word.startswith("-") and "=" not in word
        and not (i and words[i - 1] in ("--name", "--hostname", "-h", "--network", "--workdir", "-w", "--entrypoint"))
    ]  # fmt: skip
    if not images:
        return None
    rest = words[images[0] + 1 :]
    return rest[1:] if rest[:1] == ["serve"] else rest  # --entrypoint vllm IMAGE serve …


def _name(flag: str) -> str:
    return flag.strip().replace("-", "_")


def _is_number(word: str) -> bool:
    return bool(re.fullmatch(r"-?\d+(\.\d+)?", word))
