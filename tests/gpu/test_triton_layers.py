"""The element-wise kernels of a layer and float8 products on a card, at real shapes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

from engine.kernels.triton.activation import ACTIVATIONS, gated  # noqa: E402
from engine.kernels.triton.norm import add_rms_norm, embed_rms_norm, rms_norm  # noqa: E402
from engine.kernels.triton.quantize import add_rms_norm_quantize, gated_quantize  # noqa: E402
from engine.kernels.triton.rotary import rotate_and_store  # noqa: E402
from engine.kv.kv_cache import KVCache  # noqa: E402
from engine.models.fp8 import MIN_CAPABILITY, Fp8Linear, quantize_rows  # noqa: E402
from tests.engine.kernels.triton.layer_checks import (  # noqa: E402
    FP8,
    check_add_rms_norm,
    check_embed_rms_norm,
    check_fused_quantize,
    check_gated,
    check_quantize_rows,
    check_rms_norm,
    check_rotary,
)

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
DTYPES = [BF16, F16, F32]
ROWS = [1, 7, 256, 8192]
has_fp8 = torch.cuda.is_available() and torch.cuda.get_device_capability() >= MIN_CAPABILITY
needs_fp8 = pytest.mark.skipif(not has_fp8, reason="needs 8-bit floats in hardware")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("hidden", [576, 1024, 5120])
def test_norms(hidden: int, rows: int, dtype: torch.dtype) -> None:
    for weight_dtype in {dtype, F32} if rows == 7 else {dtype}:
        check_rms_norm(rows, hidden, dtype, weight_dtype, "cuda")
        check_add_rms_norm(rows, hidden, dtype, weight_dtype, "cuda")
    check_embed_rms_norm(rows, hidden, dtype, 1.0, torch.int32, "cuda")
    check_embed_rms_norm(rows, hidden, dtype, 33.5, torch.int64, "cuda")


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_widest_rows(dtype: torch.dtype) -> None:
    check_add_rms_norm(5, 16384, dtype, dtype, "cuda")
    check_rms_norm(5, 20000, dtype, dtype, "cuda")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("inner", [3072, 12288, 4867])
def test_gated(inner: int, rows: int, dtype: torch.dtype) -> None:
    for activation in ACTIVATIONS:
        check_gated(rows, inner, dtype, activation, "cuda")


@pytest.mark.parametrize("tokens", ROWS)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "rotary_dim", "dtype"),
    [
        (16, 8, 128, 128, BF16),
        (32, 8, 128, 128, BF16),
        (32, 8, 128, 128, F32),
        (14, 2, 64, 64, BF16),
        (9, 3, 64, 64, F16),
        (32, 32, 80, 32, BF16),
        (32, 32, 80, 80, F32),
        (32, 32, 96, 96, BF16),
        (8, 1, 256, 256, BF16),
    ],
)
def test_rotary(
    heads: int, kv_heads: int, head_dim: int, rotary_dim: int, tokens: int, dtype: torch.dtype
) -> None:
    sizes = (tokens, heads, kv_heads, head_dim, rotary_dim, dtype, "cuda")
    check_rotary(*sizes)
    check_rotary(*sizes, norm=dtype, index_dtype=torch.int64)
    if tokens == 7:
        check_rotary(*sizes, norm=F32)
    if has_fp8:
        check_rotary(*sizes, norm=dtype, cache_dtype=FP8)


@needs_fp8
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("columns", [1024, 1037, 12288])
def test_float8_rows(columns: int, rows: int, dtype: torch.dtype) -> None:
    check_quantize_rows(rows, columns, dtype, "cuda")
    if dtype == BF16:
        check_fused_quantize(rows, columns, dtype, "cuda")


@needs_fp8
@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("rows", [1, 2, 7, 16, 33, 256, 4096])
@pytest.mark.parametrize(("outputs", "columns"), [(6144, 4096), (4096, 12288), (1040, 1024)])
def test_float8_products(outputs: int, columns: int, rows: int, dtype: torch.dtype) -> None:
    """Of any number of rows: as close to the product of the rounded factors as bfloat16 and the
    short sums of the tensor cores allow."""
    weight = (torch.randn(outputs, columns, device="cuda") * 0.02).to(dtype)
    bias = torch.randn(outputs, device="cuda").to(dtype)
    x = torch.randn(rows, columns, device="cuda").to(dtype)
    linear = Fp8Linear(weight, bias)
    codes, scales = quantize_rows(x)
    rounded = functional.linear(codes.float() * scales, linear.codes.float() * linear.scales)
    got = linear(x)
    assert got.dtype == dtype
    assert got.shape == (rows, outputs)
    wanted = rounded + bias.float()
    assert (got.float() - wanted).norm() < 1e-2 * wanted.norm()
    exact = functional.linear(x.float(), weight.float(), bias.float())
    assert (got.float() - exact).norm() < 0.05 * (exact - bias.float()).norm()
    assert torch.equal(linear.multiply(codes, scales), got)


@needs_fp8
def test_a_float8_cache_copies_its_blocks() -> None:
    cache = KVCache(
        num_layers=2,
        num_blocks=4,
        block_size=16,
        num_kv_heads=2,
        head_dim=64,
        dtype=FP8,
        device=torch.device("cuda"),
    )
    keys, values = cache.layer(1)
    keys.copy_(torch.randn(64, 2, 64))
    values.copy_(torch.randn(64, 2, 64))
    wanted = keys.float()[16:32], values.float()[16:32]
    cache.copy_blocks([(1, 3)])
    assert torch.equal(keys.float()[48:], wanted[0])
    assert torch.equal(values.float()[48:], wanted[1])


def test_offsets_beyond_32_bits() -> None:
    """A row, a slot and a table's entry at more than 2^31 elements from the start."""
    free, _ = torch.cuda.mem_get_info()
    if free < 14 << 30:
        pytest.skip("needs 14 GB")
    hidden, last = 16384, (1 << 17) + 8
    table = torch.empty((last + 1, hidden), dtype=BF16, device="cuda")
    table[last] = torch.randn(hidden, device="cuda")
    weight = torch.ones(hidden, dtype=BF16, device="cuda")
    ids = torch.tensor([last], device="cuda", dtype=torch.int32)
    residual, _ = embed_rms_norm(ids, table, weight, 1e-6)
    assert torch.equal(residual[0], table[last])
    out = torch.empty_like(table)
    rms_norm(table, weight, 1e-6, out=out)
    assert torch.equal(out[last], rms_norm(table[last:], weight, 1e-6)[0])
    half = gated(table)
    assert torch.equal(half[last], gated(table[last:])[0])
    cache = table.view(-1, 8, 128)
    qkv = torch.randn(1, 24 * 128, device="cuda").to(BF16)
    angles = torch.zeros(1, 64, device="cuda")
    slots = torch.tensor([cache.shape[0] - 1], dtype=torch.int32, device="cuda")
    zero = torch.zeros(1, dtype=torch.int32, device="cuda")
    rotate_and_store(
        qkv,
        zero,
        slots,
        angles.cos().to(BF16),
        angles.sin().to(BF16),
        cache,
        out.view(-1, 8, 128),
        num_heads=8,
        num_kv_heads=8,
        head_dim=128,
    )
    assert torch.equal(cache[-1].flatten(), qkv[0, 1024:2048])
    assert torch.equal(out.view(-1, 8, 128)[-1].flatten(), qkv[0, 2048:])


