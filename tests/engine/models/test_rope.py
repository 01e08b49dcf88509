"""Rotary angles against transformers' own, bit for bit, and the rotation against its definition."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from engine.models.config_fields import ConfigFields
from engine.models.rope import RotaryTable, inverse_frequencies, rotate_
from engine.models.rope_config import RopeConfig, read_rope

CPU = torch.device("cpu")


SCALINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 8.0},
    "dynamic": {"factor": 4.0},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 1024,
    },
    "yarn": {"factor": 8.0, "original_max_position_embeddings": 512},
    "longrope": {
        "factor": 8.0,
        "original_max_position_embeddings": 512,
        "short_factor": [1.0 + 0.05 * i for i in range(32)],
        "long_factor": [1.0 + 0.5 * i for i in range(32)],
    },
}


def assert_angles_equal_transformers(
    kind: str, window: int, served: int, positions: list[int], **changes: Any
) -> None:
    """For a model of `window` positions of which `served` are served; transformers sees
    `positions` alone, and so a sequence that ends with the largest one."""
    parameters = {"rope_type": kind, "rope_theta": 500000.0, **SCALINGS[kind], **changes}
    config = LlamaConfig(
        hidden_size=512,
        num_attention_heads=8,
        max_position_embeddings=window,
        rope_parameters=dict(parameters),
    )
    fields = ConfigFields(
        {"rope_theta": 1.0, "max_position_embeddings": window, "rope_parameters": parameters}
    )
    where = torch.tensor(positions)
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), where[None])
    table = RotaryTable(read_rope(fields, 64), 64, served, dtype=torch.float32, device=CPU)
    our_cos, our_sin = table.lookup(where)
    assert torch.equal(our_cos[:, 0], cos[0, :, :32])
    assert torch.equal(our_sin[:, 0], sin[0, :, :32])


@pytest.mark.parametrize("kind", ["default", "linear", "dynamic", "llama3", "yarn"])
def test_angles_equal_transformers(kind: str) -> None:
    assert_angles_equal_transformers(kind, 4096, 4096, [0, 1, 17, 1000, 4095])


@pytest.mark.parametrize(
    "changes",
    [
        {"truncate": False},
        {"beta_fast": 16.0, "beta_slow": 2.0},
        {"mscale": 1.5, "mscale_all_dim": 0.7},
        {"attention_factor": 0.5},
    ],
)
def test_yarn_options(changes: dict[str, Any]) -> None:
    assert_angles_equal_transformers("yarn", 4096, 4096, [0, 5, 4095], **changes)


def test_dynamic_angles_beyond_the_trained_window() -> None:
    """The served window decides, so that what lies in the cache stays right: the angles are those
    of a sequence that fills it."""
    assert_angles_equal_transformers("dynamic", 1024, 4096, [0, 700, 2000, 4095])
    assert_angles_equal_transformers("dynamic", 1024, 512, [0, 300, 511])
    wide = inverse_frequencies(RopeConfig(1e4, "dynamic", 4.0, 1, 4, 1024), 64, 4096)
    narrow = inverse_frequencies(RopeConfig(1e4, "dynamic", 4.0, 1, 4, 1024), 64, 1024)
    assert not torch.allclose(wide, narrow)
    assert torch.equal(narrow, inverse_frequencies(RopeConfig(1e4), 64))


def test_longrope_factors_by_the_served_window() -> None:
    """Short factors while no sequence can outgrow the trained window, else long ones for every
    sequence, the short ones too."""
    assert_angles_equal_transformers("longrope", 4096, 512, [0, 100, 511])
    assert_angles_equal_transformers("longrope", 4096, 513, [0, 100, 512])
    assert_angles_equal_transformers("longrope", 4096, 4096, [0, 100, 4095])


def test_partial_rope_leaves_the_rest_of_a_head() -> None:
    rope = RopeConfig(100.0, partial_rotary_factor=0.5)
    table = RotaryTable(rope, 8, 10, dtype=torch.float32, device=CPU)
    whole = RotaryTable(RopeConfig(100.0), 4, 10, dtype=torch.float32, device=CPU)
    heads = torch.arange(1.0, 9.0)[None, None].repeat(2, 3, 1)
    turned, part = heads.clone(), heads[..., :4].clone()
    rotate_(turned, *table.lookup(torch.tensor([3, 4])))
    rotate_(part, *whole.lookup(torch.tensor([3, 4])))
    assert torch.equal(turned[..., :4], part)
    assert torch.equal(turned[..., 4:], heads[..., 4:])


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
