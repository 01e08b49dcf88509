"""Keys, noise and thresholds of the sampling kernels: what `engine.execution.keyed_noise` and
`engine.execution.logit_rows` compute, for use inside kernels."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

_IS_INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
_GOLDEN = tl.constexpr(0x9E3779B97F4A7C15 - (1 << 64))
_MIX_1 = tl.constexpr(0xBF58476D1CE4E5B9 - (1 << 64))
_MIX_2 = tl.constexpr(0x94D049BB133111EB - (1 << 64))
_LOW_34 = tl.constexpr((1 << 34) - 1)
_LOW_37 = tl.constexpr((1 << 37) - 1)
_LOW_33 = tl.constexpr((1 << 33) - 1)
_LOW_52 = tl.constexpr((1 << 52) - 1)
_LOW_20 = tl.constexpr((1 << 20) - 1)
_LN_2 = tl.constexpr(0.6931471805599453)

LARGE = tl.constexpr(1e30)
"""Stands for an infinite logit; differences of it stay finite at any temperature."""
NOISE_ERROR = tl.constexpr(1e-4)
"""More than the error of `rough_score` for tokens that can be drawn: each logarithm is off by 1e-5
at most, and the scaled logit, which is above -150, by 2e-5."""


@triton.jit
def mix(bits):
    """The SplitMix64 finalizer, of int64 whose arithmetic wraps."""
    bits = (bits ^ ((bits >> 30) & _LOW_34)) * _MIX_1
    bits = (bits ^ ((bits >> 27) & _LOW_37)) * _MIX_2
    return bits ^ ((bits >> 31) & _LOW_33)


@triton.jit
def row_key(mixed_seed, position):
    """`draw_key` (int64) of the token that follows the one at `position`."""
    return mix(mixed_seed + (position.to(tl.int64) + 1) * _GOLDEN)


@triton.jit
def gumbel(key, token_ids):
    """Standard Gumbel noise, float64: `keyed_noise.gumbel`."""
    bits = mix(token_ids.to(tl.int64) * _GOLDEN + key)
    uniform = (((bits >> 12) & _LOW_52).to(tl.float64) + 0.5) * 2.220446049250313e-16
    return -tl.log(-tl.log(uniform))


@triton.jit
def rough_gumbel(key, token_ids):
    """The same noise in float32, wrong by less than half of `NOISE_ERROR`.

    The uniform number u has 52 bits, and noise is large where u is close to 1: there the
    logarithm is a series in 1 - u, which is exact in the bits."""
    bits = mix(token_ids.to(tl.int64) * _GOLDEN + key)
    high = (bits >> 32).to(tl.int32)
    flip = high >> 31  # all ones where u >= 1/2
    is_high = high < 0
    low = ((bits.to(tl.int32) ^ flip) >> 12) & _LOW_20
    # The distance of u to the nearer of 0 and 1.
    distance = (high ^ flip).to(tl.float32) * 2.3283064365386963e-10
    distance += (low.to(tl.float32) + 0.5) * 2.220446049250313e-16
    series = distance * (1.0 + distance * (0.5 + distance * (0.33333333 + distance * 0.25)))
    whole = _log2(tl.where(is_high, 1.0 - distance, distance)) * -_LN_2
    return _log2(tl.where(is_high & (distance < 0.03125), series, whole)) * -_LN_2


@triton.jit
def _log2(values):
    """The hardware's base-2 logarithm, which is off by 2**-22 at most in [0.5, 2] and relatively
    beyond, where the interpreter has none."""
    if _IS_INTERPRETED:
        return tl.log2(values)
    else:
        return libdevice.fast_log2f(values)


@triton.jit
def ordered(values):
    """int32 in the order of the float32 `values`; -0.0 comes just before 0.0."""
    bits = values.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def unordered(keys):
    """The float32 with the int32 key `keys` of `ordered`."""
    return (keys ^ ((keys >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def head_threshold(largest, temperature, DEPTH: tl.constexpr):
    """The float32 logit above which a row's head is (`LogitRows.thresholds`)."""
    below = unordered(tl.where(largest == 0.0, -2, ordered(largest) - 1))
    return tl.minimum(largest - DEPTH * temperature, below)


@triton.jit
def above(value):
    """The next float32 up."""
    return unordered(tl.where(value == 0.0, 1, ordered(value) + 1))


@triton.jit
def min_p_cut(largest, temperature, log_min_p):
    """The lowest float32 logit that min-p keeps: whose scaled logit, in float64, is not below
    `log_min_p` (float64). -inf where min-p is off."""
    top = largest.to(tl.float64)
    heat = temperature.to(tl.float64)
    rough = (top + tl.maximum(log_min_p, -1e6) * heat).to(tl.float32)
    near = unordered(ordered(rough) + tl.arange(0, 16) - 8)
    is_kept = ((near.to(tl.float64) - top) / heat >= log_min_p) & (near <= largest)
    cut = tl.min(tl.where(is_kept, near, largest), axis=0)
    return tl.where(log_min_p == -float("inf"), -float("inf"), cut)


@triton.jit
def finite(values):
    """As `LogitRows` does: numbers in place of NaN and infinite logits."""
    values = tl.where(values == values, values, -LARGE)
    values = tl.where(values == float("inf"), LARGE, values)
    return tl.where(values == -float("inf"), -LARGE, values)
