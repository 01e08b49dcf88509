"""Linear layers of 1 to 4 rows in one kernel each, with the norm, residual or gate around them.

They stream the weights [out, in] as they lie in memory. Each row does so for itself, from the L2
cache after the first, so that the time grows with the rows where a general matrix product's does
not. On an H200, for all layers and the head of a Qwen3 shape in bfloat16, captured in a CUDA graph,
every product cut by `choose_config`, beside cuBLAS with the norm and the gate in torch's kernels:

- 0.6B: one row 0.51 ms against 1.11, two 0.66 against 1.19, four 1.02 against 1.07.
- 8B: one row 3.94 ms against 4.75 (3.5 at 4.3 TB/s), two 6.3 against 4.8.

So one row is always worth streaming, a few only of small layers: the caller decides. Nothing waits
for the host, and nothing but the output is allocated: all of it can be captured.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import triton
from torch import Tensor

from engine.kernels.triton.dependent_launch import launch_options
from engine.kernels.triton.skinny_kernels import row_kernel
from engine.models.config import Activation

MAX_ROWS = 4
# Where there is no GPU to ask: two, so that the interpreter walks through several blocks.
_INTERPRETED_MULTIPROCESSORS = 2
_WORD_BYTES = 4
# Weights that are read in a few microseconds, so that a launch's own time counts.
_SMALL_BYTES = 16_000_000


@dataclass(frozen=True, slots=True)
class SkinnyConfig:
    """How a product is cut: `block_n` weight rows by `block_k` 4-byte words per load of a program.

    `programs` is the number of programs per multiprocessor among which the blocks are divided.
    `pdl`: whether a dependent launch pays (see `skinny_linear`).
    """

    block_n: int
    block_k: int
    num_warps: int = 4
    programs: int = 4
    pdl: bool = False


@cache
def choose_config(num_columns: int, num_words: int, gated: bool) -> SkinnyConfig:
    """The cut of a product by weight [num_columns, K], twice the rows when `gated`; `num_words` is
    K in 4-byte words. It is the same for any number of rows of x.

    What was fastest on an H200 (scripts/bench_gpu_linear.py). Below 16 MB starting early counts:
    with 7 programs the 0.6B shape takes 0.50 ms by dependent launches, 0.61 by others. From there
    on they cost more than they save: 4 programs take 3.94 ms for the 8B shape, 4.47 as dependent
    launches, and 7 programs 4.26 and 4.29.
    """
    if num_columns * num_words * _WORD_BYTES * (2 if gated else 1) >= _SMALL_BYTES:
        return SkinnyConfig(4, _block_k(num_words))
    return SkinnyConfig(4, _block_k(num_words), programs=7, pdl=True)


def _block_k(num_words: int) -> int:
    return min(512, triton.next_power_of_2(num_words))


@cache
def _num_multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return _INTERPRETED_MULTIPROCESSORS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _launch(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    norm_weight: Tensor | None,
    out: Tensor,
    eps: float,
    activation: Activation | None,
    accumulate: bool,
    pdl: bool,
    config: SkinnyConfig | None,
) -> Tensor:
    num_rows, size = x.shape
    num_columns = out.shape[1]
    gated = activation is not None
    value_bytes = x.element_size()
    pairs = value_bytes == 2 and size % 2 == 0 and x.stride(0) % 2 == 0
    if pairs:
        address = x.data_ptr() | weight.data_ptr()
        pairs = (address if norm_weight is None else address | norm_weight.data_ptr()) % 4 == 0
    words = size // 2 if pairs else size
    if config is None:
        config = choose_config(num_columns, words, gated)
    num_blocks = triton.cdiv(num_columns, config.block_n)
    blocks = triton.cdiv(num_blocks, _num_multiprocessors(x.device) * config.programs)
    row_kernel[(triton.cdiv(num_blocks, blocks) * num_rows,)](
        x,
        weight,
        bias,
        norm_weight,
        out,
        x.stride(0) // 2 if pairs else x.stride(0),
        out.stride(0),
        eps,
        num_rows,
        num_columns,
        words,
        blocks,
        BLOCK_N=config.block_n,
        BLOCK_K=config.block_k,
        EVEN_K=words % config.block_k == 0,
        PAIRS=pairs,
        ACCUMULATE=accumulate,
        GATED=gated,
        ACTIVATION=activation,
        num_warps=config.num_warps,
        **launch_options(pdl and config.pdl, x.device),
    )
    return out


def _check(x: Tensor, weight: Tensor, norm_weight: Tensor | None, out: Tensor) -> None:
    """Raises ValueError where a kernel would read or write beyond a tensor or mix up types."""
    if x.ndim != 2 or not 1 <= x.shape[0] <= MAX_ROWS:
        raise ValueError(f"x must be [1 to {MAX_ROWS}, K], not {tuple(x.shape)}")
    if weight.shape[1] != x.shape[1]:
        raise ValueError(f"x {tuple(x.shape)} does not fit weight {tuple(weight.shape)}")
    if x.stride(1) != 1 or not weight.is_contiguous() or out.stride(1) != 1:
        raise ValueError("weight must be contiguous, and x and the output within their rows")
    if any(t.dtype != x.dtype for t in (weight, out, x if norm_weight is None else norm_weight)):
        raise ValueError("x, weight, norm weight and output must have one dtype")


def skinny_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    residual: Tensor | None = None,
    norm_weight: Tensor | None = None,
    eps: float = 1e-6,
    out: Tensor | None = None,
    pdl: bool = False,
    config: SkinnyConfig | None = None,
) -> Tensor:
    """`x @ weight.T + bias` for x [M, K] and weight [N, K], M from 1 to 4; returns [M, N].

    With `norm_weight` [K], x is RMS-normalized first (see `skinny_kernels`). With `residual`
    [M, N], the product is added to it in place, rounded once, and it is returned; it must share no
    memory with x. `pdl` allows a launch as a programmatic dependent of the kernel in front of it
    in the stream, which is made where `config` has it too: it starts early, and reads its weights
    and the norm's before, but x, the bias, the residual and the output only after that kernel has
    ended. Weights must therefore not be written by it.

    All tensors have one dtype (bfloat16, float16, float32); sums are float32. The same input gives
    the same bits on every run, and a row's bits depend neither on the others nor on their number.
    Raises ValueError when shapes, strides or dtypes do not fit.
    """
    if residual is not None:
        out = residual
    elif out is None:
        out = torch.empty((x.shape[0], weight.shape[0]), dtype=x.dtype, device=x.device)
    _check(x, weight, norm_weight, out)
    if out.shape != (x.shape[0], weight.shape[0]):
        raise ValueError(f"the output is {tuple(out.shape)}, not [rows of x, rows of weight]")
    return _launch(x, weight, bias, norm_weight, out, eps, None, residual is not None, pdl, config)


def skinny_gate_up(
    x: Tensor,
    weight: Tensor,
    *,
    norm_weight: Tensor | None = None,
    eps: float = 1e-6,
    activation: Activation = "silu",
    out: Tensor | None = None,
    pdl: bool = False,
    config: SkinnyConfig | None = None,
) -> Tensor:
    """`activation(n @ gate.T) * (n @ up.T)`, n the RMS-normalized x [M, K]; returns [M, I].

    `weight` [2 I, K] holds gate's rows, then up's. The rest is as in `skinny_linear`.
    """
    half = weight.shape[0] // 2
    if out is None:
        out = torch.empty((x.shape[0], half), dtype=x.dtype, device=x.device)
    _check(x, weight, norm_weight, out)
    if out.shape != (x.shape[0], half) or weight.shape[0] != 2 * half:
        raise ValueError(f"the output is {tuple(out.shape)}, not [rows of x, half of weight's]")
    return _launch(x, weight, None, norm_weight, out, eps, activation, False, pdl, config)
