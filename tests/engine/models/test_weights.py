"""Taking tensors out of a source: merging without a copy, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.errors import ModelLoadError
from engine.models.weights import WeightReader, merge_rows


class Source:
    """A `TensorSource` over a dict."""

    def __init__(self, **tensors: Tensor) -> None:
        self._tensors = {name.replace("__", "."): tensor for name, tensor in tensors.items()}

    @property
    def names(self) -> list[str]:
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name].shape)

    def origin(self, name: str) -> str:
        return "weights.file"

    def tensor(self, name: str) -> Tensor:
        return self._tensors[name]


def reader(source: Source, dtype: torch.dtype = torch.float32) -> WeightReader:
    return WeightReader(source, dtype=dtype, device=torch.device("cpu"))


def test_neighbours_merge_to_a_view() -> None:
    storage = torch.arange(24.0)
    parts = [storage[2:8].view(3, 2), storage[8:12].view(2, 2), storage[12:14].view(1, 2)]
    merged = merge_rows(parts)
    assert merged.data_ptr() == parts[0].data_ptr()
    assert torch.equal(merged, torch.cat(parts))


@pytest.mark.parametrize("order", [(1, 0), (0, 2)])
def test_others_merge_to_a_copy(order: tuple[int, ...]) -> None:
    storage = torch.arange(24.0)
    pieces = [storage[0:4].view(2, 2), storage[4:8].view(2, 2), storage[8:12].view(2, 2)]
    parts = [pieces[index] for index in order]
    merged = merge_rows(parts)
    assert torch.equal(merged, torch.cat(parts))
    assert merged.data_ptr() not in {part.data_ptr() for part in parts}


def test_parts_of_different_storages_never_merge_to_a_view() -> None:
    parts = [torch.ones(2, 2), torch.zeros(2, 2)]
    assert torch.equal(merge_rows(parts), torch.cat(parts))


def test_takes_in_the_run_dtype() -> None:
    taken = reader(Source(a=torch.ones(2)), torch.bfloat16).take("a", (2,))
    assert taken.dtype == torch.bfloat16


def test_absent_tensor_is_named() -> None:
    with pytest.raises(ModelLoadError, match=r"no tensor 'x\.weight'"):
        reader(Source()).take("x.weight", (1,))


def test_wrong_shape_is_named_with_both_shapes() -> None:
    with pytest.raises(ModelLoadError, match=r"'a' in weights\.file.*\[2, 3\].*\[3, 2\]"):
        reader(Source(a=torch.ones(2, 3))).take("a", (3, 2))


def test_tensors_of_another_form_are_named() -> None:
    source = Source(a=torch.ones(1), b__experts=torch.ones(1))
    weights = reader(source)
    weights.take("a", (1,))
    with pytest.raises(ModelLoadError, match=r"b\.experts"):
        weights.finish()


def test_rotary_tables_and_skipped_tensors_are_harmless() -> None:
    source = Source(a=torch.ones(1), x__rotary_emb__inv_freq=torch.ones(1), head=torch.ones(1))
    weights = reader(source)
    weights.take("a", (1,))
    weights.skip("head")
    weights.finish()
