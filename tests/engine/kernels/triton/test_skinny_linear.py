"""Products with few rows: the kernel against float64, at sizes that no block divides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

pytest.importorskip("triton")

from engine.kernels.triton import skinny_linear as skinny_module
from engine.kernels.triton.skinny_linear import (
    SkinnyConfig,
    choose_config,
    choose_fp8_config,
    skinny_gate_up,
    skinny_linear,
)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Two programs in all on a CPU, each of several blocks.
CUT = SkinnyConfig(block_n=2, block_k=32, num_warps=1, programs=1)
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


def randcodes(rows: int, size: int) -> tuple[Tensor, Tensor]:
    """Weights in 8-bit floats of all finite values, subnormal ones too, and scales of rows."""
    codes = torch.randint(0, 256, (rows, size), dtype=torch.uint8)
    codes[codes % 128 == 127] = 0x81  # from NaN to the smallest negative number
    scales = 10.0 ** torch.randn(rows, 1)
    return codes.view(torch.float8_e4m3fn).to(DEVICE), scales.to(DEVICE)


def dequantized(weight: Tensor, scales: Tensor) -> Tensor:
    return weight.to(torch.float64) * scales.double()


def error(got: Tensor, expected: Tensor) -> float:
    return float((got.double() - expected).norm() / expected.norm())


# K: divided by the block, not, odd (16-bit pairs cannot be formed), smaller than one block.
@pytest.mark.parametrize("size", [64, 40, 37, 6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("rows", [1, 3])
def test_linear(rows: int, dtype: Any, size: int) -> None:
    x, weight = randn(rows, size, dtype=dtype), randn(9, size, dtype=dtype)
    out = poisoned(rows, 9, dtype=dtype)
    got = skinny_linear(x, weight, out=out, config=CUT)
    assert got is out
    assert error(got, x.double() @ weight.double().T) < BOUNDS[dtype]


@pytest.mark.parametrize("size", [64, 39])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_norm_bias_and_residual(dtype: Any, size: int) -> None:
    x, weight = randn(2, size, dtype=dtype, scale=30.0), randn(9, size, dtype=dtype)
    norm, bias = randn(size, dtype=dtype), randn(9, dtype=dtype)
    product = normed(x, norm) @ weight.double().T
    got = skinny_linear(x, weight, bias, norm_weight=norm, eps=EPS, config=CUT)
    assert error(got, product + bias.double()) < BOUNDS[dtype]
    residual = randn(2, 9, dtype=dtype)
    expected = residual.double() + product + bias.double()
    got = skinny_linear(x, weight, bias, residual=residual, norm_weight=norm, eps=EPS, config=CUT)
    assert got is residual
    assert error(got, expected) < BOUNDS[dtype]


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize(
    ("dtype", "rows", "size"), [(torch.float32, 1, 38), (torch.float16, 2, 64)]
)
def test_gate_up(rows: int, size: int, dtype: Any, activation: Any) -> None:
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
        config=CUT,
    )
    assert error(got, activate(gate) * up) < 2 * BOUNDS[dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_every_8_bit_float(dtype: Any) -> None:
    """A column each, as x takes one after another: exact, as scales are powers of two."""
    codes = torch.arange(256, dtype=torch.int32, device=DEVICE).to(torch.uint8)
    codes = codes[codes % 128 != 127]  # NaN
    weight = codes.view(-1, 1).repeat(1, 4).view(torch.float8_e4m3fn)
    scales = 2.0 ** torch.randint(-3, 4, (len(weight), 1), device=DEVICE)
    x = torch.eye(4, dtype=dtype, device=DEVICE)
    wanted = (weight.float() * scales).T.to(dtype)
    got = skinny_linear(x, weight, scales=scales, out=poisoned(4, len(weight), dtype=dtype))
    assert torch.equal(got, wanted)


# K in words of four: divided by the block, not, smaller than one block.
@pytest.mark.parametrize("size", [256, 164, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_linear_of_8_bit_weights(dtype: Any, size: int) -> None:
    x, (weight, scales) = randn(3, size, dtype=dtype, scale=0.01), randcodes(9, size)
    out = poisoned(3, 9, dtype=dtype)
    got = skinny_linear(x, weight, scales=scales, out=out, config=CUT)
    assert got is out
    product = x.double() @ dequantized(weight, scales).T
    # By columns, whose scales differ by far.
    errors = (got.double() - product).norm(dim=0) / product.norm(dim=0)
    assert errors.max() < BOUNDS[dtype]


@pytest.mark.parametrize("size", [128, 156])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_norm_bias_and_residual_with_8_bit_weights(dtype: Any, size: int) -> None:
    x, (weight, scales) = randn(2, size, dtype=dtype, scale=30.0), randcodes(9, size)
    scales.clamp_(max=0.1)
    norm, bias = randn(size, dtype=dtype), randn(9, dtype=dtype, scale=100.0)
    product = normed(x, norm) @ dequantized(weight, scales).T
    residual = randn(2, 9, dtype=dtype, scale=100.0)
    expected = residual.double() + product + bias.double()
    got = skinny_linear(
        x,
        weight,
        bias,
        scales=scales,
        residual=residual,
        norm_weight=norm,
        eps=EPS,
        config=CUT,
    )
    assert got is residual
    assert error(got, expected) < BOUNDS[dtype]


@pytest.mark.parametrize(
    ("dtype", "rows", "size"), [(torch.float32, 1, 128), (torch.float16, 2, 140)]
)
def test_gate_up_of_8_bit_weights(rows: int, size: int, dtype: Any) -> None:
    x, (weight, scales) = randn(rows, size, dtype=dtype), randcodes(2 * 7, size)
    scales = scales.clamp(0.1, 1.0) * 1e-3
    norm = randn(size, dtype=dtype)
    gate, up = (normed(x, norm) @ dequantized(weight, scales).T).chunk(2, dim=-1)
    out = poisoned(rows, 7, dtype=dtype)
    skinny_gate_up(x, weight, scales=scales, norm_weight=norm, eps=EPS, out=out, config=CUT)
    assert error(out, functional.silu(gate) * up) < 2 * BOUNDS[dtype]


@pytest.mark.parametrize("beside", [1, 4])
def test_views_with_8_bit_weights(beside: int) -> None:
    """Rows of a wider x that begin where no word does, and where one does; nothing beside them is
    read or written."""
    wide, out = poisoned(2, 60, dtype=torch.float16), poisoned(3, 30, dtype=torch.float16)
    x = wide[:, beside : beside + 40]
    x.copy_(randn(2, 40, dtype=torch.float16, scale=0.01))
    weight, scales = randcodes(13, 40)
    scales.fill_(0.5)
    skinny_linear(x, weight, scales=scales, out=out[:2, :13])
    assert error(out[:2, :13], x.double() @ dequantized(weight, scales).T) < 1e-3
    assert out[:2, 13:].isnan().all()
    assert out[2].isnan().all()


def test_norm_of_large_half_values() -> None:
    """x times the norm's weights is beyond float16, the normalized x is not."""
    x, weight = randn(2, 32, dtype=torch.float16, scale=3000.0), randn(8, 32, dtype=torch.float16)
    norm = randn(32, dtype=torch.float16, scale=50.0)
    got = skinny_linear(x, weight, norm_weight=norm, eps=EPS, config=CUT)
    assert error(got, normed(x, norm) @ weight.double().T) < 1e-3


