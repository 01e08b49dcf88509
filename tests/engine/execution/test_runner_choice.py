"""Which runner serves which model, on a CPU, where Triton's kernels are only for tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import triton

from engine.assembly import assemble_model
from engine.config import EngineConfig
from engine.errors import ModelLoadError
from engine.execution.triton_runner import TritonModelRunner

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 320,
    "hidden_size": 272,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 17,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
}


@pytest.mark.parametrize(
    ("shape", "block_size", "reason"),
    [
        ({}, 16, "17 query heads share a key head"),
        ({"num_key_value_heads": 17}, 8, "power of two from 16 up, not 8"),
        ({"num_key_value_heads": 17}, 48, "power of two from 16 up, not 48"),
    ],
)
def test_what_the_kernels_cannot_serve_is_refused(
    tmp_path: Path, shape: dict[str, int], block_size: int, reason: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | shape), "utf-8")
    config = EngineConfig(
        model=tmp_path,
        load_format="dummy",
        device="cpu",
        execution="triton",
        block_size=block_size,
    )
    with pytest.raises(ModelLoadError, match=f"execution triton is not possible: .*{reason}"):
        assemble_model(config, None)


def test_on_a_cpu_there_is_only_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first request would end the engine."""
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"num_key_value_heads": 17}), "utf-8")
    config = EngineConfig(model=tmp_path, load_format="dummy", device="cpu", execution="triton")
    with pytest.raises(ModelLoadError, match="the model is on a CPU"):
        assemble_model(config, None)


@pytest.mark.parametrize(
    ("method", "reason"),
    [("measure_step", "max_num_batched_tokens 40"), ("prepare", "a KV cache of 64 tokens")],
)
def test_what_does_not_fit_the_memory_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, reason: str
) -> None:
    def fail(_runner: TritonModelRunner) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(TritonModelRunner, method, fail)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"num_key_value_heads": 17}), "utf-8")
    config = EngineConfig(
        model=tmp_path,
        load_format="dummy",
        device="cpu",
        execution="triton",
        max_num_batched_tokens=40,
        kv_cache_tokens=64,
    )
    with pytest.raises(ModelLoadError, match=f"(?i){reason}.*CUDA out of memory"):
        assemble_model(config, None)
