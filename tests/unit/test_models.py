"""Models on the disk: where they are looked for, and config.json as untrusted text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tui_tuner.engines import models
from tui_tuner.model.machine import ModelShape

QWEN = {
    "architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
    "num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
}  # fmt: skip


def _make(folder: Path, config: object, weights: int = 1000) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    if weights:
        (folder / "model.safetensors").write_bytes(b"0" * weights)
    return folder


@pytest.fixture(autouse=True)
def _empty_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "MODELSCOPE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TUI_TUNER_HOME", str(tmp_path / "tt"))
    monkeypatch.chdir(tmp_path)


def test_shape_of_a_7b(tmp_path: Path) -> None:
    path = _make(tmp_path / "qwen", QWEN, 0)
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 15231233024}}))
    assert models.shape(path) == ModelShape(
        28, 3584, 18944, 28, 4, 128, 152064, 32768, "bfloat16", None, 15231233024, architecture="Qwen2ForCausalLM"
    )


def test_shape_inside_text_config_and_of_a_quantized_checkpoint(tmp_path: Path) -> None:
    path = _make(tmp_path / "vl", {"text_config": QWEN, "quantization_config": {"quant_method": "awq"}})
    shape = models.shape(path)
    assert shape is not None and shape.layers == 28 and shape.quantization == "awq" and shape.weight_bytes == 1000


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda c: st.dictionaries(st.sampled_from([*QWEN, "text_config", "quantization_config"]), c),
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_any_config_is_survived(tmp_path_factory: pytest.TempPathFactory, config: object) -> None:
    path = _make(tmp_path_factory.mktemp("any") / "m", config)
    shape = models.shape(path)
    assert shape is None or (shape.layers > 0 and shape.head_dim >= 0)


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b'{"hidden_size": NaN}'])
def test_a_broken_config_is_no_shape(tmp_path: Path, text: bytes) -> None:
    path = _make(tmp_path / "m", {})
    (path / "config.json").write_bytes(text)
    assert models.shape(path) is None
    (path / "tokenizer_config.json").write_bytes(text)
    assert models.has_chat_template(path) is None


def test_hugging_faces_cache_is_found_by_main(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    repo = tmp_path / "hf/hub/models--Qwen--Qwen2.5-7B-Instruct"
    old = _make(repo / "snapshots/aaaa", QWEN)
    new = _make(repo / "snapshots/bbbb", QWEN)
    (repo / "refs").mkdir()
    (repo / "refs/main").write_text("aaaa")
    assert models.locate("Qwen/Qwen2.5-7B-Instruct") == old
    (repo / "refs/main").write_text("../../../..")  # never followed out of the cache
    assert models.locate("Qwen/Qwen2.5-7B-Instruct") in (old, new)
    assert [(m.name, m.source) for m in models.on_disk()] == [("Qwen/Qwen2.5-7B-Instruct", "Hugging Face")]


def test_modelscopes_cache_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path / "ms"))
    path = _make(tmp_path / "ms/hub/models/Qwen/Qwen2___5-7B", QWEN)
    assert models.locate("Qwen/Qwen2.5-7B") == path
    assert [(m.name, m.source) for m in models.on_disk()] == [("Qwen/Qwen2.5-7B", "ModelScope")]


def test_a_folder_is_absolute_and_anything_else_is_not_there(tmp_path: Path) -> None:
    path = _make(tmp_path / "own", QWEN)
    assert models.locate("own") == models.locate("./own") == path
    assert [m.path for m in models.on_disk()] == [path]
    for name in ("", "nope", "no/pe", "../..", "a\0b", "practice", "~nobody/x", "x" * 5000):
        assert models.locate(name) is None


def test_a_template_in_either_place(tmp_path: Path) -> None:
    path = _make(tmp_path / "m", QWEN)
    assert models.has_chat_template(path) is None
    (path / "tokenizer_config.json").write_text("{}")
    assert models.has_chat_template(path) is False
    (path / "chat_template.jinja").write_text("{{ messages }}")
    assert models.has_chat_template(path) is True


def test_the_same_tokenizer_is_told_from_another(tmp_path: Path) -> None:
    a, b = _make(tmp_path / "a", QWEN), _make(tmp_path / "b", QWEN)
    assert models.same_tokenizer(a, b) is None
    (a / "tokenizer.json").write_text("{}")
    (b / "tokenizer.json").write_text("{}")
    assert models.same_tokenizer(a, b) is True
    (b / "tokenizer.json").write_text("[]")
    assert models.same_tokenizer(a, b) is False
