"""Where a model's tensors come from (`TensorSource`), and how a model that is being built takes
them (`Weights`; `WeightReader` checks and merges those of a source)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import torch
from torch import Tensor

from engine.errors import ModelLoadError
from engine.models.linear import Embedding, Linear, PlainEmbedding, Projection


class TensorSource(Protocol):
    """A model's tensors by their Hugging Face names. Safe to read from several threads."""

    @property
    def names(self) -> Collection[str]: ...

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of the tensor `name`, without reading it."""
        ...

    def origin(self, name: str) -> str:
        """The file that holds the tensor, for messages."""
        ...

    def tensor(self, name: str) -> Tensor:
        """The tensor as it is kept, perhaps a view of a mapped file: not to be written to."""
        ...


class Weights(Protocol):
    """What a model is built from. Used by one thread."""

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor `name` in the run's dtype, on its device."""
        ...

    def take_merged(self, parts: Sequence[tuple[str, tuple[int, ...]]]) -> Tensor:
        """The parts one above the other, as one tensor."""
        ...

    def linear(
        self, parts: Sequence[tuple[str, int]], columns: int, *, bias: bool = False
    ) -> Projection:
        """The projections `parts`, each (name, rows), of one input, merged: the tensors
        `name.weight` [rows, columns] one above the other and, with `bias`, `name.bias`."""
        ...

    def embedding(self, name: str, shape: tuple[int, int]) -> Embedding:
        """The table `name.weight` [vocab, hidden]."""
        ...

    def skip(self, name: str) -> None:
        """Says that the tensor `name` is known and not wanted."""
        ...

    def finish(self) -> None:
        """Says that everything was taken."""
        ...


class PlainWeights(ABC):
    """The parts of `Weights` that follow from single tensors."""

    @abstractmethod
    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """See `Weights.take`."""

    @abstractmethod
    def claim(self, name: str, shape: tuple[int, ...]) -> None:
        """Checks that the tensor is there and of this shape, and counts it as taken."""

    @abstractmethod
    def skip(self, name: str) -> None:
        """See `Weights.skip`."""

    @abstractmethod
    def finish(self) -> None:
        """See `Weights.finish`."""

    def take_merged(self, parts: Sequence[tuple[str, tuple[int, ...]]]) -> Tensor:
        """The parts one above the other, as one tensor."""
        return merge_rows([self.take(name, shape) for name, shape in parts])

    def linear(
        self, parts: Sequence[tuple[str, int]], columns: int, *, bias: bool = False
    ) -> Projection:
        """See `Weights.linear`."""
        weight = self.take_merged([(f"{name}.weight", (rows, columns)) for name, rows in parts])
        if not bias:
            return Linear(weight)
        return Linear(weight, self.take_merged([(f"{name}.bias", (rows,)) for name, rows in parts]))

    def embedding(self, name: str, shape: tuple[int, int]) -> Embedding:
        """See `Weights.embedding`."""
        return PlainEmbedding(self.take(f"{name}.weight", shape))


class WeightReader(PlainWeights):
    """Implements `Weights` over a source. Used by one thread.

    Every `take…` raises ModelLoadError when a tensor is absent or of another shape, and names
    the tensor and its file."""

    def __init__(
        self,
        source: TensorSource,
        *,
        dtype: torch.dtype,
        device: torch.device,
        on_fraction: Callable[[float], None] | None = None,
    ) -> None:
        self._source = source
        self._dtype = dtype
        self._device = device
        self._on_fraction = on_fraction
        self._taken: set[str] = set()

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor `name` in the run's dtype, on its device."""
        self.claim(name, shape)
        return self._source.tensor(name).to(self._device, self._dtype)

    def claim(self, name: str, shape: tuple[int, ...]) -> None:
        """Checks that the tensor is there and of this shape, and counts it as taken."""
        if name not in self._source.names:
            raise ModelLoadError(f"The model's files hold no tensor {name!r}.")
        found = self._source.shape(name)
        if found != shape:
            raise ModelLoadError(
                f"The tensor {name!r} in {self._source.origin(name)} has the shape "
                f"{list(found)}; config.json asks for {list(shape)}."
            )
        self._taken.add(name)
        if self._on_fraction is not None:
            self._on_fraction(len(self._taken) / len(self._source.names))

    def skip(self, name: str) -> None:
        """Says that the tensor `name` is known and not wanted."""
        self._taken.add(name)

    def finish(self) -> None:
        """Raises ModelLoadError when tensors were left that are part of another model form.
        Tables of rotary frequencies are harmless: they are worked out anew."""
        left = sorted(
            name
            for name in set(self._source.names) - self._taken
            if not name.endswith((".rotary_emb.inv_freq", ".masked_bias"))
        )
        if left:
            shown = ", ".join(left[:4]) + (f" and {len(left) - 4} more" if len(left) > 4 else "")
            raise ModelLoadError(
                f"{self._source.origin(left[0])} holds tensors that this architecture does not "
                f"have: {shown}."
            )


def merge_rows(parts: Sequence[Tensor]) -> Tensor:
    """Stacks `parts` [rows_i, …] to [sum of rows, …]: a view when they follow one another in
    one storage (as in a converted copy), else a new tensor."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if not _are_adjacent(parts):
        return torch.cat(list(parts))
    rows = sum(part.shape[0] for part in parts)
    return first.as_strided((rows, *first.shape[1:]), first.stride())


def _are_adjacent(parts: Sequence[Tensor]) -> bool:
    storage = parts[0].untyped_storage().data_ptr()
    end = parts[0].storage_offset()
    for part in parts:
        if (
            not part.is_contiguous()
            or part.untyped_storage().data_ptr() != storage
            or part.storage_offset() != end
        ):
            return False
        end += part.numel()
    return True
