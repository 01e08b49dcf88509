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

    def match(self, sequence: Sequence) -> list[BlockId]:
        """The longest cached prefix of the sequence's tokens, at most all but the last token,
        since one position must be computed to get logits. Takes no references."""
        found: list[BlockId] = []
        if not self._is_caching:
            return found
        size = self.block_size
        for index in range((sequence.num_tokens - 1) // size):
            tokens = sequence.token_ids[index * size : (index + 1) * size]
            block = self._cache.lookup(self._hash(sequence, index), tokens)
            if block is None:
                break
            found.append(block)
        return found

    def num_cached_tokens(self, sequence: Sequence) -> int:
        """Tokens that `admit` would find in the prefix cache now."""
        return len(self.match(sequence)) * self.block_size

    def admit(self, sequence: Sequence, *, reserve_blocks: int = 0) -> bool:
        """Gives the sequence blocks for all its tokens, cached ones first, and sets
        `num_computed_tokens` to what the cache supplied. False, and no change, unless
        `reserve_blocks` would still be available afterwards."""
        hit = self.match(sequence)
        num_new = self.num_blocks_for(sequence.num_tokens) - len(hit)
        num_idle_hits = sum(self.pool.references(block) == 0 for block in hit)
        if num_new + num_idle_hits + reserve_blocks > self.pool.num_available:
            return False
        self.pool.acquire(hit)
        fresh = self.pool.allocate(num_new)
        assert fresh is not None
        sequence.table.extend(hit)
        sequence.table.extend(fresh)
        sequence.table.num_published = len(hit)
        sequence.num_computed_tokens = len(hit) * self.block_size
        return True

    def grow(self, sequence: Sequence, num_ahead: int = 0) -> bool:
        """Makes sure that the table covers all the sequence's tokens and `num_ahead` more."""
        wanted = self.num_blocks_for(sequence.num_tokens + num_ahead)
        missing = wanted - len(sequence.table.blocks)
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
        num_full = sequence.num_computed_tokens // size
        for index in range(table.num_published, num_full):
            tokens = sequence.token_ids[index * size : (index + 1) * size]
            if self._cache.insert(self._hash(sequence, index), tokens, table.blocks[index]):
                self.pool.mark_cached(table.blocks[index])
        table.num_published = num_full

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

    def _hash(self, sequence: Sequence, index: int) -> BlockHash:
        """The chained hash of the sequence's full block `index`."""
        hashes, size = sequence.block_hashes, self.block_size
        while len(hashes) <= index:
            parent = hashes[-1] if hashes else root_hash(self._model, sequence.request.cache_salt)
            start = len(hashes) * size
            hashes.append(chain_hash(parent, sequence.token_ids[start : start + size]))
        return hashes[index]
