"""What happens to queries, keys and values between their projection and attention, in one pass:
norms of the heads, rotation by position, and the way into the paged cache."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.triton.dependent_launch import launch_options, wait_for_launcher

_THREAD_ELEMENTS = 8  # 128 bits of a 16-bit dtype
_MIN_TILE = 32 * _THREAD_ELEMENTS
_MAX_TILE = 4 * _MIN_TILE


def rotate_and_store(
    qkv: Tensor,
    positions: Tensor,
    cache_slots: Tensor,
    cos: Tensor,
    sin: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    q_norm: Tensor | None = None,
    k_norm: Tensor | None = None,
    eps: float = 1e-6,
    pdl: bool = False,
) -> None:
    """Norms and rotates the queries in `qkv` in place, and writes keys, normed and rotated, and
    values into the cache; keys and values in `qkv` stay as they were.

    `qkv` [T, (num_heads + 2 * num_kv_heads) * head_dim] holds all query heads of a token, then
    keys, then values. `positions` int32 or int64 [T] are rows of the tables `cos` and `sin`
    [P, rotary_dim / 2] of any float dtype; pairs are (i, i + rotary_dim / 2), and what lies behind
    rotary_dim is not turned (see `engine.models.rope.rotate_`). `cache_slots` int32 or int64 [T]
    are rows of `keys` and `values` [num_cache_slots, num_kv_heads, head_dim]; where one is
    negative nothing is written to them. `q_norm` and `k_norm` [head_dim] norm each head before it
    is turned, with the rounding of `engine.models.norm.rms_norm`. All are contiguous.

    The rotation is worked out in float32 from the rounded norm and rounded once, where the torch
    path rounds both products and their sum. A cache of float8_e4m3fn gets the rounded value
    clamped to ±448, a plain cast without a scale. `pdl`: see `dependent_launch`."""
    tokens = qkv.shape[0]
    if tokens == 0:
        return
    programs, tile = _tile(num_heads, num_kv_heads, head_dim, cos.shape[1])
    _rotate_and_store[(tokens * programs,)](
        qkv,
        positions,
        cache_slots,
        cos,
        sin,
        keys,
        values,
        q_norm,
        k_norm,
        eps,
        **tile,
        **launch_options(pdl, qkv.device),
    )


@cache
def _tile(
    num_heads: int, num_kv_heads: int, head_dim: int, half: int
) -> tuple[int, Mapping[str, Any]]:
    """How many programs a token gets, and the kernel's constants: a program takes up to as many
    heads as there are keys, a whole warp's 128-bit loads at least."""
    block_half = max(16, triton.next_power_of_2(half))
    group = max(triton.next_power_of_2(num_kv_heads), _MIN_TILE // block_half)
    group = min(group, _MAX_TILE // block_half)
    rest = head_dim - 2 * half
    return triton.cdiv(num_heads, group) + 2 * triton.cdiv(num_kv_heads, group), {
        "NUM_HEADS": num_heads,
        "NUM_KV_HEADS": num_kv_heads,
        "HEAD_DIM": head_dim,
        "HALF": half,
        "BLOCK_HALF": block_half,
        "BLOCK_REST": triton.next_power_of_2(rest) if rest else 0,
        "GROUP": group,
        "num_warps": max(1, group * block_half // _MIN_TILE),
    }


@triton.jit
def to_cache(x, dtype: tl.constexpr):
    """`x` float32 as a cache of `dtype` keeps it: float8_e4m3fn saturates at its largest value."""
    if dtype == tl.float8e4nv:
        x = tl.minimum(tl.maximum(x, -448.0), 448.0)
    return x.to(dtype)


@triton.jit
def _load_part(heads, columns, mask):
    return tl.load(heads + columns, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _norm_part(x, scale, norm, columns, limit, dtype: tl.constexpr):
    """Columns of normed heads: `x` times `scale` [GROUP, 1] and the norm's weight."""
    weight = tl.load(norm + columns, mask=columns < limit, other=0.0)
    x = x * scale
    if weight.dtype != tl.float32:
        x = x.to(dtype).to(tl.float32)
    return (x * weight.to(tl.float32)).to(dtype).to(tl.float32)


@triton.jit
def _turn(
    source,
    target,
    source_mask,
    target_mask,
    cos,
    sin,
    norm,
    eps,
    dtype: tl.constexpr,
    kept: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    BLOCK_REST: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Heads of `dtype` from `source` to `target` of dtype `kept` (pointers [GROUP, 1], with their
    masks), normed and turned; `cos` and `sin` [GROUP, BLOCK_HALF] float32."""
    half = tl.arange(0, BLOCK_HALF)[None, :] + tl.zeros([GROUP, 1], tl.int32)
    is_half = half < HALF
    first = _load_part(source, half, source_mask & is_half)
    second = _load_part(source, half + HALF, source_mask & is_half)
    if BLOCK_REST > 0:
        rest_at = 2 * HALF + tl.arange(0, BLOCK_REST)[None, :] + tl.zeros([GROUP, 1], tl.int32)
        is_rest = rest_at < HEAD_DIM
        rest = _load_part(source, rest_at, source_mask & is_rest)
    if norm is not None:
        squares = tl.sum(first * first + second * second, 1)
        if BLOCK_REST > 0:
            squares += tl.sum(rest * rest, 1)
        scale = tl.rsqrt(squares / HEAD_DIM + eps)[:, None]
        first = _norm_part(first, scale, norm, half, HALF, dtype)
        second = _norm_part(second, scale, norm + HALF, half, HALF, dtype)
        if BLOCK_REST > 0:
            rest = _norm_part(rest, scale, norm, rest_at, HEAD_DIM, dtype)
    turned = (first * cos - second * sin).to(dtype).to(tl.float32)
    tl.store(target + half, to_cache(turned, kept), mask=target_mask & is_half)
    turned = (second * cos + first * sin).to(dtype).to(tl.float32)
    tl.store(target + half + HALF, to_cache(turned, kept), mask=target_mask & is_half)
    if BLOCK_REST > 0:
        tl.store(target + rest_at, to_cache(rest, kept), mask=target_mask & is_rest)


@triton.jit
def _rotate_and_store(
    qkv,
    positions,
    cache_slots,
    cos,
    sin,
    keys,
    values,
    q_norm,
    k_norm,
    eps,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    BLOCK_REST: tl.constexpr,
    GROUP: tl.constexpr,
    PDL: tl.constexpr,
):
    """A program takes GROUP heads of one kind of one token."""
    if PDL:
        wait_for_launcher()
    q_groups: tl.constexpr = (NUM_HEADS + GROUP - 1) // GROUP
    kv_groups: tl.constexpr = (NUM_KV_HEADS + GROUP - 1) // GROUP
    groups: tl.constexpr = q_groups + 2 * kv_groups
    token = tl.program_id(0) // groups
    part = tl.program_id(0) % groups
    row = qkv + token.to(tl.int64) * ((NUM_HEADS + 2 * NUM_KV_HEADS) * HEAD_DIM)
    head = tl.arange(0, GROUP)[:, None]
    if part < q_groups + kv_groups:
        # Every head loads the angles for itself, and the norm's weight: out of the first cache,
        # where a row of them for all would pass through shared memory and barriers.
        half = tl.arange(0, BLOCK_HALF)[None, :] + tl.zeros([GROUP, 1], tl.int32)
        angle = tl.load(positions + token).to(tl.int64) * HALF + half
        turn_cos = tl.load(cos + angle, mask=half < HALF, other=0.0).to(tl.float32)
        turn_sin = tl.load(sin + angle, mask=half < HALF, other=0.0).to(tl.float32)
        if part < q_groups:
            head += part * GROUP
            heads = row + head * HEAD_DIM
            mask = head < NUM_HEADS
            _turn(
                heads,
                heads,
                mask,
                mask,
                turn_cos,
                turn_sin,
                q_norm,
                eps,
                qkv.dtype.element_ty,
                qkv.dtype.element_ty,
                HEAD_DIM,
                HALF,
                BLOCK_HALF,
                BLOCK_REST,
                GROUP,
            )
        else:
            head += (part - q_groups) * GROUP
            slot = tl.load(cache_slots + token).to(tl.int64)
            mask = head < NUM_KV_HEADS
            _turn(
                row + (NUM_HEADS + head) * HEAD_DIM,
                keys + (slot * NUM_KV_HEADS + head) * HEAD_DIM,
                mask,
                mask & (slot >= 0),
                turn_cos,
                turn_sin,
                k_norm,
                eps,
                qkv.dtype.element_ty,
                keys.dtype.element_ty,
                HEAD_DIM,
                HALF,
                BLOCK_HALF,
                BLOCK_REST,
                GROUP,
            )
    else:
        # Values need no halves: they are copied as one run.
        flat = (part - q_groups - kv_groups) * (GROUP * HEAD_DIM)
        _copy_values(
            row + (NUM_HEADS + NUM_KV_HEADS) * HEAD_DIM + flat,
            tl.load(cache_slots + token).to(tl.int64),
            values,
            flat,
            NUM_KV_HEADS * HEAD_DIM,
            GROUP * HEAD_DIM,
            GROUP * BLOCK_HALF,
        )


@triton.jit
def _copy_values(
    source, slot, values, flat, ROW: tl.constexpr, SIZE: tl.constexpr, STEP: tl.constexpr
):
    """`SIZE` elements from `source`, in steps, to places from `flat` on of the row `slot`."""
    for start in tl.static_range(0, SIZE, STEP):
        at = start + tl.arange(0, STEP)
        mask = (at < SIZE) & (flat + at < ROW) & (slot >= 0)
        x = tl.load(source + at, mask=mask, other=0.0).to(tl.float32)
        kept = to_cache(x, values.dtype.element_ty)
        tl.store(values + slot * ROW + flat + at, kept, mask=mask)
