"""Weights of matrix products: how they are kept, and which product is fastest for them.

On a CPU in float32, oneDNN's inner product on the plain row-major weight is used instead of
`torch.nn.functional.linear`: the same arithmetic in another order of summation, and about
1.8 times as fast for 1 to 32 rows on an AVX2 machine, where decoding is bound by reading weights.
Nothing is repacked, so a weight may be a view of a mapped file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def _onednn_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def choose_product(weight: Tensor) -> Product:
    """The product to use for `weight`, by its device and dtype."""
    on_cpu = weight.device.type == "cpu" and torch.backends.mkldnn.is_available()
    if on_cpu and weight.dtype == torch.float32:
        return _onednn_product
    return functional.linear


class Projection(Protocol):
    """A matrix product with a fixed weight, in whatever form the weight is kept."""

    def __call__(self, x: Tensor) -> Tensor:
        """[T, in] → [T, out]"""
        ...


class Embedding(Protocol):
    """A table of one row a token id, in whatever form it is kept."""

    def __call__(self, token_ids: Tensor) -> Tensor:
        """int64 [T] → [T, hidden], a new tensor"""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of what is looked up."""
        ...

    @property
    def device(self) -> torch.device: ...

    def as_projection(self) -> Projection:
        """The table as a tied output head, [T, hidden] → [T, vocab]; shares its memory."""
        ...


class PlainEmbedding:
    """Implements `Embedding` over a tensor `weight` [vocab, hidden]."""

    __slots__ = ("weight",)

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def __call__(self, token_ids: Tensor) -> Tensor:
        """int64 [T] → [T, hidden], a new tensor"""
        return self.weight.index_select(0, token_ids)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of what is looked up."""
        return self.weight.dtype

    @property
    def device(self) -> torch.device:
        """Where the table is."""
        return self.weight.device

    def as_projection(self) -> Projection:
        """The table as a tied output head; shares its memory."""
        return Linear(self.weight)


class Linear:
    """`x @ weight.T + bias`, with `weight` [out, in]. Immutable.

    Where several projections of the same input are merged, their rows follow one another in
    `weight`; so a split by rows takes its share of each part, and a split by columns is a slice
    of `x` and `weight` whose products are added up."""

    __slots__ = ("_product", "bias", "weight")

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight = weight
        self.bias = bias
        self._product = choose_product(weight)

    def __call__(self, x: Tensor) -> Tensor:
        """[T, in] → [T, out]"""
        return self._product(x, self.weight, self.bias)


def can_multiply_bfloat16_fast() -> bool:
    """Whether this CPU has bfloat16 products (AVX-512 or AMX), which else are emulated."""
    capability = torch.cpu.get_capabilities()
    return bool(capability.get("avx512_bf16") or capability.get("amx_bf16"))
