"""`KVCache`: the tensors behind the blocks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class KVCache:
    """Keys and values of all layers, each [num_blocks * block_size, num_kv_heads, head_dim];
    token j of block b lies in slot b * block_size + j. Owned by the engine thread.

    The memory is not cleared: a slot is read only after it was written."""

    def __init__(
        self,
        *,
        num_layers: int,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.num_layers = num_layers
        self.block_size = block_size
        self.num_kv_heads = num_kv_heads
        self.head_dim = head_dim
        self.dtype = dtype
        self.device = device
        self.resize(num_blocks)

    def resize(self, num_blocks: int) -> None:
        """Gives the cache memory for `num_blocks` blocks; what it held is lost."""
        shape = (
            self.num_layers,
            num_blocks * self.block_size,
            self.num_kv_heads,
            self.head_dim,
        )
        self._keys = self._values = torch.empty(0)  # before there is more: both may not fit
        self._keys = torch.empty(shape, dtype=self.dtype, device=self.device)
        self._values = torch.empty(shape, dtype=self.dtype, device=self.device)

    @staticmethod
    def bytes_per_token(
        *, num_layers: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype
    ) -> int:
        """Memory that one token takes over all layers."""
        return 2 * num_layers * num_kv_heads * head_dim * dtype.itemsize

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copies whole blocks (source, destination) in all layers."""
        if not copies:
            return
        pairs = torch.tensor(copies)
        if self.device.type == "cuda":
            # From pinned memory, so that the host need not wait for the step in flight.
            pairs = pairs.pin_memory().to(self.device, non_blocking=True)
        sources, destinations = pairs.T
        for values in (self._keys, self._values):
            if values.dtype.itemsize == 1:
                values = values.view(torch.uint8)  # torch cannot index 8-bit floats everywhere
            blocks = values.view(values.shape[0], -1, self.block_size, *values.shape[2:])
            blocks[:, destinations] = blocks[:, sources]

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer: views, [slots, num_kv_heads, head_dim]."""
        return self._keys[index], self._values[index]
