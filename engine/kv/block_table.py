"""`BlockTable`: the blocks of one sequence, in order of their tokens."""

from __future__ import annotations

from collections.abc import Iterable

from engine.kv.block_pool import BlockId


class BlockTable:
    """Token i of the sequence lies in block `blocks[i // block_size]`. Owned by the engine thread.

    `num_published` leading blocks are full, computed and known to the prefix cache; the first
    `num_shared` were there when the sequence came, from the prefix cache or from another choice.
    """

    __slots__ = ("blocks", "num_published", "num_shared")

    def __init__(self) -> None:
        self.blocks: list[BlockId] = []
        self.num_published = 0
        self.num_shared = 0

    def extend(self, blocks: Iterable[BlockId]) -> None:
        """Appends blocks at the end."""
        self.blocks += blocks

    def clear(self) -> list[BlockId]:
        """Empties the table and returns what it held."""
        blocks, self.blocks = self.blocks, []
        self.num_published = 0
        self.num_shared = 0
        return blocks