@pytest.mark.parametrize("config", [CUT, None])
def test_views_and_what_lies_beside_them(config: SkinnyConfig | None) -> None:
    """Rows of a wider x and a wider output: nothing beside them is read or written."""
    wide, out = poisoned(2, 60, dtype=torch.float32), poisoned(3, 30, dtype=torch.float32)
    wide[:, :40] = randn(2, 40, dtype=torch.float32)
    weight = randn(13, 40, dtype=torch.float32)
    skinny_linear(wide[:, :40], weight, out=out[:2, :13], config=config)
    assert error(out[:2, :13], wide[:, :40].double() @ weight.double().T) < 2e-6
    assert out[:2, 13:].isnan().all()
    assert out[2].isnan().all()


def test_a_row_does_not_depend_on_the_others() -> None:
    x, weight = randn(4, 40, dtype=torch.float16), randn(20, 40, dtype=torch.float16)
    norm = randn(40, dtype=torch.float16)
    together = skinny_linear(x, weight, norm_weight=norm)
    for row in (0, 3):
        alone = skinny_linear(x[row : row + 1], weight, norm_weight=norm)
        assert torch.equal(alone[0], together[row])


def test_small_products_are_dependent_launches_and_large_ones_not() -> None:
    """On both sides of 16 MB, and gate and up count both; of 8-bit weights all are."""
    assert choose_config(4096, 512, False).pdl
    assert choose_config(3072, 512, True).pdl
    assert not choose_config(4096, 2048, False).pdl
    assert choose_config(6144, 512, False).pdl
    assert not choose_config(6144, 512, True).pdl
    assert choose_fp8_config(4096, 768, False).pdl
    assert choose_fp8_config(12288, 1024, True).pdl


