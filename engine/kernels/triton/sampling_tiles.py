"""Second sampling kernel, for rows that are drawn at random: works through their tiles.

Grid (rows, tiles). Rows with top-k or top-p get a list of the tokens that are not below their cut,
in any order. For the others, each tile gets the largest rough score (`rough_gumbel`) of its head
tokens, so that the choice looks closely at very few tiles. Either gets the tiles' part of the
tail's mass where it is needed."""

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels.triton.sampling_layout import (
    CUT,
    FLAGS,
    INTS,
    IS_GREEDY,
    LARGEST,
    LISTED,
    PART_MAX,
    SEED,
    TEMPERATURE,
    TILE_BEST,
    TILE_MASS,
    TILES,
    TOP_K,
    TOP_P,
)
from engine.kernels.triton.sampling_noise import finite, head_threshold, rough_gumbel, row_key
from engine.kernels.triton.sampling_rows import load_values, number, word


@triton.jit
def tiles_kernel(
    logits,
    stride,
    adjusted,
    slot_params,
    row_slots,
    row_positions,
    row_samples,
    floats,
    ints,
    list_values,
    list_ids,
    VOCAB: tl.constexpr,
    TILE: tl.constexpr,
    PART: tl.constexpr,
    CHUNK: tl.constexpr,
    LIST: tl.constexpr,
    NUM_TILES: tl.constexpr,
    FLOAT_WIDTH: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """See the module."""
    row = tl.program_id(0)
    tile = tl.program_id(1)
    if tl.load(row_samples + row) == 0:
        return
    slot = tl.load(row_slots + row)
    flags = word(slot_params, slot, FLAGS)
    if flags & IS_GREEDY:
        return
    floats += row * FLOAT_WIDTH
    tiles = floats + TILES + tile
    largest = tl.load(floats + LARGEST)
    cut = tl.load(floats + CUT)
    parts = floats + TILES + PART_MAX * NUM_TILES + tile * (TILE // PART)
    tile_max = finite(tl.max(tl.load(parts + tl.arange(0, TILE // PART)), axis=0))
    temperature = number(slot_params, slot, TEMPERATURE).to(tl.float32)
    cooling = 1.0 / temperature
    threshold = head_threshold(largest, temperature, DEPTH)
    top_k = word(slot_params, slot, TOP_K)
    first = tile * TILE
    if (top_k > 0) | (number(slot_params, slot, TOP_P) < 1.0):
        mass = tl.zeros([CHUNK], tl.float32)
        # Without top-k the whole mass counts, but not tiles that would not change its sum.
        least = tl.where(top_k == 0, largest - 32.0 * temperature, cut)
        if tile_max >= tl.minimum(least, cut):
            for start in range(first, first + TILE, CHUNK):
                offsets = start + tl.arange(0, CHUNK)
                values = load_values(logits, stride, adjusted, row, flags, offsets, VOCAB)
                is_found = (values >= cut) & (offsets < VOCAB)
                if top_k == 0:
                    mass += tl.where(is_found, 0.0, tl.exp((values - largest) * cooling))
                num_found = tl.sum(is_found.to(tl.int32), axis=0)
                if num_found > 0:
                    place = tl.atomic_add(ints + row * INTS + LISTED, num_found)
                    places = place + tl.cumsum(is_found.to(tl.int32), axis=0) - 1
                    fits = is_found & (places < LIST)
                    places += row * LIST
                    tl.store(list_values + places, values, fits)
                    tl.store(list_ids + places, offsets, fits)
        tl.store(tiles + TILE_MASS * NUM_TILES, tl.sum(mass, axis=0))
    else:
        key = row_key(word(slot_params, slot, SEED), tl.load(row_positions + row))
        best = tl.full([CHUNK], -float("inf"), tl.float32)
        mass = tl.zeros([CHUNK], tl.float32)
        if (tile_max >= cut) & ((tile_max > threshold) | (cut <= threshold)):
            for start in range(first, first + TILE, CHUNK):
                offsets = start + tl.arange(0, CHUNK)
                values = load_values(logits, stride, adjusted, row, flags, offsets, VOCAB)
                is_head = (values > threshold) & (values >= cut)
                scaled = (values - largest) * cooling
                if cut <= threshold:
                    is_tail = (values <= threshold) & (values >= cut)
                    mass += tl.where(is_tail, tl.exp(scaled), 0.0)
                if tl.max(is_head.to(tl.int32), axis=0) > 0:
                    scores = scaled + rough_gumbel(key, offsets)
                    best = tl.maximum(best, tl.where(is_head, scores, -float("inf")))
        tl.store(tiles + TILE_BEST * NUM_TILES, tl.max(best, axis=0))
        tl.store(tiles + TILE_MASS * NUM_TILES, tl.sum(mass, axis=0))
