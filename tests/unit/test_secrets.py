from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_tuner import paths
from tui_tuner.model.secrets import Redactor, names_a_secret

SECRET = "Zx9" * 12


@pytest.mark.parametrize(
    "text",
    [
        f"hf_{SECRET}",
        f"token is sk-{SECRET}.",
        f"Authorization: Bearer {SECRET}",
        f"https://user:{SECRET}@example.org/simple",
        f"https://{SECRET}@example.org",
        f"https://example.org/x?a=1&token={SECRET}&b=2",
        f"HF_TOKEN={SECRET}",
        f'"api_key": "{SECRET}"',
        f"--api-key {SECRET}",
        f"password='{SECRET}'",
        f"ghp_{SECRET}",
    ],
)
def test_what_looks_like_a_secret_goes(text: str) -> None:
    assert SECRET not in Redactor().text(text)


@pytest.mark.parametrize(
    "text",
    [
        "max_num_batched_tokens=8192, tokenizer='models/x', tokens: 123456789",
        "eos_token='<|endoftext|>' hf_token=None",
        "task-force-of-the-whole-wide-world-united",
        "see https://docs.vllm.ai/en/latest/?key and mail me@example.org",
        "GPU KV cache size: 177,968 tokens",
    ],
)
def test_what_does_not_stays(text: str) -> None:
    assert Redactor().text(text) == text


def test_values_of_secret_variables_go_others_stay() -> None:
    redactor = Redactor(
        {"HF_TOKEN": "word-like-secret", "LANG": "C.UTF-8-but-long", "A_KEY": "/root/key.pem", "B_KEY": "on"}
    )
    assert (
        redactor.text("word-like-secret C.UTF-8-but-long /root/key.pem on") == "*** C.UTF-8-but-long /root/key.pem on"
    )
    assert redactor.value({"a": ["word-like-secret", 1], "hf_token": "x", "tokens": "kept"}) == {
        "a": ["***", 1],
        "hf_token": "***",
        "tokens": "kept",
    }


def test_the_home_folder_is_written_as_a_tilde_and_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    redactor = Redactor({"HOME": "/home/me/"})
    at_home = {"/home/me/m": ["/home/me", "x=/home/me/y:/home/me", "in /home/me.", "file:///home/me/a b"]}
    assert redactor.value(at_home) == {"~/m": ["~", "x=~/y:~", "in ~.", "file://~/a b"]}
    elsewhere = ["/mnt/home/me/x", "/home/me2", "/home/me.old/x", "/home/me-too", "/home/mean"]
    assert redactor.value(elsewhere) == elsewhere
    assert Redactor({"HOME": "/"}).text("/a/b") == Redactor({"HOME": ""}).text("/a/b") == "/a/b"
    monkeypatch.setenv("HOME", "/home/me")
    kept = {"a": ["~/x y", "~", 1, None], "b": {"c": "a~/x", "d": "~nobody-here/x"}}
    assert paths.expanded(kept) == {
        "a": ["/home/me/x y", "/home/me", 1, None],
        "b": {"c": "a~/x", "d": "~nobody-here/x"},
    }


def test_names() -> None:
    assert all(
        map(names_a_secret, ["HF_TOKEN", "api-key", "OPENAI_API_KEY", "DB_PASSWORD", "apikey", "aws_secret_access_key"])
    )
    assert not any(map(names_a_secret, ["TOKENIZERS_PARALLELISM", "max_num_batched_tokens", "KEYBOARD", "monkey"]))


@given(st.text())
def test_any_text_is_taken(text: str) -> None:
    once = Redactor().text(text)
    assert Redactor().text(once) == once
