"""Secrets taken out of text before it is written anywhere, and the home folder, whose path names its owner, as `~`.

The one place for it: the session file, the logs beside it and the runner's own log all pass through here.
Patterns are bounded, so that a line of a megabyte costs no more than its length.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

GONE = "***"

_NAME = re.compile(r"(?:^|[^A-Z])(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|APIKEY|CREDENTIALS?)(?:$|[^A-Z])")
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # Userinfo of a URL: a password, or a token that stands for one.
    (re.compile(r"://[^\s/@\"'<>?#]{1,256}@"), f"://{GONE}@"),
    # Tokens that carry their issuer's mark: model hubs, API providers, code hosts, cloud keys.
    (re.compile(r"\b(hf_|api_org_|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abp]-)[A-Za-z0-9_-]{12,}"), rf"\1{GONE}"),
    (re.compile(r"\b(sk|pk|rk|ms|nvapi)-[A-Za-z0-9_-]{16,}"), rf"\1-{GONE}"),
    (re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{12,}"), rf"\1{GONE}"),
    (re.compile(r"(?i)\b(bearer|basic)(\s{1,8})[A-Za-z0-9._~+/=-]{8,}"), rf"\1\2{GONE}"),
    (
        re.compile(r"(?i)([?&](?:access_token|token|api_key|apikey|key|sig|signature|password)=)[^&\s\"'<>]{4,}"),
        rf"\1{GONE}",
    ),
    (
        re.compile(
            r"(?i)\b((?:hf|hugging_?face_hub|auth|access|api|modelscope_api|secret)[_-](?:token|key)|api_?key|password|passwd)"
            r"(\\?[\"']?\s{0,4}[=:\s]\s{0,4}\\?[\"']?)(?!None\b|null\b|true\b|false\b)[^\s\"'\\,;&<>(){}\[\]]{8,}"
        ),
        rf"\1\2{GONE}",
    ),
)


def names_a_secret(name: str) -> bool:
    """Whether a variable or field of this name holds a secret: HF_TOKEN and api-key do, TOKENIZERS_PARALLELISM not."""
    return _NAME.search(name.upper()) is not None


class Redactor:
    """Takes secrets out: whatever looks like one, and the values of the given environment whose names say so.

    The environment's home folder is written as `~`; `paths.expanded` reads it back.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        values = {v.strip() for k, v in (environ or {}).items() if names_a_secret(k)}
        # A short value, or a path to a key file, is no secret by itself; replacing it would garble everything.
        self._values = sorted(
            (v for v in values if len(v) >= 8 and not v.startswith(("/", "~"))), key=len, reverse=True
        )
        self._home = (environ or {}).get("HOME", "").rstrip("/")
        # /mnt/home/me and /home/me2 lie elsewhere.
        self._at_home = re.compile(rf"(?<![\w.-]){re.escape(self._home)}(?=[^\w.-]|\.?$|\.\s)")

    def text(self, text: str) -> str:
        """`text` with every secret replaced by `***`."""
        if self._home and self._home in text:
            text = self._at_home.sub("~", text)
        for value in self._values:
            if value in text:
                text = text.replace(value, GONE)
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        return text

    def value(self, value: Any) -> Any:
        """A plain value (as decoded from JSON) with the secrets taken out of all its texts."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {
                self.value(k): GONE if v and isinstance(v, str) and names_a_secret(str(k)) else self.value(v)
                for k, v in value.items()
            }
        if isinstance(value, (list, tuple)):
            # Columns of numbers are long and hold nothing to hide.
            if value and all(type(v) in (int, float) for v in value):
                return value
            return [self.value(v) for v in value]
        return value
