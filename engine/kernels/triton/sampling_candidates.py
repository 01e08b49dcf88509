"""A row's candidates for top-k and top-p, in a list or as the whole row: loading and measuring
them. For use inside kernels.

A `source` is the tuple (list values, list ids, logits, stride, adjusted, row, flags): pointers to
the row's list, and what `load_values` takes."""

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels.triton.sampling_rows import load_values

MASS_ONE = tl.constexpr(float(1 << 40))
"""The likeliest token's mass, as an integer; 2**22 such tokens fit into int64 with room to spare.
Masses are integers so that no sum depends on an order."""


@triton.jit
def load_candidates(source, from_list, index, length, VOCAB: tl.constexpr):
    """Values (float32, -inf from `length` on) and token ids at the places `index` of a list, or
    of the whole row."""
    list_values, list_ids, logits, stride, adjusted, row, flags = source
    if from_list:
        values = tl.load(list_values + index, index < length, other=-float("inf"))
        ids = tl.load(list_ids + index, index < length, other=0)
    else:
        values = load_values(logits, stride, adjusted, row, flags, index, VOCAB)
        ids = index
    return values, ids


@triton.jit
def weigh(values, largest, cooling, by_count):
    """int64: 1 each, or their masses."""
    masses = (tl.exp((values - largest) * cooling) * MASS_ONE).to(tl.int64)
    return tl.where(by_count, 1, masses)


@triton.jit
def amount_within(
    low,
    high,
    by_count,
    largest,
    cooling,
    source,
    from_list,
    length,
    VOCAB: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Of the candidates in [low, high]: how many there are, or their mass (int64)."""
    amounts = tl.zeros([CHUNK], tl.int64)
    for start in range(0, length, CHUNK):
        index = start + tl.arange(0, CHUNK)
        values, _ = load_candidates(source, from_list, index, length, VOCAB)
        is_in = (values >= low) & (values <= high) & (index < length)
        amounts += tl.where(is_in, weigh(values, largest, cooling, by_count), 0)
    return tl.sum(amounts, axis=0)


@triton.jit
def collect(low, high, source, VOCAB: tl.constexpr, CHUNK: tl.constexpr, LIST: tl.constexpr):
    """Lists the values of all of the row that are in [low, high], as far as there is place;
    returns how many there are (int32)."""
    list_values, _, logits, stride, adjusted, row, flags = source
    num_found = tl.full([], 0, tl.int32)
    for start in range(0, VOCAB, CHUNK):
        index = start + tl.arange(0, CHUNK)
        values = load_values(logits, stride, adjusted, row, flags, index, VOCAB)
        is_in = (values >= low) & (values <= high) & (index < VOCAB)
        places = num_found + tl.cumsum(is_in.to(tl.int32), axis=0) - 1
        tl.store(list_values + places, values, is_in & (places < LIST))
        num_found += tl.sum(is_in.to(tl.int32), axis=0)
    tl.debug_barrier()
    return num_found
