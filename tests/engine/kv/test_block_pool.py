from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.kv.block_pool import BlockId, BlockPool, BlockPoolError


def ids(*values: int) -> list[BlockId]:
    return [BlockId(value) for value in values]


def make(count: int) -> tuple[BlockPool, list[int]]:
    evicted: list[int] = []
    return BlockPool(count, evicted.append), evicted


def test_allocates_in_order_and_says_none_when_short() -> None:
    pool, _ = make(4)
    assert pool.allocate(3) == ids(0, 1, 2)
    assert pool.allocate(2) is None
    assert pool.num_available == 1
    pool.check()


def test_blocks_without_content_are_reused_before_cached_ones() -> None:
    pool, evicted = make(3)
    blocks = pool.allocate(3)
    assert blocks is not None
    pool.mark_cached(blocks[0])
    pool.release(blocks)
    assert pool.num_cached == 1
    assert pool.allocate(2) == ids(1, 2)
    assert evicted == []
    assert pool.allocate(1) == ids(0)
    assert evicted == [0]


def test_the_tail_of_a_released_sequence_is_evicted_before_its_head() -> None:
    pool, evicted = make(3)
    blocks = pool.allocate(3)
    assert blocks is not None
    for block in blocks:
        pool.mark_cached(block)
    pool.release(blocks)
    pool.allocate(2)
    assert evicted == [2, 1]


def test_an_acquired_cached_block_is_not_evicted() -> None:
    pool, evicted = make(2)
    blocks = pool.allocate(2)
    assert blocks is not None
    for block in blocks:
        pool.mark_cached(block)
    pool.release(blocks)
    pool.acquire(ids(1))
    assert pool.allocate(2) is None
    assert pool.allocate(1) == ids(0)
    assert evicted == [0]
    pool.check({BlockId(0): 1, BlockId(1): 1})


def test_releasing_twice_is_an_error() -> None:
    pool, _ = make(1)
    blocks = pool.allocate(1)
    assert blocks is not None
    pool.release(blocks)
    with pytest.raises(BlockPoolError, match="released more often"):
        pool.release(blocks)


def test_check_sees_a_wrong_reference_count() -> None:
    pool, _ = make(2)
    pool.allocate(1)
    with pytest.raises(BlockPoolError, match="references"):
        pool.check({})


class PoolMachine(RuleBasedStateMachine):
    """Any history keeps free + cached + used = all blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.cached: set[int] = set()
        self.pool = BlockPool(12, self.cached.remove)
        self.held: list[list[BlockId]] = []

    @rule(count=st.integers(0, 6))
    def allocate(self, count: int) -> None:
        available = self.pool.num_available
        blocks = self.pool.allocate(count)
        assert (blocks is None) == (count > available)
        if blocks:
            assert not self.cached & set(blocks)
            self.held.append(blocks)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.pool.release(self.held.pop(data.draw(st.integers(0, len(self.held) - 1))))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def mark(self, data: st.DataObject) -> None:
        for block in data.draw(st.sampled_from(self.held)):
            self.pool.mark_cached(block)
            self.cached.add(block)

    @precondition(lambda self: self.cached)
    @rule(data=st.data())
    def acquire(self, data: st.DataObject) -> None:
        block = BlockId(data.draw(st.sampled_from(sorted(self.cached))))
        self.pool.acquire([block])
        self.held.append([block])

    @invariant()
    def books_balance(self) -> None:
        counts: dict[BlockId, int] = {}
        for blocks in self.held:
            for block in blocks:
                counts[block] = counts.get(block, 0) + 1
        self.pool.check(counts)
        assert self.pool.num_used == len(counts)
        assert self.pool.num_cached == len(self.cached - set(counts))


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(stateful_step_count=40)
