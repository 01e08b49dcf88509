"""Attention of single query tokens over the paged cache, long contexts split over programs."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.triton.decode_work import DecodeWork
from engine.kernels.triton.dependent_launch import launch_options, wait_for_launcher

_LOG2_E = tl.constexpr(1.4426950408889634)


def decode_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    out: Tensor,
    tables: Tensor,
    row_slots: Tensor,
    context_lens: Tensor,
    work: DecodeWork,
    *,
    scale: float,
    window: int | None = None,
    soft_cap: float | None = None,
) -> None:
    """Attends each of R query tokens to its own context, whose keys are in the cache already.

    q [R, num_heads, head_dim], last dimension contiguous, may be a view of a merged projection;
    keys, values [num_cache_slots, num_kv_heads, head_dim] of one layer (of q's dtype, or
    float8_e4m3fn); out [R, num_heads * head_dim]; tables [slots, max_blocks] int32: the cache
    blocks of each request slot; row_slots [R] int32; context_lens [R] int32, as given to
    `work.plan`: the tokens that the row sees, itself included (0: a padding row, which gets
    zeros). Rows of one request may have different lengths. `window`, `soft_cap`: see
    `Attention.attend`.

    Each program takes all query heads of a key head over one chunk (`DecodeWork`), with the
    running softmax of Milakov and Gimelshein (2018). Chunks of one row meet as in Flash-Decoding:
    each leaves its mean of values and the logarithm of its sum, and the program that arrives
    last weighs them, so that no second kernel is needed."""
    num_rows, num_heads, head_dim = q.shape
    assert (num_heads, head_dim) == (work.num_kv_heads * work.group, work.head_dim)
    assert q.stride(2) == keys.stride(2) == 1
    assert keys.stride() == values.stride()
    assert row_slots.shape[0] == context_lens.shape[0] == num_rows
    config = work.config(num_rows)
    block_d = max(16, triton.next_power_of_2(head_dim))
    # 32 to 64 partial values per thread while chunks are weighed.
    merged = max(1, (8192 if work.padded_group * block_d > 512 else 4096) // work.padded_group)
    _decode_kernel[(work.num_kv_heads, work.num_items(num_rows))](
        q,
        keys,
        values,
        out,
        tables,
        row_slots,
        context_lens,
        work.items,
        work.partials,
        work.log_sums,
        work.counters,
        scale,
        0.0 if soft_cap is None else soft_cap,
        0 if window is None else window,
        q.stride(0),
        q.stride(1),
        out.stride(0),
        keys.stride(0),
        keys.stride(1),
        tables.stride(0),
        NUM_KV_HEADS=work.num_kv_heads,
        GROUP=work.group,
        PADDED_GROUP=work.padded_group,
        HEAD_DIM=head_dim,
        BLOCK_D=block_d,
        BLOCK_SIZE=work.block_size,
        TILE=config.tile,
        MERGED=max(1, merged // block_d),
        WINDOWED=window is not None,
        CAPPED=soft_cap is not None,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        **launch_options(True, q.device),
    )


@triton.jit
def soft_capped(scores, cap):
    """cap * tanh(scores / cap), by an exponential that saturates instead of overflowing."""
    return cap * (1.0 - 2.0 / (tl.exp2(scores * (2.0 * _LOG2_E / cap)) + 1.0))


@triton.jit(
    do_not_specialize=["window"],
    # Views into a step's inputs: where they begin must not decide what is compiled.
    do_not_specialize_on_alignment=["tables", "row_slots", "context_lens"],
)
def _decode_kernel(
    q,
    keys,
    values,
    out,
    tables,
    row_slots,
    context_lens,
    items,
    partials,
    log_sums,
    counters,
    scale,
    soft_cap,
    window,
    q_row_stride,
    q_head_stride,
    out_row_stride,
    cache_stride,
    cache_head_stride,
    table_stride,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    PADDED_GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    MERGED: tl.constexpr,
    WINDOWED: tl.constexpr,
    CAPPED: tl.constexpr,
    PDL: tl.constexpr,
):
    if PDL:
        wait_for_launcher()
    # Heads vary fastest: neighbouring programs read neighbouring parts of the same tokens.
    head = tl.program_id(0)
    item = tl.program_id(1)
    row = tl.load(items + item * 4)
    chunk = tl.load(items + item * 4 + 1)
    chunk_tokens = tl.load(items + item * 4 + 2)
    first_part = tl.load(items + item * 4 + 3)
    if row < 0:
        return
    context_len = tl.load(context_lens + row)
    slot = tl.load(row_slots + row)

    heads = tl.arange(0, 16)  # the smallest row count of a tensor core product
    dims = tl.arange(0, BLOCK_D)
    q_offsets = row.to(tl.int64) * q_row_stride + (head * GROUP + heads) * q_head_stride
    query = tl.load(
        q + q_offsets[:, None] + dims[None, :],
        mask=(heads < GROUP)[:, None] & (dims < HEAD_DIM)[None, :],
        other=0.0,
    )

    begin = chunk * chunk_tokens
    end = tl.minimum(begin + chunk_tokens, context_len)
    num_chunks = tl.maximum((context_len + chunk_tokens - 1) // chunk_tokens, 1)
    first_chunk = 0
    first_key = 0
    if WINDOWED:
        first_key = tl.maximum(context_len - window, 0)
        first_chunk = first_key // chunk_tokens
        if chunk < first_chunk:
            return
        begin = tl.maximum(begin, first_key // TILE * TILE)

    table = tables + slot.to(tl.int64) * table_stride
    keys += head * cache_head_stride
    values += head * cache_head_stride
    peak = tl.full([16], float("-inf"), tl.float32)
    # Sums of weights by place in the tile: added up once, after the last tile.
    totals = tl.zeros([16, TILE], tl.float32)
    acc = tl.zeros([16, BLOCK_D], tl.float32)
    if TILE <= BLOCK_SIZE:
        # A tile lies within one block; its number is fetched one tile ahead.
        block = tl.load(table + begin // BLOCK_SIZE, mask=begin < end, other=0)
    for start in range(begin, end, TILE):
        tokens = start + tl.arange(0, TILE)
        seen = tokens < end
        if TILE <= BLOCK_SIZE:
            cache_rows = block.to(tl.int64) * BLOCK_SIZE + tokens % BLOCK_SIZE
            ahead = start + TILE
            block = tl.load(table + ahead // BLOCK_SIZE, mask=ahead < end, other=0)
        else:
            blocks = tl.load(table + tokens // BLOCK_SIZE, mask=seen, other=0)
            cache_rows = blocks.to(tl.int64) * BLOCK_SIZE + tokens % BLOCK_SIZE
        if WINDOWED:
            seen = seen & (tokens >= first_key)
        offsets = (cache_rows * cache_stride)[:, None] + dims[None, :]
        # Slots outside the context may hold anything, also NaN: they are not read.
        mask = seen[:, None] & (dims < HEAD_DIM)[None, :]
        k = tl.load(keys + offsets, mask=mask, other=0.0).to(query.dtype)
        scores = tl.dot(query, tl.trans(k), input_precision="ieee") * scale
        if CAPPED:
            scores = soft_capped(scores, soft_cap)
        scores = tl.where(seen[None, :], scores * _LOG2_E, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_peak[:, None])
        decay = tl.exp2(peak - new_peak)
        totals = totals * decay[:, None] + weights
        peak = new_peak
        v = tl.load(values + offsets, mask=mask, other=0.0).to(query.dtype)
        acc = acc * decay[:, None]
        acc = tl.dot(weights.to(query.dtype), v, acc, input_precision="ieee")

    total = tl.sum(totals, axis=1)
    # An empty context leaves 0 / 1.
    result = acc / tl.where(total > 0, total, 1.0)[:, None]
    out += row.to(tl.int64) * out_row_stride + head * GROUP * HEAD_DIM
    if num_chunks - first_chunk == 1:
        out_mask = (heads < GROUP)[:, None] & (dims < HEAD_DIM)[None, :]
        tl.store(out + heads[:, None] * HEAD_DIM + dims[None, :], result, mask=out_mask)
        return

    part = (first_part + chunk) * NUM_KV_HEADS + head
    part_mask = (heads < PADDED_GROUP)[:, None] & (dims < HEAD_DIM)[None, :]
    tl.store(
        partials + (part * PADDED_GROUP + heads)[:, None] * HEAD_DIM + dims[None, :],
        result,
        mask=part_mask,
    )
    log_sum = peak + tl.log2(total)
    tl.store(log_sums + part * PADDED_GROUP + heads, log_sum, mask=heads < PADDED_GROUP)
    # All threads' stores come before the one thread's release.
    tl.debug_barrier()
    counter = counters + row * NUM_KV_HEADS + head
    arrived = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
    if arrived == num_chunks - first_chunk - 1:
        tl.store(counter, 0)
        members = tl.arange(0, PADDED_GROUP)
        best = tl.full([PADDED_GROUP], float("-inf"), tl.float32)
        norm = tl.zeros([PADDED_GROUP], tl.float32)
        merged = tl.zeros([PADDED_GROUP, BLOCK_D], tl.float32)
        for first in range(first_chunk, num_chunks, MERGED):
            others = first + tl.arange(0, MERGED)
            there = others < num_chunks
            parts = ((first_part + others) * NUM_KV_HEADS + head) * PADDED_GROUP
            parts = parts[:, None] + members[None, :]
            # .cg: other multiprocessors wrote these, the L1 cache may not be asked.
            sums = tl.load(
                log_sums + parts, mask=there[:, None], other=float("-inf"), cache_modifier=".cg"
            )
            means = tl.load(
                partials + parts[:, :, None] * HEAD_DIM + dims[None, None, :],
                mask=there[:, None, None] & (dims < HEAD_DIM)[None, None, :],
                other=0.0,
                cache_modifier=".cg",
            )
            new_best = tl.maximum(best, tl.max(sums, axis=0))
            shares = tl.exp2(sums - new_best[None, :])
            decay = tl.exp2(best - new_best)
            norm = norm * decay + tl.sum(shares, axis=0)
            merged = merged * decay[:, None] + tl.sum(means * shares[:, :, None], axis=0)
            best = new_best
        merged_mask = (members < GROUP)[:, None] & (dims < HEAD_DIM)[None, :]
        tl.store(
            out + members[:, None] * HEAD_DIM + dims[None, :],
            merged / norm[:, None],
            mask=merged_mask,
        )
