from __future__ import annotations

from collections.abc import Callable
from random import Random

from engine.kv.block_allocator import BlockAllocator
from engine.scheduling.drafter import Drafter
from engine.scheduling.queues import AGEING_SHARE
from engine.scheduling.scheduler import Scheduler, SchedulerLimits
from engine.scheduling.scheduler_output import SchedulerOutput
from engine.scheduling.sequence import Sequence, SequenceStatus
from tests.support.engines import RandomDrafter, make_request


class Bench:
    """A scheduler whose steps a test makes by hand; every sample is the token 1."""

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 4,
        enable_prefix_cache: bool = False,
        drafter: Drafter | None = None,
        **limits: float,
    ) -> None:
        self.allocator = BlockAllocator(
            num_blocks, block_size, enable_prefix_cache=enable_prefix_cache
        )
        self.scheduler = Scheduler(
            SchedulerLimits(**limits),  # type: ignore[arg-type]
            self.allocator,
            drafter,
        )
        self.now_s = 0.0

    def add(self, name: str, prompt: int | tuple[int, ...], priority: int = 0) -> Sequence:
        sequence = Sequence(make_request(name, prompt, priority=priority), arrival_s=self.now_s)
        self.now_s += 0.001
        self.scheduler.add(sequence)
        sequence.length_limit = 1 << 62  # a test's steps may go on beyond what was asked for
        return sequence

    def step(self, cost: float | Callable[[SchedulerOutput], float] = 0.001) -> SchedulerOutput:
        plan = self.scheduler.schedule(self.now_s)
        seconds = cost(plan) if callable(cost) else cost
        self.now_s += seconds
        for item in plan.scheduled:
            self.scheduler.commit(item, (1,) if item.samples else ())
        self.scheduler.observe(plan, seconds)
        self.scheduler.check()
        return plan


def shape(plan: SchedulerOutput) -> list[tuple[str, int, bool]]:
    return [(item.sequence.request_id, item.num_tokens, item.samples) for item in plan.scheduled]


def test_a_prompt_is_cut_at_the_token_budget() -> None:
    bench = Bench(max_num_batched_tokens=10)
    bench.add("a", 25)
    assert shape(bench.step()) == [("a", 10, False)]
    assert shape(bench.step()) == [("a", 10, False)]
    assert shape(bench.step()) == [("a", 5, True)]
    assert shape(bench.step()) == [("a", 1, True)]


def test_decodes_come_first_and_prefill_takes_the_rest() -> None:
    bench = Bench(max_num_batched_tokens=12)
    bench.add("a", 4)
    bench.step()
    bench.add("b", 30)
    assert shape(bench.step()) == [("a", 1, True), ("b", 11, False)]


def test_several_short_prompts_share_a_step() -> None:
    bench = Bench(max_num_batched_tokens=16)
    for name in "abc":
        bench.add(name, 6)
    assert shape(bench.step()) == [("a", 6, True), ("b", 6, True), ("c", 4, False)]


def test_prefill_keeps_to_the_step_time_target() -> None:
    bench = Bench(max_num_batched_tokens=1000, step_time_target_s=0.1, min_chunk_tokens=8)
    bench.add("a", 4)
    bench.step(0.004)
    for _ in range(3):
        bench.step(0.010)
    # 0.01 s a token so far: a step of 0.1 s holds about ten.
    bench.add("b", 200)
    plan = bench.step(0.1)
    assert plan.num_decode_tokens == 1
    assert 8 <= plan.num_prefill_tokens <= 100


def test_a_step_of_prefill_alone_ends_in_time_for_a_cancel() -> None:
    bench = Bench(max_num_batched_tokens=1000, prefill_step_time_target_s=1.0, num_blocks=1024)

    def cost(plan: SchedulerOutput) -> float:
        return 0.1 + 0.005 * plan.num_tokens

    bench.add("a", 600)
    bench.step(cost)
    bench.scheduler.finish(bench.scheduler.sequences()[0])
    bench.add("b", 40)
    bench.step(cost)
    bench.scheduler.finish(bench.scheduler.sequences()[0])
    bench.add("c", 900)
    for _ in range(3):
        assert 0.9 <= cost(bench.step(cost)) <= 1.1


def test_on_a_slow_machine_prompts_get_half_the_time() -> None:
    """Decodes alone miss the target here; new requests must not wait until they have ended."""
    bench = Bench(
        max_num_batched_tokens=1000, step_time_target_s=0.1, min_chunk_tokens=8, num_blocks=512
    )

    def cost(plan: SchedulerOutput) -> float:
        return 0.3 + 0.005 * plan.num_tokens

    bench.add("a", 40)
    for _ in range(3):
        bench.step(cost)
    bench.add("b", 600)
    plans = [bench.step(cost) for _ in range(8)]
    assert all(plan.num_decode_tokens == 1 for plan in plans)
    for plan in plans[4:]:
        assert 50 <= plan.num_prefill_tokens <= 61, "0.305 s of 0.005 s each"


