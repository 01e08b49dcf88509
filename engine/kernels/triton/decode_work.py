"""`DecodeWork`: how a step's decode attention is divided among the programs of a fixed grid."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

FEW_CHUNK = 128
MANY_CHUNK = 512
"""Tokens: see `DecodeWork._least_chunk`."""

FEW_ROWS = 4
"""Up to so many rows a step is bound by how long a program takes."""

_PROGRAMS_PER_SM = 2
_FALLBACK_SMS = 16  # without a CUDA device, where only tests run


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """How the kernel is built: tokens that a program takes at a time, its warps, and the stages of
    its software pipeline."""

    tile: int
    num_warps: int
    num_stages: int


def decode_config(num_rows: int, head_dim: int, cache_dtype: torch.dtype) -> DecodeConfig:
    """By the number of rows. A few are bound by how long a program takes: 16 KiB of keys at a time
    (64 tokens of 128 bf16 values). More are bound by the memory, which more and smaller programs
    keep busier: measured on an H200 (16 heads, 8 of keys, of 128) with tiles of 32 instead of 64
    tokens: 1 row of 256 tokens 7.6 us instead of 6.0, 32 rows of 512 tokens 22 instead of 27, 64 of
    1,024 65 instead of 73. In float32, whose exact products keep their operands in registers, 16
    tokens."""
    if cache_dtype == torch.float32:
        return DecodeConfig(16, 4, 3)
    row_bytes = triton.next_power_of_2(head_dim) * max(cache_dtype.itemsize, 2)
    tile = max(16, min(64, 16384 // row_bytes))
    if num_rows <= FEW_ROWS:
        return DecodeConfig(tile, 4, 3)
    return DecodeConfig(max(16, tile // 2), 2, 4)


class DecodeWork:
    """Work list and scratch memory of `decode_attention` for up to `max_rows` rows.

    The grid has `num_items(rows)` x num_kv_heads programs, whatever the contexts are, so that a
    CUDA graph can replay it; `plan` writes on the GPU which row and which chunk of its context
    each item stands for. A chunk is a whole number of key tiles, the same for all rows: the
    smallest that is at least `min_chunk` tokens and lets all chunks fit the items. One long
    context is so spread over all multiprocessors, and many short ones stay whole. Whole chunks
    come first, then what is left of each row, the longest first, so that no long one begins when
    the others end.

    One step at a time: all kernels that use an instance must be on one stream, or ordered.
    Owned by the engine thread."""

    def __init__(
        self,
        max_rows: int,
        *,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        block_size: int,
        device: torch.device,
        cache_dtype: torch.dtype = torch.bfloat16,
        config: DecodeConfig | None = None,
        min_chunk: int | None = None,
        num_items: int | None = None,
    ) -> None:
        """`block_size`: tokens per cache block, a power of two from 16 up. `num_items`: items
        beyond one per row; None chooses two programs per multiprocessor. `config` and `min_chunk`
        (tokens below which a context is not split): None chooses by the number of rows."""
        if block_size < 16 or block_size & (block_size - 1):
            raise ValueError(f"block_size must be a power of two from 16 up, not {block_size}")
        if num_heads % num_kv_heads:
            raise ValueError(f"{num_heads} heads cannot share {num_kv_heads} key heads")
        self.max_rows = max_rows
        self.num_kv_heads = num_kv_heads
        self.group = num_heads // num_kv_heads
        self.head_dim = head_dim
        self.block_size = block_size
        self._config = config
        self._cache_dtype = cache_dtype
        self.padded_group = triton.next_power_of_2(self.group)
        self._min_chunk = min_chunk
        self._num_programs = _num_sms(device)
        if num_items is None:
            num_items = triton.cdiv(_PROGRAMS_PER_SM * _num_sms(device), num_kv_heads)
        self._spare_items = num_items
        self._rows_block = triton.next_power_of_2(max_rows)
        items = self.num_items(max_rows)
        heads = (num_kv_heads, self.padded_group)
        # row (-1: idle), chunk of the row, tokens per chunk, place of the row's first chunk among
        # the partial results: one aligned 16-byte record.
        self.items = torch.full((items, 4), -1, dtype=torch.int32, device=device)
        self.partials = torch.empty((items, *heads, head_dim), dtype=torch.float32, device=device)
        self.log_sums = torch.empty((items, *heads), dtype=torch.float32, device=device)
        # How many chunks of a (row, key head) are done. The program that finds itself the last
        # one sets its counter back to 0, so no step has to clear them.
        self.counters = torch.zeros((max_rows, num_kv_heads), dtype=torch.int32, device=device)

    def config(self, num_rows: int) -> DecodeConfig:
        """How the kernel is built for a step of `num_rows` rows."""
        return self._config or decode_config(num_rows, self.head_dim, self._cache_dtype)

    def num_items(self, num_rows: int) -> int:
        """Items of the grid for a step of `num_rows` rows: at least one each."""
        return num_rows + self._spare_items

    def _least_chunk(self, num_rows: int) -> int:
        """Tokens below which a context is not split. Measured on an H200: where rows leave
        multiprocessors idle, short chunks are done sooner (one row of 1,000 tokens); where they
        do not, weighing the chunks costs more than it brings (32 rows of 512 tokens: 27 us in
        chunks of 256, 21 in whole)."""
        if self._min_chunk is not None:
            return self._min_chunk
        return FEW_CHUNK if num_rows * self.num_kv_heads < self._num_programs else MANY_CHUNK

    def plan(self, context_lens: Tensor) -> None:
        """Divides the contexts `context_lens` [R] int32 (0 for a padding row, whose one item
        writes zeros). Once per step, before the first layer's `decode_attention`."""
        num_rows = context_lens.shape[0]
        if num_rows > self.max_rows:
            raise ValueError(f"{num_rows} rows, but room for {self.max_rows}")
        tile = self.config(num_rows).tile
        _plan_kernel[(1,)](
            context_lens,
            self.items,
            num_rows,
            self.num_items(num_rows),
            triton.cdiv(self._least_chunk(num_rows), tile),
            TILE=tile,
            ROWS=self._rows_block,
            # As many comparisons at a time as registers hold.
            OTHERS=32 if self._rows_block <= 512 else 16 if self._rows_block <= 1024 else 8,
            num_warps=8 if self._rows_block <= 64 else 16 if self._rows_block <= 512 else 32,
        )


