"""Checks of the element-wise kernels against torch: tiny shapes under Triton's interpreter, real
shapes on a card. Each draws fresh inputs and compares with the plain path in `engine.models`."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.triton.activation import gated
from engine.kernels.triton.norm import add_rms_norm, embed_rms_norm, rms_norm
from engine.kernels.triton.quantize import (
    add_rms_norm_quantize,
    embed_rms_norm_quantize,
    gated_quantize,
    quantize_rows,
)
from engine.kernels.triton.rotary import rotate_and_store
from engine.models.feed_forward import ACTIVATIONS
from engine.models.fp8 import quantize_rows_plainly
from engine.models.norm import rms_norm as plain_rms_norm
from engine.models.rope import rotate_

FP8 = torch.float8_e4m3fn
ULP = {torch.float32: 2.0**-21, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
"""A unit in the last place; in float32 some of them, for another order of summation."""


def close(got: Tensor, wanted: Tensor, *, ulps: float = 2.0, atol: float | None = None) -> None:
    """Fails unless `got` is `wanted` but for `ulps` units in the last place: two roundings that
    fell the other way, as most results are rounded twice."""
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    rtol = ULP[got.dtype] * ulps
    atol = rtol * 0.01 if atol is None else atol
    torch.testing.assert_close(got.float(), wanted.float(), rtol=rtol, atol=atol)


def poisoned(*shape: int, dtype: torch.dtype, device: str) -> Tensor:
    """Full of NaN."""
    return torch.full(shape, float("nan"), device=device).to(dtype)


def saturate(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` as a cache of `dtype` keeps it."""
    return x.float().clamp(-448, 448).to(FP8) if dtype == FP8 else x.to(dtype)


def check_rms_norm(
    rows: int, hidden: int, dtype: torch.dtype, weight_dtype: torch.dtype, device: str
) -> None:
    x = (torch.randn(rows, hidden, device=device) * 3).to(dtype)
    weight = (torch.rand(hidden, device=device) + 0.5).to(weight_dtype)
    wanted = plain_rms_norm(x.clone(), weight, 1e-6)
    out = poisoned(rows, hidden, dtype=dtype, device=device)
    assert rms_norm(x, weight, 1e-6, out=out) is out
    close(out, wanted)
    assert torch.equal(rms_norm(x, weight, 1e-6), out)
    assert rms_norm(x, weight, 1e-6, out=x) is x
    assert torch.equal(x, out)


def check_add_rms_norm(
    rows: int, hidden: int, dtype: torch.dtype, weight_dtype: torch.dtype, device: str
) -> None:
    x = torch.randn(rows, hidden, device=device).to(dtype)
    residual = (torch.randn(rows, hidden, device=device) * 30).to(dtype)
    weight = (torch.rand(hidden, device=device) + 0.5).to(weight_dtype)
    total = residual + x
    out = poisoned(rows, hidden, dtype=dtype, device=device)
    assert add_rms_norm(x, residual, weight, 1e-5, out=out) is out
    assert torch.equal(residual, total)
    close(out, plain_rms_norm(total, weight, 1e-5))


def check_embed_rms_norm(
    rows: int, hidden: int, dtype: torch.dtype, scale: float, ids_dtype: torch.dtype, device: str
) -> None:
    table = torch.randn(31, hidden, device=device).to(dtype)
    weight = (torch.rand(hidden, device=device) + 0.5).to(dtype)
    ids = torch.randint(31, (rows,), device=device)
    wanted = table[ids] if scale == 1.0 else table[ids].mul_(scale)
    residual, normed = embed_rms_norm(ids.to(ids_dtype), table, weight, 1e-6, scale)
    assert torch.equal(residual, wanted)
    close(normed, plain_rms_norm(wanted, weight, 1e-6))


def check_gated(rows: int, inner: int, dtype: torch.dtype, activation: str, device: str) -> None:
    gate_up = (torch.randn(rows, 2 * inner, device=device) * 4).to(dtype)
    gate, up = gate_up.chunk(2, dim=-1)
    wanted = ACTIVATIONS[activation](gate).mul_(up)
    out = poisoned(rows, inner, dtype=dtype, device=device)
    assert gated(gate_up, activation, out=out) is out
    # 1 + erf(x) and 1 + tanh(x) cancel where x is far below 0.
    atol = max(0.0 if activation == "silu" else 4e-6, ULP[dtype] * 0.1)
    close(out, wanted, atol=atol)
    assert torch.equal(gated(gate_up, activation), out)


