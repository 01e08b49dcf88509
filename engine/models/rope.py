"""Rotary position embedding: the table of angles and its application to queries and keys."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.models.rope_config import RopeConfig


def inverse_frequencies(rope: RopeConfig, head_dim: int, num_positions: int = 0) -> Tensor:
    """[rotary_dim / 2] float32: the angle that one position adds, for each pair of elements.

    Dynamic and longrope angles depend on a length. Keys that lie in a cache were rotated once
    and for all, so the length cannot be the sequence's own, which grows: it is the window
    `num_positions` that is served. Up to the trained window dynamic angles are the plain ones
    and longrope takes its short factors, as transformers does for sequences that stay within;
    with a wider window every sequence gets the angles that transformers gives to one that
    fills it (dynamic) or to any that is longer than the trained window (longrope)."""
    dim = rope.rotary_dim(head_dim)
    exponents = torch.arange(0, dim, 2, dtype=torch.float32) / dim
    theta = rope.theta
    if rope.kind == "dynamic":
        theta = _grown_theta(rope, dim, num_positions)
    waves = theta**exponents
    if rope.kind == "longrope":
        is_long = num_positions > rope.original_max_position_embeddings
        factors = rope.long_factors if is_long else rope.short_factors
        return 1.0 / (torch.tensor(factors, dtype=torch.float32) * waves)
    frequencies = 1.0 / waves
    if rope.kind == "linear":
        return frequencies / rope.factor
    if rope.kind == "llama3":
        return _llama3(frequencies, rope)
    if rope.kind == "yarn":
        return _yarn(waves, rope, dim)
    return frequencies


def _grown_theta(rope: RopeConfig, dim: int, num_positions: int) -> float:
    """The base at which the longest wave is stretched by as much as the window was."""
    trained = rope.original_max_position_embeddings
    length = max(num_positions, trained)
    growth = rope.factor * length / trained - (rope.factor - 1)
    return float(rope.theta * growth ** (dim / (dim - 2)))


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


def _yarn(waves: Tensor, rope: RopeConfig, dim: int) -> Tensor:
    """Pairs that turn more than `beta_fast` times in the trained window are kept, those that
    turn less than `beta_slow` times are slowed by `factor`, with a ramp between. `waves` are
    inverse angles."""
    trained = rope.original_max_position_embeddings

    def index_of(rotations: float) -> float:
        turns = math.log(trained / (rotations * 2 * math.pi))
        return dim * turns / (2 * math.log(rope.theta))

    low, high = index_of(rope.beta_fast), index_of(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001  # the ramp becomes a step
    ramp = (torch.arange(dim // 2, dtype=torch.float32) - low) / (high - low)
    kept_part = 1 - ramp.clamp(0, 1)
    return 1.0 / (rope.factor * waves) * (1 - kept_part) + 1.0 / waves * kept_part


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
        frequencies = inverse_frequencies(rope, head_dim, num_positions)
        angles = positions[:, None] * frequencies  # [P, rotary_dim / 2]
        self.cos = (angles.cos() * rope.attention_factor).to(device, dtype)
        self.sin = (angles.sin() * rope.attention_factor).to(device, dtype)
        self.num_positions = num_positions

    def lookup(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of `positions` [T], each [T, 1, rotary_dim / 2]."""
        return (
            self.cos.index_select(0, positions).unsqueeze(1),
            self.sin.index_select(0, positions).unsqueeze(1),
        )


def rotate_(heads: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rotates `heads` [T, num_heads, head_dim] in place; pairs are (i, i + half), with `half`
    the width of `cos`. Elements behind 2 * half stay as they are."""
    half = cos.shape[-1]
    first, second = heads[..., :half], heads[..., half : 2 * half]
    rotated = first * cos - second * sin
    second.mul_(cos).add_(first * sin)
    first.copy_(rotated)
