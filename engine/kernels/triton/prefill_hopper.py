"""The prefill kernel for Hopper, with the overlap of copies, products and softmax laid out by
hand."""

from __future__ import annotations

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

# Query rows of a tile: two warp groups of 64.
TILE_SIZE = 128
_KEY_TILE = 64
_LOG2_E = gl.constexpr(1.4426950408889634)
_LAYOUTS = {
    torch.bfloat16: gl.NVMMASharedLayout.get_default_for([_KEY_TILE, 64], gl.bfloat16),
    torch.float16: gl.NVMMASharedLayout.get_default_for([_KEY_TILE, 64], gl.float16),
}


def hopper_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    out: Tensor,
    tables: Tensor,
    tiles: Tensor,
    *,
    block_size: int,
    scale: float,
) -> None:
    """`prefill_attention` with a positive scale, no window and no soft cap, for queries and cache
    in bfloat16 or float16, head_dim 64, 128 or 256, blocks of at least 64 tokens, `tiles` of at
    most `TILE_SIZE` rows, compute capability 9.

    One warp copies tiles of keys and values into a ring of buffers; two warp groups, each with
    half of the query rows, run on their own, so that one's products overlap with the other's
    softmax. Within a group the weights' product with one tile of values runs beside the softmax
    of the next tile. Both are FlashAttention-3's (Shah et al., 2024)."""
    num_heads, head_dim = q.shape[1:]
    num_kv_heads = keys.shape[1]
    key_blocks, value_blocks = (
        TensorDescriptor(
            tensor,
            [tensor.shape[0], num_kv_heads * head_dim],
            [tensor.stride(0), 1],
            [_KEY_TILE, head_dim],
            _LAYOUTS[q.dtype],
        )
        for tensor in (keys, values)
    )
    _hopper_kernel[(num_heads, tiles.shape[0])](
        q,
        key_blocks,
        value_blocks,
        out,
        tables,
        tiles,
        scale * _LOG2_E.value,
        q.stride(0),
        q.stride(1),
        out.stride(0),
        tables.stride(0),
        GROUP=num_heads // num_kv_heads,
        HEAD_DIM=head_dim,
        BLOCK_SIZE=block_size,
        TILE_N=_KEY_TILE,
        STAGES=4 if head_dim <= 128 else 2,  # 160 or 192 KiB of shared memory with the queries
        num_warps=4,
    )


