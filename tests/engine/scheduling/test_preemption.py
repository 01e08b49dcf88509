from __future__ import annotations

from engine.kv.block_allocator import BlockAllocator
from engine.scheduling.fair_shares import FairShares
from engine.scheduling.preemption import choose_givers, choose_victim
from engine.scheduling.sequence import Sequence
from tests.support.engines import make_request

ALLOCATOR_BLOCKS = 32


def running(
    allocator: BlockAllocator,
    name: str,
    size: int,
    at_s: float,
    priority: int = 0,
    user: str = "",
) -> Sequence:
    sequence = Sequence(make_request(name, size, priority=priority, user=user), arrival_s=at_s)
    assert allocator.admit(sequence)
    sequence.num_computed_tokens = size
    allocator.publish(sequence)
    return sequence


def test_the_least_work_is_lost_and_never_that_of_the_eldest() -> None:
    allocator = BlockAllocator(ALLOCATOR_BLOCKS, 4)
    eldest = running(allocator, "eldest", 4, 0.0)
    middle = running(allocator, "middle", 12, 1.0)
    youngest = running(allocator, "youngest", 16, 2.0)
    assert choose_victim([eldest, middle, youngest], allocator, FairShares()) is middle


def test_a_less_urgent_priority_goes_first_however_much_it_did() -> None:
    allocator = BlockAllocator(ALLOCATOR_BLOCKS, 4)
    batch = running(allocator, "batch", 20, 0.0, priority=1)
    person = running(allocator, "person", 8, 1.0)
    other = running(allocator, "other", 4, 2.0)
    assert choose_victim([batch, person, other], allocator, FairShares()) is batch


def test_one_that_frees_nothing_is_spared() -> None:
    """All its blocks are shared: taking it out would help nobody."""
    allocator = BlockAllocator(ALLOCATOR_BLOCKS, 4)
    first = running(allocator, "first", 8, 0.0)
    big = running(allocator, "big", 24, 1.0)
    follower = Sequence(make_request("follower", first.request.prompt_token_ids), arrival_s=2.0)
    assert allocator.admit(follower)
    allocator.pool.release([follower.table.blocks.pop()])
    assert allocator.num_exclusive_blocks(follower) == 0
    assert choose_victim([first, big, follower], allocator, FairShares()) is big


def shares_of(*sequences: Sequence) -> FairShares:
    shares = FairShares()
    for sequence in sequences:
        shares.add(sequence.request.user)
    return shares


def test_a_users_only_one_is_spared() -> None:
    allocator = BlockAllocator(ALLOCATOR_BLOCKS, 4)
    eldest = running(allocator, "eldest", 4, 0.0, user="a")
    only = running(allocator, "only", 4, 1.0, user="b")
    third = running(allocator, "third", 20, 2.0, user="a")
    shares = shares_of(eldest, only, third)
    assert choose_victim([eldest, only, third], allocator, shares) is third


def test_who_has_most_gives_to_who_has_nothing_and_everybody_keeps_one() -> None:
    allocator = BlockAllocator(ALLOCATOR_BLOCKS, 4)
    many = [running(allocator, f"m{index}", 12 - index, 0.0, user="many") for index in range(3)]
    two = [running(allocator, f"t{index}", 4 + index, 1.0, user="two") for index in range(2)]
    one = running(allocator, "one", 4, 2.0, user="one")
    shares = shares_of(*many, *two, one)
    starved = Sequence(make_request("starved", 8, user="none"), arrival_s=3.0)
    assert choose_givers([*many, *two, one], starved, shares) == [many[2], many[1], two[0]]
    assert choose_givers([one], starved, shares) == []


def test_who_is_more_urgent_gives_nothing() -> None:
    allocator = BlockAllocator(ALLOCATOR_BLOCKS, 4)
    many = [
        running(allocator, f"m{index}", 12 - index, 0.0, priority=index, user="many")
        for index in range(3)
    ]
    starved = Sequence(make_request("starved", 8, user="none", priority=2), arrival_s=3.0)
    assert choose_givers(many, starved, shares_of(*many)) == [many[2]]
