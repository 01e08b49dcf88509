"""What the sampling kernels share: reading parameters and logits, and writing a row's token."""

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels.triton.sampling_layout import (
    FORCED_FROM,
    IS_ADJUSTED,
    IS_FORCED,
    IS_PENALIZED,
    MAX_COUNT,
    MAX_FORCED,
    NUM_FORCED,
    PARAM_WORDS,
)
from engine.kernels.triton.sampling_noise import finite

_MAX_COUNT = tl.constexpr(MAX_COUNT)
_MAX_FORCED = tl.constexpr(MAX_FORCED)


@triton.jit
def word(params, slot, index: tl.constexpr):
    """A parameter of a slot, int64."""
    return tl.load(params + slot * PARAM_WORDS + index)


@triton.jit
def number(params, slot, index: tl.constexpr):
    """A parameter of a slot, float64."""
    return tl.load(params + slot * PARAM_WORDS + index).to(tl.float64, bitcast=True)


@triton.jit
def load_values(logits, stride, adjusted, row, flags, offsets, VOCAB: tl.constexpr):
    """The logits that row `row` is drawn from, float32 and finite; -inf beyond the vocabulary."""
    mask = offsets < VOCAB
    if flags & IS_ADJUSTED:
        values = tl.load(adjusted + row.to(tl.int64) * VOCAB + offsets, mask, other=0.0)
    else:
        values = tl.load(logits + row.to(tl.int64) * stride + offsets, mask, other=0.0).to(
            tl.float32
        )
    return tl.where(mask, finite(values), -float("inf"))


@triton.jit
def write_token(
    token,
    failed,
    row,
    slot,
    flags,
    slot_params,
    forced_ids,
    row_positions,
    counts,
    last_tokens,
    out_tokens,
    VOCAB: tl.constexpr,
):
    """The token of a row, with its bits flipped where the row has `failed`; and what the slot's
    next row needs. Where the request demands a token, it is that one and not `token`."""
    if flags & IS_FORCED:
        place = tl.load(row_positions + row) + 1 - word(slot_params, slot, FORCED_FROM)
        is_forced = (place >= 0) & (place < word(slot_params, slot, NUM_FORCED))
        forced = tl.load(forced_ids + slot * _MAX_FORCED + place, is_forced, other=0)
        token = tl.where(is_forced, forced, token)
    tl.store(out_tokens + row, tl.where(failed, ~token, token))
    tl.store(last_tokens + slot, token)
    if flags & IS_PENALIZED:
        place = counts + slot.to(tl.int64) * VOCAB + token
        count = tl.maximum(tl.load(place).to(tl.int32), 1) + 1
        tl.store(place, tl.minimum(count, _MAX_COUNT).to(tl.int16))
