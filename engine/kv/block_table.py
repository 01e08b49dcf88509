"""`BlockTable`: the blocks of one sequence, in order of their tokens."""

from __future__ import annotations

from collections.abc import Iterable

from engine.kv.block_pool import BlockId


class BlockTable:
    """Token i of the sequence lies in block `blocks[i // block_size]`. Owned by the engine thread.

    `num_published` leading blocks are full, computed and known to the prefix cache; the first
    `num_shared` were there when the sequence came, from the prefix cache or from another choice;
    `num_contiguous` is the length of the leading run of blocks with consecutive ids, which
    attention can read without a gather.
    """

    __slots__ = ("blocks", "num_contiguous", "num_published", "num_shared")

    def __init__(self) -> None:
        self.blocks: list[BlockId] = []
        self.num_published = 0
        self.num_shared = 0
        self.num_contiguous = 0

    @property
    def is_contiguous(self) -> bool:
        """True if all blocks lie one behind the other."""
        return self.num_contiguous == len(self.blocks)

    def extend(self, blocks: Iterable[BlockId]) -> None:
        """Appends blocks at the end."""
        for block in blocks:
            if self.is_contiguous and (not self.blocks or block == self.blocks[-1] + 1):
                self.num_contiguous += 1
            self.blocks.append(block)

    def clear(self) -> list[BlockId]:
        """Empties the table and returns what it held."""
        blocks, self.blocks = self.blocks, []
        self.num_published = 0
        self.num_shared = 0
        self.num_contiguous = 0
        return blocks
