"""A line in use, read and checked: commands as people have them, and any text at all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_tuner.model.knobs import Facts, FieldFacts
from tui_tuner.prepare import serveline

FIELDS = (
    FieldFacts("model", "str", flags=["--model"]),
    FieldFacts("max_model_len", "int", low=-1, flags=["--max-model-len"]),
    FieldFacts("max_num_seqs", "int", low=1, flags=["--max-num-seqs"]),
    FieldFacts("cudagraph_capture_sizes", "int", flags=["--cudagraph-capture-sizes"]),
    FieldFacts("gpu_memory_utilization", "float", low=0, low_open=True, high=1, flags=["--gpu-memory-utilization"]),
    FieldFacts("tensor_parallel_size", "int", low=1, flags=["--tensor-parallel-size", "-tp"]),
    FieldFacts("enforce_eager", "bool", flags=["--enforce-eager", "--no-enforce-eager"]),
    FieldFacts("enable_prefix_caching", "bool", flags=["--enable-prefix-caching", "--no-enable-prefix-caching"]),
    FieldFacts("speculative_config", "table", flags=["--speculative-config", "-sc"]),
    FieldFacts("kv_cache_dtype", "choice", choices=["auto", "fp8"], flags=["--kv-cache-dtype"]),
    FieldFacts("optimization_level", "choice", choices=["O0", "O1", "O2", "O3"], flags=["--optimization-level"]),
)
FACTS = Facts("0.32.0", "cuda", fields={f.name: f for f in FIELDS})


@pytest.mark.parametrize(
    ("text", "model", "fixed", "server"),
    [
        (
            "CUDA_VISIBLE_DEVICES=0 vllm serve Qwen/Qwen2.5-7B --max-model-len=4096 \\\n"
            " --no-enable-prefix-caching -tp 2 --port 8000",
            "Qwen/Qwen2.5-7B",
            {"max_model_len": 4096, "enable_prefix_caching": False, "tensor_parallel_size": 2},
            ("port",),
        ),
        (
            "docker run --gpus all -v ~/hf:/root/.cache -p 8000:8000 vllm/vllm-openai:v0.26.0 "
            "--model a/b --gpu-memory-utilization 0.9",
            "a/b",
            {"gpu_memory_utilization": 0.9},
            (),
        ),
        (
            "sudo docker run --name vllm --entrypoint vllm reg.example.org/vllm/vllm-openai@sha256:0a serve a/b -tp 4",
            "a/b",
            {"tensor_parallel_size": 4},
            (),
        ),
        ("vllm serve --enforce-eager a/b --max-num-seqs 8 > log 2>&1 &", "a/b", {"enforce_eager": True,
                                                                               "max_num_seqs": 8}, ()),
        ("vllm serve a/b --max-model-len 32k", "a/b", {"max_model_len": 32_000}, ()),
        ("vllm serve a/b --max-model-len 32K", "a/b", {"max_model_len": 32_768}, ()),
        ("vllm serve a/b --max-model-len auto", "a/b", {"max_model_len": -1}, ()),
        ("vllm serve a/b --max_model_len 64", "a/b", {"max_model_len": 64}, ()),
        ("vllm serve a/b --cudagraph-capture-sizes 1 2 4 --max-num-seqs 4", "a/b",
         {"cudagraph_capture_sizes": [1, 2, 4], "max_num_seqs": 4}, ()),
        ("vllm serve a/b -sc.method ngram --speculative-config.num_speculative_tokens=3", "a/b",
         {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}}, ()),
        ("""vllm serve a/b --speculative-config '{"method": "ngram"}'""", "a/b",
         {"speculative_config": {"method": "ngram"}}, ()),
        ("vllm serve a/b -O3 --api-key hidden", "a/b", {"optimization_level": 3}, ("api_key",)),
        ("python -m vllm.entrypoints.openai.api_server --model a/b --served-model-name x", "a/b", {},
         ("served_model_name",)),
        ("# mine\n---\nmodel: a/b\nmax-model-len: 4096\nenable-prefix-caching: false\n", "a/b",
         {"max_model_len": 4096, "enable_prefix_caching": False}, ()),
    ],
)  # fmt: skip
def test_lines_as_people_have_them(text: str, model: str, fixed: dict[str, Any], server: tuple[str, ...]) -> None:
    got = serveline.read(text, FACTS)
    assert not got.problems
    assert (got.model, got.fixed, got.server) == (model, fixed, server)
    assert "hidden" not in repr(got)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--max-modell-len 5", "did you mean max_model_len"),
        ("--max-model-len", "needs a value"),
        ("--max-model-len 4.5", "takes a whole number"),
        ("--max-num-seqs 1k", "takes a whole number"),
        ("--max-num-seqs 0", "at least 1"),
        ("--gpu-memory-utilization 1.5", "at most 1"),
        ("--gpu-memory-utilization most", "takes a number"),
        ("--enforce-eager=false", "--no-enforce-eager"),
        ("--enforce-eager true", "takes no value"),
        ("--kv-cache-dtype fp9", "did you mean fp8"),
        ("--speculative-config '{method: ngram}'", "takes JSON"),
        ("--max-num-seqs 8 stray", "'stray' belongs to no flag"),
    ],
)
def test_what_the_installed_version_would_not_take_is_said(line: str, says: str) -> None:
    got = serveline.read(f"vllm serve a/b {line}", FACTS)
    assert len(got.problems) == 1 and says in got.problems[0]
    assert serveline.read(f"vllm serve a/b {line}", None).model == "a/b"


def test_nested_yaml_and_open_quotes_are_said() -> None:
    assert "nested" in serveline.read("model: a/b\nspeculative-config:\n  method: ngram\n", FACTS).problems[0]
    assert "no command line" in serveline.read("vllm serve 'a/b", FACTS).problems[0]
    assert serveline.read("enforce-eager: 3\n", FACTS).problems == ("3 cannot be: enforce_eager is on or off",)


@given(st.text(max_size=200))
def test_any_text_is_read_without_harm(text: str) -> None:
    for facts in (FACTS, None):
        got = serveline.read(text, facts)
        assert got.model is not None or got.arguments or got.problems or got.server


@given(
    st.lists(
        st.sampled_from(
            [
                "vllm",
                "serve",
                "--",
                "-",
                "--a.b",
                "--a.b+",
                "--=",
                "-O",
                "-O3",
                "--no-",
                "|",
                "1",
                "--max-model-len",
                "--enforce-eager",
                "docker",
                "run",
                "vllm/x",
                "--a=1",
                "'{'",
            ]
        )
    )
)
def test_any_words_are_read_without_harm(words: list[str]) -> None:  # fmt: skip
    serveline.read(" ".join(words), FACTS)


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("vllm/vllm-openai:v0.26.0", True), ("reg:5000/x/vllm-openai:0.25.1-cu129", True),
        ("vllm/vllm-openai:v0.32.0", False), ("vllm/vllm-openai:latest", False), ("vllm/vllm-openai@sha256:0a", False),
    ],
)  # fmt: skip
def test_an_image_of_another_version_is_said(image: str, said: bool) -> None:
    line = serveline.read(f"docker run {image} --model a/b --max-num-seqs 8", FACTS)
    assert bool(line.notes) == said and not line.problems
