"""`BlockPool`: hands out the fixed-size blocks of the KV cache. Ids and counts only, no tensors.

Each block is in exactly one state:

| state  | references | holds a cached prefix | on the free list |
| ------ | ---------- | --------------------- | ---------------- |
| free   | 0          | no                    | yes, at the head |
| cached | 0          | yes                   | yes, by age      |
| used   | ≥ 1        | perhaps               | no               |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NewType

BlockId = NewType("BlockId", int)

_NONE = -1


class BlockPoolError(AssertionError):
    """The pool's books do not balance: a bug in the engine, never a caller's fault."""


class BlockPool:
    """Blocks 0 … num_blocks-1 with reference counts and an intrusive free list.

    Allocation takes from the head of the list, so blocks without content go first and then the
    cached prefix that was released longest ago. Owned by the engine thread. All calls are O(1)
    per block."""

    def __init__(self, num_blocks: int, on_evict: Callable[[BlockId], None]) -> None:
        self.num_blocks = num_blocks
        self._on_evict = on_evict
        self._refs = [0] * num_blocks
        self._is_cached = [False] * num_blocks
        # A ring of links with the sentinel at index num_blocks: next of the sentinel is the head.
        self._sentinel = num_blocks
        self._next = [*range(1, num_blocks + 1), 0]
        self._prev = [num_blocks, *range(num_blocks)]
        self._num_available = num_blocks
        self._num_cached_idle = 0

    @property
    def num_available(self) -> int:
        """Blocks that an allocation may take: free and cached ones."""
        return self._num_available

    @property
    def num_cached(self) -> int:
        """Blocks that nobody uses and that hold a cached prefix."""
        return self._num_cached_idle

    @property
    def num_used(self) -> int:
        """Blocks with at least one reference."""
        return self.num_blocks - self._num_available

    def references(self, block: BlockId) -> int:
        """How many sequences hold the block."""
        return self._refs[block]

    def allocate(self, count: int) -> list[BlockId] | None:
        """`count` blocks with one reference each, or None and no change if there are too few."""
        if count > self._num_available:
            return None
        blocks = []
        for _ in range(count):
            block = BlockId(self._next[self._sentinel])
            self._unlink(block)
            if self._is_cached[block]:
                self._is_cached[block] = False
                self._num_cached_idle -= 1
                self._on_evict(block)
            self._refs[block] = 1
            blocks.append(block)
        return blocks

    def acquire(self, blocks: Iterable[BlockId]) -> None:
        """One more reference to each block (a prefix hit); takes idle ones off the free list."""
        for block in blocks:
            if self._refs[block] == 0:
                self._unlink(block)
                self._num_cached_idle -= self._is_cached[block]
            self._refs[block] += 1

    def release(self, blocks: Sequence[BlockId]) -> None:
        """Drops one reference to each block. Later blocks of the sequence become reusable before
        earlier ones, since a prefix is worth more than what follows it."""
        for block in reversed(blocks):
            refs = self._refs[block] - 1
            if refs < 0:
                raise BlockPoolError(f"block {block} released more often than acquired")
            self._refs[block] = refs
            if refs == 0:
                if self._is_cached[block]:
                    self._num_cached_idle += 1
                    self._link_before(block, self._sentinel)
                else:
                    self._link_before(block, self._next[self._sentinel])

    def mark_cached(self, block: BlockId) -> None:
        """The used block now holds a prefix that others may find."""
        if self._refs[block] == 0:
            raise BlockPoolError(f"block {block} is cached while nobody uses it")
        self._is_cached[block] = True

    def check(self, references: dict[BlockId, int] | None = None) -> None:
        """Raises BlockPoolError unless free + cached + used = all blocks and, where given, the
        reference counts are exactly `references`."""
        on_list: set[int] = set()
        node = self._next[self._sentinel]
        while node != self._sentinel:
            if node in on_list or self._prev[self._next[node]] != node:
                raise BlockPoolError(f"free list is broken at block {node}")
            on_list.add(node)
            node = self._next[node]
        idle = {block for block, refs in enumerate(self._refs) if refs == 0}
        if on_list != idle or len(idle) != self._num_available:
            raise BlockPoolError(f"{len(on_list)} blocks on the free list, {len(idle)} unused")
        num_cached = sum(self._is_cached[block] for block in idle)
        if num_cached != self._num_cached_idle:
            raise BlockPoolError(
                f"{num_cached} idle cached blocks, {self._num_cached_idle} counted"
            )
        if references is not None:
            for block, refs in enumerate(self._refs):
                if refs != references.get(BlockId(block), 0):
                    raise BlockPoolError(
                        f"block {block} has {refs} references, "
                        f"{references.get(BlockId(block), 0)} are held"
                    )

    def _unlink(self, block: int) -> None:
        before, after = self._prev[block], self._next[block]
        self._next[before] = after
        self._prev[after] = before
        self._next[block] = self._prev[block] = _NONE
        self._num_available -= 1

    def _link_before(self, block: int, after: int) -> None:
        before = self._prev[after]
        self._next[before] = self._prev[after] = block
        self._prev[block], self._next[block] = before, after
        self._num_available += 1
