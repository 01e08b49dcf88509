"""Rotary position embedding: the table of angles and its application to queries and keys."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.models.config import RopeConfig


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> Tensor:
    """[head_dim / 2] float32: the angle that one position adds, for each pair of elements."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    frequencies = 1.0 / (rope.theta**exponents)
    if rope.kind == "linear":
        return frequencies / rope.factor
    if rope.kind == "llama3":
        return _llama3(frequencies, rope)
    return frequencies


def _llama3(frequencies: Tensor, rope: RopeConfig) -> Tensor:
    """Long waves are stretched by `factor`, short ones kept, those between are blended."""
    context = rope.original_max_position_embeddings
    waves = 2 * math.pi / frequencies
    is_long = waves > context / rope.low_freq_factor
    is_short = waves < context / rope.high_freq_factor
    stretched = torch.where(is_long, frequencies / rope.factor, frequencies)
    kept_part = (context / waves - rope.low_freq_factor) / (
        rope.high_freq_factor - rope.low_freq_factor
    )
    blended = (1 - kept_part) * stretched / rope.factor + kept_part * stretched
    return torch.where(is_long | is_short, stretched, blended)


class RotaryTable:
    """Cosines and sines for positions [0, num_positions), worked out in float32."""

    def __init__(
        self,
        rope: RopeConfig,
        head_dim: int,
        num_positions: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        positions = torch.arange(num_positions, dtype=torch.float32)
        angles = positions[:, None] * inverse_frequencies(rope, head_dim)  # [P, head_dim / 2]
        self._cos = angles.cos().to(device, dtype)
        self._sin = angles.sin().to(device, dtype)
        self.num_positions = num_positions

    def lookup(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of `positions` [T], each [T, 1, head_dim / 2]."""
        return (
            self._cos.index_select(0, positions).unsqueeze(1),
            self._sin.index_select(0, positions).unsqueeze(1),
        )


def rotate_(heads: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rotates `heads` [T, num_heads, head_dim] in place; pairs are (i, i + head_dim / 2)."""
    half = heads.shape[-1] // 2
    first, second = heads[..., :half], heads[..., half:]
    rotated = first * cos - second * sin
    second.mul_(cos).add_(first * sin)
    first.copy_(rotated)
