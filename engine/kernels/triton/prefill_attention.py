"""Causal attention of prompt chunks over the paged cache: earlier tokens and their own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from engine.kernels.triton.decode_attention import soft_capped

_LOG2_E = tl.constexpr(1.4426950408889634)


@dataclass(frozen=True, slots=True)
class PrefillConfig:
    """How the kernel is built: query rows of a tile, keys per iteration, warps, stages of the
    software pipeline, and whether whole tiles of keys come by tensor descriptor (TMA).
    `overlapped`: `hopper_attention` instead, where there is no window and no soft cap."""

    tile_size: int
    key_tile: int
    num_warps: int
    num_stages: int
    descriptors: bool
    overlapped: bool = False


def prefill_config(
    head_dim: int, dtype: torch.dtype, block_size: int, device: torch.device
) -> PrefillConfig:
    """By rule: the tile of 128 queries that 8 warps take with Hopper's warp group products,
    smaller where registers (float32's exact products) or shared memory would not hold it."""
    if dtype == torch.float32:
        return PrefillConfig(16, 16 if head_dim > 128 else 32, 4, 1, False)
    capability = _capability(device)
    if capability < (9, 0) or capability[0] == 12:  # 99 KiB of shared memory, as compute 8.6
        return PrefillConfig(64, 32, 4, 2, False) if head_dim > 128 else _AMPERE
    descriptors = block_size >= 64 and head_dim in (64, 128, 256)
    overlapped = descriptors and capability[0] == 9
    return PrefillConfig(128, 64, 8, 2 if head_dim > 128 else 3, descriptors, overlapped)


_AMPERE = PrefillConfig(128, 64, 8, 2, False)


def prefill_tile_size(
    head_dim: int, dtype: torch.dtype, block_size: int, device: torch.device
) -> int:
    """The `tile_size` that `build_tiles` must be given for `prefill_attention`."""
    return prefill_config(head_dim, dtype, block_size, device).tile_size


@lru_cache
def _capability(device: torch.device) -> tuple[int, int]:
    if device.type != "cuda":
        return (0, 0)
    return torch.cuda.get_device_capability(device)


def prefill_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    out: Tensor,
    tables: Tensor,
    tiles: Tensor,
    *,
    block_size: int,
    scale: float,
    window: int | None = None,
    soft_cap: float | None = None,
    config: PrefillConfig | None = None,
) -> None:
    """Attends the rows of `tiles` (int32 [N, 4], `build_tiles`) causally to their requests.

    q [T, num_heads, head_dim], last dimension contiguous; keys, values [num_cache_slots,
    num_kv_heads, head_dim] of one layer, where also the chunks' own tokens are written already;
    out [T, num_heads * head_dim]: rows of no tile are left as they are; tables [slots,
    max_blocks] int32. The online softmax over tiles is FlashAttention-2's (Dao, 2023): tiles
    that all rows see in full need no mask, those on the diagonal and at a window's edge do."""
    num_tiles = tiles.shape[0]
    if num_tiles == 0:
        return
    num_heads, head_dim = q.shape[1:]
    num_kv_heads = keys.shape[1]
    assert q.stride(2) == keys.stride(2) == 1
    assert keys.stride() == values.stride()
    if config is None:
        config = prefill_config(head_dim, q.dtype, block_size, q.device)
    if config.overlapped and window is None and soft_cap is None and keys.dtype == q.dtype:
        # Imported here: Gluon is an experimental part of Triton, and only this path needs it.
        from engine.kernels.triton.prefill_hopper import hopper_attention

        hopper_attention(q, keys, values, out, tables, tiles, block_size=block_size, scale=scale)
        return
    key_blocks = value_blocks = None
    if config.descriptors:
        assert keys.stride(1) == head_dim
        shape = [config.key_tile, head_dim]
        key_blocks, value_blocks = (
            TensorDescriptor(
                tensor,
                [tensor.shape[0], num_kv_heads * head_dim],
                [tensor.stride(0), 1],
                shape,
            )
            for tensor in (keys, values)
        )
    _prefill_kernel[(num_heads, num_tiles)](
        q,
        keys,
        values,
        key_blocks,
        value_blocks,
        out,
        tables,
        tiles,
        scale,
        0.0 if soft_cap is None else soft_cap,
        0 if window is None else window,
        q.stride(0),
        q.stride(1),
        out.stride(0),
        keys.stride(0),
        keys.stride(1),
        tables.stride(0),
        GROUP=num_heads // num_kv_heads,
        HEAD_DIM=head_dim,
        BLOCK_D=max(16, triton.next_power_of_2(head_dim)),
        BLOCK_SIZE=block_size,
        TILE_M=config.tile_size,
        TILE_N=config.key_tile,
        DESCRIPTORS=config.descriptors,
        WINDOWED=window is not None,
        CAPPED=soft_cap is not None,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )


