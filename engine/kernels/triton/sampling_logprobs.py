"""Fourth sampling kernel: log probabilities, as `engine.execution.logprobs` gives them, for the
rows that ask.

Grid (rows,). The likeliest tokens are taken one after another from the tile with the largest
logit left, so that a token costs one tile and not the row. Of equal ones the lowest id is first."""

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels.triton.sampling_layout import (
    FLAGS,
    LOGPROB_WORDS,
    NUM_TOP,
    TILE_RAW,
    TILE_SUM,
    TILES,
    WANTS_LOGPROBS,
)
from engine.kernels.triton.sampling_rows import word

_NUM_TOP = tl.constexpr(NUM_TOP)
_WORDS = tl.constexpr(LOGPROB_WORDS)
_LOWEST = tl.constexpr(-9999.0)
"""`engine.execution.logprobs.LOWEST_LOGPROB`."""
_FLOOR = tl.constexpr(-3.4e38)
"""Stands for minus infinity, which marks a tile with nothing left."""
_CEILING = tl.constexpr(3.4e38)


@triton.jit
def _finite(logprob):
    logprob = tl.where(logprob == logprob, logprob, _LOWEST)
    return tl.minimum(tl.maximum(logprob, _LOWEST), 0.0)


@triton.jit
def logprobs_kernel(
    logits,
    stride,
    slot_params,
    row_slots,
    row_samples,
    floats,
    out_tokens,
    out_logprobs,
    VOCAB: tl.constexpr,
    TILE: tl.constexpr,
    NUM_TILES: tl.constexpr,
    TILE_BLOCK: tl.constexpr,
    FLOAT_WIDTH: tl.constexpr,
):
    """See the module."""
    row = tl.program_id(0)
    if tl.load(row_samples + row) == 0:
        return
    slot = tl.load(row_slots + row)
    if (word(slot_params, slot, FLAGS) & WANTS_LOGPROBS) == 0:
        return
    logits += row.to(tl.int64) * stride
    tiles = floats + row * FLOAT_WIDTH + TILES
    out = out_logprobs + row * _WORDS
    index = tl.arange(0, TILE_BLOCK)
    is_tile = index < NUM_TILES
    maxima = tl.load(tiles + TILE_RAW * NUM_TILES + index, is_tile, other=-float("inf"))
    sums = tl.load(tiles + TILE_SUM * NUM_TILES + index, is_tile, other=0.0)
    # Rows that failed get numbers, too.
    maxima = tl.minimum(tl.maximum(maxima, _FLOOR), _CEILING)
    top = tl.max(maxima, axis=0)
    # A sum of a row with numbers is not below 1.
    total = top + tl.log(tl.maximum(tl.sum(sums * tl.exp(maxima - top), axis=0), 0.5))
    token = tl.load(out_tokens + row)
    token = tl.where(token < 0, ~token, token)
    sampled = tl.minimum(tl.load(logits + token).to(tl.float32), _CEILING)
    tl.store(out, _finite(sampled - total).to(tl.int32, bitcast=True))
    maxima = tl.where(is_tile, maxima, -float("inf"))
    last_values = tl.full([TILE_BLOCK], float("inf"), tl.float32)
    last_ids = tl.full([TILE_BLOCK], -1, tl.int32)
    for place in range(0, _NUM_TOP):
        value = tl.max(maxima, axis=0)
        tile = tl.min(tl.where(maxima == value, index, TILE_BLOCK - 1), axis=0)
        last_value = tl.max(tl.where(index == tile, last_values, -float("inf")), axis=0)
        last_id = tl.max(tl.where(index == tile, last_ids, -1), axis=0)
        offsets = tile * TILE + tl.arange(0, TILE)
        values = tl.load(logits + offsets, offsets < VOCAB, other=0.0).to(tl.float32)
        values = tl.where(values == values, tl.maximum(values, _FLOOR), _CEILING)
        values = tl.minimum(values, _CEILING)
        is_left = (values < last_value) | ((values == last_value) & (offsets > last_id))
        values = tl.where(is_left & (offsets < VOCAB), values, -float("inf"))
        found = tl.min(tl.where(values == value, offsets, VOCAB), axis=0)
        tl.store(out + 1 + place, _finite(value - total).to(tl.int32, bitcast=True))
        tl.store(out + 1 + _NUM_TOP + place, tl.minimum(found, VOCAB - 1))
        left = tl.max(tl.where(offsets == found, -float("inf"), values), axis=0)
        maxima = tl.where(index == tile, left, maxima)
        last_values = tl.where(index == tile, value, last_values)
        last_ids = tl.where(index == tile, found, last_ids)
