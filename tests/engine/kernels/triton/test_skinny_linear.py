"""Products with few rows: both kernels against float64, at sizes that no block divides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

pytest.importorskip("triton")

from engine.kernels.triton.skinny_linear import (
    SkinnyConfig,
    choose_config,
    skinny_gate_up,
    skinny_linear,
)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Two programs in all, each of several blocks.
ROW = SkinnyConfig(tensor_cores=False, block_n=2, block_k=32, num_warps=1, programs=1)
TILE = SkinnyConfig(tensor_cores=True, block_n=8, block_k=16, num_warps=1)
BOUNDS = {torch.float32: 2e-6, torch.float16: 1e-3}
EPS = 1e-5


def tanh_gelu(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_pytorch_tanh": tanh_gelu,
}


def randn(*shape: int, dtype: Any, scale: float = 1.0) -> Tensor:
    return (torch.randn(*shape, dtype=torch.float64) * scale).to(dtype).to(DEVICE)


def poisoned(*shape: int, dtype: Any) -> Tensor:
    return torch.full(shape, torch.nan, dtype=dtype, device=DEVICE)


def normed(x: Tensor, weight: Tensor | None) -> Tensor:
    x = x.double()
    if weight is None:
        return x
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight.double()


def error(got: Tensor, expected: Tensor) -> float:
    return float((got.double() - expected).norm() / expected.norm())


# K: divided by all blocks, by none, odd (16-bit pairs cannot be formed), smaller than one block.
@pytest.mark.parametrize("size", [64, 40, 37, 6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize(("config", "rows"), [(ROW, 1), (ROW, 3), (TILE, 1), (TILE, 5), (TILE, 17)])
def test_linear(config: SkinnyConfig, rows: int, dtype: Any, size: int) -> None:
    x, weight = randn(rows, size, dtype=dtype), randn(9, size, dtype=dtype)
    out = poisoned(rows, 9, dtype=dtype)
    got = skinny_linear(x, weight, out=out, config=config)
    assert got is out
    assert error(got, x.double() @ weight.double().T) < BOUNDS[dtype]


@pytest.mark.parametrize("size", [64, 39])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize(("config", "rows"), [(ROW, 1), (TILE, 3)])
def test_norm_bias_and_residual(config: SkinnyConfig, rows: int, dtype: Any, size: int) -> None:
    x, weight = randn(rows, size, dtype=dtype, scale=30.0), randn(9, size, dtype=dtype)
    norm, bias = randn(size, dtype=dtype), randn(9, dtype=dtype)
    product = normed(x, norm) @ weight.double().T
    got = skinny_linear(x, weight, bias, norm_weight=norm, eps=EPS, config=config)
    assert error(got, product + bias.double()) < BOUNDS[dtype]
    residual = randn(rows, 9, dtype=dtype)
    expected = residual.double() + product
    got = skinny_linear(x, weight, residual=residual, norm_weight=norm, eps=EPS, config=config)
    assert got is residual
    assert error(got, expected) < BOUNDS[dtype]


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize(("config", "rows", "size"), [(ROW, 1, 38), (ROW, 2, 64), (TILE, 3, 50)])
def test_gate_up(config: SkinnyConfig, rows: int, size: int, dtype: Any, activation: Any) -> None:
    x, weight = randn(rows, size, dtype=dtype), randn(2 * 7, size, dtype=dtype, scale=0.3)
    norm = randn(size, dtype=dtype)
    gate, up = (normed(x, norm) @ weight.double().T).chunk(2, dim=-1)
    activate = ACTIVATIONS[activation]
    got = skinny_gate_up(
        x,
        weight,
        norm_weight=norm,
        eps=EPS,
        activation=activation,
        out=poisoned(rows, 7, dtype=dtype),
        config=config,
    )
    assert error(got, activate(gate) * up) < 2 * BOUNDS[dtype]


@pytest.mark.parametrize("config", [ROW, TILE])
def test_norm_of_large_half_values(config: SkinnyConfig) -> None:
    """x times the norm's weights is beyond float16, the normalized x is not."""
    x, weight = randn(2, 32, dtype=torch.float16, scale=3000.0), randn(8, 32, dtype=torch.float16)
    norm = randn(32, dtype=torch.float16, scale=50.0)
    got = skinny_linear(x, weight, norm_weight=norm, eps=EPS, config=config)
    assert error(got, normed(x, norm) @ weight.double().T) < 1e-3


@pytest.mark.parametrize("config", [ROW, TILE])
def test_views_and_what_lies_beside_them(config: SkinnyConfig) -> None:
    """Rows of a wider x and a wider output: nothing beside them is read or written."""
    wide, out = poisoned(2, 60, dtype=torch.float32), poisoned(3, 30, dtype=torch.float32)
    wide[:, :40] = randn(2, 40, dtype=torch.float32)
    weight = randn(13, 40, dtype=torch.float32)
    skinny_linear(wide[:, :40], weight, out=out[:2, :13], config=config)
    assert error(out[:2, :13], wide[:, :40].double() @ weight.double().T) < 2e-6
    assert out[:2, 13:].isnan().all()
    assert out[2].isnan().all()


def test_a_row_does_not_depend_on_the_others() -> None:
    x, weight = randn(16, 40, dtype=torch.float16), randn(20, 40, dtype=torch.float16)
    norm = randn(40, dtype=torch.float16)
    together = skinny_linear(x, weight, norm_weight=norm, config=TILE)
    for row in (0, 7, 15):
        alone = skinny_linear(x[row : row + 1], weight, norm_weight=norm, config=TILE)
        assert torch.equal(alone[0], together[row])


@pytest.mark.parametrize("rows", [1, 16, 32])
@pytest.mark.parametrize(("columns", "words"), [(1024, 1024), (12288, 2048), (151936, 512), (7, 3)])
@pytest.mark.parametrize("gated", [False, True])
def test_chosen_blocks_fit(rows: int, columns: int, words: int, gated: bool) -> None:
    """A power of two each, at least tl.dot's 16 values of K, and all stages in shared memory."""
    config = choose_config(rows, columns, words, gated)
    assert config.block_n & (config.block_n - 1) == config.block_k & (config.block_k - 1) == 0
    if config.tensor_cores:
        assert config.block_k >= 16
        assert config.num_stages >= 3
        loaded = max(rows, 16) + config.block_n * (2 if gated else 1)
        assert loaded * config.block_k * 4 * config.num_stages <= 96 * 1024


def test_what_does_not_fit_is_refused() -> None:
    x, weight = torch.zeros(2, 8, device=DEVICE), torch.zeros(6, 8, device=DEVICE)
    with pytest.raises(ValueError, match="1 to 32"):
        skinny_linear(torch.zeros(33, 8, device=DEVICE), weight)
    with pytest.raises(ValueError, match="does not fit"):
        skinny_linear(x[:, :7], weight)
    with pytest.raises(ValueError, match="contiguous"):
        skinny_linear(x, weight.T.contiguous().T)
    with pytest.raises(ValueError, match="dtype"):
        skinny_linear(x, weight.half())
    with pytest.raises(ValueError, match="output"):
        skinny_linear(x, weight, residual=torch.zeros(2, 5, device=DEVICE))
    with pytest.raises(ValueError, match="output"):
        skinny_gate_up(x, weight, out=torch.zeros(2, 6, device=DEVICE))