@triton.jit
def _visit_keys(
    acc,
    total,
    peak,
    query,
    keys,
    values,
    key_blocks,
    value_blocks,
    column,
    table,
    begin,
    end,
    positions,
    context_len,
    scale,
    soft_cap,
    window,
    cache_stride,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE_N: tl.constexpr,
    MASKED: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
    WINDOWED: tl.constexpr,
    CAPPED: tl.constexpr,
):
    """Adds the keys [begin, end) (begin a multiple of TILE_N) to the running softmax."""
    dims = tl.arange(0, BLOCK_D)
    if TILE_N <= BLOCK_SIZE:
        # A tile lies within one block; its number is fetched one tile ahead.
        block = tl.load(table + begin // BLOCK_SIZE, mask=begin < end, other=0)
    for start in range(begin, end, TILE_N):
        tokens = start + tl.arange(0, TILE_N)
        if TILE_N <= BLOCK_SIZE:
            first = block * BLOCK_SIZE + start % BLOCK_SIZE
            cache_rows = block.to(tl.int64) * BLOCK_SIZE + tokens % BLOCK_SIZE
            ahead = start + TILE_N
            block = tl.load(table + ahead // BLOCK_SIZE, mask=ahead < end, other=0)
        else:
            if MASKED:
                blocks = tl.load(table + tokens // BLOCK_SIZE, mask=tokens < context_len, other=0)
            else:
                blocks = tl.load(table + tokens // BLOCK_SIZE)
            cache_rows = blocks.to(tl.int64) * BLOCK_SIZE + tokens % BLOCK_SIZE
        if DESCRIPTORS:
            k = key_blocks.load([first, column]).to(query.dtype)
        else:
            if MASKED:
                mask = (tokens < context_len)[:, None] & (dims < HEAD_DIM)[None, :]
            else:
                mask = (dims < HEAD_DIM)[None, :]
            offsets = (cache_rows * cache_stride)[:, None] + dims[None, :]
            if MASKED or HEAD_DIM != BLOCK_D:
                k = tl.load(keys + offsets, mask=mask, other=0.0).to(query.dtype)
            else:
                k = tl.load(keys + offsets).to(query.dtype)
        scores = tl.dot(query, tl.trans(k), input_precision="ieee")
        if CAPPED:
            scores = soft_capped(scores * scale, soft_cap) * _LOG2_E
        else:
            scores = scores * (scale * _LOG2_E)
        if MASKED:
            seen = tokens[None, :] <= positions[:, None]
            if WINDOWED:
                seen = seen & (tokens[None, :] > positions[:, None] - window)
            scores = tl.where(seen, scores, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(scores, axis=1))
        # A row that has seen nothing yet: any finite peak keeps its weights 0, not NaN.
        base = tl.where(new_peak == float("-inf"), 0.0, new_peak) if MASKED else new_peak
        weights = tl.exp2(scores - base[:, None])
        decay = tl.exp2(peak - base)
        total = total * decay + tl.sum(weights, axis=1)
        peak = new_peak
        acc = acc * decay[:, None]
        if DESCRIPTORS:
            v = value_blocks.load([first, column]).to(query.dtype)
        elif MASKED or HEAD_DIM != BLOCK_D:
            v = tl.load(values + offsets, mask=mask, other=0.0).to(query.dtype)
        else:
            v = tl.load(values + offsets).to(query.dtype)
        acc = tl.dot(weights.to(query.dtype), v, acc, input_precision="ieee")
    return acc, total, peak


@triton.jit(do_not_specialize=["window"], do_not_specialize_on_alignment=["tables", "tiles"])
def _prefill_kernel(
    q,
    keys,
    values,
    key_blocks,
    value_blocks,
    out,
    tables,
    tiles,
    scale,
    soft_cap,
    window,
    q_row_stride,
    q_head_stride,
    out_row_stride,
    cache_stride,
    cache_head_stride,
    table_stride,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
    WINDOWED: tl.constexpr,
    CAPPED: tl.constexpr,
):
    # Heads vary fastest: those of one group read the same keys at the same time, out of L2.
    head = tl.program_id(0)
    tile = tiles + tl.program_id(1) * 4
    first_row = tl.load(tile).to(tl.int64)
    num_rows = tl.load(tile + 1)
    slot = tl.load(tile + 2).to(tl.int64)
    position = tl.load(tile + 3)

    rows = tl.arange(0, TILE_M)
    dims = tl.arange(0, BLOCK_D)
    row_mask = (rows < num_rows)[:, None] & (dims < HEAD_DIM)[None, :]
    q_offsets = (first_row + rows) * q_row_stride + head * q_head_stride
    query = tl.load(q + q_offsets[:, None] + dims[None, :], mask=row_mask, other=0.0)
    positions = position + rows
    context_len = position + num_rows
    table = tables + slot * table_stride
    kv_head = head // GROUP
    column = kv_head * HEAD_DIM
    keys += kv_head * cache_head_stride
    values += kv_head * cache_head_stride

    acc = tl.zeros([TILE_M, BLOCK_D], tl.float32)
    total = tl.zeros([TILE_M], tl.float32)
    peak = tl.full([TILE_M], float("-inf"), tl.float32)
    # Keys [edge, diagonal) are seen by every row. The tiles before (a window's edge) and after
    # are masked; the last one may reach into slots that nobody wrote, so it is read by pointer,
    # with a mask: a weight of 0 does not silence a NaN.
    begin = 0
    edge = 0
    diagonal = (position + 1) // TILE_N * TILE_N
    if WINDOWED:
        begin = tl.maximum(position - window + 1, 0) // TILE_N * TILE_N
        last_edge = tl.maximum(context_len - window, 0)
        edge = (last_edge + TILE_N - 1) // TILE_N * TILE_N
        edge = tl.minimum(edge, diagonal)
        acc, total, peak = _visit_keys(
            acc, total, peak, query, keys, values, key_blocks, value_blocks, column, table,
            begin, edge, positions, context_len, scale, soft_cap, window, cache_stride,
            HEAD_DIM, BLOCK_D, BLOCK_SIZE, TILE_N, True, False, WINDOWED, CAPPED,
        )  # fmt: skip
    acc, total, peak = _visit_keys(
        acc, total, peak, query, keys, values, key_blocks, value_blocks, column, table,
        edge, diagonal, positions, context_len, scale, soft_cap, window, cache_stride,
        HEAD_DIM, BLOCK_D, BLOCK_SIZE, TILE_N, False, DESCRIPTORS, WINDOWED, CAPPED,
    )  # fmt: skip
    acc, total, peak = _visit_keys(
        acc, total, peak, query, keys, values, key_blocks, value_blocks, column, table,
        diagonal, context_len, positions, context_len, scale, soft_cap, window, cache_stride,
        HEAD_DIM, BLOCK_D, BLOCK_SIZE, TILE_N, True, False, WINDOWED, CAPPED,
    )  # fmt: skip

    # Rows beyond num_rows may have seen nothing; they are not stored.
    result = acc / tl.where(total > 0, total, 1.0)[:, None]
    out_offsets = (first_row + rows) * out_row_stride + head * HEAD_DIM
    tl.store(out + out_offsets[:, None] + dims[None, :], result, mask=row_mask)
