"""The inputs of a step's rows, worked out on the GPU from the state of their request slots."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor


@dataclass(frozen=True, slots=True)
class RowInputs:
    """What the layers need of R rows. `input_ids`, `positions`, `cache_slots` (where a row's keys
    and values go; -1: nowhere) and `context_lens` (0 for a padding row) are int32 [R]."""

    input_ids: Tensor
    positions: Tensor
    cache_slots: Tensor
    context_lens: Tensor


@triton.jit(do_not_specialize=["num_rows", "max_blocks", "padding_slot"])
def _row_inputs(
    slots,
    positions,
    token_ids,
    tables,
    last_tokens,
    input_ids,
    cache_slots,
    context_lens,
    num_rows,
    max_blocks,
    padding_slot,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    is_row = rows < num_rows
    slot = tl.load(slots + rows, mask=is_row, other=0)
    position = tl.load(positions + rows, mask=is_row, other=0)
    token_id = tl.load(token_ids + rows, mask=is_row, other=0)
    is_real = is_row & (slot != padding_slot)
    last = tl.load(last_tokens + slot, mask=is_real, other=0)
    entries = tables + slot.to(tl.int64) * max_blocks + position // BLOCK_SIZE
    block = tl.load(entries, mask=is_real, other=0)
    token_id = tl.where(token_id < 0, last, token_id)
    place = tl.where(is_real, block * BLOCK_SIZE + position % BLOCK_SIZE, -1)
    tl.store(input_ids + rows, tl.where(is_real, token_id, 0), mask=is_row)
    tl.store(cache_slots + rows, place, mask=is_row)
    tl.store(context_lens + rows, tl.where(is_real, position + 1, 0), mask=is_row)


def row_inputs(
    slots: Tensor,
    positions: Tensor,
    token_ids: Tensor,
    tables: Tensor,
    last_tokens: Tensor,
    *,
    block_size: int,
) -> RowInputs:
    """For rows at `positions` of the requests in `slots` (both int32 [R]).

    Where `token_ids` (int32 [R]) is negative, the row's token is the one that its slot sampled
    last, `last_tokens[slot]` (int32 [num_slots + 1]). `tables` int32 [num_slots + 1, max_blocks]
    are the slots' blocks. The last slot is that of padding rows."""
    num_rows = slots.shape[0]
    input_ids = torch.empty_like(slots)
    cache_slots = torch.empty_like(slots)
    context_lens = torch.empty_like(slots)
    _row_inputs[(triton.cdiv(num_rows, 128),)](
        slots,
        positions,
        token_ids,
        tables,
        last_tokens,
        input_ids,
        cache_slots,
        context_lens,
        num_rows,
        tables.shape[1],
        tables.shape[0] - 1,
        BLOCK_SIZE=block_size,
        ROWS=128,
    )
    return RowInputs(input_ids, positions, cache_slots, context_lens)


@triton.jit(do_not_specialize=["count"])
def _set_entries(tables, places, blocks, count, WIDTH: tl.constexpr):
    entries = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    is_entry = entries < count
    place = tl.load(places + entries, mask=is_entry, other=0)
    block = tl.load(blocks + entries, mask=is_entry, other=0)
    tl.store(tables + place, block, mask=is_entry)


def set_table_entries(tables: Tensor, places: Tensor, blocks: Tensor) -> None:
    """Writes `blocks` at `places` of the flat `tables`; all int32, the latter two [U]."""
    count = places.shape[0]
    _set_entries[(triton.cdiv(count, 256),)](tables, places, blocks, count, WIDTH=256)