@gluon.jit
def _copy_tiles(
    key_blocks,
    value_blocks,
    k_tiles,
    v_tiles,
    k_full,
    k_free,
    v_full,
    v_free,
    table,
    column,
    num_tiles,
    BLOCK_SIZE: gl.constexpr,
):
    """The copying warp: fills the ring as its buffers become free."""
    STAGES: gl.constexpr = k_tiles.shape[0]
    TILE_N: gl.constexpr = k_tiles.shape[1]
    for tile in range(num_tiles):
        start = tile * TILE_N
        row = gl.load(table + start // BLOCK_SIZE) * BLOCK_SIZE + start % BLOCK_SIZE
        stage = tile % STAGES
        # A barrier never completed counts as having completed the phase before its first.
        lap = (tile // STAGES) & 1
        mbarrier.wait(k_free.index(stage), lap ^ 1)
        mbarrier.expect(k_full.index(stage), key_blocks.block_type.nbytes)
        tma.async_copy_global_to_shared(
            key_blocks, [row, column], k_full.index(stage), k_tiles.index(stage)
        )
        mbarrier.wait(v_free.index(stage), lap ^ 1)
        mbarrier.expect(v_full.index(stage), value_blocks.block_type.nbytes)
        tma.async_copy_global_to_shared(
            value_blocks, [row, column], v_full.index(stage), v_tiles.index(stage)
        )


@gluon.jit
def _masked(scores, start, position, SCORES: gl.constexpr):
    """scores [64, TILE_N] of keys from `start`, for queries from `position`."""
    rows = position + gl.arange(0, scores.shape[0], gl.SliceLayout(1, SCORES))
    tokens = start + gl.arange(0, scores.shape[1], gl.SliceLayout(0, SCORES))
    return gl.where(tokens[None, :] <= rows[:, None], scores, float("-inf"))


@gluon.jit
def _attend_rows(
    q,
    q_tile,
    k_tiles,
    v_tiles,
    k_full,
    k_free,
    v_full,
    v_free,
    out,
    first_row,
    num_rows,
    position,
    context_len,
    num_tiles,
    scale,
    q_row_stride,
    out_row_stride,
):
    """A warp group: 64 query rows from `first_row`, of which `num_rows` (maybe none) are real."""
    STAGES: gl.constexpr = k_tiles.shape[0]
    TILE_N: gl.constexpr = k_tiles.shape[1]
    HEAD_DIM: gl.constexpr = k_tiles.shape[2]
    ROWS: gl.constexpr = q_tile.shape[0]
    dtype: gl.constexpr = q_tile.dtype
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TILE_N, 16])
    RESULT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, RESULT, 2)
    RESULT_ROWS: gl.constexpr = gl.SliceLayout(1, RESULT)
    SPREAD: gl.constexpr = gl.BlockedLayout(
        [1, 8], [256 // HEAD_DIM, HEAD_DIM // 8], [4, 1], [1, 0]
    )

    rows = gl.arange(0, ROWS, gl.SliceLayout(1, SPREAD))
    dims = gl.arange(0, HEAD_DIM, gl.SliceLayout(0, SPREAD))
    offsets = (first_row + rows) * q_row_stride
    q_tile.store(
        gl.load(q + offsets[:, None] + dims[None, :], mask=(rows < num_rows)[:, None], other=0.0)
    )
    fence_async_shared()

    no_scores = gl.zeros([ROWS, TILE_N], gl.float32, SCORES)
    mbarrier.wait(k_full.index(0), 0)
    pending = warpgroup_mma(
        q_tile, k_tiles.index(0).permute((1, 0)), no_scores, use_acc=False, is_async=True
    )
    scores = warpgroup_mma_wait(0, deps=[pending])
    mbarrier.arrive(k_free.index(0), count=1)
    if position + 1 < TILE_N:
        scores = _masked(scores, 0, position, SCORES)
    peak = gl.max(scores, 1) * scale  # every query sees the first key: finite
    weights = gl.exp2(scores * scale - peak[:, None])
    total = gl.sum(weights, 1)
    shares = gl.convert_layout(weights.to(dtype), WEIGHTS)
    acc = gl.zeros([ROWS, HEAD_DIM], gl.float32, RESULT)

    last = num_tiles - 1
    second = gl.minimum(last, 1)
    mbarrier.wait(k_full.index(second % STAGES), (second // STAGES) & 1)
    for tile in range(1, num_tiles):
        stage = tile % STAGES
        before = (tile - 1) % STAGES
        pending = warpgroup_mma(
            q_tile, k_tiles.index(stage).permute((1, 0)), no_scores, use_acc=False, is_async=True
        )
        mbarrier.wait(v_full.index(before), ((tile - 1) // STAGES) & 1)
        mixing = warpgroup_mma(shares, v_tiles.index(before), acc, is_async=True)
        scores = warpgroup_mma_wait(1, deps=[pending])
        mbarrier.arrive(k_free.index(stage), count=1)
        if (tile + 1) * TILE_N > position + 1:
            scores = _masked(scores, tile * TILE_N, position, SCORES)
        new_peak = gl.maximum(peak, gl.max(scores, 1) * scale)
        weights = gl.exp2(scores * scale - new_peak[:, None])
        decay = gl.exp2(peak - new_peak)
        total = total * decay + gl.sum(weights, 1)
        peak = new_peak
        # The next keys are waited for here and not above: the assembler moves the wait for the
        # product with the values up to the nearest branch, and this one keeps it behind the
        # softmax, which so runs beside the product.
        following = gl.minimum(tile + 1, last)
        mbarrier.wait(k_full.index(following % STAGES), (following // STAGES) & 1)
        acc, shares, total = warpgroup_mma_wait(0, deps=[mixing, shares, total])
        mbarrier.arrive(v_free.index(before), count=1)
        acc = acc * gl.convert_layout(decay, RESULT_ROWS)[:, None]
        shares = gl.convert_layout(weights.to(dtype), WEIGHTS)

    v_tile = v_tiles.index(last % STAGES)
    mbarrier.wait(v_full.index(last % STAGES), (last // STAGES) & 1)
    if num_tiles * TILE_N > context_len:
        # Slots that nobody wrote may hold NaN, which a weight of 0 does not silence. Both warp
        # groups write the same.
        stored = v_tile.load(SPREAD)
        tokens = last * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(1, SPREAD))
        stored = gl.where((tokens < context_len)[:, None], stored, gl.zeros_like(stored))
        v_tile.store(stored)
        fence_async_shared()
    mixing = warpgroup_mma(shares, v_tile, acc, is_async=True)
    acc, shares = warpgroup_mma_wait(0, deps=[mixing, shares])

    result = acc / gl.convert_layout(total, RESULT_ROWS)[:, None]
    rows = gl.arange(0, ROWS, RESULT_ROWS)
    dims = gl.arange(0, HEAD_DIM, gl.SliceLayout(0, RESULT))
    offsets = (first_row + rows) * out_row_stride
    gl.store(
        out + offsets[:, None] + dims[None, :], result.to(dtype), mask=(rows < num_rows)[:, None]
    )


@gluon.jit(do_not_specialize_on_alignment=["tables", "tiles"])
def _hopper_kernel(
    q,
    key_blocks,
    value_blocks,
    out,
    tables,
    tiles,
    scale,
    q_row_stride,
    q_head_stride,
    out_row_stride,
    table_stride,
    GROUP: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    BLOCK_SIZE: gl.constexpr,
    TILE_N: gl.constexpr,
    STAGES: gl.constexpr,
):
    head = gl.program_id(0)
    tile = tiles + gl.program_id(1) * 4
    first_row = gl.load(tile).to(gl.int64)
    num_rows = gl.load(tile + 1)
    table = tables + gl.load(tile + 2).to(gl.int64) * table_stride
    position = gl.load(tile + 3)
    context_len = position + num_rows
    # At least one, also for a padding tile without rows: every wait below needs an arrival.
    num_tiles = gl.maximum((context_len + TILE_N - 1) // TILE_N, 1)
    column = head // GROUP * HEAD_DIM
    q += head * q_head_stride
    out += head * HEAD_DIM

    HALF: gl.constexpr = 64
    dtype: gl.constexpr = key_blocks.dtype
    q_tiles = gl.allocate_shared_memory(dtype, [2, HALF, HEAD_DIM], key_blocks.layout)
    k_tiles = gl.allocate_shared_memory(dtype, [STAGES, TILE_N, HEAD_DIM], key_blocks.layout)
    v_tiles = gl.allocate_shared_memory(dtype, [STAGES, TILE_N, HEAD_DIM], key_blocks.layout)
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_full.index(stage), count=1)
        mbarrier.init(k_free.index(stage), count=2)
        mbarrier.init(v_full.index(stage), count=1)
        mbarrier.init(v_free.index(stage), count=2)
    fence_async_shared()

    gl.warp_specialize(
        [
            (
                _attend_rows,
                (
                    q, q_tiles.index(0), k_tiles, v_tiles, k_full, k_free, v_full, v_free, out,
                    first_row, num_rows, position, context_len, num_tiles,
                    scale, q_row_stride, out_row_stride,
                ),
            ),
            (
                _attend_rows,
                (
                    q, q_tiles.index(1), k_tiles, v_tiles, k_full, k_free, v_full, v_free, out,
                    first_row + HALF, num_rows - HALF, position + HALF, context_len, num_tiles,
                    scale, q_row_stride, out_row_stride,
                ),
            ),
            (
                _copy_tiles,
                (
                    key_blocks, value_blocks, k_tiles, v_tiles, k_full, k_free, v_full, v_free,
                    table, column, num_tiles, BLOCK_SIZE,
                ),
            ),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip
