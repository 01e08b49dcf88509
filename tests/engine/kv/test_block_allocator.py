from __future__ import annotations

import pytest

from engine.kv.block_allocator import BlockAllocator
from engine.scheduling.sequence import Sequence
from tests.support.engines import make_request


def sequence(tokens: tuple[int, ...], salt: str = "", name: str = "s") -> Sequence:
    return Sequence(make_request(name, tokens, salt=salt), arrival_s=0.0)


def computed(allocator: BlockAllocator, seq: Sequence) -> Sequence:
    """Admits and computes a sequence whole."""
    assert allocator.admit(seq)
    seq.num_computed_tokens = seq.num_tokens
    allocator.publish(seq)
    return seq


def test_a_hit_leaves_at_least_one_token_to_compute() -> None:
    """A prompt that is a multiple of the block size and all in the cache still needs logits."""
    allocator = BlockAllocator(16, 4)
    prompt = tuple(range(8))
    computed(allocator, sequence(prompt))
    again = sequence(prompt)
    assert allocator.admit(again)
    assert again.num_computed_tokens == 4
    longer = sequence((*prompt, 99))
    assert allocator.admit(longer)
    assert longer.num_computed_tokens == 8


def test_shared_blocks_are_shared_and_counted() -> None:
    allocator = BlockAllocator(16, 4)
    first = computed(allocator, sequence(tuple(range(10))))
    second = sequence((*range(8), 77, 78))
    assert allocator.admit(second)
    assert second.table.blocks[:2] == first.table.blocks[:2]
    assert second.table.blocks[2] != first.table.blocks[2]
    assert allocator.num_exclusive_blocks(second) == 1
    allocator.check([first, second])
    allocator.free(first)
    allocator.check([second])


def test_salts_do_not_share() -> None:
    allocator = BlockAllocator(16, 4)
    computed(allocator, sequence(tuple(range(8)), salt="a"))
    other = sequence(tuple(range(8)), salt="b")
    assert allocator.admit(other)
    assert other.num_computed_tokens == 0


def test_no_room_changes_nothing() -> None:
    allocator = BlockAllocator(4, 4)
    first = computed(allocator, sequence(tuple(range(12))))
    second = sequence(tuple(range(50, 58)))
    assert not allocator.admit(second)
    assert second.table.blocks == []
    allocator.check([first])


def test_the_reserve_counts_hits_that_were_idle() -> None:
    """Idle cached blocks that a hit takes are no longer available for growth."""
    allocator = BlockAllocator(4, 4)
    first = computed(allocator, sequence(tuple(range(8))))
    allocator.free(first)
    second = sequence((*range(8), 9))
    assert not allocator.admit(second, reserve_blocks=2)
    assert allocator.admit(second, reserve_blocks=1)
    assert second.num_computed_tokens == 8


def test_evicted_prefixes_are_not_hit() -> None:
    """What is reused is decided when the sequence is admitted, not when it arrived."""
    allocator = BlockAllocator(4, 4)
    first = computed(allocator, sequence(tuple(range(8))))
    allocator.free(first)
    late = sequence(tuple(range(8)))
    assert len(allocator.match(late)) == 1
    filler = computed(allocator, sequence(tuple(range(100, 116))))
    allocator.free(filler)
    assert allocator.admit(late)
    assert late.num_computed_tokens == 0


def test_without_prefix_cache_nothing_is_kept() -> None:
    allocator = BlockAllocator(8, 4, enable_prefix_cache=False)
    computed(allocator, sequence(tuple(range(8))))
    again = sequence(tuple(range(8)))
    assert allocator.admit(again)
    assert again.num_computed_tokens == 0


def test_the_hit_rate_counts_first_admissions_only() -> None:
    allocator = BlockAllocator(16, 4)
    computed(allocator, sequence(tuple(range(10))))
    again = sequence((*range(8), 77))
    assert allocator.admit(again)
    assert (allocator.num_lookup_tokens, allocator.num_hit_tokens) == (19, 8)
    again.num_preemptions = 1
    allocator.free(again)
    assert allocator.admit(again), "as after a preemption"
    assert (allocator.num_lookup_tokens, allocator.num_hit_tokens) == (19, 8)


def test_asking_again_what_is_cached_follows_what_comes_and_goes() -> None:
    allocator = BlockAllocator(8, 4)
    late = sequence((*range(16), 99))
    assert allocator.num_cached_tokens(late) == 0
    first = computed(allocator, sequence(tuple(range(9))))
    assert allocator.num_cached_tokens(late) == 8
    second = computed(allocator, sequence(tuple(range(17))))
    assert allocator.num_cached_tokens(late) == 16
    allocator.free(second)
    allocator.free(first)
    filler = sequence(tuple(range(100, 128)))
    assert allocator.admit(filler)
    assert allocator.num_cached_tokens(late) == 4 * len(allocator.match(late)) == 4


