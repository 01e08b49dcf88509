"""First sampling kernel: adjusts the logits of the rows that ask for it, and finds each row's
largest. Greedy rows end here.

Grid (rows, tiles). A program reads one tile; the last one of a row to arrive reduces what all have
found, so that the next kernels find it by row.

The cut is a logit below which nothing is needed. For a row with top-k it is the k-th largest of
the parts' maxima: at least k tokens are not below, and on most rows few more. Without top-k, but
with top-p, it is the edge of the head; else what min-p keeps, or the edge of the head where it is
plain already that the tail cannot win."""

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels.triton.sampling_layout import (
    ARRIVED,
    CUT,
    FAILED,
    FLAGS,
    FREQUENCY,
    INTS,
    IS_ADJUSTED,
    IS_GREEDY,
    IS_PENALIZED,
    LARGEST,
    LISTED,
    LOG_MIN_P,
    MAX_BIASES,
    MAX_BLOCKED,
    MIN_END,
    NUM_BIASES,
    NUM_BLOCKED,
    PART_MAX,
    PRESENCE,
    REPETITION,
    SEED,
    TEMPERATURE,
    TILE_RAW,
    TILE_SUM,
    TILES,
    TOP_K,
    TOP_P,
    WANTS_LOGPROBS,
)
from engine.kernels.triton.sampling_noise import (
    above,
    finite,
    gumbel,
    head_threshold,
    min_p_cut,
    ordered,
    row_key,
    unordered,
)
from engine.kernels.triton.sampling_rows import number, word, write_token

_MAX_BIASES = tl.constexpr(MAX_BIASES)
_MAX_BLOCKED = tl.constexpr(MAX_BLOCKED)
_BIAS_BLOCK = tl.constexpr(128)


@triton.jit
def _penalized(values, slot_params, counts, slot, offsets, VOCAB: tl.constexpr):
    """`values` (float32, [TILE]) after the repetition, frequency and presence penalties."""
    count = tl.load(counts + slot.to(tl.int64) * VOCAB + offsets, offsets < VOCAB, other=0).to(
        tl.int32
    )
    repetition = number(slot_params, slot, REPETITION).to(tl.float32)
    num_output = tl.maximum(count - 1, 0)
    subtrahends = (
        number(slot_params, slot, FREQUENCY) * num_output.to(tl.float64)
        + number(slot_params, slot, PRESENCE) * (num_output > 0).to(tl.float64)
    ).to(tl.float32)
    divided = tl.math.div_rn(values, tl.full(values.shape, 1.0, tl.float32) * repetition)
    changed = tl.where(values > 0, divided, values * repetition) - subtrahends
    return tl.where(count > 0, changed, values)


