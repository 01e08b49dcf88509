"""Rows in float8_e4m3fn with a scale each, as fp8 matrix products take them.

With m the largest magnitude of a row (at least 1e-30), its scale is m / 448 and its codes are
x * (448 / m), rounded to the nearest: so the largest becomes 448, the largest finite code. A row's
codes depend on no other row. The fused forms first round to the dtype of their input what the
unfused kernels would have written; their `pdl`: see `dependent_launch`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.triton.activation import ACTIVATIONS, gate_product
from engine.kernels.triton.dependent_launch import launch_options, wait_for_launcher
from engine.kernels.triton.norm import normalize, row_tile, tile_of

FP8 = torch.float8_e4m3fn


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """(codes float8_e4m3fn [T, K], scales float32 [T, 1]) of `x` [T, K], contiguous."""
    rows, columns = x.shape
    codes, scales = _empty(rows, columns, x.device)
    if rows:
        programs, tile = tile_of(rows, columns)
        _quantize_rows[(programs,)](x, codes, scales, rows, HIDDEN=columns, **tile)
    return codes, scales


def add_rms_norm_quantize(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, *, pdl: bool = False
) -> tuple[Tensor, Tensor]:
    """`quantize_rows` of `add_rms_norm(x, residual, weight, eps)`, which also adds `x` to
    `residual` in place."""
    rows, hidden = x.shape
    codes, scales = _empty(rows, hidden, x.device)
    if rows:
        programs, tile = tile_of(rows, hidden)
        _add_rms_norm_quantize[(programs,)](
            x,
            residual,
            weight,
            codes,
            scales,
            rows,
            eps,
            HIDDEN=hidden,
            **tile,
            **launch_options(pdl, x.device),
        )
    return codes, scales


def embed_rms_norm_quantize(
    token_ids: Tensor, table: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(residual, codes, scales) where `embed_rms_norm(token_ids, table, weight, eps)` gives
    (residual, normed), and codes and scales are `quantize_rows` of `normed`."""
    rows, hidden = token_ids.shape[0], table.shape[1]
    residual = torch.empty((rows, hidden), dtype=table.dtype, device=table.device)
    codes, scales = _empty(rows, hidden, table.device)
    if rows:
        programs, tile = tile_of(rows, hidden)
        _embed_rms_norm_quantize[(programs,)](
            token_ids, table, weight, residual, codes, scales, rows, eps, HIDDEN=hidden, **tile
        )
    return residual, codes, scales


def gated_quantize(
    gate_up: Tensor, activation: str = "silu", *, pdl: bool = False
) -> tuple[Tensor, Tensor]:
    """`quantize_rows` of `gated(gate_up, activation)`; `gate_up` [T, 2 * inner]."""
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation {activation!r} is none of {', '.join(ACTIVATIONS)}")
    rows, inner = gate_up.shape[0], gate_up.shape[1] // 2
    codes, scales = _empty(rows, inner, gate_up.device)
    if rows:
        programs, tile = tile_of(rows, inner)
        _gated_quantize[(programs,)](
            gate_up,
            codes,
            scales,
            rows,
            HIDDEN=inner,
            ACTIVATION=activation,
            **tile,
            **launch_options(pdl, gate_up.device),
        )
    return codes, scales


def _empty(rows: int, columns: int, device: torch.device) -> tuple[Tensor, Tensor]:
    codes = torch.empty((rows, columns), dtype=FP8, device=device)
    return codes, torch.empty((rows, 1), dtype=torch.float32, device=device)


@triton.jit
def _store_codes(x, codes, scales, num_rows, rows, columns, mask, HIDDEN: tl.constexpr):
    """Codes and scales of rows `x` [ROWS, BLOCK] float32, with zeros behind `HIDDEN`."""
    largest = tl.maximum(tl.max(tl.abs(x), 1), 1e-30)[:, None]
    tl.store(scales + rows, tl.div_rn(largest, 448.0), mask=rows < num_rows)
    quotient = x * tl.div_rn(448.0, largest)
    # Said to lie by eights, codes are stored as 64 bits by the threads that loaded 128 bits of
    # wider numbers; 128 bits of codes would have to be gathered through shared memory first.
    at = tl.max_contiguous(rows * HIDDEN + columns, (1, 8))
    tl.store(codes + at, quotient.to(codes.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["num_rows"])
def _quantize_rows(
    x, codes, scales, num_rows, HIDDEN: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr
):
    rows, columns, mask = row_tile(num_rows, HIDDEN, BLOCK, ROWS)
    values = tl.load(x + rows * HIDDEN + columns, mask=mask, other=0.0).to(tl.float32)
    _store_codes(values, codes, scales, num_rows, rows, columns, mask, HIDDEN)


@triton.jit(do_not_specialize=["num_rows"])
def _add_rms_norm_quantize(
    x,
    residual,
    weight,
    codes,
    scales,
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
    dtype: tl.constexpr = x.dtype.element_ty
    added = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    old = tl.load(residual + at, mask=mask, other=0.0).to(tl.float32)
    factors = tl.load(weight + columns, mask=columns < HIDDEN, other=0.0)
    total = (old + added).to(dtype)
    tl.store(residual + at, total, mask=mask)
    normed = normalize(total.to(tl.float32), factors, eps, dtype, HIDDEN)
    _store_codes(normed, codes, scales, num_rows, rows, columns, mask, HIDDEN)


@triton.jit(do_not_specialize=["num_rows"])
def _embed_rms_norm_quantize(
    token_ids,
    table,
    weight,
    residual,
    codes,
    scales,
    num_rows,
    eps,
    HIDDEN: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    rows, columns, mask = row_tile(num_rows, HIDDEN, BLOCK, ROWS)
    ids = tl.load(token_ids + rows, mask=rows < num_rows, other=0).to(tl.int64)
    factors = tl.load(weight + columns, mask=columns < HIDDEN, other=0.0)
    values = tl.load(table + ids * HIDDEN + columns, mask=mask, other=0.0)
    tl.store(residual + rows * HIDDEN + columns, values, mask=mask)
    normed = normalize(values.to(tl.float32), factors, eps, table.dtype.element_ty, HIDDEN)
    _store_codes(normed, codes, scales, num_rows, rows, columns, mask, HIDDEN)


@triton.jit(do_not_specialize=["num_rows"])
def _gated_quantize(
    gate_up,
    codes,
    scales,
    num_rows,
    HIDDEN: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PDL: tl.constexpr,
):
    if PDL:
        wait_for_launcher()
    rows, columns, mask = row_tile(num_rows, HIDDEN, BLOCK, ROWS)
    at = gate_up + rows * (2 * HIDDEN) + columns
    gate = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(at + HIDDEN, mask=mask, other=0.0).to(tl.float32)
    product = gate_product(gate, up, gate_up.dtype.element_ty, ACTIVATION)
    _store_codes(product, codes, scales, num_rows, rows, columns, mask, HIDDEN)