def test_who_computes_the_next_block_is_known_until_it_is_done() -> None:
    allocator = BlockAllocator(16, 4)
    first = sequence(tuple(range(14)), name="first")
    assert allocator.admit(first)
    waiting = sequence((*range(8), 50, 51, 52))
    assert allocator.computing(waiting) is first
    first.num_computed_tokens = 5
    allocator.publish(first)
    assert allocator.computing(waiting) is first, "its second block"
    first.num_computed_tokens = 8
    allocator.publish(first)
    assert allocator.computing(waiting) is None, "its third block is another one"
    assert allocator.computing(sequence(tuple(range(9)), salt="s")) is None
    same = sequence(tuple(range(13)))
    assert allocator.computing(same) is first
    allocator.free(first)
    assert allocator.computing(same) is None
    assert allocator._computing == {}


@pytest.mark.parametrize("enable_prefix_cache", [True, False])
@pytest.mark.parametrize(("size", "num_shared"), [(8, 1), (9, 2), (11, 2), (12, 2), (3, 0)])
def test_a_fork_shares_all_but_the_block_of_the_last_prompt_token(
    enable_prefix_cache: bool, size: int, num_shared: int
) -> None:
    """It computes that token again, to sample behind it, and so writes into its block; what is
    before it in there is copied."""
    allocator = BlockAllocator(16, 4, enable_prefix_cache=enable_prefix_cache)
    source = computed(allocator, sequence(tuple(range(size))))
    source.token_ids += [70, 71]
    assert allocator.grow(source)
    follower = sequence(tuple(range(size)))
    copies = allocator.fork(follower, source)
    pair = (source.table.blocks[num_shared], follower.table.blocks[num_shared])
    assert copies == ([] if size == 4 * num_shared + 1 else [pair])
    assert follower.num_computed_tokens == size - 1
    assert follower.table.blocks[:num_shared] == source.table.blocks[:num_shared]
    assert not set(follower.table.blocks[num_shared:]) & set(source.table.blocks)
    allocator.check([source, follower])
    follower.num_computed_tokens = size
    allocator.publish(follower)
    allocator.free(source)
    allocator.check([follower])
    allocator.free(follower)
    allocator.check([])


def test_a_fork_without_room_changes_nothing() -> None:
    allocator = BlockAllocator(4, 4)
    source = computed(allocator, sequence(tuple(range(10))))
    follower = sequence(tuple(range(10)))
    assert allocator.fork(follower, source, reserve_blocks=1) is None
    assert follower.table.blocks == []
    allocator.check([source])
    assert allocator.fork(follower, source) is not None


def test_growth_stays_in_one_piece_where_it_can() -> None:
    allocator = BlockAllocator(16, 4)
    first = sequence(tuple(range(8)))
    assert allocator.admit(first)
    first.token_ids += range(20, 28)
    assert allocator.grow(first)
    start = first.table.blocks[0]
    assert first.table.blocks == list(range(start, start + 4))


def test_would_fit_says_what_admit_does() -> None:
    """With idle hits, which are taken from the available blocks, and with a block that several
    of those who give up share."""
    allocator = BlockAllocator(10, 4)
    allocator.free(computed(allocator, sequence(tuple(range(16)))))  # four idle blocks of a prefix
    tail = tuple(range(50, 62))
    first = computed(allocator, sequence((*tail, 1), name="first"))
    second = computed(allocator, sequence((*tail, 2), name="second"))
    assert second.table.blocks[:3] == first.table.blocks[:3]
    # Five are used: five are available, of which the hit takes four.
    asking = sequence((*range(16), *range(70, 76)), name="asking")  # six blocks, four of them hits
    for reserve in range(3):
        expected = {(): False, ("first",): reserve == 0, ("first", "second"): True}
        for names, is_fit in expected.items():
            given = [other for other in (first, second) if other.request_id in names]
            assert allocator.would_fit(asking, reserve, given) is is_fit, (reserve, names)
    assert not allocator.admit(asking)
    allocator.free(first)
    assert allocator.admit(asking)


def test_the_room_ahead_is_what_growth_has_blocks_for() -> None:
    """The rest of the last block, free blocks, and those that only the prefix cache holds."""
    allocator = BlockAllocator(6, 4)
    allocator.free(computed(allocator, sequence(tuple(range(50, 58)), name="cached")))
    other = computed(allocator, sequence((90, 91), name="other"))
    growing = computed(allocator, sequence(tuple(range(5)), name="growing"))
    assert allocator.pool.num_cached == 2
    assert allocator.room_ahead(growing) == 3 + 3 * 4
    assert not allocator.grow(growing, num_ahead=16)
    assert allocator.grow(growing, num_ahead=15)
    assert allocator.room_ahead(growing) == 15, "its own blocks count still"
    assert allocator.room_ahead(other) == 2
    allocator.check([growing, other])
