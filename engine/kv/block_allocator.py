"""`BlockAllocator`: gives sequences their blocks, from the prefix cache where it can."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from engine.kv.block_pool import PROTECTED_SHARE, BlockId, BlockPool
from engine.kv.prefix_cache import BlockHash, PrefixCache, chain_hash, root_hash
from engine.scheduling.sequence import Sequence

BlockCopy = tuple[BlockId, BlockId]
"""Source and destination."""


class BlockAllocator:
    """Joins the block pool, the prefix cache and the sequences' tables. Owned by the engine
    thread. Every call either does all it says or changes nothing."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        model: str = "",
        enable_prefix_cache: bool = True,
        protected_share: float = PROTECTED_SHARE,
    ) -> None:
        self.block_size = block_size
        self._model = model
        self._is_caching = enable_prefix_cache
        self._cache = PrefixCache()
        self._computing: dict[BlockHash, Sequence] = {}
        """Full blocks that were given to a sequence and that it has yet to compute."""
        self.pool = BlockPool(num_blocks, self._cache.evict, protected_share=protected_share)
        self.num_lookup_tokens = 0
        """Tokens of the sequences that were admitted for the first time."""
        self.num_hit_tokens = 0
        """What the prefix cache had of them."""

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
        for index in range(self._num_findable(sequence)):
            block = self._find(sequence, index)
            if block is None:
                break
            found.append(block)
        return found

    def num_cached_tokens(self, sequence: Sequence) -> int:
        """Tokens that `admit` would find in the prefix cache now, more or less: it starts from
        what it said last, so that asking again costs two look-ups and not the whole chain."""
        if not self._is_caching:
            return 0
        count, limit = sequence.num_blocks_seen_cached, self._num_findable(sequence)
        while count < limit and self._find(sequence, count) is not None:
            count += 1
        if count and self._find(sequence, count - 1) is None:
            count = len(self.match(sequence))
        sequence.num_blocks_seen_cached = count
        return count * self.block_size

    def computing(self, sequence: Sequence) -> Sequence | None:
        """The running sequence that is about to compute the first full block that `sequence`
        would miss in the prefix cache: waiting for it is cheaper than computing it again."""
        if not self._computing:
            return None
        index = self.num_cached_tokens(sequence) // self.block_size
        if index >= self._num_findable(sequence):
            return None
        return self._computing.get(self._hash(sequence, index))

    def admit(self, sequence: Sequence, *, reserve_blocks: int = 0) -> bool:
        """Gives the sequence blocks for all its tokens, cached ones first, and sets
        `num_computed_tokens` to what the cache supplied. False, and no change, unless
        `reserve_blocks` would still be available afterwards."""
        hit = self.match(sequence)
        num_new = self.num_blocks_for(sequence.num_tokens) - len(hit)
        if not self._has_room(sequence, hit, reserve_blocks):
            return False
        self.pool.acquire(hit)
        sequence.table.extend(hit)
        self._extend(sequence, num_new)
        sequence.table.num_published = sequence.table.num_shared = len(hit)
        sequence.num_computed_tokens = len(hit) * self.block_size
        if sequence.num_preemptions == 0:
            self.num_lookup_tokens += sequence.num_tokens
            self.num_hit_tokens += sequence.num_computed_tokens
        if self._is_caching:
            for index in range(len(hit), sequence.num_tokens // self.block_size):
                self._computing.setdefault(self._hash(sequence, index), sequence)
        return True

    def would_fit(
        self, sequence: Sequence, reserve_blocks: int, without: Iterable[Sequence]
    ) -> bool:
        """Whether `admit` would find room if the sequences `without` had given up their blocks."""
        return self._has_room(sequence, self.match(sequence), reserve_blocks, without)

    def _has_room(
        self,
        sequence: Sequence,
        hit: list[BlockId],
        reserve_blocks: int,
        without: Iterable[Sequence] = (),
    ) -> bool:
        held = Counter(block for other in without for block in other.table.blocks)
        num_freed = sum(self.pool.references(block) == count for block, count in held.items())
        # A hit that nobody holds (any more) is among the available ones, and is taken from them.
        num_idle_hits = sum(self.pool.references(block) == held[block] for block in hit)
        num_new = self.num_blocks_for(sequence.num_tokens) - len(hit)
        needed = num_new + num_idle_hits + reserve_blocks
        return needed <= self.pool.num_available + num_freed

    def fork(
        self, sequence: Sequence, source: Sequence, *, reserve_blocks: int = 0
    ) -> list[BlockCopy] | None:
        """Like `admit`, with the blocks of `source`, which has computed the same prompt: all but
        the prompt's last token count as computed. `sequence` will write into the block of that
        token, so it gets one of its own, and what is before the token in it must be copied before
        anything else is computed. Returns that copy, if there is one; None, and no change, if
        there is no room."""
        num_computed = sequence.num_prompt_tokens - 1
        num_shared, num_copied = divmod(num_computed, self.block_size)
        num_new = self.num_blocks_for(sequence.num_tokens) - num_shared
        if num_new + reserve_blocks > self.pool.num_available:
            return None
        shared = source.table.blocks[:num_shared]
        self.pool.share(shared)
        sequence.table.extend(shared)
        self._extend(sequence, num_new)
        sequence.table.num_shared = num_shared
        sequence.table.num_published = min(num_shared, source.table.num_published)
        sequence.num_computed_tokens = num_computed
        if num_copied == 0:
            return []
        return [(source.table.blocks[num_shared], sequence.table.blocks[num_shared])]

    def room_ahead(self, sequence: Sequence) -> int:
        """Tokens behind the sequence's last one that `grow` has blocks for now."""
        num_blocks = len(sequence.table.blocks) + self.pool.num_available
        return num_blocks * self.block_size - sequence.length

    def grow(self, sequence: Sequence, num_ahead: int = 0) -> bool:
        """Makes sure that the table covers all the sequence's tokens, known or not, and
        `num_ahead` more."""
        wanted = self.num_blocks_for(sequence.length + num_ahead)
        missing = wanted - len(sequence.table.blocks)
        return missing <= 0 or self._extend(sequence, missing)

    def keep_room(self, sequence: Sequence, num_tokens: int) -> None:
        """The blocks behind the sequence's last one are given to others last, as many as
        `num_tokens` more will need. Promises nothing."""
        self.pool.put_last(sequence.table.blocks[-1], self.num_blocks_for(num_tokens))

    def publish(self, sequence: Sequence, num_tokens: int | None = None) -> None:
        """Makes the full blocks of the sequence's first `num_tokens` tokens findable for others.
        They are computed and known; None: all that are computed, where no step is in flight."""
        if not self._is_caching:
            return
        size, table = self.block_size, sequence.table
        num_full = (sequence.num_computed_tokens if num_tokens is None else num_tokens) // size
        for index in range(table.num_published, num_full):
            tokens = sequence.token_ids[index * size : (index + 1) * size]
            block_hash = self._hash(sequence, index)
            if self._cache.insert(block_hash, tokens, table.blocks[index]):
                self.pool.mark_cached(table.blocks[index])
            if self._computing.get(block_hash) is sequence:
                del self._computing[block_hash]
        table.num_published = num_full

    def free(self, sequence: Sequence) -> None:
        """Takes all blocks from the sequence; what was published stays in the prefix cache."""
        if self._is_caching:
            for block_hash in sequence.block_hashes[sequence.table.num_published :]:
                if self._computing.get(block_hash) is sequence:
                    del self._computing[block_hash]
        self.pool.release(sequence.table.clear())
        sequence.num_computed_tokens = sequence.num_slots = 0

    def num_exclusive_blocks(self, sequence: Sequence) -> int:
        """Blocks that would become available if the sequence gave its blocks back."""
        return sum(self.pool.references(block) == 1 for block in sequence.table.blocks)

    def check(self, sequences: Iterable[Sequence]) -> None:
        """Raises BlockPoolError unless exactly `sequences` hold all references."""
        held = Counter(block for sequence in sequences for block in sequence.table.blocks)
        self.pool.check(dict(held))

    def _extend(self, sequence: Sequence, count: int) -> bool:
        blocks = sequence.table.blocks
        fresh = self.pool.allocate(count, after=blocks[-1] if blocks else None)
        if fresh is None:
            return False
        sequence.table.extend(fresh)
        sequence.num_slots = len(blocks) * self.block_size
        return True

    def _num_findable(self, sequence: Sequence) -> int:
        """Leading blocks that a prefix hit may cover."""
        return (sequence.num_tokens - 1) // self.block_size

    def _find(self, sequence: Sequence, index: int) -> BlockId | None:
        size = self.block_size
        tokens = sequence.token_ids[index * size : (index + 1) * size]
        return self._cache.lookup(self._hash(sequence, index), tokens)

    def _hash(self, sequence: Sequence, index: int) -> BlockHash:
        """The chained hash of the sequence's full block `index`."""
        hashes, size = sequence.block_hashes, self.block_size
        while len(hashes) <= index:
            parent = hashes[-1] if hashes else root_hash(self._model, sequence.request.cache_salt)
            start = len(hashes) * size
            hashes.append(chain_hash(parent, sequence.token_ids[start : start + size]))
        return hashes[index]