def test_a_prompt_advances_even_when_decodes_alone_miss_the_target() -> None:
    """Half the time would be a chunk of three tokens, not worth a step: every fourth step has a
    decent one instead."""
    bench = Bench(
        max_num_batched_tokens=1000,
        step_time_target_s=0.01,
        min_chunk_tokens=8,
        max_prefill_gap_steps=4,
    )

    def cost(plan: SchedulerOutput) -> float:
        return 0.2 * plan.num_tokens

    bench.add("a", 4)
    for _ in range(5):
        bench.step(cost)
    long = bench.add("b", 80)
    plans = [bench.step(cost) for _ in range(12)]
    assert all(plan.num_decode_tokens == 1 for plan in plans)
    assert [plan.num_prefill_tokens for plan in plans] == [8, 0, 0, 0] * 3
    assert long.num_computed_tokens == 24


def test_no_more_than_max_num_seqs_run() -> None:
    bench = Bench(max_num_seqs=2)
    for name in "abc":
        bench.add(name, 4)
    bench.step()
    assert (bench.scheduler.num_running, bench.scheduler.num_waiting) == (2, 1)


def test_admission_waits_for_room_and_is_not_overtaken() -> None:
    bench = Bench(num_blocks=8)
    first = bench.add("first", 20)
    bench.step()
    bench.add("big", 16, priority=-1)
    bench.add("small", 2)
    bench.step()
    assert bench.scheduler.num_waiting == 2, "small would fit, but must not starve big"
    bench.scheduler.finish(first)
    bench.step()
    assert bench.scheduler.num_waiting == 0


def test_admission_leaves_a_block_for_each_running_sequence_to_grow() -> None:
    bench = Bench(num_blocks=7)
    bench.add("a", 4)
    bench.add("b", 4)
    bench.step()
    bench.add("c", 8)
    bench.step()
    assert bench.allocator.pool.num_available == 3
    assert bench.scheduler.num_waiting == 1, "c needs 2, and 2 of 3 are left for a and b"


def test_what_the_prefix_cache_holds_is_no_work() -> None:
    """A short question behind a long shared prompt is short: it comes before older, longer ones."""
    bench = Bench(max_num_batched_tokens=40, enable_prefix_cache=True)
    shared = tuple(range(32))
    first = bench.add("first", (*shared, 1))
    bench.step()
    bench.scheduler.finish(first)
    bench.add("old", 20)
    late = bench.add("late", (*shared, 2, 3))
    assert bench.allocator.num_cached_tokens(late) == 32
    assert [name for name, _, _ in shape(bench.step())] == ["late", "old"]


def test_what_is_done_meanwhile_is_age() -> None:
    """A long prompt is overtaken by as much work as it has itself, not by ever more."""
    bench = Bench(max_num_batched_tokens=40, max_num_seqs=1, num_blocks=512)
    running = bench.add("running", 40)
    bench.step()
    long = bench.add("long", 100)
    overtaken = 0
    while long.status is SequenceStatus.WAITING:
        bench.add(f"short{overtaken}", 40)
        bench.scheduler.finish(running)
        (running,) = [item.sequence for item in bench.step().scheduled]
        overtaken += 1
    assert 3 <= overtaken <= 2 + (100 - 40) / (AGEING_SHARE * 40 / 2)


def test_preemption_takes_the_least_work_and_never_the_eldest() -> None:
    bench = Bench(num_blocks=10, max_num_batched_tokens=64)
    eldest = bench.add("eldest", 8)
    middle = bench.add("middle", 12)
    youngest = bench.add("youngest", 4)
    preempted: list[str] = []
    while not preempted:
        plan = bench.step()
        preempted = [sequence.request_id for sequence in plan.preempted]
    assert preempted == ["youngest"]
    assert "youngest" not in {name for name, _, _ in shape(plan)}, "it would take its room back"
    assert youngest.status is SequenceStatus.WAITING
    assert youngest.table.blocks == []
    assert youngest.num_output_tokens > 0, "what was generated is kept"
    assert {eldest.status, middle.status} == {SequenceStatus.DECODE}


def test_a_less_urgent_priority_is_preempted_first() -> None:
    bench = Bench(num_blocks=8)
    bench.add("batch", 12, priority=1)
    bench.step()
    bench.add("person", 8, priority=0)
    plan = bench.step()
    while not plan.preempted:
        plan = bench.step()
    assert [sequence.request_id for sequence in plan.preempted] == ["batch"]


def test_a_preempted_sequence_computes_everything_again_before_it_samples() -> None:
    bench = Bench(num_blocks=6, max_num_batched_tokens=64)
    eldest = bench.add("eldest", 8)
    other = bench.add("other", 8)
    while other.status is not SequenceStatus.WAITING:
        bench.step()
    num_tokens = other.num_tokens
    bench.scheduler.finish(eldest)
    plan = bench.step()
    assert shape(plan) == [("other", num_tokens, True)]


