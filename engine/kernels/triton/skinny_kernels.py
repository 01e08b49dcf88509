"""Matrix products with very few rows, as a kernel: a stream of weights and multiply-adds.

The floor of such a product is its weights' bytes over the memory's bandwidth, and what it loses is
time in which too few bytes are under way. Hence programs take few weight rows (all multiprocessors
work on the smallest layer), ask for weights before anything else, and, as dependent launches,
before the kernel in front has ended: weights never depend on it.

For x [M, K] and weight [N, K] (or [2 N, K] when GATED: gate rows, then up rows) the kernel computes
`y = norm(x) @ weight.T + bias`, then `out = y`, `out += y` (ACCUMULATE), or
`out = activation(y_gate) * y_up` (GATED). The norm is y = x / sqrt(mean(x²) + eps) * norm_weight
(Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019); the factor that a row has in
common is applied to the products, so that x is read once.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels.triton.activation import activate
from engine.kernels.triton.dependent_launch import wait_for_launcher


@triton.jit
def _rows_tile(weight_ptr, first, start, n, k, N, K, wanted, EVEN_K: tl.constexpr):
    """Weights [n, k] of the rows from `first`, values from `start`, if `wanted` (one for all).

    A row too many reads the last one again. Each weight is read once by the whole grid: first to
    leave the caches.
    """
    rows = tl.minimum(n, N - 1 - first)
    at = weight_ptr + (first.to(tl.int64) * K + start) + (rows[:, None] * K + k[None, :])
    if EVEN_K:
        mask = tl.full([n.shape[0], k.shape[0]], wanted, tl.int1)
        return tl.load(at, mask=mask, eviction_policy="evict_first")
    mask = wanted & (start + k < K)[None, :]
    return tl.load(at, mask=mask, other=0.0, eviction_policy="evict_first")


@triton.jit
def _vector(pointer, k, K, EVEN_K: tl.constexpr):
    if EVEN_K:
        return tl.load(pointer + k, eviction_policy="evict_last")
    return tl.load(pointer + k, mask=k < K, other=0.0, eviction_policy="evict_last")


@triton.jit
def _low(words, dtype: tl.constexpr, PAIRS: tl.constexpr):
    """The first value of each word, or the word itself, as float32."""
    if not PAIRS:
        return words.to(tl.float32)
    elif dtype == tl.bfloat16:
        return (words << 16).to(tl.float32, bitcast=True)
    else:
        return words.to(tl.int16).to(dtype, bitcast=True).to(tl.float32)


@triton.jit
def _high(words, dtype: tl.constexpr):
    """The second value of each word as float32."""
    if dtype == tl.bfloat16:
        return (words & -65536).to(tl.float32, bitcast=True)
    else:
        return (words >> 16).to(tl.int16).to(dtype, bitcast=True).to(tl.float32)


@triton.jit
def _multiply_add(acc, words, low, high, dtype: tl.constexpr, PAIRS: tl.constexpr):
    acc += _low(words, dtype, PAIRS) * low[None, :]
    if PAIRS:
        acc += _high(words, dtype) * high[None, :]
    return acc


@triton.jit(do_not_specialize=["M", "blocks"])
def row_kernel(
    x_ptr,  # [M, K]
    weight_ptr,  # [N, K] or [2 N, K]
    bias_ptr,  # [N] or None
    norm_ptr,  # [K] or None
    out_ptr,  # [M, N]
    x_stride,  # in words, as K
    out_stride,
    eps,
    M,
    N,
    K,  # in words
    blocks,  # blocks of columns per program, one after the other
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,  # in words
    EVEN_K: tl.constexpr,  # K is a multiple of BLOCK_K
    PAIRS: tl.constexpr,  # a word is two 16-bit values, else one value
    ACCUMULATE: tl.constexpr,
    GATED: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PDL: tl.constexpr,
):
    """One row of x by `blocks` blocks of BLOCK_N columns: multiply-add in float32.

    8 weights are one 16-byte load, 8 conversions and 8 multiply-adds: 17 instructions a thread,
    where the memory brings a multiprocessor about 20 bytes a clock and it can issue for 128
    threads. Two tiles of weights are under way per program, the one in use and the next, also
    from one block to the next; as words of two values they take half the registers that single
    16-bit values would. Few programs that last, all resident at once, rather than many short
    ones: nothing is lost between them, and a dependent launch can begin early. The programs of
    all rows that read the same weights are neighbours: all but one find them in the L2 cache.
    """
    dtype: tl.constexpr = weight_ptr.dtype.element_ty
    if PAIRS:
        weight_ptr = weight_ptr.to(tl.pointer_type(tl.int32))
        x_ptr = x_ptr.to(tl.pointer_type(tl.int32))
    first = tl.program_id(0) // M * blocks * BLOCK_N
    end = tl.minimum(first + blocks * BLOCK_N, N)
    row = (tl.program_id(0) % M).to(tl.int64)
    up_ptr = weight_ptr + tl.cast(N, tl.int64) * K
    k = tl.arange(0, BLOCK_K)
    n = tl.arange(0, BLOCK_N)
    weight = _rows_tile(weight_ptr, first, 0, n, k, N, K, True, EVEN_K)
    if GATED:
        up = _rows_tile(up_ptr, first, 0, n, k, N, K, True, EVEN_K)
    if norm_ptr is not None:
        if PAIRS:
            norm_ptr = norm_ptr.to(tl.pointer_type(tl.int32))
        scale = _vector(norm_ptr, k, K, EVEN_K)
    if PDL:
        wait_for_launcher()
    x_ptr += row * x_stride
    out_ptr += row * out_stride
    x = _vector(x_ptr, k, K, EVEN_K)

    acc = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
    up_acc = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
    squares = tl.zeros([BLOCK_K], tl.float32)
    rms = 1.0
    here = first
    start = 0
    for _ in range(tl.cdiv(end - first, BLOCK_N) * tl.cdiv(K, BLOCK_K)):
        # The next tile is asked for before this one is used.
        next_start = start + BLOCK_K
        ends = next_start >= K
        next_start = tl.where(ends, 0, next_start)
        next_here = tl.where(ends, here + BLOCK_N, here)
        more = next_here < end
        next_weight = _rows_tile(weight_ptr, next_here, next_start, n, k, N, K, more, EVEN_K)
        if GATED:
            next_up = _rows_tile(up_ptr, next_here, next_start, n, k, N, K, more, EVEN_K)
        next_x = _vector(x_ptr, next_start + k, K, EVEN_K)
        columns = here + n
        mask = columns < N
        if ACCUMULATE:
            old = tl.load(out_ptr + columns, mask=mask, other=0.0)
        if bias_ptr is not None:
            bias = tl.load(bias_ptr + columns, mask=mask, other=0.0)
        low = _low(x, dtype, PAIRS)
        high = low
        if PAIRS:
            high = _high(x, dtype)
        if norm_ptr is not None:
            squares += low * low
            low *= _low(scale, dtype, PAIRS)
            if PAIRS:
                squares += high * high
                high *= _high(scale, dtype)
            scale = _vector(norm_ptr, next_start + k, K, EVEN_K)
        acc = _multiply_add(acc, weight, low, high, dtype, PAIRS)
        if GATED:
            up_acc = _multiply_add(up_acc, up, low, high, dtype, PAIRS)
            up = next_up
        if ends:
            if norm_ptr is not None and here == first:
                values: tl.constexpr = 2 if PAIRS else 1
                rms = tl.rsqrt(tl.sum(squares, axis=0) / (K * values) + eps)
            y = tl.sum(acc, axis=1) * rms
            if GATED:
                y = activate(y, ACTIVATION) * (tl.sum(up_acc, axis=1) * rms)
                up_acc = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
            elif bias_ptr is not None:
                y += bias.to(tl.float32)
            if ACCUMULATE:
                y += old.to(tl.float32)
            tl.store(out_ptr + columns, y.to(out_ptr.dtype.element_ty), mask=mask)
            acc = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
        weight, x, here, start = next_weight, next_x, next_here, next_start
