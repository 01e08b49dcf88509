"""`Staging`: a step's small arrays on their way between host and GPU, without waiting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ints = NDArray[np.int32]

ALIGNMENT = 4
"""In elements: kernels are compiled anew for pointers that are not at a multiple of 16 bytes."""


@dataclass(frozen=True, slots=True)
class _Buffer:
    host: Tensor
    view: Ints
    is_free: torch.cuda.Event | None


class Staging:
    """A ring of pinned host buffers of int32, used in turn: one is written again only when the
    copy out of it is done. Owned by the engine thread. On a CPU copies are made at once."""

    def __init__(self, size: int, device: torch.device, count: int = 4) -> None:
        is_cuda = device.type == "cuda"
        self._buffers = []
        for _ in range(count):
            host = torch.empty(size, dtype=torch.int32, pin_memory=is_cuda)
            self._buffers.append(_Buffer(host, host.numpy(), _event() if is_cuda else None))
        self._next = 0

    def upload(self, arrays: list[Ints], target: Tensor) -> list[Tensor]:
        """Copies `arrays` into `target` (int32, on the device), in the order of its stream, and
        returns where each of them lies there. They have at most `size` elements together, each
        rounded up to `ALIGNMENT`."""
        buffer = self._buffers[self._next]
        self._next = (self._next + 1) % len(self._buffers)
        if buffer.is_free is not None:
            buffer.is_free.synchronize()
        places: list[Tensor] = []
        end = 0
        for array in arrays:
            start, end = end, end + len(array)
            buffer.view[start:end] = array
            places.append(target[start:end])
            end = aligned(end)
        target[:end].copy_(buffer.host[:end], non_blocking=True)
        if buffer.is_free is not None:
            buffer.is_free.record()
        return places


def aligned(count: int) -> int:
    """`count` rounded up to a multiple of `ALIGNMENT`."""
    return -(-count // ALIGNMENT) * ALIGNMENT


class Download:
    """Values on their way from the device to the host. Made and read by one thread."""

    __slots__ = ("_host", "_is_here")

    def __init__(self, values: Tensor) -> None:
        """Begins to copy `values`."""
        self._is_here: torch.cuda.Event | None = None
        if values.device.type == "cpu":
            self._host = values.clone()
            return
        self._host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        self._host.copy_(values, non_blocking=True)
        self._is_here = _event()
        self._is_here.record()

    def wait(self) -> Tensor:
        """The values, on the host. Waiting for them holds no lock."""
        if self._is_here is not None:
            self._is_here.synchronize()
        return self._host


def _event() -> torch.cuda.Event:
    return torch.cuda.Event()  # type: ignore[no-untyped-call]