def captured(run: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """`run` as a graph, once it has run outside of one."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


@pytest.mark.parametrize("pdl", [False, True])
@pytest.mark.parametrize("fp8", [False, pytest.param(True, marks=needs_fp8)])
def test_a_layer_in_a_graph(fp8: bool, pdl: bool) -> None:
    """Replayed on other inputs it gives what the same calls give outside of a graph, one kernel
    after the other or, with `pdl`, started ahead."""
    tokens, hidden, inner, heads, kv_heads, dim = 5, 1024, 3072, 16, 8, 128

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, device="cuda").to(BF16)

    table, norms = draw(100, hidden), draw(3, hidden).abs()
    weights = {
        "qkv": draw((heads + 2 * kv_heads) * dim, hidden) * 0.03,
        "gate_up": draw(2 * inner, hidden) * 0.03,
        "down": draw(hidden, inner) * 0.03,
    }
    rounded = {name: Fp8Linear(weight) for name, weight in weights.items()} if fp8 else {}
    head_norms = draw(2, dim).abs()
    angles = torch.rand(50, dim // 2, device="cuda") * 6
    cos, sin = angles.cos().to(BF16), angles.sin().to(BF16)
    ids, positions, slots = (
        torch.randint(50, (tokens,), dtype=torch.int32, device="cuda") for _ in range(3)
    )
    keys, values = (
        torch.zeros(60, kv_heads, dim, device="cuda").to(FP8 if fp8 else BF16) for _ in range(2)
    )
    out = torch.empty(tokens, hidden, dtype=BF16, device="cuda")

    def multiply(name: str, x: Tensor) -> Tensor:
        return rounded[name](x) if fp8 else functional.linear(x, weights[name])

    def run(pdl: bool = pdl) -> None:
        residual, x = embed_rms_norm(ids, table, norms[0], 1e-6)
        qkv = multiply("qkv", x)
        rotate_and_store(
            qkv,
            positions,
            slots,
            cos,
            sin,
            keys,
            values,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=dim,
            q_norm=head_norms[0],
            k_norm=head_norms[1],
            pdl=pdl,
        )
        mixed = qkv[:, :hidden].contiguous()
        if fp8:
            codes = add_rms_norm_quantize(mixed, residual, norms[1], 1e-6)
            gate_up = rounded["gate_up"].multiply(*codes)
            x = rounded["down"].multiply(*gated_quantize(gate_up))
        else:
            x = multiply("gate_up", add_rms_norm(mixed, residual, norms[1], 1e-6, pdl=pdl))
            x = multiply("down", gated(x, pdl=pdl))
        add_rms_norm(x, residual, norms[2], 1e-6, out=out, pdl=pdl)
        rms_norm(out, norms[0], 1e-6, out=out, pdl=pdl)

    graph = captured(run)
    for step in range(3):
        ids.copy_(torch.randint(100, (tokens,), device="cuda"))
        positions.copy_(torch.randint(50, (tokens,), device="cuda"))
        slots.copy_(torch.randperm(60, device="cuda")[:tokens])
        slots[step] = -1
        keys.zero_()
        values.zero_()
        out.fill_(float("nan"))
        graph.replay()
        got = [out.clone(), keys.float(), values.float()]
        keys.zero_()
        values.zero_()
        out.fill_(float("nan"))
        run(pdl=False)
        for one, other in zip(got, [out, keys.float(), values.float()], strict=True):
            assert torch.equal(one, other)
        assert out.isfinite().all()
