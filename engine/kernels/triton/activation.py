"""The gate of a gated MLP: `activate(gate) * up` in one pass."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.triton.dependent_launch import launch_options, wait_for_launcher

ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh")
_BLOCK = 1024
_NUM_WARPS = 4


def gated(
    gate_up: Tensor, activation: str = "silu", out: Tensor | None = None, *, pdl: bool = False
) -> Tensor:
    """`activate(gate) * up` [T, inner] of `gate_up` [T, 2 * inner], gate first; contiguous.

    `activation` is one of `ACTIVATIONS`; else raises ValueError. As in
    `engine.models.feed_forward.FeedForward` the activated gate is rounded to the dtype before it is
    multiplied; it is worked out in float32. `pdl`: see `dependent_launch`."""
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation {activation!r} is none of {', '.join(ACTIVATIONS)}")
    rows, inner = gate_up.shape[0], gate_up.shape[1] // 2
    if out is None:
        out = gate_up.new_empty((rows, inner))
    if rows:
        blocks = triton.cdiv(inner, _BLOCK)
        _gated[(rows * blocks,)](
            gate_up,
            out,
            INNER=inner,
            BLOCK=_BLOCK,
            BLOCKS=blocks,
            ACTIVATION=activation,
            num_warps=_NUM_WARPS,
            **launch_options(pdl, gate_up.device),
        )
    return out


@triton.jit
def activate(x, ACTIVATION: tl.constexpr):
    """`ACTIVATION` of `x`, float32 as `x`."""
    if ACTIVATION == "silu":
        return x / (1.0 + tl.exp(-x))
    elif ACTIVATION == "gelu":
        return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    else:
        tl.static_assert(ACTIVATION == "gelu_pytorch_tanh")
        # 0.5 (1 + tanh z) is the logistic function of 2 z; here 2 sqrt(2 / pi) is multiplied out.
        twice = 1.5957691216057308 * (x + 0.044715 * x * x * x)
        return x / (1.0 + tl.exp(-twice))


@triton.jit
def gate_product(gate, up, dtype: tl.constexpr, ACTIVATION: tl.constexpr):
    """`activate(gate) * up`, float32 with values of `dtype`; both factors are float32."""
    activated = activate(gate, ACTIVATION).to(dtype).to(tl.float32)
    return (activated * up).to(dtype).to(tl.float32)


@triton.jit
def _gated(
    gate_up,
    out,
    INNER: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PDL: tl.constexpr,
):
    if PDL:
        wait_for_launcher()
    program = tl.program_id(0)
    row = (program // BLOCKS).to(tl.int64)
    columns = (program % BLOCKS) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < INNER
    at = gate_up + row * (2 * INNER) + columns
    gate = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(at + INNER, mask=mask, other=0.0).to(tl.float32)
    dtype: tl.constexpr = out.dtype.element_ty
    product = gate_product(gate, up, dtype, ACTIVATION)
    tl.store(out + row * INNER + columns, product.to(dtype), mask=mask)
