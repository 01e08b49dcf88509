"""Merged and renamed tensors are presented in parts, without a copy."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from engine.config import EngineConfig
from engine.models.common_names import CommonNames
from engine.models.config import ModelConfig, read_model_config
from engine.models.registry import load_model
from engine.models.weights import merge_rows
from tests.engine.models.running import logits_of

LAYER = "model.layers.0."


class Tensors:
    """A `TensorSource` in memory."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self._tensors = tensors

    @property
    def names(self) -> Collection[str]:
        return self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name].shape)

    def origin(self, name: str) -> str:
        return f"file of {name}"

    def tensor(self, name: str) -> Tensor:
        return self._tensors[name]


def shape_config() -> ModelConfig:
    return read_model_config(
        {
            "architectures": ["Phi3ForCausalLM"],
            "vocab_size": 10,
            "hidden_size": 8,
            "intermediate_size": 6,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
        }
    )


def test_merged_projections() -> None:
    qkv, gate_up = torch.randn(16, 8), torch.randn(12, 8)
    source = CommonNames(
        Tensors(
            {
                f"{LAYER}self_attn.qkv_proj.weight": qkv,
                f"{LAYER}mlp.gate_up_proj.weight": gate_up,
                f"{LAYER}input_layernorm.weight": torch.ones(8),
            }
        ),
        shape_config(),
    )
    heads = [f"{LAYER}self_attn.{name}_proj.weight" for name in "qkv"]
    halves = [f"{LAYER}mlp.{name}_proj.weight" for name in ("gate", "up")]
    assert set(source.names) == {*heads, *halves, f"{LAYER}input_layernorm.weight"}
    assert [source.shape(name) for name in heads] == [(8, 8), (4, 8), (4, 8)]
    assert source.origin(heads[1]) == f"file of {LAYER}self_attn.qkv_proj.weight"
    for names, merged in ((heads, qkv), (halves, gate_up)):
        again = merge_rows([source.tensor(name) for name in names])
        assert again.data_ptr() == merged.data_ptr()
        assert torch.equal(again, merged)


def test_merged_experts() -> None:
    gate_up, down = torch.randn(3, 12, 8), torch.randn(3, 8, 6)
    source = CommonNames(
        Tensors(
            {
                f"{LAYER}mlp.experts.gate_up_proj": gate_up,
                f"{LAYER}mlp.experts.down_proj": down,
            }
        ),
        shape_config(),
    )
    assert len(source.names) == 9
    for expert in range(3):
        for name, values in (
            ("gate", gate_up[expert, :6]),
            ("up", gate_up[expert, 6:]),
            ("down", down[expert]),
        ):
            full = f"{LAYER}mlp.experts.{expert}.{name}_proj.weight"
            assert source.shape(full) == values.shape
            assert torch.equal(source.tensor(full), values)


def test_mixtral_names() -> None:
    names = ["gate", "experts.2.w1", "experts.2.w2", "experts.2.w3"]
    tensors = {
        f"{LAYER}block_sparse_moe.{name}.weight": torch.full((1,), float(index))
        for index, name in enumerate(names)
    }
    source = CommonNames(Tensors(tensors), shape_config())
    common = ["gate", "experts.2.gate_proj", "experts.2.down_proj", "experts.2.up_proj"]
    assert [source.tensor(f"{LAYER}mlp.{name}.weight").item() for name in common] == [0, 1, 2, 3]


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_text_part_of_a_model_that_sees_images(prefix: str) -> None:
    config = read_model_config(
        {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": {}}
    )
    names = [
        f"{prefix}embed_tokens.weight",
        f"{prefix}layers.0.input_layernorm.weight",
        "language_model.lm_head.weight",
        "vision_tower.post_layernorm.weight",
        "model.multi_modal_projector.mm_soft_emb_norm.weight",
        "other.weight",
    ]
    source = CommonNames(Tensors({name: torch.ones(1) for name in names}), config)
    assert set(source.names) == {
        "model.embed_tokens.weight",
        "model.layers.0.input_layernorm.weight",
        "lm_head.weight",
        "other.weight",  # unknown: the reader will say so
    }


@pytest.mark.parametrize("name", ["mixtral", "qwen2_moe", "qwen3_moe"])
def test_experts_saved_merged(name: str, tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    """transformers writes one tensor an expert, or, when told to, as it holds them itself."""
    folder = tiny_model(name)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    theirs.save_pretrained(tmp_path, save_original_format=False)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / file).write_bytes((folder / file).read_bytes())
    ids = list(range(5, 40))
    logits = [
        logits_of(load_model(EngineConfig(model=path, dtype="float32", device="cpu")).model, ids)
        for path in (tmp_path, folder)
    ]
    assert torch.equal(*logits)
    merged = (tmp_path / "model.safetensors").read_bytes()[:20_000]
    assert b"experts.gate_up_proj" in merged
