"""The pieces that stand behind a layer's names where a family differs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.config import EngineConfig
from engine.errors import ModelLoadError
from engine.models.config import read_model_folder
from engine.models.decoder import Decoder
from engine.models.decoder_builder import (
    NormedProjection,
    ScaledEmbedding,
    SoftCappedProjection,
    build_decoder,
)
from engine.models.dummy import RandomWeights
from engine.models.linear import Linear, PlainEmbedding
from engine.models.loader import SafetensorsFolder
from engine.models.registry import load_model
from engine.models.weights import WeightReader
from tests.engine.models.running import logits_of
from tests.support.tiny_models import TINY_MODELS

CPU = torch.device("cpu")


def test_normed_projection() -> None:
    norm, x = torch.tensor([2.0, 1.0]), torch.tensor([[3.0, 4.0]])
    projection = NormedProjection(Linear(torch.eye(2)), norm, 0.0)
    root = 12.5**0.5
    torch.testing.assert_close(projection(x), torch.tensor([[6.0 / root, 4.0 / root]]))


def test_soft_cap_bends_and_never_passes() -> None:
    projection = SoftCappedProjection(Linear(torch.eye(3)), 5.0)
    got = projection(torch.tensor([[0.01, 5.0, -1000.0]]))
    torch.testing.assert_close(got, torch.tensor([[0.01, 5 * 0.7615942, -5.0]]))


def test_scaled_embedding_scales_its_rows_and_not_the_head() -> None:
    table = PlainEmbedding(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    scaled = ScaledEmbedding(table, 10.0)
    assert scaled(torch.tensor([1])).tolist() == [[30.0, 40.0]]
    assert table.weight.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert scaled.as_projection()(torch.tensor([[1.0, 0.0]])).tolist() == [[1.0, 3.0]]
    assert (scaled.dtype, scaled.device) == (torch.float32, CPU)


@pytest.mark.parametrize("name", sorted(TINY_MODELS))
def test_every_form_is_built_from_random_weights(
    name: str, tiny_model: Callable[[str], Path]
) -> None:
    """What `load_format` dummy does; a table a kind of rope, and none for layers without."""
    config = read_model_folder(tiny_model(name))
    model = build_decoder(config, RandomWeights(dtype=torch.float32, device=CPU), max_model_len=50)
    assert torch.isfinite(logits_of(model, list(range(40)))).all()
    assert len(model.rotaries) == (2 if name.startswith("gemma3") else 1)
    assert model.is_plain == config.is_plain
    ropes = [None if layer.rope is None else model.rotaries[layer.rope] for layer in model.layers]
    assert [rope is None for rope in ropes] == [rope is None for rope in config.layer_ropes]


def test_plain_layers_show_their_parts(tiny_model: Callable[[str], Path]) -> None:
    """A step that computes the plain form on its own reads these."""
    model = load_model(EngineConfig(model=tiny_model("qwen3"), dtype="float32", device="cpu")).model
    assert isinstance(model, Decoder)
    assert model.is_plain
    assert model.rotary.num_positions == 512
    x = torch.randn(2, 64)
    for layer in model.layers:
        gate, up = layer.gate_up(x).chunk(2, -1)
        expected = layer.down(torch.nn.functional.silu(gate) * up)
        torch.testing.assert_close(layer.mlp(x), expected)
        assert layer.qk_norm is not None
        assert layer.qk_norm.shape == (6, 24)
        assert layer.attention == {"scale": 24**-0.5, "window": None}


def test_an_absent_tensor_of_a_family_is_named(tiny_model: Callable[[str], Path]) -> None:
    """A file of the plain form that calls itself Gemma 2."""
    config = read_model_folder(tiny_model("gemma2"))
    source = SafetensorsFolder(tiny_model("gemma"))
    reader = WeightReader(source, dtype=torch.float32, device=CPU)
    with pytest.raises(ModelLoadError, match=r"pre_feedforward_layernorm|post_feedforward"):
        build_decoder(config, reader, max_model_len=16)
