"""Linear layers of 1 to 4 rows in one kernel each, with the norm, residual or gate around them.

They stream the weights [out, in] as they lie in memory. Each row does so for itself, from the L2
cache after the first, so that the time grows with the rows where a general matrix product's does
not. On an H200, for all layers and the head of a Qwen3 shape in bfloat16, captured in a CUDA graph,
every product cut by `choose_config`, beside cuBLAS with the norm and the gate in torch's kernels:

- 0.6B: one row 0.51 ms against 1.11, two 0.66 against 1.19, four 1.02 against 1.07.
- 8B: one row 3.94 ms against 4.75 (3.5 at 4.3 TB/s), two 6.3 against 4.8.

So one row is always worth streaming, a few only of small layers: the caller decides. Nothing waits
for the host, and nothing but the output is allocated: all of it can be captured.

Weights in 8-bit floats are half the bytes; x is not rounded for them, as it is for tensor cores.
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
# Words of a row that a warp takes by loads of 16 bytes a thread.
_FP8_WARP_WORDS = 128
# With fewer registers some forms spill; a multiprocessor has 65,536 for its threads.
_FP8_REGISTERS = 112
_FP8_WARPS = 18
# Blocks of 8 rows and two warps, 8 kB a tile, of which 132 multiprocessors have about six each.
_MANY_ROWS = 6144


@dataclass(frozen=True, slots=True)
class SkinnyConfig:
    """How a product is cut: `block_n` weight rows by `block_k` 4-byte words per load of a program.

    `programs` is the number of programs per multiprocessor among which the blocks are divided.
    `pdl`: whether a dependent launch pays (see `skinny_linear`). `max_registers` of a thread: so
    many that the programs are resident together; None: as many as the compiler likes.
    """

    block_n: int
    block_k: int
    num_warps: int = 4
    programs: int = 4
    pdl: bool = False
    max_registers: int | None = None


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


@cache
def choose_fp8_config(num_columns: int, num_words: int, gated: bool) -> SkinnyConfig:
    """`choose_config` for weights in 8-bit floats, `num_words` of four each to a row.

    Here instructions count beside bytes. Compiled for Hopper, a thread takes about 650 of them for
    four words of each of 8 rows, so that a multiprocessor cannot take in more than 25 bytes a
    clock, where the memory brings up to 20; fewer rows would have x unpacked for less. The 200 to
    250 behind a block's last tile are fewer where a warp has more of the row: two warps to a block,
    and four only where there are too few blocks to keep 40 kB under way on each multiprocessor.
    The fewer registers a thread has, the later ptxas puts the loads of the next tile; with 112 it
    is in the middle of the current one's use, and 18 warps with 4 kB each are resident. Dependent
    launches pay for large products, too: few programs fit beside those of the product before, and
    unpacking, not the memory, is what they are short of (8B shape on an H200, each product alone:
    QKV 9.4 us against 10.0, gate and up 27.9 against 29.4, down 13.6 against 15.2).
    """
    num_rows = num_columns * (2 if gated else 1)
    block_k = _fp8_block_k(num_words, 512 if num_rows < _MANY_ROWS else 256)
    warps = max(1, block_k // _FP8_WARP_WORDS)
    return SkinnyConfig(
        block_n=4 if gated else 8,
        block_k=block_k,
        num_warps=warps,
        programs=_FP8_WARPS // warps,
        pdl=True,
        max_registers=_FP8_REGISTERS,
    )


def _fp8_block_k(num_words: int, largest: int) -> int:
    """Words per load: a thread has four of a row, as many as it loads at once."""
    block_k = largest
    while block_k >= _FP8_WARP_WORDS:
        if num_words % block_k == 0:
            return block_k
        block_k //= 2
    return min(256, max(4, triton.next_power_of_2(num_words)))


def _block_k(num_words: int) -> int:
    return min(512, triton.next_power_of_2(num_words))


@cache
def _num_multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return _INTERPRETED_MULTIPROCESSORS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _words(x: Tensor, weight: Tensor, norm_weight: Tensor | None) -> tuple[int, bool]:
    """(values in a word of weights, whether x and the norm's weights are read as words too)"""
    is_fp8 = weight.dtype == torch.float8_e4m3fn
    values = 4 if is_fp8 else 2
    address = x.data_ptr() if norm_weight is None else x.data_ptr() | norm_weight.data_ptr()
    is_packed = (
        x.element_size() == 2
        and x.shape[1] % values == 0
        and x.stride(0) % values == 0
        and address % (2 * values) == 0
        and weight.data_ptr() % _WORD_BYTES == 0
    )
    return (values if is_fp8 or is_packed else 1), is_packed


def _launch(
    x: Tensor,
    weight: Tensor,
    scales: Tensor | None,
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
    values, is_packed = _words(x, weight, norm_weight)
    words = size // values
    if config is None:
        choose = choose_config if scales is None else choose_fp8_config
        config = choose(num_columns, words, gated)
    num_blocks = triton.cdiv(num_columns, config.block_n)
    blocks = triton.cdiv(num_blocks, _num_multiprocessors(x.device) * config.programs)
    row_kernel[(triton.cdiv(num_blocks, blocks) * num_rows,)](
        x,
        weight,
        scales,
        bias,
        norm_weight,
        out,
        x.stride(0) // values if is_packed else x.stride(0),
        out.stride(0),
        eps,
        num_rows,
        num_columns,
        words,
        blocks,
        BLOCK_N=config.block_n,
        BLOCK_K=config.block_k,
        EVEN_K=words % config.block_k == 0,
        VALUES=values,
        PACKED=is_packed,
        ACCUMULATE=accumulate,
        GATED=gated,
        ACTIVATION=activation,
        num_warps=config.num_warps,
        maxnreg=config.max_registers if is_packed else None,
        **launch_options(pdl and config.pdl, x.device),
    )
    return out


def _check(
    x: Tensor, weight: Tensor, scales: Tensor | None, norm_weight: Tensor | None, out: Tensor
) -> None:
    """Raises ValueError where a kernel would read or write beyond a tensor or mix up types."""
    if x.ndim != 2 or not 1 <= x.shape[0] <= MAX_ROWS:
        raise ValueError(f"x must be [1 to {MAX_ROWS}, K], not {tuple(x.shape)}")
    if weight.shape[1] != x.shape[1]:
        raise ValueError(f"x {tuple(x.shape)} does not fit weight {tuple(weight.shape)}")
    if x.stride(1) != 1 or not weight.is_contiguous() or out.stride(1) != 1:
        raise ValueError("weight must be contiguous, and x and the output within their rows")
    if any(t.dtype != x.dtype for t in (out, x if norm_weight is None else norm_weight)):
        raise ValueError("x, norm weight and output must have one dtype")
    if scales is None:
        if weight.dtype != x.dtype:
            raise ValueError("weight without scales must have the dtype of x")
        return
    if weight.dtype != torch.float8_e4m3fn or scales.dtype != torch.float32:
        raise ValueError("weight with scales must be float8_e4m3fn, the scales float32")
    if scales.numel() != weight.shape[0] or not scales.is_contiguous():
        raise ValueError("there must be a scale for each row of weight, one behind the other")
    if weight.shape[1] % _WORD_BYTES or weight.data_ptr() % _WORD_BYTES:
        raise ValueError("rows of weight in 8-bit floats must be words of 4 bytes")


def skinny_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    scales: Tensor | None = None,
    residual: Tensor | None = None,
    norm_weight: Tensor | None = None,
    eps: float = 1e-6,
    out: Tensor | None = None,
    pdl: bool = False,
    config: SkinnyConfig | None = None,
) -> Tensor:
    """`x @ weight.T + bias` for x [M, K] and weight [N, K], M from 1 to 4; returns [M, N].

    A `weight` in float8_e4m3fn has `scales`, float32 [N, 1], by which its rows are multiplied; K is
    then a multiple of 4. With `norm_weight` [K], x is RMS-normalized first (see `skinny_kernels`).
    With `residual` [M, N], the product is added to it in place, rounded once, and it is returned;
    it must share no memory with x. `pdl` allows a launch as a programmatic dependent of the kernel
    in front of it in the stream, which is made where `config` has it too: it starts early, and
    reads its weights and the norm's before, but x, the bias, the residual and the output only after
    that kernel has ended. Weights must therefore not be written by it.

    All other tensors have one dtype (bfloat16, float16, float32); sums are float32. The same input
    gives the same bits on every run, and a row's bits depend neither on the others nor on their
    number.
    Raises ValueError when shapes, strides or dtypes do not fit.
    """
    if residual is not None:
        out = residual
    elif out is None:
        out = torch.empty((x.shape[0], weight.shape[0]), dtype=x.dtype, device=x.device)
    _check(x, weight, scales, norm_weight, out)
    if out.shape != (x.shape[0], weight.shape[0]):
        raise ValueError(f"the output is {tuple(out.shape)}, not [rows of x, rows of weight]")
    return _launch(
        x, weight, scales, bias, norm_weight, out, eps, None, residual is not None, pdl, config
    )


def skinny_gate_up(
    x: Tensor,
    weight: Tensor,
    *,
    scales: Tensor | None = None,
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
    _check(x, weight, scales, norm_weight, out)
    if out.shape != (x.shape[0], half) or weight.shape[0] != 2 * half:
        raise ValueError(f"the output is {tuple(out.shape)}, not [rows of x, half of weight's]")
    return _launch(x, weight, scales, None, norm_weight, out, eps, activation, False, pdl, config)