@triton.jit
def _adjust(
    logits,
    place,
    slot_params,
    counts,
    bias_ids,
    biases,
    blocked_ids,
    slot,
    position,
    flags,
    first,
    VOCAB: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """`LogitAdjuster` on one tile of the row at `logits`, left in the row of scratch at `place`.
    In chunks, so that the rows that do not need it do not pay with registers."""
    for start in range(first, first + TILE, CHUNK):
        offsets = start + tl.arange(0, CHUNK)
        values = tl.load(logits + offsets, offsets < VOCAB, other=0.0).to(tl.float32)
        if flags & IS_PENALIZED:
            values = _penalized(values, slot_params, counts, slot, offsets, VOCAB)
        tl.store(place + offsets, values, offsets < VOCAB)
    tl.debug_barrier()
    num_biases = word(slot_params, slot, NUM_BIASES).to(tl.int32)
    for start in range(0, num_biases, _BIAS_BLOCK):
        index = start + tl.arange(0, _BIAS_BLOCK)
        ids = tl.load(bias_ids + slot * _MAX_BIASES + index, index < num_biases, other=-1)
        mine = (ids >= first) & (ids < first + TILE)
        bias = tl.load(biases + slot * _MAX_BIASES + index, mine, other=0.0)
        tl.store(place + ids, tl.load(place + ids, mine, other=0.0) + bias, mine)
    tl.debug_barrier()
    if position + 1 < word(slot_params, slot, MIN_END):
        index = tl.arange(0, _MAX_BLOCKED)
        num_blocked = word(slot_params, slot, NUM_BLOCKED)
        ids = tl.load(blocked_ids + slot * _MAX_BLOCKED + index, index < num_blocked, other=-1)
        mine = (ids >= first) & (ids < first + TILE)
        tl.store(place + ids, tl.full(ids.shape, -float("inf"), tl.float32), mine)
    tl.debug_barrier()


@triton.jit
def _kth(maxima, top_k):
    """The `top_k`-th largest of `maxima` (float32)."""
    low = ordered(tl.min(maxima, axis=0)).to(tl.int64)
    high = ordered(tl.max(maxima, axis=0)).to(tl.int64)
    while low < high:
        middle = low + ((high - low + 1) >> 1)
        num_above = tl.sum((maxima >= unordered(middle.to(tl.int32))).to(tl.int32), axis=0)
        if num_above >= top_k:
            low = middle
        else:
            high = middle - 1
    return unordered(low.to(tl.int32))


@triton.jit
def _part_maxima(values, TILE: tl.constexpr, PART: tl.constexpr):
    """Of `values` (float32, [TILE]): [TILE // PART], plus infinity where there is a NaN."""
    values = tl.where(values == values, values, float("inf"))
    return tl.max(tl.reshape(values, [TILE // PART, PART]), axis=1)


@triton.jit
def _tail_can_win(maxima, largest, threshold, temperature, key, token, PART: tl.constexpr):
    """Whether the tail as one candidate may be better than the likeliest token, if each token of
    a part is as likely as the part's `maxima` let it be. An error of 1e-3 covers the rounding."""
    bounds = tl.exp((tl.minimum(maxima, threshold) - largest) / temperature) * PART
    most = tl.log(tl.maximum(tl.sum(bounds, axis=0), 1e-37)).to(tl.float64)
    return most + gumbel(key, token * 0 - 1) + 1e-3 > gumbel(key, token)


@triton.jit
def scan_kernel(
    logits,
    stride,
    adjusted,
    slot_params,
    counts,
    bias_ids,
    biases,
    blocked_ids,
    forced_ids,
    row_slots,
    row_positions,
    row_samples,
    floats,
    ints,
    last_tokens,
    out_tokens,
    VOCAB: tl.constexpr,
    TILE: tl.constexpr,
    PART: tl.constexpr,
    CHUNK: tl.constexpr,
    NUM_TILES: tl.constexpr,
    NUM_PARTS: tl.constexpr,
    TILE_BLOCK: tl.constexpr,
    PART_BLOCK: tl.constexpr,
    FLOAT_WIDTH: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """See the module. `TILE_BLOCK`, `PART_BLOCK`: the powers of two from `NUM_TILES` and
    `NUM_PARTS` on."""
    row = tl.program_id(0)
    tile = tl.program_id(1)
    logits += row.to(tl.int64) * stride
    first = tile * TILE
    offsets = first + tl.arange(0, TILE)
    mask = offsets < VOCAB
    # Under way while the parameters are read; rows that sample nothing are few.
    values = tl.load(logits + offsets, mask, other=-float("inf")).to(tl.float32)
    if tl.load(row_samples + row) == 0:
        return
    slot = tl.load(row_slots + row)
    flags = word(slot_params, slot, FLAGS)
    floats += row * FLOAT_WIDTH
    ints += row * INTS
    tiles = floats + TILES
    parts = tiles + PART_MAX * NUM_TILES
    place = adjusted + row.to(tl.int64) * VOCAB
    maxima = _part_maxima(values, TILE, PART)
    if flags & (IS_ADJUSTED | WANTS_LOGPROBS):
        raw_max = tl.max(maxima, axis=0)
        tl.store(tiles + TILE_RAW * NUM_TILES + tile, raw_max)
        if flags & WANTS_LOGPROBS:
            origin = tl.minimum(tl.maximum(raw_max, -3.4e38), 3.4e38)
            masses = tl.sum(tl.exp(values - origin), axis=0)
            tl.store(tiles + TILE_SUM * NUM_TILES + tile, masses)
        if flags & IS_ADJUSTED:
            _adjust(
                logits,
                place,
                slot_params,
                counts,
                bias_ids,
                biases,
                blocked_ids,
                slot,
                tl.load(row_positions + row),
                flags,
                first,
                VOCAB,
                TILE,
                CHUNK,
            )
            values = tl.load(place + offsets, mask, other=-float("inf"))
            maxima = _part_maxima(values, TILE, PART)
    tl.store(parts + tile * (TILE // PART) + tl.arange(0, TILE // PART), maxima)
    # What this program's threads have written is seen by the last one.
    tl.debug_barrier()
    if tl.atomic_add(ints + ARRIVED, 1, sem="acq_rel") < NUM_TILES - 1:
        return
    tl.debug_barrier()
    tl.store(ints + ARRIVED, 0)
    index = tl.arange(0, PART_BLOCK)
    found = tl.load(parts + index, index < NUM_PARTS, other=-float("inf"), cache_modifier=".cg")
    most = tl.max(found, axis=0)
    raw_most = most
    if flags & IS_ADJUSTED:
        raws = tl.load(
            tiles + TILE_RAW * NUM_TILES + tl.arange(0, TILE_BLOCK),
            tl.arange(0, TILE_BLOCK) < NUM_TILES,
            other=-float("inf"),
            cache_modifier=".cg",
        )
        raw_most = tl.max(raws, axis=0)
    failed = tl.abs(raw_most) == float("inf")
    # The first of the likeliest tokens is in the first part that has one.
    part = tl.min(tl.where(found == most, index, PART_BLOCK), axis=0)
    offsets = part * PART + tl.arange(0, PART)
    if flags & IS_ADJUSTED:
        near = tl.load(place + offsets, offsets < VOCAB, other=0.0, cache_modifier=".cg")
    else:
        near = tl.load(logits + offsets, offsets < VOCAB, other=0.0).to(tl.float32)
    near = tl.where(near == near, near, float("inf"))
    token = tl.min(tl.where((near == most) & (offsets < VOCAB), offsets, VOCAB - 1), axis=0)
    if flags & IS_GREEDY:
        write_token(
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
            VOCAB,
        )
    else:
        largest = finite(most)
        temperature = number(slot_params, slot, TEMPERATURE).to(tl.float32)
        top_k = word(slot_params, slot, TOP_K)
        threshold = head_threshold(largest, temperature, DEPTH)
        cut = above(threshold)
        if (top_k > 0) & (top_k <= NUM_PARTS):
            cut = _kth(finite(found), top_k)
        elif (top_k == 0) & (number(slot_params, slot, TOP_P) == 1.0):
            key = row_key(word(slot_params, slot, SEED), tl.load(row_positions + row))
            kept = min_p_cut(largest, temperature, number(slot_params, slot, LOG_MIN_P))
            if (kept > threshold) | _tail_can_win(
                found, largest, threshold, temperature, key, token, PART
            ):
                cut = kept
        tl.store(floats + LARGEST, largest)
        tl.store(floats + CUT, cut)
        tl.store(ints + LISTED, 0)
        tl.store(ints + FAILED, failed.to(tl.int32))
