"""The real services on a decide plan without a noise band: said in the app's words, and measured by a key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests import scripted
from tui_tuner.prepare import start
from tui_tuner.tui.draft import practice
from tui_tuner.tui.services import Services

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536,
    "num_attention_heads": 9, "num_key_value_heads": 3, "num_hidden_layers": 30, "vocab_size": 49152,
    "max_position_embeddings": 8192,
}  # fmt: skip


def test_the_review_says_what_a_noise_run_takes_and_starts_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted.prepare(monkeypatch)
    monkeypatch.setenv("TUI_TUNER_HOME", str(tmp_path / "home"))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model" / "model.safetensors").write_bytes(b"0")
    launched: list[Path] = []
    monkeypatch.setattr(start, "launch", launched.append)
    services = Services(str(tmp_path / "sessions"), scripted.PYTHON)
    draft = replace(practice(), model=str(tmp_path / "model"), thoroughness="decide")
    (problem,) = services.check_fully(draft).problems
    assert problem.field == "thoroughness" and "F6 measures it first (5 launches of the baseline, about " in problem.say
    with pytest.raises(ValueError, match="F6 measures it first"):
        services.begin(draft)
    assert not launched
    path = services.begin_noise(draft)
    assert launched == [path]
    from tui_tuner.store import sessionfile

    begun = sessionfile.first_event(path)
    assert begun.kind == "noise" and begun.plan.thoroughness == "decide"
