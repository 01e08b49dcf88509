"""Third sampling kernel, for rows that are drawn at random: finds what top-k and top-p leave, and
chooses the token.

Grid (rows,). Both filters ask for the largest floor such that enough is not below it: k tokens, or
a part of the mass. It is found by bisection over the order of float32 numbers, without sorting:
top-p keeps the tokens of which less than its part of the mass is likelier, and of two neighbouring
values the floor is the one that still has this part at or above it. Masses are integers, so that
no sum depends on an order.

The choice is that of `engine.execution.random_choice`: the best token of the head, unless the tail
as one candidate wins; then the best of the tail. Scores are compared in float64, but only those in
chunks whose rough score may be the best."""

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels.triton.sampling_candidates import (
    MASS_ONE,
    amount_within,
    collect,
    load_candidates,
    weigh,
)
from engine.kernels.triton.sampling_layout import (
    CUT,
    FAILED,
    FLAGS,
    INTS,
    IS_GREEDY,
    LARGEST,
    LISTED,
    LOG_MIN_P,
    SEED,
    TEMPERATURE,
    TILE_BEST,
    TILE_MASS,
    TILES,
    TOP_K,
    TOP_P,
)
from engine.kernels.triton.sampling_noise import (
    NOISE_ERROR,
    above,
    gumbel,
    head_threshold,
    min_p_cut,
    ordered,
    rough_gumbel,
    row_key,
    unordered,
)
from engine.kernels.triton.sampling_rows import number, word, write_token


