"""`PagedAttention`: `Attention` on a GPU, with decode rows and prompt chunks in one step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.triton.decode_attention import decode_attention
from engine.kernels.triton.decode_work import DecodeWork
from engine.kernels.triton.prefill_attention import prefill_attention
from engine.kernels.triton.rotary import to_cache
from engine.kv.kv_cache import KVCache


@dataclass(frozen=True, slots=True)
class PagedLayout:
    """Where a step's T rows stand. Rows [0, num_decode_rows) are each a query on its own, the
    rest belongs to prompt chunks.

    cache_slots [T] int32 or int64: where each row's key and value are written (-1: nowhere);
    tables [slots, max_blocks] int32; row_slots, context_lens [num_decode_rows] int32: as in
    `decode_attention`; tiles [N, 4] int32 on the device: `build_tiles` of the chunks, or None."""

    cache_slots: Tensor
    tables: Tensor
    num_decode_rows: int
    row_slots: Tensor
    context_lens: Tensor
    tiles: Tensor | None = None


class PagedAttention:
    """`Attention` over a paged cache by the decode and prefill kernels.

    Made once per step, or, on a layout of static tensors, once per CUDA graph. `work.plan` is
    the caller's: once per step, before the first layer. Owned by the engine thread."""

    def __init__(self, cache: KVCache, layout: PagedLayout, work: DecodeWork) -> None:
        self._cache = cache
        self._layout = layout
        self._work = work

    def attend(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        scale: float,
        window: int | None = None,
        soft_cap: float | None = None,
    ) -> Tensor:
        """See `Attention.attend`."""
        keys, values = self._cache.layer(layer)
        write_cache(k, v, keys, values, self._layout.cache_slots)
        out = torch.empty(q.shape[0], q.shape[1] * q.shape[2], dtype=q.dtype, device=q.device)
        self.attend_written(layer, q, out, scale=scale, window=window, soft_cap=soft_cap)
        return out

    def attend_written(
        self,
        layer: int,
        q: Tensor,
        out: Tensor,
        *,
        scale: float,
        window: int | None = None,
        soft_cap: float | None = None,
    ) -> None:
        """Attends q [T, num_heads, head_dim] into out [T, num_heads * head_dim]; the rows' keys
        and values are in the cache already."""
        keys, values = self._cache.layer(layer)
        layout = self._layout
        decodes = layout.num_decode_rows
        if decodes:
            decode_attention(
                q[:decodes],
                keys,
                values,
                out,
                layout.tables,
                layout.row_slots,
                layout.context_lens,
                self._work,
                scale=scale,
                window=window,
                soft_cap=soft_cap,
            )
        if layout.tiles is not None:
            prefill_attention(
                q,
                keys,
                values,
                out,
                layout.tables,
                layout.tiles,
                block_size=self._work.block_size,
                scale=scale,
                window=window,
                soft_cap=soft_cap,
            )


def write_cache(k: Tensor, v: Tensor, keys: Tensor, values: Tensor, cache_slots: Tensor) -> None:
    """Stores rows k, v [T, num_kv_heads, head_dim] at cache_slots [T] (-1: not at all) of keys,
    values [num_cache_slots, num_kv_heads, head_dim], converted to their dtype."""
    num_rows, num_kv_heads, head_dim = k.shape
    assert k.stride(2) == v.stride(2) == 1
    assert keys.stride() == values.stride()
    if num_rows == 0:
        return
    _write_kernel[(num_rows,)](
        k,
        v,
        keys,
        values,
        cache_slots,
        k.stride(0),
        k.stride(1),
        v.stride(0),
        v.stride(1),
        keys.stride(0),
        keys.stride(1),
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        BLOCK_H=triton.next_power_of_2(num_kv_heads),
        BLOCK_D=triton.next_power_of_2(head_dim),
        num_warps=4 if num_kv_heads * head_dim >= 512 else 1,
    )


@triton.jit(do_not_specialize_on_alignment=["cache_slots"])
def _write_kernel(
    k,
    v,
    keys,
    values,
    cache_slots,
    k_row_stride,
    k_head_stride,
    v_row_stride,
    v_head_stride,
    cache_stride,
    cache_head_stride,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    cache_slot = tl.load(cache_slots + row).to(tl.int64)
    if cache_slot < 0:
        return
    heads = tl.arange(0, BLOCK_H)[:, None]
    dims = tl.arange(0, BLOCK_D)[None, :]
    mask = (heads < NUM_KV_HEADS) & (dims < HEAD_DIM)
    written = cache_slot * cache_stride + heads * cache_head_stride + dims
    key = tl.load(k + row * k_row_stride + heads * k_head_stride + dims, mask=mask).to(tl.float32)
    tl.store(keys + written, to_cache(key, keys.dtype.element_ty), mask=mask)
    value = tl.load(v + row * v_row_stride + heads * v_head_stride + dims, mask=mask).to(tl.float32)
    tl.store(values + written, to_cache(value, values.dtype.element_ty), mask=mask)
