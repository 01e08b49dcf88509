"""What the rows' inputs kernel makes of slots."""

from __future__ import annotations

import torch

from engine.kernels.triton.row_inputs import row_inputs, set_table_entries

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def ints(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def test_rows_take_tokens_and_places_from_their_slots() -> None:
    block_size, num_slots, padding = 16, 3, 3
    tables = torch.randint(0, 50, (num_slots + 1, 5), dtype=torch.int32, device=DEVICE)
    last_tokens = ints([11, 22, 33, 99])
    slots = ints([2, 0, padding, 1, padding])
    positions = ints([17, 0, 0, 79, 0])
    token_ids = ints([-1, 7, 0, -1, -1])
    rows = row_inputs(slots, positions, token_ids, tables, last_tokens, block_size=block_size)
    assert rows.input_ids.tolist() == [33, 7, 0, 22, 0]
    assert rows.context_lens.tolist() == [18, 1, 0, 80, 0]
    expected = [
        int(tables[2, 1]) * block_size + 1,
        int(tables[0, 0]) * block_size,
        -1,
        int(tables[1, 4]) * block_size + 15,
        -1,
    ]
    assert rows.cache_slots.tolist() == expected
    assert rows.positions.tolist() == positions.tolist()


def test_more_rows_than_one_program_has() -> None:
    num_rows = 300
    slots = torch.arange(num_rows, dtype=torch.int32, device=DEVICE) % 4
    tables = torch.arange(5, dtype=torch.int32, device=DEVICE)[:, None].expand(5, 2).contiguous()
    positions = torch.arange(num_rows, dtype=torch.int32, device=DEVICE) % 32
    rows = row_inputs(
        slots, positions, slots + 5, tables, torch.zeros_like(slots[:5]), block_size=16
    )
    assert torch.equal(rows.input_ids, slots + 5)
    assert torch.equal(rows.cache_slots, slots * 16 + positions % 16)
    assert torch.equal(rows.context_lens, positions + 1)


def test_table_entries_go_where_they_belong() -> None:
    tables = torch.full((3, 200), -5, dtype=torch.int32, device=DEVICE)
    places = torch.randperm(600, device=DEVICE)[:300].int()
    blocks = torch.arange(300, dtype=torch.int32, device=DEVICE)
    set_table_entries(tables, places, blocks)
    expected = torch.full((600,), -5, dtype=torch.int32, device=DEVICE)
    expected[places.long()] = blocks
    assert torch.equal(tables.view(-1), expected)
