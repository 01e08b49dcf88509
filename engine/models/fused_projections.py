"""Matrix products on a GPU together with the kernel that makes their input: a norm, or a gate.

Which kernel that is depends on how the weights are kept, and is settled once: a product of 8-bit
floats has its input quantized by the same kernel that norms or gates it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from engine.kernels.triton.activation import gated
from engine.kernels.triton.norm import add_rms_norm, embed_rms_norm
from engine.kernels.triton.quantize import (
    add_rms_norm_quantize,
    embed_rms_norm_quantize,
    gated_quantize,
)
from engine.models.fp8 import Fp8Linear
from engine.models.linear import Projection


class NormedProjection(Protocol):
    """A product whose input is the norm of the residual [T, hidden], at one place of a model."""

    def embed(self, token_ids: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        """The residual, which is new: rows `token_ids` (int32 [T]) of `table` [vocab, hidden]; and
        the product [T, out]."""
        ...

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Adds `x` to `residual` in place, both [T, hidden]. Returns the product [T, out]."""
        ...


class GatedProjection(Protocol):
    """A product whose input is the gate of what stands before it."""

    def __call__(self, gate_up: Tensor) -> Tensor:
        """[T, 2 * inner] → [T, out]"""
        ...


@dataclass(frozen=True, slots=True)
class FusedNorm:
    """Implements `NormedProjection` without a product: the norm itself."""

    weight: Tensor
    eps: float

    def embed(self, token_ids: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        """See `NormedProjection.embed`."""
        return embed_rms_norm(token_ids, table, self.weight, self.eps)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """See `NormedProjection.add`."""
        return add_rms_norm(x, residual, self.weight, self.eps, pdl=True)


@dataclass(frozen=True, slots=True)
class _PlainNormed:
    norm: FusedNorm
    projection: Projection

    def embed(self, token_ids: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        residual, normed = self.norm.embed(token_ids, table)
        return residual, self.projection(normed)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.projection(self.norm.add(x, residual))


@dataclass(frozen=True, slots=True)
class _Fp8Normed:
    weight: Tensor
    eps: float
    projection: Fp8Linear

    def embed(self, token_ids: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        residual, *x = embed_rms_norm_quantize(token_ids, table, self.weight, self.eps)
        return residual, self.projection.multiply(*x)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.projection.multiply(
            *add_rms_norm_quantize(x, residual, self.weight, self.eps, pdl=True)
        )


@dataclass(frozen=True, slots=True)
class _PlainGated:
    projection: Projection

    def __call__(self, gate_up: Tensor) -> Tensor:
        return self.projection(gated(gate_up, pdl=True))


@dataclass(frozen=True, slots=True)
class _Fp8Gated:
    projection: Fp8Linear

    def __call__(self, gate_up: Tensor) -> Tensor:
        return self.projection.multiply(*gated_quantize(gate_up, pdl=True))


def fuse_norm(weight: Tensor, eps: float, projection: Projection) -> NormedProjection:
    """`projection` of the norm with `weight` [hidden]."""
    if isinstance(projection, Fp8Linear):
        return _Fp8Normed(weight, eps, projection)
    return _PlainNormed(FusedNorm(weight, eps), projection)


def fuse_gate(projection: Projection) -> GatedProjection:
    """`projection` of what is gated with SiLU."""
    if isinstance(projection, Fp8Linear):
        return _Fp8Gated(projection)
    return _PlainGated(projection)
