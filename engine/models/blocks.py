"""`Blocks`: a quantized tensor as its file has it, and the sources that can give it so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Blocks:
    """`kind` is GGML's number of the kind of blocks, `data` uint8 the rows one behind the other.
    Row i of the model's tensor is row `row_map[i]` (int64) of the data, or row i without a map."""

    kind: int
    data: Tensor
    row_map: Tensor | None


@runtime_checkable
class BlockSource(Protocol):
    """A `TensorSource` that can also give tensors as blocks."""

    def blocks(self, name: str) -> Blocks:
        """The tensor `name`, which has two dimensions."""
        ...
