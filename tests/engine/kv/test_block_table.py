from __future__ import annotations

from engine.kv.block_pool import BlockId
from engine.kv.block_table import BlockTable


def test_extend_appends_and_clear_gives_all_back() -> None:
    made = BlockTable()
    made.extend(BlockId(block) for block in (1, 2))
    made.extend([BlockId(7)])
    made.num_published = made.num_shared = 2
    assert made.clear() == [1, 2, 7]
    assert (made.blocks, made.num_published, made.num_shared) == ([], 0, 0)
    made.extend([BlockId(8)])
    assert made.blocks == [8]
