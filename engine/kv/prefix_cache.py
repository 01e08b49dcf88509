"""`PrefixCache`: which full blocks hold which tokens, so that equal prompts share them.

A block is found by a hash chained over all tokens before it, rooted in model and salt; its own
tokens are compared as well, so that a hash collision is a miss and never a wrong answer.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from typing import NewType

from engine.kv.block_pool import BlockId

BlockHash = NewType("BlockHash", bytes)


def root_hash(model: str, salt: str) -> BlockHash:
    """Where a chain begins. Requests share blocks only under the same model and salt."""
    text = f"{len(model)}:{model}{salt}"
    return BlockHash(hashlib.blake2b(text.encode(), digest_size=16).digest())


def chain_hash(parent: BlockHash, tokens: Sequence[int]) -> BlockHash:
    """The hash of a block that holds `tokens` behind the prefix `parent`."""
    return BlockHash(
        hashlib.blake2b(array("q", tokens).tobytes(), digest_size=16, key=parent).digest()
    )


class PrefixCache:
    """Full blocks by chained hash. Owned by the engine thread."""

    def __init__(self) -> None:
        self._blocks: dict[BlockHash, tuple[BlockId, tuple[int, ...]]] = {}
        self._hashes: dict[BlockId, BlockHash] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def lookup(self, block_hash: BlockHash, tokens: Sequence[int]) -> BlockId | None:
        """The block with exactly these tokens behind this prefix, if there is one."""
        entry = self._blocks.get(block_hash)
        if entry is None or entry[1] != tuple(tokens):
            return None
        return entry[0]

    def insert(self, block_hash: BlockHash, tokens: Sequence[int], block: BlockId) -> bool:
        """Makes a full, computed block findable. False if an equal one is there already."""
        if block_hash in self._blocks:
            return False
        self._blocks[block_hash] = (block, tuple(tokens))
        self._hashes[block] = block_hash
        return True

    def evict(self, block: BlockId) -> None:
        """The block is about to be overwritten."""
        del self._blocks[self._hashes.pop(block)]
