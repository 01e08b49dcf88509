from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.kv.block_pool import BlockId, BlockPool, BlockPoolError


def ids(*values: int) -> list[BlockId]:
    return [BlockId(value) for value in values]


def make(count: int, protected_share: float = 0.5) -> tuple[BlockPool, list[int]]:
    evicted: list[int] = []
    return BlockPool(count, evicted.append, protected_share=protected_share), evicted


def cached(pool: BlockPool, count: int) -> list[BlockId]:
    """Blocks that one sequence had computed and given back."""
    blocks = pool.allocate(count)
    assert blocks is not None
    for block in blocks:
        pool.mark_cached(block)
    pool.release(blocks)
    return blocks


def hit(pool: BlockPool, *blocks: BlockId) -> None:
    """Another sequence finds the blocks, and gives them back."""
    pool.acquire(blocks)
    pool.release(blocks)


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


def test_what_was_hit_outlives_what_was_not() -> None:
    pool, evicted = make(8)
    shared = cached(pool, 2)
    hit(pool, *shared)
    once = cached(pool, 4)
    assert pool.allocate(8) is not None
    assert evicted == [*reversed(once), *reversed(shared)], "though it was used longest ago"


def test_the_protected_list_is_bounded_and_its_oldest_is_on_probation_again() -> None:
    pool, evicted = make(4)
    first, second, third, _ = cached(pool, 4)
    for block in (first, second, third):
        hit(pool, block)
    assert pool.allocate(2) is not None
    assert evicted == [3, first], "half of four may be protected"
    pool.check({BlockId(3): 1, first: 1})


def test_without_protection_it_is_plain_lru() -> None:
    pool, evicted = make(3, protected_share=0.0)
    first, second, third = cached(pool, 3)
    hit(pool, first)
    pool.allocate(3)
    assert evicted == [third, second, first]


def test_a_new_prefix_in_an_old_block_is_on_probation() -> None:
    pool, evicted = make(2)
    (old,) = cached(pool, 1)
    hit(pool, old)
    pool.allocate(1)
    assert pool.allocate(1) == [old]
    pool.mark_cached(old)
    pool.release([old])
    assert evicted == [old]
    assert pool._sizes == [0, 1, 0]


def test_growth_takes_the_neighbour_if_it_is_free() -> None:
    pool, evicted = make(8)
    assert pool.allocate(2) == ids(0, 1)
    assert pool.allocate(1) == ids(2)
    assert pool.allocate(1, after=BlockId(1)) == ids(3), "2 is taken: the head of the list"
    pool.release(ids(2))
    assert pool.allocate(2, after=BlockId(1)) == ids(2, 4)
    assert pool.allocate(3, after=BlockId(7)) == ids(5, 6, 7), "there is none behind the last"
    assert evicted == []


def test_growth_does_not_evict_a_neighbour_while_others_are_free() -> None:
    pool, evicted = make(3)
    blocks = pool.allocate(2)
    assert blocks is not None
    pool.mark_cached(blocks[1])
    pool.release(blocks[1:])
    assert pool.allocate(1, after=blocks[0]) == ids(2)
    assert evicted == []


def test_evicted_blocks_are_handed_out_in_order() -> None:
    """A sequence's tail is evicted first, so they come backwards."""
    pool, evicted = make(6)
    cached(pool, 4)
    assert pool.allocate(2) == ids(4, 5)
    assert pool.allocate(3, after=BlockId(2)) == ids(3, 1, 2)
    assert evicted == [3, 2, 1]


def test_room_behind_a_sequence_is_given_away_last() -> None:
    pool, _ = make(8)
    assert pool.allocate(2) == ids(0, 1)
    pool.put_last(BlockId(1), 2)
    assert pool.allocate(3) == ids(4, 5, 6)
    assert pool.allocate(1, after=BlockId(1)) == ids(2)
    pool.put_last(BlockId(2), 99)
    assert pool.allocate(2) == ids(3, 7)
    pool.check()


def test_only_used_blocks_are_shared() -> None:
    pool, _ = make(2)
    pool.allocate(1)
    pool.share(ids(0))
    pool.check({BlockId(0): 2})
    with pytest.raises(BlockPoolError, match="nobody uses it"):
        pool.share(ids(1))


def test_check_sees_a_broken_list() -> None:
    pool, _ = make(3)
    pool._next[1] = 0
    with pytest.raises(BlockPoolError, match="list 0 is broken"):
        pool.check()


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

    @rule(count=st.integers(0, 6), after=st.one_of(st.none(), st.integers(0, 11)))
    def allocate(self, count: int, after: int | None) -> None:
        available = self.pool.num_available
        blocks = self.pool.allocate(count, None if after is None else BlockId(after))
        assert (blocks is None) == (count > available)
        if blocks:
            assert not self.cached & set(blocks)
            self.held.append(blocks)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.pool.release(self.held.pop(data.draw(st.integers(0, len(self.held) - 1))))

    @rule(behind=st.integers(0, 11), count=st.integers(0, 5))
    def put_last(self, behind: int, count: int) -> None:
        self.pool.put_last(BlockId(behind), count)

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

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        blocks = data.draw(st.sampled_from(self.held))
        self.pool.share(blocks)
        self.held.append(list(blocks))

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
