"""Products with few rows on the card: real shapes against float64, graphs, dependent launches."""

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

from engine.kernels.triton.skinny_linear import (  # noqa: E402 - after the skip
    SkinnyConfig,
    skinny_gate_up,
    skinny_linear,
)

EPS = 1e-6
# Half of the last place of an output, with a margin; float32 adds up to 12,288 products.
BOUNDS = {torch.bfloat16: 2.5e-3, torch.float16: 3.5e-4, torch.float32: 2e-6}
ROW = SkinnyConfig(tensor_cores=False, block_n=8, block_k=512, num_warps=4)
# (N, K): the Qwen3 shapes of 0.6B and 8B, then one that neither blocks nor pairs divide. Each type
# of value and kind of block is compiled anew, so only bfloat16 goes through all of them.
ODD = (1003, 1001)
SHAPES = [(4096, 1024), (1024, 2048), (1024, 3072), (6144, 4096), (4096, 12288), ODD]
CASES = [(torch.bfloat16, rows, SHAPES) for rows in (1, 3, 8, 16, 32)] + [
    (dtype, rows, [(4096, 1024), ODD])
    for dtype in (torch.float16, torch.float32)
    for rows in (1, 3)
]


def randn(*shape: int, dtype: Any, scale: float = 1.0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float32, device="cuda").mul_(scale).to(dtype)


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
        out = torch.full_like(residual, torch.nan)
        plain = x.double() @ weight.double().T
        skinny_linear(x, weight, out=out)
        assert error(out, plain) < BOUNDS[dtype], (columns, size)
        out.fill_(torch.nan)
        skinny_linear(x, weight, norm_weight=norm, eps=EPS, out=out)
        expected = normed(x, norm) @ weight.double().T
        # Tensor cores take x times the norm's weights rounded to 16 bits: one rounding more.
        assert error(out, expected) < 1.5 * BOUNDS[dtype], (columns, size)
        expected = residual.double() + plain
        skinny_linear(x, weight, residual=residual)
        assert error(residual, expected) < BOUNDS[dtype], (columns, size)


@pytest.mark.parametrize(("dtype", "rows", "shapes"), CASES)
def test_gate_up(dtype: Any, rows: int, shapes: list[tuple[int, int]]) -> None:
    for columns, size in shapes[:1] + shapes[-3:-2] + shapes[-1:]:
        x, weight = (
            randn(rows, size, dtype=dtype),
            randn(2 * columns, size, dtype=dtype, scale=0.02),
        )
        norm = randn(size, dtype=dtype)
        out = torch.full((rows, columns), torch.nan, dtype=dtype, device="cuda")
        skinny_gate_up(x, weight, norm_weight=norm, eps=EPS, out=out)
        gate, up = (normed(x, norm) @ weight.double().T).chunk(2, dim=-1)
        assert error(out, functional.silu(gate) * up) < 2.5 * BOUNDS[dtype], (columns, size)


@pytest.mark.parametrize("rows", [1, 16])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_norm_is_no_worse_than_one_that_rounds(dtype: Any, rows: int) -> None:
    x, weight = randn(rows, 1024, dtype=dtype, scale=5.0), randn(4096, 1024, dtype=dtype)
    norm = randn(1024, dtype=dtype)
    expected = normed(x, norm) @ weight.double().T
    rounded = functional.linear(functional.rms_norm(x, (1024,), norm, EPS), weight)
    ours = skinny_linear(x, weight, norm_weight=norm, eps=EPS)
    assert error(ours, expected) < 1.05 * error(rounded, expected)


@pytest.mark.parametrize("rows", [1, 16])
def test_vocabulary(rows: int) -> None:
    """Logits of a large vocabulary: offsets beyond 2^31 bytes, the row kernel's last block."""
    x = randn(rows, 4096, dtype=torch.bfloat16)
    weight = randn(300_001, 4096, dtype=torch.bfloat16, scale=0.02)
    out = torch.full((rows, 300_001), torch.nan, dtype=torch.bfloat16, device="cuda")
    skinny_linear(x, weight, out=out)
    for part in (slice(0, 100), slice(262_100, 262_200), slice(299_900, 300_001)):
        expected = x.double() @ weight[part].double().T
        assert error(out[:, part], expected) < BOUNDS[torch.bfloat16]
    assert not out.isnan().any()


def test_rows_do_not_depend_on_each_other_and_runs_repeat() -> None:
    x, weight = randn(16, 1024, dtype=torch.bfloat16), randn(4096, 1024, dtype=torch.bfloat16)
    norm = randn(1024, dtype=torch.bfloat16)
    together = skinny_linear(x, weight, norm_weight=norm)
    for _ in range(20):
        assert torch.equal(skinny_linear(x, weight, norm_weight=norm), together)
    two = skinny_linear(x[5:7], weight, norm_weight=norm)
    assert torch.equal(two, together[5:7])
    # One row at a time, by multiply-add: other bits than tensor cores, but the same for any M.
    rows = skinny_linear(x, weight, norm_weight=norm, config=ROW)
    alone = skinny_linear(x[7:8], weight, norm_weight=norm, config=ROW)
    assert torch.equal(alone[0], rows[7])


@pytest.mark.parametrize("rows", [1, 4])
def test_a_chain_of_dependent_launches_in_a_graph(rows: int) -> None:
    """Each product reads what the one before wrote: a kernel that did not wait would differ."""
    size, inner, layers = 1024, 3072, 12
    weights = [
        (
            randn(size, dtype=torch.bfloat16),
            randn(2 * inner, size, dtype=torch.bfloat16, scale=0.02),
            randn(size, inner, dtype=torch.bfloat16, scale=0.02),
        )
        for _ in range(layers)
    ]
    start = torch.empty(rows, size, dtype=torch.bfloat16, device="cuda")
    hidden, gated = torch.empty_like(start), start.new_empty(rows, inner)

    def chain(pdl: bool) -> None:
        hidden.copy_(start)
        for norm, gate_up, down in weights:
            skinny_gate_up(hidden, gate_up, norm_weight=norm, out=gated, pdl=pdl)
            skinny_linear(gated, down, residual=hidden, pdl=pdl)

    start.normal_()
    chain(True)  # compiles
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain(True)
    for _ in range(50):
        start.normal_()
        chain(False)
        expected = hidden.clone()
        hidden.fill_(torch.nan)
        gated.fill_(torch.nan)
        graph.replay()
        assert torch.equal(hidden, expected)
