from __future__ import annotations

from engine.kv.block_pool import BlockId
from engine.kv.block_table import BlockTable


def table(*blocks: int) -> BlockTable:
    made = BlockTable()
    made.extend(BlockId(block) for block in blocks)
    return made


def test_counts_the_leading_run_of_neighbours() -> None:
    assert table(3, 4, 5).num_contiguous == 3
    assert table(3, 4, 9, 10).num_contiguous == 2
    assert not table(3, 5).is_contiguous
    assert table().is_contiguous


def test_extend_continues_a_run_and_clear_begins_anew() -> None:
    made = table(1, 2)
    made.extend([BlockId(3)])
    assert made.is_contiguous
    made.extend([BlockId(7), BlockId(8)])
    assert made.num_contiguous == 3
    assert made.clear() == [1, 2, 3, 7, 8]
    made.extend([BlockId(8)])
    assert made.num_contiguous == 1
