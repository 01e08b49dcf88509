"""The arithmetic of shapes against the models that `transformers` makes of the same config.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from engine.models.config import read_model_config
from scripts.model_shapes import SHAPES, ModelShape, shape_name, write_shape


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_weights_are_those_of_the_model(name: str, tmp_path: Path) -> None:
    shape = SHAPES[name]
    config = AutoConfig.from_pretrained(write_shape(shape, tmp_path))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    in_layers = [
        parameter.numel()
        for path, parameter in model.named_parameters()
        if ".layers." in path and parameter.dim() == 2
    ]
    assert len(in_layers) == 7 * shape.num_layers
    assert shape.layer_weights == sum(in_layers)
    assert shape.head_weights == model.lm_head.weight.numel()
    is_shared = model.lm_head.weight is model.get_input_embeddings().weight
    assert is_shared == shape.is_tied


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_the_engine_reads_the_shape_that_was_written(name: str, tmp_path: Path) -> None:
    write_shape(SHAPES[name], tmp_path)
    config = read_model_config(json.loads((tmp_path / "config.json").read_text("utf-8")))
    assert ModelShape.of(config) == SHAPES[name]
    assert config.qk_norm
    assert config.rope.theta == 1e6


def test_keys_and_values_of_a_token() -> None:
    """Known of these models: 112 and 144 KiB in 16-bit floats."""
    assert 2 * SHAPES["qwen3-0.6b"].kv_elements == 112 * 1024
    assert 2 * SHAPES["qwen3-8b"].kv_elements == 144 * 1024


def test_names() -> None:
    assert shape_name("shape:tiny") == "tiny"
    assert shape_name("models/tiny") is None
    with pytest.raises(SystemExit, match=r"huge is not a shape; there are .*qwen3-8b"):
        shape_name("shape:huge")
