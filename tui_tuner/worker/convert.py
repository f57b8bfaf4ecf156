"""Turns a GGUF model into the files that vLLM reads: `python -m tui_tuner.worker.convert GGUF FOLDER`.

Runs in the engine's Python, whose torch and transformers do the work; `gguf` and `accelerate`, which transformers
wants for it, come by PYTHONPATH from a folder that is thrown away.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def convert(source: Path, folder: Path) -> None:
    """Writes weights (bfloat16 safetensors), configuration, tokenizer and chat template of `source` into `folder`.

    Raises what transformers raises, and ValueError where the tokenizer came out without what a chat needs.
    """
    import torch
    import transformers

    place, name = str(source.parent), source.name
    tokenizer = transformers.AutoTokenizer.from_pretrained(place, gguf_file=name)
    extra: dict[str, Any] = {}
    if hasattr(transformers, "GgufConfig"):  # older ones always unpack
        extra["quantization_config"] = transformers.GgufConfig(dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(place, gguf_file=name, dtype=torch.bfloat16, **extra)
    longest = model.config.max_position_embeddings
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _portable(folder / "tokenizer_config.json", longest)
    _check(folder)


def _portable(path: Path, longest: int) -> None:
    """The tokenizer's class by the name that old and new transformers know, without this machine's traces."""
    told = json.loads(path.read_text(encoding="utf-8"))
    for key in ("backend", "is_local", "local_files_only", "name_or_path"):
        told.pop(key, None)
    told.update(tokenizer_class="PreTrainedTokenizerFast", model_max_length=longest)
    path.write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _check(folder: Path) -> None:
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    text = "one 2 Ω <>\n"
    if tokenizer.decode(tokenizer(text).input_ids) != text:
        raise ValueError("the converted tokenizer does not give a text back as it was")
    if tokenizer.eos_token_id is None or not tokenizer.chat_template:
        raise ValueError("the converted tokenizer has no end token or no chat template")
    start = tokenizer.apply_chat_template([{"role": "user", "content": "a"}], tokenize=False)
    ids = tokenizer(start, add_special_tokens=False).input_ids
    if tokenizer.eos_token_id not in ids:
        raise ValueError("the converted tokenizer splits its special tokens into pieces")


def main() -> None:
    """Converts `sys.argv[1]` into the folder `sys.argv[2]`."""
    convert(Path(sys.argv[1]), Path(sys.argv[2]))


if __name__ == "__main__":
    main()
