"""Model shapes that speed is measured with, by name: written as a config.json, and as arithmetic.

A folder with nothing but a config.json is served with `load_format=dummy`: random weights.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from engine.models.config import ModelConfig

PREFIX = "shape:"


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A dense decoder of the Llama and Qwen kind. Counts are in elements."""

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    is_tied: bool
    max_positions: int = 40_960

    @classmethod
    def of(cls, config: ModelConfig) -> ModelShape | None:
        """The shape of a model; None where the arithmetic here does not fit it."""
        if config.experts is not None:
            return None
        return cls(
            hidden_size=config.hidden_size,
            num_layers=config.num_layers,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            intermediate_size=config.intermediate_size,
            vocab_size=config.vocab_size,
            is_tied=config.tie_word_embeddings,
            max_positions=config.max_position_embeddings,
        )

    @property
    def layer_weights(self) -> int:
        """Of the projections of all layers: Q, K, V, output, gate, up and down."""
        attention = self.hidden_size * self.head_dim * 2 * (self.num_heads + self.num_kv_heads)
        return self.num_layers * (attention + 3 * self.hidden_size * self.intermediate_size)

    @property
    def head_weights(self) -> int:
        """Of the projection to the vocabulary, which a step reads whether it is tied or not."""
        return self.vocab_size * self.hidden_size

    @property
    def kv_elements(self) -> int:
        """Keys and values of one token in all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim

    @property
    def attention_flops(self) -> int:
        """Multiplications and additions of one query with one key and value in all layers."""
        return 4 * self.num_layers * self.num_heads * self.head_dim


SHAPES = {
    "qwen3-0.6b": ModelShape(1024, 28, 16, 8, 128, 3072, 151_936, True),
    "qwen3-8b": ModelShape(4096, 36, 32, 8, 128, 12_288, 151_936, False),
    # Runs anywhere, to see that everything works.
    "tiny": ModelShape(64, 2, 4, 2, 16, 128, 512, True, max_positions=2048),
}


def shape_name(model: str) -> str | None:
    """`shape:tiny` → `tiny`; None for what names no shape. Leaves with a sentence for people
    where there is no such shape."""
    if not model.startswith(PREFIX):
        return None
    name = model.removeprefix(PREFIX)
    if name not in SHAPES:
        raise SystemExit(f"{name} is not a shape; there are {', '.join(SHAPES)}.")
    return name


def write_shape(shape: ModelShape, folder: Path) -> Path:
    """Writes a Qwen3 config.json of `shape` into `folder`, and returns the folder."""
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.intermediate_size,
        "vocab_size": shape.vocab_size,
        "tie_word_embeddings": shape.is_tied,
        "max_position_embeddings": shape.max_positions,
        "rope_theta": 1_000_000.0,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "attention_bias": False,
        "eos_token_id": 2,
        "dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", "utf-8")
    return folder
