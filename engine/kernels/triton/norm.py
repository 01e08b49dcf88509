"""Root-mean-square norms in one pass over their rows, alone and with what stands before them.

Rounding is that of `engine.models.norm.rms_norm`: statistics in float32; the quotient is rounded to
the dtype of `x` and then multiplied with the weight, or, where the weight is float32, multiplied
first and rounded once. A row lies in the registers of one program, so it is read once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.triton.dependent_launch import launch_options, wait_for_launcher

MAX_HIDDEN = 32768
_MANY_ROWS = 4096
_SMALL_ROW = 2048


def rms_norm(
    x: Tensor, weight: Tensor, eps: float, out: Tensor | None = None, *, pdl: bool = False
) -> Tensor:
    """The norm of each row of `x` [T, hidden], times `weight` [hidden] of its dtype or float32.

    All are contiguous; `out` may be `x`. `pdl`: see `dependent_launch`."""
    if out is None:
        out = torch.empty_like(x)
    rows, hidden = x.shape
    if rows:
        programs, tile = tile_of(rows, hidden)
        _rms_norm[(programs,)](
            x, weight, out, rows, eps, HIDDEN=hidden, **tile, **launch_options(pdl, x.device)
        )
    return out


def add_rms_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    out: Tensor | None = None,
    *,
    pdl: bool = False,
) -> Tensor:
    """Adds `x` to `residual` (both [T, hidden]) in place, rounded to its dtype, and returns the
    norm of the sum. All are contiguous; `out` may be `x`. `pdl`: see `dependent_launch`."""
    if out is None:
        out = torch.empty_like(residual)
    rows, hidden = residual.shape
    if rows:
        programs, tile = tile_of(rows, hidden)
        _add_rms_norm[(programs,)](
            x,
            residual,
            weight,
            out,
            rows,
            eps,
            HIDDEN=hidden,
            **tile,
            **launch_options(pdl, x.device),
        )
    return out


def embed_rms_norm(
    token_ids: Tensor, table: Tensor, weight: Tensor, eps: float, scale: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Rows `token_ids` (int32 or int64 [T], each in the table) of `table` [vocab, hidden], times
    `scale` and rounded, and their norm: (residual, normed), two new tensors [T, hidden]."""
    rows, hidden = token_ids.shape[0], table.shape[1]
    residual = torch.empty((rows, hidden), dtype=table.dtype, device=table.device)
    normed = torch.empty_like(residual)
    if rows:
        programs, tile = tile_of(rows, hidden)
        _embed_rms_norm[(programs,)](
            token_ids, table, weight, residual, normed, rows, eps, scale, HIDDEN=hidden, **tile
        )
    return residual, normed


def tile_of(rows: int, hidden: int) -> tuple[int, Mapping[str, Any]]:
    """How `rows` rows of `hidden` elements are dealt out: the number of programs, and keywords for
    a kernel that takes ROWS whole rows a program. Raises ValueError for rows that no program can
    hold."""
    tile = _tile(hidden, rows >= _MANY_ROWS)
    return triton.cdiv(rows, tile["ROWS"]), tile


@cache
def _tile(hidden: int, is_many: bool) -> Mapping[str, Any]:
    """A thread gets 8 to 32 elements: whole 128-bit loads, two or more of them in flight. Many
    short rows are taken by fours, so that a weight and a barrier serve four of them."""
    if hidden > MAX_HIDDEN:
        raise ValueError(f"rows of {hidden} elements: at most {MAX_HIDDEN} fit one program")
    block = triton.next_power_of_2(hidden)
    return {
        "BLOCK": block,
        "ROWS": 4 if is_many and block <= _SMALL_ROW else 1,
        "num_warps": min(16 if block <= 16384 else 32, max(4, block // 512)),
    }


@triton.jit
def row_tile(num_rows, HIDDEN: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """This program's rows [ROWS, 1] int64, columns [1, BLOCK], and which of both exist."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    return rows.to(tl.int64), columns, (rows < num_rows) & (columns < HIDDEN)


@triton.jit
def normalize(x, weight, eps, dtype: tl.constexpr, HIDDEN: tl.constexpr):
    """The norm, float32 with values of `dtype`, of rows `x` [ROWS, BLOCK] float32 with zeros
    behind `HIDDEN`. `weight` [1, BLOCK] has the dtype that it is kept in."""
    scale = tl.rsqrt(tl.sum(x * x, 1) / HIDDEN + eps)[:, None]
    normed = x * scale
    if weight.dtype != tl.float32:
        normed = normed.to(dtype).to(tl.float32)
    return (normed * weight.to(tl.float32)).to(dtype).to(tl.float32)


@triton.jit(do_not_specialize=["num_rows"])
def _rms_norm(
    x,
    weight,
    out,
    num_rows,
    eps,
    HIDDEN: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    PDL: tl.constexpr,
):
    if PDL:
        wait_for_launcher()
    rows, columns, mask = row_tile(num_rows, HIDDEN, BLOCK, ROWS)
    at = rows * HIDDEN + columns
    values = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    factors = tl.load(weight + columns, mask=columns < HIDDEN, other=0.0)
    normed = normalize(values, factors, eps, out.dtype.element_ty, HIDDEN)
    tl.store(out + at, normed.to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["num_rows"])
def _add_rms_norm(
    x,
    residual,
    weight,
    out,
    num_rows,
    eps,
    HIDDEN: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    PDL: tl.constexpr,
):
    if PDL:
        wait_for_launcher()
    rows, columns, mask = row_tile(num_rows, HIDDEN, BLOCK, ROWS)
    at = rows * HIDDEN + columns
    dtype: tl.constexpr = residual.dtype.element_ty
    added = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    old = tl.load(residual + at, mask=mask, other=0.0).to(tl.float32)
    factors = tl.load(weight + columns, mask=columns < HIDDEN, other=0.0)
    total = (old + added).to(dtype)
    tl.store(residual + at, total, mask=mask)
    normed = normalize(total.to(tl.float32), factors, eps, dtype, HIDDEN)
    tl.store(out + at, normed.to(dtype), mask=mask)


@triton.jit(do_not_specialize=["num_rows"])
def _embed_rms_norm(
    token_ids,
    table,
    weight,
    residual,
    out,
    num_rows,
    eps,
    scale,
    HIDDEN: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    rows, columns, mask = row_tile(num_rows, HIDDEN, BLOCK, ROWS)
    dtype: tl.constexpr = table.dtype.element_ty
    ids = tl.load(token_ids + rows, mask=rows < num_rows, other=0).to(tl.int64)
    factors = tl.load(weight + columns, mask=columns < HIDDEN, other=0.0)
    values = tl.load(table + ids * HIDDEN + columns, mask=mask, other=0.0).to(tl.float32)
    values = (values * scale).to(dtype)
    at = rows * HIDDEN + columns
    tl.store(residual + at, values, mask=mask)
    normed = normalize(values.to(tl.float32), factors, eps, dtype, HIDDEN)
    tl.store(out + at, normed.to(dtype), mask=mask)
