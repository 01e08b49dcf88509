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

Weights may be float8_e4m3fn with a float32 scale for each row (`engine.models.fp8`), which the
row's sum is multiplied by. x is not rounded to 8 bits for them.
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
def _load_x(pointer, start, BLOCK_K: tl.constexpr, K, EVEN_K: tl.constexpr, VALUES: tl.constexpr):
    """What goes with the words of weights from `start`: words [BLOCK_K]; or, four values for each,
    8-byte words [BLOCK_K / 4, 2, 2] or values [BLOCK_K / 4, 2, 2, 4].

    There [t, i, j] goes with the word 4 t + i + 2 j. A load is of 16 bytes a thread, so it takes
    two for a thread to have the 8-byte words that go with its four words of weights.
    """
    if VALUES < 4:
        return _vector(pointer, start + tl.arange(0, BLOCK_K), K, EVEN_K)
    else:
        k = start + 4 * tl.arange(0, BLOCK_K // 4)[:, None] + tl.arange(0, 2)[None, :]
        if pointer.dtype.element_ty == tl.int64:
            second = _vector(pointer, k + 2, K, EVEN_K)
            return tl.join(_vector(pointer, k, K, EVEN_K), second)
        else:
            k = k[:, :, None] + 2 * tl.arange(0, 2)[None, None, :]
            at = 4 * k[:, :, :, None] + tl.arange(0, 4)[None, None, None, :]
            return _vector(pointer, at, 4 * K, EVEN_K)


@triton.jit
def _split_four(x):
    """x[..., 0, 0], x[..., 0, 1], x[..., 1, 0] and x[..., 1, 1]"""
    left, right = tl.split(x)
    first, third = tl.split(left)
    second, fourth = tl.split(right)
    return first, second, third, fourth


@triton.jit
def _pair(words, dtype: tl.constexpr):
    """The two values of each 4-byte word as float32."""
    if dtype == tl.bfloat16:
        low = (words << 16).to(tl.float32, bitcast=True)
        return low, (words & -65536).to(tl.float32, bitcast=True)
    else:
        low = words.to(tl.int16).to(dtype, bitcast=True).to(tl.float32)
        return low, (words >> 16).to(tl.int16).to(dtype, bitcast=True).to(tl.float32)


@triton.jit
def _x_values(x, dtype: tl.constexpr, VALUES: tl.constexpr):
    """What `_load_x` gave as VALUES float32 tensors: the first value of each word, the second …"""
    if VALUES == 1:
        return (x.to(tl.float32),)
    elif VALUES == 2:
        return _pair(x, dtype)
    elif x.dtype == tl.int64:
        first, second = _pair(x.to(tl.int32), dtype)
        third, fourth = _pair((x >> 32).to(tl.int32), dtype)
        return first, second, third, fourth
    else:
        return _split_four(x.to(tl.float32).reshape(x.shape[0], 2, 2, 2, 2))


@triton.jit
def _scale(values, scales, VALUES: tl.constexpr):
    """The products of as many pairs of tensors."""
    if VALUES == 1:
        return (values[0] * scales[0],)
    elif VALUES == 2:
        return values[0] * scales[0], values[1] * scales[1]
    else:
        first, second = values[0] * scales[0], values[1] * scales[1]
        return first, second, values[2] * scales[2], values[3] * scales[3]


@triton.jit
def _code_pair(words):
    """The low two codes of each word as float32. The hardware converts two that lie side by side:
    hence joined."""
    codes = tl.join(words.to(tl.int8), (words >> 8).to(tl.int8))
    return tl.split(codes.to(tl.float8e4nv, bitcast=True).to(tl.float32))


@triton.jit
def _multiply_add(acc, words, x, dtype: tl.constexpr, VALUES: tl.constexpr):
    """Adds the products of weights [BLOCK_N, BLOCK_K] and what `_x_values` gave, by columns: of
    words, or of four words, for fewer sums to keep where a thread has more rows."""
    if VALUES == 1:
        acc += words.to(tl.float32) * x[0][None, :]
    elif VALUES == 2:
        low, high = _pair(words, dtype)
        acc += low * x[0][None, :]
        acc += high * x[1][None, :]
    else:
        four = words.reshape(words.shape[0], words.shape[1] // 4, 2, 2).permute(0, 1, 3, 2)
        words_of_four = _split_four(four)
        x_of_four = _split_four(x[0]), _split_four(x[1]), _split_four(x[2]), _split_four(x[3])
        for i in tl.static_range(4):
            first, second = _code_pair(words_of_four[i])
            third, fourth = _code_pair(words_of_four[i] >> 16)
            acc += first * x_of_four[0][i][None, :]
            acc += second * x_of_four[1][i][None, :]
            acc += third * x_of_four[2][i][None, :]
            acc += fourth * x_of_four[3][i][None, :]
    return acc


@triton.jit(do_not_specialize=["M", "blocks"])
def row_kernel(
    x_ptr,  # [M, K]
    weight_ptr,  # [N, K] or [2 N, K]
    weight_scale_ptr,  # float32 [N] or [2 N], or None
    bias_ptr,  # [N] or None
    norm_ptr,  # [K] or None
    out_ptr,  # [M, N]
    x_stride,  # in elements of x_ptr as it is loaded
    out_stride,
    eps,
    M,
    N,
    K,  # in words of weights
    blocks,  # blocks of columns per program, one after the other
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,  # in words
    EVEN_K: tl.constexpr,  # K is a multiple of BLOCK_K
    VALUES: tl.constexpr,  # in a word of weights: one, two of 16 bits, or four of 8 bits
    PACKED: tl.constexpr,  # VALUES of x are loaded as a word as well
    ACCUMULATE: tl.constexpr,
    GATED: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PDL: tl.constexpr,
):
    """One row of x by `blocks` blocks of BLOCK_N columns: multiply-add in float32.

    8 weights are one 16-byte load, 8 conversions and 8 multiply-adds: 17 instructions a thread,
    where the memory brings a multiprocessor about 20 bytes a clock and it can issue for 128
    threads. 16 of 8 bits are 8 conversions to pairs of 16 bits, 4 moves of upper halves, 16
    conversions and 16 multiply-adds: 45, beside which x has to be unpacked, for 8 rows at a time.
    The next tile's loads stand in front of the current one's use, also from one block to the next,
    though ptxas moves them behind it, or between; as words of two or four values they take a half
    or a quarter of the registers that single values would. Few programs that last, all resident at
    once, rather than many short ones: nothing is lost between them, and a dependent launch can
    begin early. The programs of all rows that read the same weights are neighbours: all but one
    find them in the L2 cache.
    """
    dtype: tl.constexpr = x_ptr.dtype.element_ty
    if VALUES > 1:
        weight_ptr = weight_ptr.to(tl.pointer_type(tl.int32))
    if PACKED:
        word: tl.constexpr = tl.int32 if VALUES == 2 else tl.int64
        x_ptr = x_ptr.to(tl.pointer_type(word))
        if norm_ptr is not None:
            norm_ptr = norm_ptr.to(tl.pointer_type(word))
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
        norm = _load_x(norm_ptr, 0, BLOCK_K, K, EVEN_K, VALUES)
    if PDL:
        wait_for_launcher()
    x_ptr += row * x_stride
    out_ptr += row * out_stride
    x = _load_x(x_ptr, 0, BLOCK_K, K, EVEN_K, VALUES)

    SUMS: tl.constexpr = BLOCK_K if VALUES < 4 else BLOCK_K // 4
    acc = tl.zeros([BLOCK_N, SUMS], tl.float32)
    up_acc = tl.zeros([BLOCK_N, SUMS], tl.float32)
    squares = tl.zeros([BLOCK_K] if VALUES < 4 else [SUMS, 2, 2], tl.float32)
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
        next_x = _load_x(x_ptr, next_start, BLOCK_K, K, EVEN_K, VALUES)
        columns = here + n
        mask = columns < N
        if ACCUMULATE:
            old = tl.load(out_ptr + columns, mask=mask, other=0.0)
        if bias_ptr is not None:
            bias = tl.load(bias_ptr + columns, mask=mask, other=0.0)
        if weight_scale_ptr is not None:
            weight_scale = tl.load(weight_scale_ptr + columns, mask=mask, other=0.0)
            if GATED:
                up_scale = tl.load(weight_scale_ptr + N + columns, mask=mask, other=0.0)
        values = _x_values(x, dtype, VALUES)
        if norm_ptr is not None:
            for i in tl.static_range(VALUES):
                squares += values[i] * values[i]
            values = _scale(values, _x_values(norm, dtype, VALUES), VALUES)
            norm = _load_x(norm_ptr, next_start, BLOCK_K, K, EVEN_K, VALUES)
        acc = _multiply_add(acc, weight, values, dtype, VALUES)
        if GATED:
            up_acc = _multiply_add(up_acc, up, values, dtype, VALUES)
            up = next_up
        if ends:
            if norm_ptr is not None and here == first:
                rms = tl.rsqrt(tl.sum(squares) / (K * VALUES) + eps)
            y = tl.sum(acc, axis=1) * rms
            if weight_scale_ptr is not None:
                y *= weight_scale
            if GATED:
                up_y = tl.sum(up_acc, axis=1) * rms
                if weight_scale_ptr is not None:
                    up_y *= up_scale
                y = activate(y, ACTIVATION) * up_y
                up_acc = tl.zeros([BLOCK_N, SUMS], tl.float32)
            elif bias_ptr is not None:
                y += bias.to(tl.float32)
            if ACCUMULATE:
                y += old.to(tl.float32)
            tl.store(out_ptr + columns, y.to(out_ptr.dtype.element_ty), mask=mask)
            acc = tl.zeros([BLOCK_N, SUMS], tl.float32)
        weight, x, here, start = next_weight, next_x, next_here, next_start
