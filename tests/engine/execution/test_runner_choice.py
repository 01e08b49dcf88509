"""Which runner serves which model, on a CPU, where Triton's kernels are only for tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.assembly import assemble_model
from engine.config import EngineConfig
from engine.errors import ModelLoadError

pytest.importorskip("torch")

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
    ("shape", "settings", "reason"),
    [
        ({}, {"block_size": 16}, "17 query heads share a key head"),
        ({"num_key_value_heads": 17}, {"block_size": 8}, "power of two from 16 up, not 8"),
        ({"num_key_value_heads": 17}, {"block_size": 48}, "power of two from 16 up, not 48"),
    ],
)
def test_what_the_kernels_cannot_serve_is_refused(
    tmp_path: Path, shape: dict[str, int], settings: dict[str, int], reason: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | shape), "utf-8")
    config = EngineConfig(
        model=tmp_path, load_format="dummy", device="cpu", execution="triton", **settings
    )
    with pytest.raises(ModelLoadError, match=f"execution triton is not possible: .*{reason}"):
        assemble_model(config, None)
