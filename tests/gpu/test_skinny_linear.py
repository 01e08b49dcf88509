"""Products with few rows on a card: real shapes against float64, graphs, dependent launches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

from engine.kernels.triton.skinny_linear import skinny_gate_up, skinny_linear  # noqa: E402
from engine.models.fp8 import MIN_CAPABILITY, Fp8Linear  # noqa: E402

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
EPS = 1e-6
# Half of the last place of an output, with a margin; float32 adds up to 12,288 products.
BOUNDS = {BF16: 2.5e-3, F16: 3.5e-4, F32: 2e-6}
# [N, K]: of the Qwen3 shapes of 0.6B and 8B, then one that neither blocks nor pairs divide.
ODD = (1003, 1001)
SHAPES = [(4096, 1024), (1024, 2048), (1024, 3072), (6144, 4096), (4096, 12288), ODD]
# Each type of value is compiled anew, so only bfloat16 goes through all of them.
CASES = [(BF16, rows, SHAPES) for rows in (1, 2, 4)]
CASES += [(dtype, rows, [(4096, 1024), ODD]) for dtype in (F16, F32) for rows in (1, 4)]
# [N, K] for 8-bit weights: as above, of 4B (blocks of one warp), and what no block divides.
FP8_ODD = (1003, 1012)
FP8_SHAPES = [*SHAPES[:-1], (24_576, 4096), (6144, 2560), (896, 4864), FP8_ODD]
FP8_CASES = [(BF16, rows, FP8_SHAPES) for rows in (1, 4)]
FP8_CASES += [(dtype, 1, [(4096, 1024), (6144, 2560), FP8_ODD]) for dtype in (F16, F32)]
has_fp8 = torch.cuda.is_available() and torch.cuda.get_device_capability() >= MIN_CAPABILITY
needs_fp8 = pytest.mark.skipif(not has_fp8, reason="needs 8-bit floats in hardware")


def randn(*shape: int, dtype: Any = BF16, scale: float = 1.0) -> Tensor:
    return torch.randn(*shape, dtype=F32, device="cuda").mul_(scale).to(dtype)


def normed(x: Tensor, weight: Tensor) -> Tensor:
    x = x.double()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight.double()


def error(got: Tensor, expected: Tensor) -> float:
    return float((got.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize(("dtype", "rows", "shapes"), CASES)
def test_linear(dtype: Any, rows: int, shapes: list[tuple[int, int]]) -> None:
    for columns, size in shapes:
        x, weight = randn(rows, size, dtype=dtype), randn(columns, size, dtype=dtype, scale=0.02)
        norm, residual = randn(size, dtype=dtype), randn(rows, columns, dtype=dtype)
        bias = randn(columns, dtype=dtype) if (columns, size) == ODD else None
        out = torch.full_like(residual, torch.nan)
        skinny_linear(x, weight, bias, norm_weight=norm, eps=EPS, out=out)
        expected = normed(x, norm) @ weight.double().T
        if bias is not None:
            expected += bias.double()
        assert error(out, expected) < BOUNDS[dtype], (columns, size)
        expected = residual.double() + x.double() @ weight.double().T
        skinny_linear(x, weight, residual=residual)
        assert error(residual, expected) < BOUNDS[dtype], (columns, size)


@pytest.mark.parametrize(("dtype", "rows", "shapes"), CASES)
def test_gate_up(dtype: Any, rows: int, shapes: list[tuple[int, int]]) -> None:
    large = [(12288, 4096)] if len(shapes) > 2 else []
    for columns, size in [(3072, 1024), *large, ODD]:
        x = randn(rows, size, dtype=dtype)
        weight = randn(2 * columns, size, dtype=dtype, scale=0.02)
        norm = randn(size, dtype=dtype)
        out = torch.full((rows, columns), torch.nan, dtype=dtype, device="cuda")
        skinny_gate_up(x, weight, norm_weight=norm, eps=EPS, out=out)
        gate, up = (normed(x, norm) @ weight.double().T).chunk(2, dim=-1)
        assert error(out, functional.silu(gate) * up) < 2 * BOUNDS[dtype], (columns, size)


@needs_fp8
@pytest.mark.parametrize(("dtype", "rows", "shapes"), FP8_CASES)
def test_linear_of_8_bit_weights(dtype: Any, rows: int, shapes: list[tuple[int, int]]) -> None:
    """No error but that of plain weights: x is not rounded."""
    for columns, size in shapes:
        x = randn(rows, size, dtype=dtype)
        linear = Fp8Linear(randn(columns, size, scale=0.02))
        weight = linear.codes.double() * linear.scales.double()
        norm, residual = randn(size, dtype=dtype), randn(rows, columns, dtype=dtype)
        bias = randn(columns, dtype=dtype) if (columns, size) == FP8_ODD else None
        out = torch.full_like(residual, torch.nan)
        scales = linear.scales
        skinny_linear(x, linear.codes, bias, scales=scales, norm_weight=norm, eps=EPS, out=out)
        expected = normed(x, norm) @ weight.T
        if bias is not None:
            expected += bias.double()
        assert error(out, expected) < BOUNDS[dtype], (columns, size)
        expected = residual.double() + x.double() @ weight.T
        skinny_linear(x, linear.codes, scales=scales, residual=residual)
        assert error(residual, expected) < BOUNDS[dtype], (columns, size)


@needs_fp8
@pytest.mark.parametrize(("dtype", "rows"), [(BF16, 1), (BF16, 4), (F16, 1), (F32, 1)])
def test_gate_up_of_8_bit_weights(dtype: Any, rows: int) -> None:
    for columns, size in [(3072, 1024), (12_288, 4096), (9728, 2560), FP8_ODD]:
        x, norm = randn(rows, size, dtype=dtype), randn(size, dtype=dtype)
        linear = Fp8Linear(randn(2 * columns, size, scale=0.02))
        weight = linear.codes.double() * linear.scales.double()
        out = torch.full((rows, columns), torch.nan, dtype=dtype, device="cuda")
        skinny_gate_up(x, linear.codes, scales=linear.scales, norm_weight=norm, eps=EPS, out=out)
        gate, up = (normed(x, norm) @ weight.T).chunk(2, dim=-1)
        assert error(out, functional.silu(gate) * up) < 2 * BOUNDS[dtype], (columns, size)


@needs_fp8
@pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=str)
def test_every_8_bit_float(dtype: Any) -> None:
    """A column each, as x takes one after another: exact, as scales are powers of two."""
    codes = torch.arange(256, dtype=torch.int32, device="cuda").to(torch.uint8)
    codes = codes[codes % 128 != 127]  # NaN
    weight = codes.view(-1, 1).repeat(1, 1024).view(torch.float8_e4m3fn)
    scales = 2.0 ** torch.randint(-3, 4, (len(weight), 1), device="cuda")
    wanted = (weight[:, 0].float() * scales[:, 0]).to(dtype)
    for place in [*range(16), 511, 1023]:
        x = torch.zeros(1, 1024, dtype=dtype, device="cuda")
        x[0, place] = 1.0
        assert torch.equal(skinny_linear(x, weight, scales=scales)[0], wanted), place


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_norm_is_no_worse_than_one_that_rounds(dtype: Any, rows: int) -> None:
    x, weight = randn(rows, 1024, dtype=dtype, scale=5.0), randn(4096, 1024, dtype=dtype)
    norm = randn(1024, dtype=dtype)
    expected = normed(x, norm) @ weight.double().T
    rounded = functional.linear(functional.rms_norm(x, (1024,), norm, EPS), weight)
    ours = skinny_linear(x, weight, norm_weight=norm, eps=EPS)
    assert error(ours, expected) < 1.05 * error(rounded, expected)


@pytest.mark.parametrize("rows", [1, 4])
def test_vocabulary(rows: int) -> None:
    """Logits of a large vocabulary: offsets beyond 2^31 bytes, and a last block in part."""
    x, weight = randn(rows, 4096), torch.empty(300_001, 4096, dtype=BF16, device="cuda")
    weight.normal_(0, 0.02)
    out = torch.full((rows, 300_001), torch.nan, dtype=BF16, device="cuda")
    skinny_linear(x, weight, norm_weight=torch.ones_like(x[0]), eps=EPS, out=out)
    for part in (slice(0, 100), slice(262_100, 262_200), slice(299_900, 300_001)):
        expected = normed(x, torch.ones_like(x[0])) @ weight[part].double().T
        assert error(out[:, part], expected) < BOUNDS[BF16]
    assert not out.isnan().any()


@pytest.mark.parametrize(("columns", "size"), [(4096, 1024), (1024, 3072), (6144, 4096)])
def test_rows_do_not_depend_on_each_other_and_runs_repeat(columns: int, size: int) -> None:
    x, weight, norm = randn(4, size), randn(columns, size), randn(size)
    together = skinny_linear(x, weight, norm_weight=norm)
    for _ in range(20):
        assert torch.equal(skinny_linear(x, weight, norm_weight=norm), together)
    assert torch.equal(skinny_linear(x[1:3], weight, norm_weight=norm), together[1:3])
    assert torch.equal(skinny_linear(x[3:], weight, norm_weight=norm), together[3:])


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_a_chain_of_dependent_launches_in_a_graph(rows: int) -> None:
    """Each product reads what the one before wrote: a kernel that did not wait would differ.

    The head is too large to be a dependent launch, so that one comes behind those that are.
    """
    size, inner, layers = 1024, 3072, 12
    weights = [
        (
            randn(4096, size, scale=0.02),
            randn(size, 2048, scale=0.02),
            randn(2 * inner, size, scale=0.02),
            randn(size, inner, scale=0.02),
        )
        for _ in range(layers)
    ]
    head, norm = randn(16_384, size, scale=0.02), randn(size)
    start = torch.empty(rows, size, dtype=BF16, device="cuda")
    hidden, qkv = torch.empty_like(start), start.new_empty(rows, 4096)
    gated, logits = start.new_empty(rows, inner), start.new_empty(rows, 16_384)
    buffers = (hidden, qkv, gated, logits)

    def chain(pdl: bool) -> None:
        hidden.copy_(start)
        for to_qkv, output, gate_up, down in weights:
            skinny_linear(hidden, to_qkv, norm_weight=norm, out=qkv, pdl=pdl)
            skinny_linear(qkv[:, :2048], output, residual=hidden, pdl=pdl)
            skinny_gate_up(hidden, gate_up, norm_weight=norm, out=gated, pdl=pdl)
            skinny_linear(gated, down, residual=hidden, pdl=pdl)
        skinny_linear(hidden, head, norm_weight=norm, out=logits, pdl=pdl)

    start.normal_()
    chain(True)  # compiles
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain(True)
    for _ in range(50):
        start.normal_()
        chain(False)
        expected = [buffer.clone() for buffer in buffers]
        assert expected[-1].isfinite().all()
        for _ in range(4):
            for buffer in buffers:
                buffer.fill_(torch.nan)
            graph.replay()
            for buffer, wanted in zip(buffers, expected, strict=True):
                assert torch.equal(buffer, wanted)
