"""Linear layers of 1 to 32 rows in one kernel each, with the norm, residual or gate around them.

The caller decides up to which number of rows these beat a general matrix product: they stream the
weights [out, in] as they lie in memory, and their arithmetic grows with the rows. Nothing waits
for the host, and nothing but the output is allocated: all of it can be captured in a CUDA graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import triton
from torch import Tensor

from engine.kernels.triton.skinny_kernels import row_kernel, tile_kernel
from engine.models.config import Activation

MAX_ROWS = 32
# Where there is no GPU to ask: two, so that the interpreter walks through several blocks.
_INTERPRETED_MULTIPROCESSORS = 2
_KIB = 1024


@dataclass(frozen=True, slots=True)
class SkinnyConfig:
    """How a product is cut: `block_n` weight rows by `block_k` 4-byte words per load of a program.

    `tensor_cores` chooses the kernel: without, one row at a time by multiply-add (each further row
    reads the weights again, from the L2 cache at best). `prefetch` is how many KiB of weights a
    program asks for ahead of their use, where the GPU can (compute capability 9.0); with tensor
    cores it is all of the program's, or nothing when they are more. `programs` is the number of
    programs per multiprocessor among which the row kernel divides a product, `num_stages` the
    depth of the tile kernel's loads.
    """

    tensor_cores: bool
    block_n: int
    block_k: int
    num_warps: int = 4
    num_stages: int = 4
    prefetch: int = 32
    programs: int = 4


@cache
def choose_config(num_rows: int, num_columns: int, num_words: int, gated: bool) -> SkinnyConfig:
    """The cut of x [num_rows, K] by weight [num_columns, K]; `num_words` is K in 4-byte words.

    By tensor cores every program reads all of x, so that x's bytes are num_rows / block_n of the
    weights' (from the L2 cache): blocks as large as leave a program to nearly each of an H200's
    132 multiprocessors.
    """
    if num_rows == 1:
        return SkinnyConfig(False, 4, min(512, triton.next_power_of_2(num_words)))
    sizes = (32, 16) if gated else (64, 32, 16)
    block_n = next((n for n in sizes if num_columns // n >= 120), 8)
    loaded = (16 if num_rows <= 16 else 32) + block_n * (2 if gated else 1)
    block_k = min(128 if loaded <= 48 else 64, max(16, triton.next_power_of_2(num_words)))
    # Loads under way in shared memory: what every GPU since Ampere has for a program.
    num_stages = min(8, 96 * _KIB // (loaded * block_k * 4))
    return SkinnyConfig(True, block_n, block_k, num_stages=num_stages, prefetch=64)


@dataclass(frozen=True, slots=True)
class _Gpu:
    """What the launches ask of a device."""

    multiprocessors: int
    # Bulk prefetches and dependent launches: compute capability 9.0.
    is_hopper: bool


@cache
def _gpu(device: torch.device) -> _Gpu:
    if device.type != "cuda":
        return _Gpu(_INTERPRETED_MULTIPROCESSORS, False)
    properties = torch.cuda.get_device_properties(device)
    return _Gpu(properties.multi_processor_count, properties.major >= 9)


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
        config = choose_config(num_rows, num_columns, words, gated)
    gpu = _gpu(x.device)
    # A bulk prefetch takes whole 16-byte units; a row of them keeps every block aligned.
    aligned = size * value_bytes % 16 == 0 and weight.data_ptr() % 16 == 0
    prefetch = config.prefetch > 0 and gpu.is_hopper and aligned
    block_bytes = config.block_n * size * value_bytes * (2 if gated else 1)
    num_blocks = triton.cdiv(num_columns, config.block_n)
    options = {
        "ACCUMULATE": accumulate,
        "GATED": gated,
        "ACTIVATION": activation,
        "PDL": pdl and gpu.is_hopper,
        "num_warps": config.num_warps,
    }
    if pdl and gpu.is_hopper:
        options["launch_pdl"] = True
    if not config.tensor_cores:
        blocks = triton.cdiv(num_blocks, gpu.multiprocessors * config.programs)
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
            max(1, config.prefetch * _KIB // block_bytes),
            BLOCK_N=config.block_n,
            BLOCK_K=config.block_k,
            EVEN_K=words % config.block_k == 0,
            PAIRS=pairs,
            PREFETCH=prefetch,
            **options,
        )
        return out
    block_k = config.block_k * 4 // value_bytes
    tile_kernel[(num_blocks,)](
        x,
        weight,
        bias,
        norm_weight,
        out,
        x.stride(0),
        out.stride(0),
        eps,
        num_rows,
        num_columns,
        size,
        BLOCK_M=16 if num_rows <= 16 else 32,
        BLOCK_N=config.block_n,
        BLOCK_K=block_k,
        EVEN_K=size % block_k == 0,
        NUM_STAGES=config.num_stages,
        NORM_FIRST=x.dtype == torch.float16,
        PREFETCH=prefetch and block_bytes <= config.prefetch * _KIB,
        **options,
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
    """`x @ weight.T + bias` for x [M, K] and weight [N, K], M from 1 to 32; returns [M, N].

    With `norm_weight` [K], x is RMS-normalized first (see `skinny_kernels`). With `residual`
    [M, N], the product is added to it in place, rounded once, and it is returned; it must share no
    memory with x. `pdl` launches the kernel as a programmatic dependent of the one in front of it
    in the stream: it starts early, and reads its weights before, but x, the residual and the
    output only after that kernel has ended. Weights must therefore not be written by it.

    All tensors have one dtype (bfloat16, float16, float32). The same input gives the same bits on
    every run. Up to 16 rows on tensor cores (by default M from 2 to 16) a row's bits depend neither
    on the others nor on their number; one row alone is multiplied without, and more than 16 are
    cut otherwise. Raises ValueError when shapes, strides or dtypes do not fit.
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
