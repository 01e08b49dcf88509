"""A step's small arrays on their way to the device and back."""

from __future__ import annotations

import numpy as np
import pytest

from engine.execution.staging import ALIGNMENT, Download, Staging, aligned

torch = pytest.importorskip("torch")


def test_every_array_begins_at_a_multiple_of_the_alignment() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    target = torch.full((64,), -1, dtype=torch.int32, device=device)
    staging = Staging(64, device, count=2)
    for start in (0, 100, 200, 300):  # more often than there are buffers
        arrays = [
            np.arange(start, start + count, dtype=np.int32) for count in (5, 0, 1, ALIGNMENT, 7)
        ]
        places = staging.upload(arrays, target)
        for array, place in zip(arrays, places, strict=True):
            assert place.tolist() == array.tolist()
            assert place.storage_offset() % ALIGNMENT == 0
        end = sum(aligned(len(array)) for array in arrays)
        assert (target[end:] == -1).all()


@pytest.mark.parametrize(("count", "wanted"), [(0, 0), (1, 4), (4, 4), (5, 8)])
def test_counts_are_rounded_up(count: int, wanted: int) -> None:
    assert aligned(count) == wanted


def test_a_download_keeps_what_was_there_when_it_began() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    values = torch.arange(10, dtype=torch.int32, device=device)
    download = Download(values[:4])
    values.zero_()
    assert download.wait().tolist() == [0, 1, 2, 3]
