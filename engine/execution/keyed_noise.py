"""Random numbers that depend on nothing but what they are for: a request's seed, the position of
the token that is drawn, and the candidate's id."""

from __future__ import annotations

import torch
from torch import Tensor

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


def draw_key(seed: int, position: int) -> int:
    """The key (an int64) of the token at `position` of a sequence with `seed`."""
    return _signed(_mix(mixed_seed(seed) + position * _GOLDEN))


def mixed_seed(seed: int) -> int:
    """The part of `draw_key` (an int64) that all positions of a sequence share."""
    return _signed(_mix(seed))


def gumbel(keys: Tensor, token_ids: Tensor) -> Tensor:
    """Standard Gumbel noise, float64, for each pair of a key and an id (both int64, broadcast),
    by the SplitMix64 finalizer (Steele, Lea and Flood, 2014)."""
    bits = token_ids * _signed(_GOLDEN) + keys
    bits = (bits ^ _shift_right(bits, 30)) * _signed(_MIX_1)
    bits = (bits ^ _shift_right(bits, 27)) * _signed(_MIX_2)
    bits = bits ^ _shift_right(bits, 31)
    # 52 bits to the open interval (0, 1), exactly: neither logarithm is infinite.
    uniform = (_shift_right(bits, 12).double() + 0.5) * 2.0**-52
    return -torch.log(-torch.log(uniform))


def _shift_right(bits: Tensor, count: int) -> Tensor:
    """Logical shift of int64."""
    return (bits >> count) & ((1 << (64 - count)) - 1)


def _signed(value: int) -> int:
    """The int64 with the same bits as `value` modulo 2**64."""
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def _mix(value: int) -> int:
    value &= _MASK
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK
    return value ^ (value >> 31)
