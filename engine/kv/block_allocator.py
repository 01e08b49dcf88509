"""`BlockAllocator`: gives sequences their blocks, from the prefix cache where it can."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from engine.kv.block_pool import BlockId, BlockPool
from engine.kv.prefix_cache import BlockHash, PrefixCache, chain_hash, root_hash
from engine.scheduling.sequence import Sequence


class BlockAllocator:
    """Joins the block pool, the prefix cache and the sequences' tables. Owned by the engine
    thread. Every call either does all it says or changes nothing."""

    def __init__(
        self, num_blocks: int, block_size: int, *, model: str = "", enable_prefix_cache: bool = True
    ) -> None:
        self.block_size = block_size
        self._model = model
        self._is_caching = enable_prefix_cache
        self._cache = PrefixCache()
        self.pool = BlockPool(num_blocks, self._cache.evict)

    @property
    def capacity_tokens(self) -> int:
        """Tokens that the whole cache can hold."""
        return self.pool.num_blocks * self.block_size

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def match(self, sequence: Sequence) -> list[tuple[BlockHash, BlockId]]:
        """The longest cached prefix of the sequence's tokens, at most all but the last token,
        since one position must be computed to get logits. Takes no references."""
        found: list[tuple[BlockHash, BlockId]] = []
        if not self._is_caching:
            return found
        size = self.block_size
        tokens = sequence.token_ids
        parent = root_hash(self._model, sequence.request.cache_salt)
        for start in range(0, len(tokens) - size, size):
            chunk = tokens[start : start + size]
            parent = chain_hash(parent, chunk)
            block = self._cache.lookup(parent, chunk)
            if block is None:
                break
            found.append((parent, block))
        return found

    def admit(self, sequence: Sequence, *, reserve_blocks: int = 0) -> bool:
        """Gives the sequence blocks for all its tokens, cached ones first, and sets
        `num_computed_tokens` to what the cache supplied. False, and no change, unless
        `reserve_blocks` would still be available afterwards."""
        hit = self.match(sequence)
        num_new = self.num_blocks_for(sequence.num_tokens) - len(hit)
        num_idle_hits = sum(self.pool.references(block) == 0 for _, block in hit)
        if num_new + num_idle_hits + reserve_blocks > self.pool.num_available:
            return False
        self.pool.acquire(block for _, block in hit)
        fresh = self.pool.allocate(num_new)
        assert fresh is not None
        sequence.table.extend(block for _, block in hit)
        sequence.table.extend(fresh)
        sequence.table.hashes.extend(block_hash for block_hash, _ in hit)
        sequence.num_computed_tokens = len(hit) * self.block_size
        return True

    def grow(self, sequence: Sequence) -> bool:
        """Makes sure that the table covers all the sequence's tokens."""
        missing = self.num_blocks_for(sequence.num_tokens) - len(sequence.table.blocks)
        if missing <= 0:
            return True
        blocks = self.pool.allocate(missing)
        if blocks is None:
            return False
        sequence.table.extend(blocks)
        return True

    def publish(self, sequence: Sequence) -> None:
        """Makes the blocks that became full and computed findable for others."""
        if not self._is_caching:
            return
        size, table = self.block_size, sequence.table
        for index in range(len(table.hashes), sequence.num_computed_tokens // size):
            parent = (
                table.hashes[-1]
                if table.hashes
                else root_hash(self._model, sequence.request.cache_salt)
            )
            tokens = sequence.token_ids[index * size : (index + 1) * size]
            block_hash = chain_hash(parent, tokens)
            table.hashes.append(block_hash)
            if self._cache.insert(block_hash, tokens, table.blocks[index]):
                self.pool.mark_cached(table.blocks[index])

    def free(self, sequence: Sequence) -> None:
        """Takes all blocks from the sequence; what was published stays in the prefix cache."""
        self.pool.release(sequence.table.clear())
        sequence.num_computed_tokens = 0

    def num_exclusive_blocks(self, sequence: Sequence) -> int:
        """Blocks that would become available if the sequence gave its blocks back."""
        return sum(self.pool.references(block) == 1 for block in sequence.table.blocks)

    def check(self, sequences: Iterable[Sequence]) -> None:
        """Raises BlockPoolError unless exactly `sequences` hold all references."""
        held = Counter(block for sequence in sequences for block in sequence.table.blocks)
        self.pool.check(dict(held))