@triton.jit
def choice_kernel(
    logits,
    stride,
    adjusted,
    slot_params,
    counts,
    forced_ids,
    row_slots,
    row_positions,
    row_samples,
    floats,
    ints,
    list_values,
    list_ids,
    last_tokens,
    out_tokens,
    VOCAB: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    LIST: tl.constexpr,
    NUM_TILES: tl.constexpr,
    TILE_BLOCK: tl.constexpr,
    FLOAT_WIDTH: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """See the module."""
    row = tl.program_id(0)
    if tl.load(row_samples + row) == 0:
        return
    slot = tl.load(row_slots + row)
    flags = word(slot_params, slot, FLAGS)
    if flags & IS_GREEDY:
        return
    infinity = float("inf")
    floats += row * FLOAT_WIDTH
    list_values += row * LIST
    list_ids += row * LIST
    source = (list_values, list_ids, logits, stride, adjusted, row, flags)
    index = tl.arange(0, TILE_BLOCK)
    tiles = floats + TILES + index
    is_tile = index < NUM_TILES
    failed = tl.load(ints + row * INTS + FAILED) != 0
    largest = tl.load(floats + LARGEST)
    temperature = number(slot_params, slot, TEMPERATURE).to(tl.float32)
    cooling = 1.0 / temperature
    threshold = head_threshold(largest, temperature, DEPTH)
    cut = tl.load(floats + CUT)
    top_k = word(slot_params, slot, TOP_K)
    top_p = number(slot_params, slot, TOP_P)
    is_filtered = (top_k > 0) | (top_p < 1.0)
    tile_masses = tl.load(tiles + TILE_MASS * NUM_TILES, is_tile, other=0.0)
    tail_mass = tl.sum(tile_masses.to(tl.float64), axis=0)
    from_list = is_filtered
    length = tl.full([], VOCAB, tl.int32)
    if is_filtered:
        num_listed = tl.load(ints + row * INTS + LISTED)
        from_list = (num_listed <= LIST) & (num_listed >= top_k)
        if from_list:
            length = num_listed
        # At least what is wanted is not below the cut; or it does not tell.
        cut = tl.where(num_listed >= top_k, cut, -infinity)
        # A short list stays in registers.
        index_in_list = tl.arange(0, CHUNK)
        held = tl.load(
            list_values + index_in_list, from_list & (index_in_list < length), other=-infinity
        )
        floor = tl.full([], -infinity, tl.float32)
        for filter in range(0, 2):
            by_count = filter == 0
            if tl.where(by_count, top_k > 0, top_p < 1.0):
                wanted = top_k.to(tl.float64)
                if not by_count:
                    head = amount_within(
                        floor,
                        infinity,
                        by_count,
                        largest,
                        cooling,
                        source,
                        from_list,
                        length,
                        VOCAB,
                        CHUNK,
                    ).to(tl.float64)
                    wanted = top_p * head
                    if top_k == 0:
                        tail = tail_mass * MASS_ONE
                        if from_list:
                            wanted = top_p * (head + tail)
                        else:
                            head -= tail * 1.001  # at least
                        if head < wanted:  # the floor is in the tail
                            from_list = from_list & False
                            length = length * 0 + VOCAB
                            cut = tl.full([], -infinity, tl.float32)
                low = ordered(tl.maximum(floor, cut)).to(tl.int64)
                high = ordered(largest).to(tl.int64)
                search_list = from_list
                search_length = length
                is_held = from_list & (length <= CHUNK)
                weights = weigh(held, largest, cooling, by_count)
                # What is above the candidates that are searched, and what is above `high`.
                base = tl.full([], 0, tl.int64)
                over = tl.full([], 0, tl.int64)
                num_passes = tl.full([], 0, tl.int32)
                while low < high:
                    middle = low + ((high - low + 1) >> 1)
                    bound = unordered(middle.to(tl.int32))
                    if is_held:
                        amount = base + tl.sum(tl.where(held >= bound, weights, 0), axis=0)
                    else:
                        amount = base + amount_within(
                            bound,
                            infinity,
                            by_count,
                            largest,
                            cooling,
                            source,
                            search_list,
                            search_length,
                            VOCAB,
                            CHUNK,
                        )
                    if amount.to(tl.float64) >= wanted:
                        low = middle
                    else:  # both zeros are one number
                        high = middle - tl.where(middle == 0, 2, 1)
                        over = amount
                    num_passes += 1
                    if (not search_list) & (num_passes % 3 == 0) & (low < high):
                        # The search goes on in a list, as soon as one holds what is left.
                        num_left = collect(
                            unordered(low.to(tl.int32)),
                            unordered(high.to(tl.int32)),
                            source,
                            VOCAB,
                            CHUNK,
                            LIST,
                        )
                        if num_left <= LIST:
                            search_list = num_left >= 0
                            search_length = num_left
                            base = over
                            is_held = num_left <= CHUNK
                            held = tl.load(
                                list_values + index_in_list,
                                index_in_list < num_left,
                                other=-infinity,
                            )
                            weights = weigh(held, largest, cooling, by_count)
                floor = unordered(low.to(tl.int32))
        cut = tl.maximum(
            floor, min_p_cut(largest, temperature, number(slot_params, slot, LOG_MIN_P))
        )
        tail_mass = tail_mass * 0.0
        if cut <= threshold:
            mass = amount_within(
                cut,
                threshold,
                row < 0,  # by mass
                largest,
                cooling,
                source,
                from_list,
                length,
                VOCAB,
                CHUNK,
            )
            tail_mass = mass.to(tl.float64) / MASS_ONE
    key = row_key(word(slot_params, slot, SEED), tl.load(row_positions + row))
    top = largest.to(tl.float64)
    heat = temperature.to(tl.float64)
    bests = tl.load(tiles + TILE_BEST * NUM_TILES, is_tile & (not is_filtered), other=-infinity)
    rough_best = tl.max(bests, axis=0)
    # The head: the whole list, or the tiles that may have the best token.
    low = tl.maximum(cut, above(threshold))
    high = tl.full([], infinity, tl.float32)
    begin = tl.full([], 0, tl.int32)
    end = length
    if not is_filtered:
        begin = tl.argmax(bests, axis=0) * TILE
        end = begin + TILE
        bests = tl.where(index == begin // TILE, -infinity, bests)
    best = tl.full([], -infinity, tl.float64)
    token = tl.full([], 0, tl.int32)
    in_head = begin >= 0
    while begin < end:
        for start in range(begin, end, CHUNK):
            places = start + tl.arange(0, CHUNK)
            values, ids = load_candidates(
                source,
                from_list,
                places,
                length,
                VOCAB,
            )
            is_in = (values >= low) & (values <= high) & (places < length)
            if tl.max(is_in.to(tl.int32), axis=0) > 0:
                rough = (values - largest) * cooling + rough_gumbel(key, ids)
                most = tl.max(tl.where(is_in, rough, -infinity), axis=0)
                if most >= rough_best - 2 * NOISE_ERROR:
                    scores = (values.to(tl.float64) - top) / heat + gumbel(key, ids)
                    scores = tl.where(is_in, scores, -infinity)
                    score = tl.max(scores, axis=0)
                    if score > best:
                        best = score
                        token = tl.min(tl.where(scores == score, ids, 2147483647), axis=0)
                    rough_best = tl.maximum(rough_best, most)
        begin = end
        if in_head:
            next_best = tl.max(bests, axis=0)
            if (next_best > -infinity) & (next_best >= rough_best - 2 * NOISE_ERROR):
                begin = tl.argmax(bests, axis=0) * TILE
                end = begin + TILE
                bests = tl.where(index == begin // TILE, -infinity, bests)
            elif (tail_mass > 0.0) & (
                tl.log(tl.maximum(tail_mass, 1e-300)) + gumbel(key, row * 0 - 1) > best
            ):
                in_head = begin < 0
                best = tl.full([], -infinity, tl.float64)
                rough_best = tl.full([], -infinity, tl.float32)
                low = cut
                high = threshold
                begin = tl.full([], 0, tl.int32)
                end = length
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
