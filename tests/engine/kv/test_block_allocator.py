from __future__ import annotations

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