@pytest.mark.parametrize("columns", [7, 1024, 4096, 151936])
@pytest.mark.parametrize("words", [4, 224, 640, 1024, 3072])
@pytest.mark.parametrize("gated", [False, True])
def test_programs_of_8_bit_weights_are_resident_together(
    columns: int, words: int, gated: bool
) -> None:
    """With loads of 16 bytes a thread where a row is long enough, in a Hopper's 65,536 registers
    and 32 programs."""
    config = choose_fp8_config(columns, words, gated)
    threads = 32 * config.num_warps
    assert config.block_k == 4 * threads or words < 4 * threads
    assert config.max_registers is not None
    assert config.programs <= 32
    assert 0.85 * 65_536 <= config.programs * threads * config.max_registers <= 65_536


@pytest.mark.parametrize("choose", [choose_config, choose_fp8_config])
@pytest.mark.parametrize("columns", [7, 1024, 4096, 151936])
@pytest.mark.parametrize("words", [3, 448, 1024, 6144])
@pytest.mark.parametrize("gated", [False, True])
def test_chosen_blocks_fit(
    choose: Callable[[int, int, bool], SkinnyConfig], columns: int, words: int, gated: bool
) -> None:
    """Powers of two, none of more than half padding, and in the registers that threads have."""
    config = choose(columns, words, gated)
    for size in (config.block_n, config.block_k, config.num_warps):
        assert size & (size - 1) == 0
    assert config.block_k < 2 * words
    assert config.block_n * config.block_k <= 32 * 32 * config.num_warps


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("pays", [False, True])
def test_a_dependent_launch_takes_the_caller_and_the_config(
    monkeypatch: pytest.MonkeyPatch, asked: bool, pays: bool
) -> None:
    allowed = []

    def launch_options(pdl: bool, device: torch.device) -> dict[str, Any]:
        allowed.append(pdl)
        return {"PDL": False}

    monkeypatch.setattr(skinny_module, "launch_options", launch_options)
    x, weight = randn(1, 8, dtype=torch.float32), randn(4, 8, dtype=torch.float32)
    skinny_linear(x, weight, pdl=asked, config=replace(CUT, pdl=pays))
    assert allowed == [asked and pays]


def test_what_does_not_fit_is_refused() -> None:
    x, weight = torch.zeros(2, 8, device=DEVICE), torch.zeros(6, 8, device=DEVICE)
    with pytest.raises(ValueError, match="1 to 4"):
        skinny_linear(torch.zeros(5, 8, device=DEVICE), weight)
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
    codes, scales = x.to(torch.float8_e4m3fn), torch.ones(2, 1, device=DEVICE)
    with pytest.raises(ValueError, match="without scales"):
        skinny_linear(x, codes)
    with pytest.raises(ValueError, match="float8_e4m3fn"):
        skinny_linear(x, weight, scales=torch.ones(6, 1, device=DEVICE))
    with pytest.raises(ValueError, match="float8_e4m3fn"):
        skinny_linear(x, codes, scales=scales.double())
    with pytest.raises(ValueError, match="each row"):
        skinny_linear(x, codes, scales=scales[:1])
    with pytest.raises(ValueError, match="4 bytes"):
        skinny_linear(x[:, :6], codes[:, :6].contiguous(), scales=scales)
