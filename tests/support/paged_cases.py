"""Paged caches for tests of attention kernels: every slot that may not be read holds NaN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PagedCase:
    """keys, values [num_cache_slots, num_kv_heads, head_dim]; tables [len(lens) + 1, max_blocks]
    int32, whose last row is the padding slot's. Slot i holds a context of lens[i] tokens; what
    lies behind it, in the cache and in the table, leads to NaN."""

    keys: Tensor
    values: Tensor
    tables: Tensor
    lens: tuple[int, ...]
    block_size: int

    def cache_slots(self, slot: int, length: int) -> Tensor:
        """Where the first `length` tokens of `slot` lie, [length] int64."""
        tokens = torch.arange(length, device=self.tables.device)
        blocks = self.tables[slot].long()[tokens // self.block_size]
        return blocks * self.block_size + tokens % self.block_size


def paged_case(
    lens: Sequence[int],
    *,
    num_kv_heads: int,
    head_dim: int,
    block_size: int,
    dtype: torch.dtype,
    device: str,
    seed: int,
) -> PagedCase:
    """A cache whose blocks are shuffled, with one NaN block that all spare table entries name."""
    torch.manual_seed(seed)
    needed = [-(-length // block_size) for length in lens]
    num_blocks = sum(needed) + 2
    order = torch.randperm(num_blocks)
    poison = int(order[-1])
    tables = torch.full((len(lens) + 1, max(needed, default=0) + 2), poison, dtype=torch.int32)
    used = 0
    for slot, count in enumerate(needed):
        tables[slot, :count] = order[used : used + count].int()
        used += count
    shape = (num_blocks * block_size, num_kv_heads, head_dim)
    caches = [torch.full(shape, float("nan")) for _ in range(2)]
    case = PagedCase(caches[0], caches[1], tables, tuple(lens), block_size)
    for slot, length in enumerate(lens):
        where = case.cache_slots(slot, length)
        for cache in caches:
            cache[where] = torch.randn(length, num_kv_heads, head_dim)
    keys, values = (cache.to(device=device, dtype=dtype) for cache in caches)
    return PagedCase(keys, values, tables.to(device), tuple(lens), block_size)


def reference_rows(
    case: PagedCase,
    q: Tensor,
    slots: Tensor,
    positions: Tensor,
    *,
    scale: float,
    window: int | None = None,
    soft_cap: float | None = None,
) -> Tensor:
    """What attention of rows q [R, num_heads, head_dim] must give, in float64, where row r is the
    token at positions[r] of slots[r]: [R, num_heads * head_dim]."""
    out = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    group = q.shape[1] // case.keys.shape[1]
    for slot in sorted(set(slots.tolist())):
        rows = slots == slot
        where = positions[rows].to(q.device)[:, None]
        length = int(where.max()) + 1
        stored = case.cache_slots(slot, length)
        keys, values = (
            cache[stored].to(torch.float32).double().repeat_interleave(group, dim=1)
            for cache in (case.keys, case.values)
        )
        scores = torch.einsum("qhd,khd->hqk", q[rows].double(), keys) * scale
        if soft_cap is not None:
            scores = soft_cap * torch.tanh(scores / soft_cap)
        tokens = torch.arange(length, device=q.device)
        hidden = tokens > where
        if window is not None:
            hidden |= tokens <= where - window
        scores = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
        out[rows] = torch.einsum("hqk,khd->qhd", scores, values)
    return out.flatten(1)


# Error of a row relative to its largest value: rounding of the weights and of the result.
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 2e-2}


def assert_rows_close(got: Tensor, expected: Tensor) -> None:
    """Row by row, relative to the row's largest expected value."""
    assert got.isfinite().all()
    error = (got.double() - expected).abs().amax(dim=1) / expected.abs().amax(dim=1)
    worst = int(error.argmax())
    assert error[worst] < TOLERANCE[got.dtype], f"row {worst}: relative error {error[worst]:.2e}"
