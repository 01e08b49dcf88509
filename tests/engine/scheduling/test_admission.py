"""Who is let in, seen through the scheduler: sharing of prompts, and room to grow."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kv.block_allocator import BlockAllocator
from engine.scheduling.admission import STARVED_AFTER_S, Admission
from engine.scheduling.fair_shares import NUM_KEPT
from engine.scheduling.sequence import Sequence, SequenceStatus
from tests.engine.scheduling.test_scheduler import Bench, shape
from tests.support.engines import make_request

PROMPT = tuple(range(10))


def send(
    bench: Bench,
    name: str,
    prompt: tuple[int, ...] = PROMPT,
    *,
    leader: str | None = None,
    priority: int = 0,
    max_tokens: int | None = None,
    user: str = "",
) -> Sequence:
    request = make_request(
        name, prompt, same_prompt_as=leader, priority=priority, max_tokens=max_tokens, user=user
    )
    sequence = Sequence(request, arrival_s=bench.now_s)
    bench.now_s += 0.001
    bench.scheduler.add(sequence)
    return sequence


def test_choices_wait_for_their_prompt_and_then_share_it() -> None:
    bench = Bench(max_num_batched_tokens=6)
    leader = send(bench, "a")
    followers = [send(bench, name, leader="a") for name in "bc"]
    assert shape(bench.step()) == [("a", 6, False)]
    assert shape(bench.step()) == [("a", 4, True)], "nobody else begins, though there is budget"
    plan = bench.step()
    assert shape(plan) == [("a", 1, True), ("b", 1, True), ("c", 1, True)]
    assert [item.start for item in plan.scheduled] == [10, 9, 9]
    assert plan.copies == tuple(
        (leader.table.blocks[2], follower.table.blocks[2]) for follower in followers
    )
    assert [follower.num_cached_tokens for follower in followers] == [9, 9]
    assert bench.scheduler.num_forks == 2
    assert bench.step().copies == ()


@pytest.mark.parametrize("how", ["ended while it waited", "ended while it computed", "preempted"])
def test_without_its_leader_the_next_one_leads(how: str) -> None:
    bench = Bench(max_num_batched_tokens=6)
    leader = send(bench, "a")
    followers = [send(bench, name, leader="a") for name in "bc"]
    if how == "ended while it waited":
        bench.scheduler.finish(leader)
    elif how == "ended while it computed":
        bench.step()
        bench.scheduler.finish(leader)
    else:
        bench.step()
        del bench.scheduler._running[leader.request_id]
        bench.scheduler._admission.preempt(leader, bench.now_s)
        followers.insert(0, leader)  # it had been there before, so it leads again
    names = [follower.request_id for follower in followers]
    assert shape(bench.step()) == [(names[0], 6, False)]
    assert shape(bench.step()) == [(names[0], 4, True)]
    assert shape(bench.step()) == [(name, 1, True) for name in names]


def test_a_follower_shares_with_whoever_of_the_group_still_runs() -> None:
    bench = Bench(max_num_seqs=2)
    first = send(bench, "a")
    send(bench, "b", leader="a")
    third = send(bench, "c", leader="a")
    bench.step()
    bench.step()
    bench.scheduler.finish(first)
    plan = bench.step()
    assert shape(plan) == [("b", 1, True), ("c", 1, True)]
    assert len(plan.copies) == 1
    assert third.num_cached_tokens == 9


def test_a_longer_hit_in_the_prefix_cache_needs_no_copy() -> None:
    """Nine tokens behind a block border: all but the last are full blocks."""
    bench = Bench(enable_prefix_cache=True)
    send(bench, "a", tuple(range(9)))
    send(bench, "b", tuple(range(9)), leader="a")
    bench.step()
    plan = bench.step()
    assert shape(plan) == [("a", 1, True), ("b", 1, True)]
    assert plan.copies == ()
    assert bench.scheduler.num_forks == 0


def test_a_prompt_of_one_token_is_computed() -> None:
    bench = Bench()
    send(bench, "a", (7,))
    send(bench, "b", (7,), leader="a")
    bench.step()
    plan = bench.step()
    assert shape(plan) == [("a", 1, True), ("b", 1, True)]
    assert plan.copies == ()


def test_a_prefix_that_is_being_computed_is_waited_for() -> None:
    bench = Bench(enable_prefix_cache=True, max_num_batched_tokens=8)
    shared = tuple(range(100, 116))
    send(bench, "a", (*shared, 1, 2))
    late = send(bench, "b", (*shared, 3, 4, 5))
    other = send(bench, "c", tuple(range(40)))
    assert shape(bench.step()) == [("a", 8, False)]
    assert shape(bench.step()) == [("a", 8, False)]
    assert shape(bench.step()) == [("a", 2, True), ("b", 3, True), ("c", 3, False)]
    assert (late.num_cached_tokens, other.num_cached_tokens) == (16, 0)


def test_who_waits_for_a_prefix_lends_its_urgency_to_the_one_that_computes_it() -> None:
    """Else the urgent one would wait for all that is more urgent than the other."""
    bench = Bench(enable_prefix_cache=True, max_num_batched_tokens=8, max_num_seqs=8)
    shared = tuple(range(100, 116))
    send(bench, "idle", (*shared, 1, 2), priority=2)
    assert shape(bench.step()) == [("idle", 8, False)]
    send(bench, "middle", tuple(range(40)), priority=1)
    send(bench, "urgent", (*shared, 3, 4), priority=0)
    assert shape(bench.step()) == [("idle", 8, False)]
    assert shape(bench.step()) == [("urgent", 2, True), ("middle", 6, False)]


def test_waiting_for_a_prefix_holds_up_nobody_else() -> None:
    bench = Bench(enable_prefix_cache=True, max_num_batched_tokens=24)
    send(bench, "a", (*range(100, 116), 1))
    send(bench, "b", (*range(100, 116), 2))
    send(bench, "c", tuple(range(30)))
    assert shape(bench.step()) == [("a", 17, True), ("c", 7, False)]


def test_admission_keeps_half_of_what_answers_will_likely_need() -> None:
    """Two blocks of prompt and ten of answer each: seven are counted."""
    for num_blocks, num_running in ((13, 1), (14, 2), (20, 2), (21, 3)):
        bench = Bench(num_blocks=num_blocks)
        for index in range(3):
            send(bench, f"r{index}", tuple(range(100, 108)), max_tokens=40)
        bench.step()
        assert bench.scheduler.num_running == num_running


def test_admission_learns_how_long_answers_are() -> None:
    """Whatever they might be: nobody asks for less than the window here."""
    bench = Bench(num_blocks=40, max_num_seqs=20)
    running: list[int] = []
    for index in range(90):
        send(bench, f"r{index}", tuple(range(100, 108)))
    while bench.scheduler.has_work:
        for sequence in bench.scheduler.sequences():
            if sequence.num_output_tokens == 4:
                bench.scheduler.finish(sequence)
        bench.step()
        running.append(bench.scheduler.num_running)
    assert max(running[:3]) == 2, "128 tokens were expected"
    assert max(running) >= 12, "three blocks each"
    assert bench.scheduler.num_preemptions == 0


def test_what_fits_alone_is_admitted_alone() -> None:
    bench = Bench(num_blocks=8)
    only = send(bench, "a", tuple(range(31)), max_tokens=1000)
    bench.step()
    assert only.status is SequenceStatus.DECODE


def test_one_user_does_not_take_all_slots_of_a_step() -> None:
    """What is admitted counts at once, not only when it has been computed."""
    bench = Bench(max_num_seqs=3)
    for index in range(3):
        send(bench, f"greedy{index}", (index, *range(5)), user="greedy")
    send(bench, "modest", (9, *range(5)), user="modest")
    bench.step()
    running = [seq.request_id for seq in bench.scheduler.sequences()[:3]]
    assert running == ["greedy0", "modest", "greedy1"]


def test_nothing_is_kept_of_requests_that_came_and_went() -> None:
    bench = Bench(max_num_seqs=4, num_blocks=512)
    send(bench, "endless")
    for index in range(300):
        sequence = send(bench, f"r{index}", (index,), user=f"u{index}")
        bench.step()
        bench.scheduler.finish(sequence)
    admission = bench.scheduler._admission
    assert len(admission._to_look_at) <= 2
    assert len(admission.shares._counters) <= NUM_KEPT + 3
    assert len(admission._groups._running) == 1


def test_a_hit_that_was_never_used_is_not_reported() -> None:
    """Admitted in the place of another user's request, and given up before its first chunk."""
    bench = Bench(enable_prefix_cache=True, max_num_seqs=2, max_num_batched_tokens=4)
    send(bench, "first", user="light", prompt=tuple(range(8)))
    while bench.scheduler.has_work:
        bench.step()
        for sequence in bench.scheduler.sequences():
            if sequence.num_output_tokens:
                bench.scheduler.finish(sequence)
    for index in range(2):
        send(bench, f"heavy{index}", (70 + index,), user="heavy")
        bench.step()
    light = send(bench, "light", (*range(8), 9), user="light")
    bench.now_s += STARVED_AFTER_S
    bench.scheduler._cost.observe(1, 0, 0.0, 100.0)
    bench.scheduler._cost.observe(1, 1, 1.0, 300.0)
    bench.scheduler._steps_without_prefill = 0
    plan = bench.scheduler.schedule(bench.now_s)
    assert light.status is SequenceStatus.PREFILL
    assert light.request_id not in {item.sequence.request_id for item in plan.scheduled}
    assert light.num_computed_tokens == 8
    assert light.num_cached_tokens is None
    assert light.first_scheduled_s is None


