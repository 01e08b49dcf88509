"""Rotary angles against transformers' own, bit for bit, and the rotation against its definition."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from engine.models.config import RopeConfig, RopeKind
from engine.models.rope import RotaryTable, rotate_

CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", ["default", "linear", "llama3"])
def test_angles_equal_transformers(kind: RopeKind) -> None:
    rope = RopeConfig(500000.0, kind, 8.0, 1.0, 4.0, 1024)
    parameters = {
        "rope_type": kind,
        "rope_theta": rope.theta,
        "factor": rope.factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 1024,
    }
    wanted = {"default": 2, "linear": 3, "llama3": 6}[kind]
    config = LlamaConfig(
        hidden_size=512,
        num_attention_heads=8,
        max_position_embeddings=4096,
        rope_parameters=dict(list(parameters.items())[:wanted]),
    )
    positions = torch.tensor([0, 1, 17, 1000, 4095])
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), positions[None])
    table = RotaryTable(rope, 64, 4096, dtype=torch.float32, device=CPU)
    our_cos, our_sin = table.lookup(positions)
    assert torch.equal(our_cos[:, 0], cos[0, :, :32])
    assert torch.equal(our_sin[:, 0], sin[0, :, :32])


def test_rotation_turns_each_pair() -> None:
    table = RotaryTable(RopeConfig(100.0), 4, 10, dtype=torch.float32, device=CPU)
    heads = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
    rotate_(heads, *table.lookup(torch.tensor([3])))
    for index, (x, y) in enumerate([(1.0, 3.0), (2.0, 4.0)]):
        angle = 3 * 100.0 ** (-2 * index / 4)
        assert heads[0, 0, index].item() == pytest.approx(
            x * math.cos(angle) - y * math.sin(angle), abs=1e-5
        )
        assert heads[0, 0, index + 2].item() == pytest.approx(
            y * math.cos(angle) + x * math.sin(angle), abs=1e-5
        )


def test_rotation_writes_through_a_view() -> None:
    """Queries and keys are columns of a wider tensor; values beside them stay as they are."""
    table = RotaryTable(RopeConfig(100.0), 4, 10, dtype=torch.float32, device=CPU)
    wide = torch.ones(2, 3, 4)
    rotate_(wide[:, :2], *table.lookup(torch.tensor([1, 2])))
    assert torch.equal(wide[:, 2], torch.ones(2, 4))
    assert not torch.equal(wide[:, 0], torch.ones(2, 4))