def _num_sms(device: torch.device) -> int:
    if device.type != "cuda":
        return _FALLBACK_SMS
    return torch.cuda.get_device_properties(device).multi_processor_count


@triton.jit(
    do_not_specialize=["num_rows", "num_items", "min_tiles"],
    do_not_specialize_on_alignment=["context_lens"],
)
def _plan_kernel(
    context_lens,
    items,
    num_rows,
    num_items,
    min_tiles,
    TILE: tl.constexpr,
    ROWS: tl.constexpr,
    OTHERS: tl.constexpr,
):
    rows = tl.arange(0, ROWS)
    valid = rows < num_rows
    lens = tl.load(context_lens + rows, mask=valid, other=0)
    # A padding row has one empty tile, so that its output is written too.
    tiles = tl.where(valid, tl.maximum((lens + TILE - 1) // TILE, 1), 0)
    # Bisection: chunks of `high` tiles fit always, as there is an item for each row.
    low = tl.maximum((tl.sum(tiles) + num_items - 1) // num_items, min_tiles)
    high = tl.maximum(tl.max(tiles), low)
    while low < high:
        middle = (low + high) // 2
        fits = tl.sum((tiles + middle - 1) // middle) <= num_items
        low = tl.where(fits, low, middle + 1)
        high = tl.where(fits, middle, high)
    whole = tiles // low
    rest = tiles % low
    chunks = whole + (rest > 0).to(tl.int32)
    parts = tl.cumsum(chunks) - chunks
    starts = tl.cumsum(whole) - whole
    for chunk in range(0, tl.max(whole)):
        _store_items(items, starts + chunk, rows, chunk, low * TILE, parts, chunk < whole)
    # How many rows have more left, or as much and a lower number.
    rank = tl.zeros_like(rows)
    for first in range(0, num_rows, OTHERS):
        others = first + tl.arange(0, OTHERS)
        other_lens = tl.load(context_lens + others, mask=others < num_rows, other=0)
        other_tiles = tl.maximum((other_lens + TILE - 1) // TILE, 1)
        other_rest = tl.where(others < num_rows, other_tiles % low, 0)
        more = other_rest[None, :] > rest[:, None]
        earlier = (other_rest[None, :] == rest[:, None]) & (others[None, :] < rows[:, None])
        rank += tl.sum((more | earlier).to(tl.int32), axis=1)
    _store_items(items, tl.sum(whole) + rank, rows, whole, low * TILE, parts, rest > 0)
    for first in range(tl.sum(chunks), num_items, ROWS):
        tl.store(items + (first + rows) * 4, -1, mask=first + rows < num_items)


@triton.jit
def _store_items(items, places, rows, chunks, chunk_tokens, parts, mask):
    item = items + places * 4
    tl.store(item, rows, mask=mask)
    tl.store(item + 1, tl.zeros_like(rows) + chunks, mask=mask)
    tl.store(item + 2, tl.zeros_like(rows) + chunk_tokens, mask=mask)
    tl.store(item + 3, parts, mask=mask)
