"""Weights in float8_e4m3fn with a scale for each output row; inputs are quantized row by row as
they come, so that a row's result depends on no other row.

On a GPU the product of many rows is that of fp8 tensor cores (`torch._scaled_mm`): columns and
output rows must be multiples of 16, the number of input rows may be any. For a few rows
`engine.models.fused_decoder` streams the weights, and quantizes no input. On a CPU the same numbers
are multiplied as float32, to measure what the rounding costs; it is not for serving."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from engine.errors import ModelLoadError
from engine.models.linear import Embedding, Projection
from engine.models.weights import PlainWeights

FP8 = torch.float8_e4m3fn
LARGEST = 448.0
"""The largest finite number of float8_e4m3fn."""
ALIGNMENT = 16
OUTPUT_HEAD = "lm_head"
FAST_ACCUMULATION = False
"""Whether sums stay in the tensor cores, which keep fewer bits than float32 and cut off what is
below; else they are moved to float32 now and then."""
MIN_CAPABILITY = (8, 9)


def check_capability(device: torch.device, option: str) -> None:
    """Raises ModelLoadError, naming `option`, where `device` is a GPU without 8-bit floats."""
    if device.type != "cuda":
        return  # the kernels in Triton's interpreter: `EngineConfig` refuses every other use
    found = torch.cuda.get_device_capability(device)
    if found < MIN_CAPABILITY:
        raise ModelLoadError(
            f"{option} needs an NVIDIA GPU of compute capability "
            f"{MIN_CAPABILITY[0]}.{MIN_CAPABILITY[1]} or newer; "
            f"{torch.cuda.get_device_name(device)} has {found[0]}.{found[1]}."
        )


def saturate(x: Tensor) -> Tensor:
    """`x` as float8_e4m3fn, clamped to ±448 first: torch's own cast makes NaN of what is larger."""
    return x.clamp(-LARGEST, LARGEST).to(FP8)


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """(codes float8_e4m3fn [T, K], scales float32 [T, 1]) of `x` [T, K]: on a GPU by
    `engine.kernels.triton.quantize`, which says how; elsewhere in torch, to the same bits."""
    if x.is_cuda:
        from engine.kernels.triton.quantize import quantize_rows as quantize_on_gpu

        return quantize_on_gpu(x.contiguous())
    return quantize_rows_plainly(x)


def quantize_rows_plainly(x: Tensor) -> tuple[Tensor, Tensor]:
    """`quantize_rows` in torch, on any device."""
    largest = x.abs().amax(dim=-1, keepdim=True).float().clamp_(min=1e-30)
    return (x.float() * (LARGEST / largest)).to(FP8), largest / LARGEST


class Fp8Linear:
    """Implements `Projection`: `x @ weight.T + bias` with both factors in float8. Immutable.

    `codes` float8_e4m3fn [out, in], `scales` float32 [out, 1], `bias` [out] of the run's dtype."""

    __slots__ = ("bias", "codes", "dtype", "scales")

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """Rounds `weight` [out, in]. Both sizes are multiples of `ALIGNMENT`."""
        self.codes, self.scales = quantize_rows(weight)
        self.bias = bias
        self.dtype = weight.dtype

    def __call__(self, x: Tensor) -> Tensor:
        """[T, in] → [T, out] of the run's dtype"""
        return self.multiply(*quantize_rows(x))

    def multiply(self, codes: Tensor, scales: Tensor) -> Tensor:
        """[T, in] with scales [T, 1], as `quantize_rows` gives them → [T, out]"""
        if not codes.is_cuda:
            product = functional.linear(codes.float() * scales, self.codes.float() * self.scales)
        else:
            # Products with a scale for each row come in bfloat16 only.
            product = torch._scaled_mm(
                codes,
                self.codes.t(),
                scales,
                self.scales.t(),
                out_dtype=torch.bfloat16,
                use_fast_accum=FAST_ACCUMULATION,
            )
        product = product.to(self.dtype)
        return product if self.bias is None else product.add_(self.bias)


class Fp8Weights:
    """Implements `Weights` with float8 projections; everything else is as `weights` gives it:
    the embedding, the output head, norms and biases, and projections whose sizes do not allow it.
    Used by one thread."""

    def __init__(self, weights: PlainWeights) -> None:
        self._weights = weights

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """See `Weights.take`."""
        return self._weights.take(name, shape)

    def take_merged(self, parts: Sequence[tuple[str, tuple[int, ...]]]) -> Tensor:
        """See `Weights.take_merged`."""
        return self._weights.take_merged(parts)

    def skip(self, name: str) -> None:
        """See `Weights.skip`."""
        self._weights.skip(name)

    def finish(self) -> None:
        """See `Weights.finish`."""
        self._weights.finish()

    def linear(
        self, parts: Sequence[tuple[str, int]], columns: int, *, bias: bool = False
    ) -> Projection:
        """See `Weights.linear`."""
        rows = sum(part_rows for _, part_rows in parts)
        is_head = any(name == OUTPUT_HEAD for name, _ in parts)
        if is_head or rows % ALIGNMENT or columns % ALIGNMENT:
            return self._weights.linear(parts, columns, bias=bias)
        weight = self.take_merged([(f"{name}.weight", (size, columns)) for name, size in parts])
        biases = None
        if bias:
            biases = self.take_merged([(f"{name}.bias", (size,)) for name, size in parts])
        return Fp8Linear(weight, biases)

    def embedding(self, name: str, shape: tuple[int, int]) -> Embedding:
        """See `Weights.embedding`."""
        return self._weights.embedding(name, shape)