def check_rotary(
    tokens: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    rotary_dim: int,
    dtype: torch.dtype,
    device: str,
    *,
    norm: torch.dtype | None = None,
    cache_dtype: torch.dtype | None = None,
    index_dtype: torch.dtype = torch.int32,
) -> None:
    """Also that nothing else is written: keys and values in the projection, other cache rows."""
    cache_dtype = dtype if cache_dtype is None else cache_dtype
    num_slots, num_positions = 2 * tokens + 3, 50
    heads = num_heads + 2 * num_kv_heads
    qkv = torch.randn(tokens, heads * head_dim, device=device).to(dtype)
    if cache_dtype == FP8:
        qkv[0, -5:] = 1000  # saturates
    positions = torch.randint(num_positions, (tokens,), device=device)
    slots = torch.randperm(num_slots, device=device)[:tokens]
    slots[torch.rand(tokens, device=device) < 0.2] = -1
    angles = torch.rand(num_positions, rotary_dim // 2, device=device) * 6
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    weights: list[Tensor | None] = [None, None]
    if norm is not None:
        weights = [(torch.rand(head_dim, device=device) + 0.5).to(norm) for _ in range(2)]
    keys, values = (
        poisoned(num_slots, num_kv_heads, head_dim, dtype=cache_dtype, device=device)
        for _ in range(2)
    )
    split = qkv.clone().view(tokens, heads, head_dim)
    q, k = split[:, :num_heads], split[:, num_heads : num_heads + num_kv_heads]
    v = split[:, num_heads + num_kv_heads :]
    turned = []
    for part, weight in ((q, weights[0]), (k, weights[1])):
        normed = part if weight is None else plain_rms_norm(part, weight.expand(1, -1), 1e-6)
        exact = normed.float()
        rotate_(exact, cos.float()[positions][:, None], sin.float()[positions][:, None])
        turned.append(exact.to(dtype))
    before = qkv.clone()
    rotate_and_store(
        qkv,
        positions.to(index_dtype),
        slots.to(index_dtype),
        cos,
        sin,
        keys,
        values,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        q_norm=weights[0],
        k_norm=weights[1],
        eps=1e-6,
    )
    width = num_heads * head_dim
    # A factor that is rounded the other way moves a sum whose parts nearly cancel.
    atol = 6 * ULP[dtype]
    close(qkv[:, :width].view_as(turned[0]), turned[0], atol=atol)
    assert torch.equal(qkv[:, width:], before[:, width:])
    _check_cache(keys, turned[1], slots, exact=False)
    _check_cache(values, v, slots, exact=True)


def check_quantize_rows(rows: int, columns: int, dtype: torch.dtype, device: str) -> None:
    """As torch does it, and never further off than half a code's step. In the interpreter to the
    bit; a GPU converts by way of float16, and so takes the other neighbour of a number near the
    middle between two codes now and then."""
    x = torch.randn(rows, columns, device=device) * torch.rand(rows, 1, device=device).exp2() * 9
    x = x.to(dtype)
    codes, scales = quantize_rows(x)
    # On the CPU: torch divides by a number on a GPU by way of its reciprocal, rounded otherwise.
    wanted_codes, wanted_scales = quantize_rows_plainly(x.cpu())
    assert torch.equal(scales, wanted_scales.to(device))
    differ = codes.view(torch.uint8) != wanted_codes.to(device).view(torch.uint8)
    # One of 128 float16 numbers is a middle; half of those go the other way: 0.4 % are expected.
    most = 0.0 if device == "cpu" else 0.008 * differ.numel() + 16
    assert differ.sum() <= most
    back = codes.float() * scales
    step = torch.maximum(x.float().abs() / 16, scales * 2.0**-10)
    assert ((back - x.float()).abs() <= step * 1.001).all()
    assert (codes.float().abs().amax(dim=1) == 448).all()


def check_fused_quantize(rows: int, columns: int, dtype: torch.dtype, device: str) -> None:
    """The fused forms give the bits of the kernels one after the other."""
    x, residual = (torch.randn(rows, columns, device=device).to(dtype) for _ in range(2))
    weight = (torch.rand(columns, device=device) + 0.5).to(dtype)
    copy = residual.clone()
    got = add_rms_norm_quantize(x, residual, weight, 1e-6)
    _same_codes(got, quantize_rows(add_rms_norm(x, copy, weight, 1e-6)))
    assert torch.equal(residual, copy)
    ids = torch.randint(rows, (rows + 2,), device=device, dtype=torch.int32)
    looked_up, codes, scales = embed_rms_norm_quantize(ids, x, weight, 1e-6)
    wanted_rows, normed = embed_rms_norm(ids, x, weight, 1e-6)
    assert torch.equal(looked_up, wanted_rows)
    _same_codes((codes, scales), quantize_rows(normed))
    gate_up = torch.randn(rows, 2 * columns, device=device).to(dtype)
    for activation in ACTIVATIONS:
        wanted = quantize_rows(gated(gate_up, activation))
        _same_codes(gated_quantize(gate_up, activation), wanted)


def _same_codes(got: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor]) -> None:
    assert torch.equal(got[1], wanted[1])
    assert torch.equal(got[0].view(torch.uint8), wanted[0].view(torch.uint8))


def _check_cache(cache: Tensor, wanted: Tensor, slots: Tensor, *, exact: bool) -> None:
    """`wanted` [T, heads, D] stands at `slots`, and all other rows are still poisoned."""
    written = slots >= 0
    got = cache.view(torch.uint8).view(cache.shape[0], -1)[slots[written]]
    got = got.view(cache.dtype).view(-1, *cache.shape[1:])
    kept = saturate(wanted, cache.dtype)[written]
    if exact:
        assert torch.equal(got.float(), kept.float())
    elif cache.dtype == FP8:
        # A code's step is an eighth of its value, at most; below 2^-6 it is 2^-9.
        atol = max(2.0**-9, 6 * ULP[wanted.dtype])
        torch.testing.assert_close(got.float(), kept.float(), rtol=0.125, atol=atol)
        assert int((got.float() != kept.float()).sum()) <= 0.15 * got.numel()
    else:
        close(got, kept, atol=6 * ULP[cache.dtype])
    others = torch.ones(cache.shape[0], dtype=torch.bool, device=cache.device)
    others[slots[written]] = False
    assert cache.float()[others].isnan().all()