def test_nothing_is_kept_of_requests_that_left_while_they_waited() -> None:
    """Nobody can be admitted meanwhile, so the queue is not looked through."""
    bench = Bench(max_num_seqs=1, num_blocks=512)
    send(bench, "endless", max_tokens=1000)
    bench.step()
    for index in range(100):
        sequence = send(bench, f"gone{index}", (index,))
        bench.step()
        bench.scheduler.finish(sequence)
    del sequence
    gc.collect()
    left = [found for found in gc.get_objects() if type(found) is Sequence]
    assert not [found for found in left if found.request_id.startswith("gone")]


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 40), st.integers(1, 60)), max_size=6),
    st.lists(st.integers(1, 60), max_size=5),
    st.integers(1, 60),
    st.sampled_from((1, 4, 16)),
)
def test_plenty_of_room_is_no_other_decision(
    running: list[tuple[int, int, int]], ended: list[int], max_tokens: int, block_size: int
) -> None:
    """Where there is room for the rough bound, there is room for what the growth needs."""
    allocator = BlockAllocator(10_000, block_size)
    admission = Admission(allocator, 200)
    for num_tokens in ended:
        admission._lengths.observe(num_tokens)
    sequences: list[Sequence] = []
    for index, (num_prompt, num_output, most) in enumerate(running):
        request = make_request(f"r{index}", num_prompt, max_tokens=num_output + most)
        sequences.append(Sequence(request, arrival_s=0.0))
        sequences[-1].token_ids += [1] * num_output
        assert allocator.admit(sequences[-1])
    waiting = Sequence(make_request("new", 9, max_tokens=max_tokens), arrival_s=0.0)
    rough = admission._reserve(waiting, 0, sequences)
    held = allocator.pool.allocate(allocator.pool.num_available)
    assert held is not None
    exact = admission._reserve(waiting, 0, sequences)
    assert exact <= rough


def test_once_the_house_is_full_nobody_else_who_waits_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(max_num_seqs=3, num_blocks=512, max_num_batched_tokens=64)
    for index in range(50):
        send(bench, f"r{index}", (index, *PROMPT), user=f"u{index % 7}")
    looked: list[str] = []
    awaited = Admission.awaited

    def look(admission: Admission, sequence: Sequence) -> Sequence | None:
        looked.append(sequence.request_id)
        return awaited(admission, sequence)

    monkeypatch.setattr(Admission, "awaited", look)
    assert len(bench.step().scheduled) == 3
    assert len(looked) == 4, "three, and the one that finds the house full"