def test_waiting_prompts_are_looked_at_again_when_a_block_comes_back() -> None:
    bench = Bench(num_blocks=8)
    first = bench.add("first", 24)
    bench.step()
    bench.add("big", 16)
    looked_at: list[str] = []
    admit = bench.allocator.admit

    def seen(sequence: Sequence, *, reserve_blocks: int = 0) -> bool:
        looked_at.append(sequence.request_id)
        return admit(sequence, reserve_blocks=reserve_blocks)

    bench.allocator.admit = seen  # type: ignore[method-assign]
    for _ in range(3):
        bench.step()
    assert looked_at == ["big"], "nothing came back: once is enough"
    bench.scheduler.finish(first)
    bench.step()
    assert looked_at == ["big", "big"]
    assert bench.scheduler.num_waiting == 0


def test_what_waits_behind_a_cancelled_head_is_admitted() -> None:
    bench = Bench(num_blocks=8)
    bench.add("running", 12)
    bench.step()
    big = bench.add("big", 28)
    big.num_preemptions = 1  # the head of the queue, whatever its length
    small = bench.add("small", 4)
    bench.step()
    assert bench.scheduler.num_waiting == 2
    bench.scheduler.finish(big)
    bench.step()
    assert small.status is SequenceStatus.DECODE


def test_a_long_prompt_does_not_hold_up_a_running_one() -> None:
    """Every step with prefill of `long` also decodes `run`, and prefill takes the whole rest."""
    bench = Bench(num_blocks=512, max_num_batched_tokens=64)
    run = bench.add("run", 10)
    while run.num_output_tokens < 5:
        bench.step()
    long = bench.add("long", 1000)
    num_steps = 0
    while long.num_output_tokens == 0:
        before = run.num_output_tokens
        bench.step()
        num_steps += 1
        assert run.num_output_tokens == before + 1
    assert 16 <= num_steps <= 20


def test_drafts_leave_room_for_a_chunk() -> None:
    """They would fill the token budget of every step, and prompts would wait for ever."""

    class Eager(RandomDrafter):
        def propose(self, sequence: Sequence, limit: int, num_decoding: int) -> tuple[int, ...]:
            return (1,) * limit

    bench = Bench(
        max_num_batched_tokens=32,
        min_chunk_tokens=8,
        num_blocks=512,
        drafter=Eager(Random(0)),
    )
    bench.add("stream", 4).length_limit = 4 + 8
    bench.step()
    assert bench.step().num_decode_tokens == 1 + 6, "as far as max_tokens goes"
    for sequence in bench.scheduler.sequences():
        bench.scheduler.finish(sequence)
    endless = Sequence(make_request("endless", 4, max_tokens=None), arrival_s=0.0)
    bench.scheduler.add(endless)
    bench.step()
    assert bench.step().num_decode_tokens == 32, "nobody else wants anything"
    bench.add("prompt", 20)
    assert [shape(bench.step())[1:] for _ in range(3)] == [
        [("prompt", 8, False)],
        [("prompt", 8, False)],
        [("prompt", 4, True)],
    ]


def test_who_was_preempted_is_told_with_the_next_step_that_has_anything() -> None:
    """A runner sees no empty plan, and would keep what it has of somebody who comes back."""
    bench = Bench(num_blocks=12, max_num_seqs=3)
    scheduler = bench.scheduler

    def add(name: str, user: str, num_prompt: int) -> Sequence:
        request = make_request(name, num_prompt, user=user, max_tokens=4)
        sequence = Sequence(request, arrival_s=bench.now_s)
        bench.now_s += 0.001
        scheduler.add(sequence)
        return sequence

    first, second, third = (add(name, "a", 12) for name in ("first", "second", "third"))
    bench.step()
    add("starved", "b", 20)
    in_flight = scheduler.schedule(bench.now_s)
    assert len(in_flight.scheduled) == 3
    first.length_limit = second.length_limit = first.length
    bench.now_s += 10.0
    assert scheduler.schedule(bench.now_s) == SchedulerOutput()
    assert third.status is SequenceStatus.WAITING
    assert (third.num_pending, third.num_computed_tokens) == (1, 0)
    for item in in_flight.scheduled:
        scheduler.commit(item, (1,))
    assert (third.num_pending, third.num_tokens) == (0, 14)
    for sequence in (first, second):
        scheduler.finish(sequence)
    plan = scheduler.schedule(bench.now_s)
    assert plan.preempted == (third,)
    assert {item.sequence.request_id for item in plan.scheduled} == {"starved", "third"}
    for item in plan.scheduled:
        scheduler.commit(item, (1,))
    assert scheduler.schedule(bench.now_s).preempted == ()
