"""What the scheduler promises, in simulated time: the real scheduler on a machine whose steps cost
what a formula says."""

from __future__ import annotations

from random import Random

import pytest

from engine.scheduling import queues
from engine.scheduling.admission import STARVED_AFTER_S
from engine.scheduling.scheduler import SchedulerLimits
from engine.scheduling.scheduler_output import SchedulerOutput
from tests.support.engines import RandomDrafter
from tests.support.simulation import (
    TWO_CORES,
    Device,
    Job,
    Outcome,
    Simulation,
    chat_load,
    mixed_answers,
    overload,
    tokens,
    with_users,
)


def test_a_class_that_asks_at_once_computes_shared_beginnings_once() -> None:
    """32 chat requests, 16 at a time. Each of the four beginnings is computed by whoever comes
    first, and nobody else, even though eight requests with it are sent in the same moment."""
    outcome = Simulation().play(chat_load(), concurrency=16)
    num_cached = 28 * (300 // 16 * 16)
    assert outcome.num_prefilled == sum(len(job.prompt) for job in chat_load()) - num_cached
    assert sum(played.num_cached_tokens for played in outcome.jobs.values()) == num_cached
    assert outcome.ttft_s(0.5) < 0.6
    assert outcome.ttft_s(0.9) < 2.3
    assert outcome.itl_s(0.99) < 0.27
    # With all prompts free of charge, two rounds of 128 steps with 16 rows would make 348.
    assert outcome.output_per_s > 245


def test_the_wait_for_a_beginning_pays_with_large_steps() -> None:
    """All 16 would fit into one step, each with its own copy of the beginning."""
    jobs = [Job(f"j{i}", tokens(1, 304) + tokens(50 + i, 8), 16) for i in range(16)]
    limits = SchedulerLimits(max_num_batched_tokens=8192, prefill_step_time_target_s=10.0)
    outcome = Simulation(limits=limits).play(jobs)
    assert outcome.num_prefilled == 304 + 16 * 8
    assert outcome.ttft_s(0.99) < 0.25


@pytest.mark.parametrize("at_s", [0.0, 5.0])
def test_a_user_with_50_requests_does_not_starve_one_with_1(at_s: float) -> None:
    heavy = [Job(f"heavy{i}", tokens(700 + i, 400), 100) for i in range(50)]
    light = [Job("light", tokens(900, 600), 100, at_s=at_s)]

    def play(jobs: list[Job]) -> Outcome:
        return Simulation(limits=SchedulerLimits(max_num_seqs=16)).play(jobs)

    apart = play(with_users(heavy, "h") + with_users(light, "l"))
    together = play(heavy + light)
    assert apart.ttft_s(0.5, "light") < 3.0, "about until one of 16 answers ends"
    assert together.ttft_s(0.5, "light") > 15.0
    assert apart.seconds == pytest.approx(together.seconds, rel=0.02), "nothing is lost by it"


def test_long_answers_of_one_user_do_not_lock_another_one_out() -> None:
    """All 16 slots are taken for more than a minute, by one user."""
    jobs = with_users([Job(f"heavy{i}", tokens(100 + i, 200), 1500) for i in range(20)], "h")
    jobs += with_users(
        [Job(f"light{i}", tokens(200 + i, 300), 60, at_s=10.0 * (1 + i)) for i in range(4)], "l"
    )
    outcome = Simulation(limits=SchedulerLimits(max_num_seqs=16)).play(jobs)
    assert outcome.ttft_s(0.99, "light") < STARVED_AFTER_S + 0.5
    assert outcome.num_preemptions == 4, "one place for each"
    alone = Simulation(limits=SchedulerLimits(max_num_seqs=16)).play(jobs[:20])
    assert outcome.seconds < 1.03 * alone.seconds
    # With blocks short instead of slots, and as many of the other's answers as there are.
    outcome = Simulation(num_blocks=800, limits=SchedulerLimits(max_num_seqs=64)).play(jobs)
    assert outcome.ttft_s(0.99, "light") < STARVED_AFTER_S + 0.5


@pytest.mark.parametrize("size", [600, 1000, 1400])
def test_nobody_gives_up_a_place_for_nothing(size: int) -> None:
    """A prompt that needs most of the pool. With 1400 tokens it does not fit beside the one answer
    that the other user keeps: taking places away again and again took twice as long for all."""
    jobs = with_users([Job(f"heavy{i}", tokens(100 + i, 100), 400) for i in range(12)], "h")
    jobs += with_users([Job("big", tokens(300, size), 50, at_s=3.0)], "l")
    outcome = Simulation(num_blocks=100, limits=SchedulerLimits(max_num_seqs=16)).play(jobs)
    assert outcome.num_preemptions <= 16
    assert outcome.ttft_s(0.5, "big") < (30.0 if size == 1400 else 4.0)
    assert outcome.seconds < 60.0


def test_two_users_who_always_wait_get_equal_shares() -> None:
    """One sends prompts three times as long, and gets a third as many of them through."""
    jobs = with_users([Job(f"a{i}", tokens(100 + i, 900), 50) for i in range(60)], "a")
    jobs += with_users([Job(f"b{i}", tokens(300 + i, 300), 50) for i in range(120)], "b")
    simulation = Simulation(limits=SchedulerLimits(max_num_seqs=8))
    service = {"a": 0, "b": 0}
    differences: list[int] = []

    def count(plan: SchedulerOutput) -> None:
        for index, item in enumerate(plan.scheduled):
            weight = 2 if index < plan.num_decodes else 1
            service[item.sequence.request.user] += weight * item.num_tokens
        waiting = {seq.request.user for seq in simulation.scheduler._admission.waiting}
        if waiting == {"a", "b"}:
            differences.append(abs(service["a"] - service["b"]))

    simulation.on_step = count
    simulation.play(jobs)
    assert len(differences) > 300
    # One prompt, and the answers of all that run, are ahead at the most: no drift.
    assert max(differences) <= 900 + 8 * 2 * 50
    assert max(differences[len(differences) // 2 :]) <= 900 + 8 * 2 * 50


def test_ageing_is_neither_arrival_order_nor_shortest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcomes = {}
    for name, share in (("shortest", 0.0), ("ours", queues.AGEING_SHARE), ("arrival", 1e9)):
        monkeypatch.setattr(queues, "AGEING_SHARE", share)
        outcomes[name] = Simulation(num_blocks=16_384).play(overload())
    ours = outcomes["ours"]
    assert ours.ttft_s(0.5, "short") < 0.1 * outcomes["arrival"].ttft_s(0.5, "short")
    assert ours.ttft_s(0.9999, "long") < 0.6 * outcomes["shortest"].ttft_s(0.9999, "long")


@pytest.mark.parametrize(
    "jobs",
    [
        [Job(f"j{i}", tokens(500 + i, 100), 400) for i in range(48)],
        [Job(f"j{i}", tokens(500 + i, 534), 128) for i in range(48)],
        [Job(f"j{i}", tokens(500 + i, 300), 300) for i in range(48)],
        mixed_answers(),
    ],
    ids=["long answers", "long prompts", "even", "mixed"],
)
def test_a_pool_of_a_quarter_of_the_demand_keeps_70_percent(jobs: list[Job]) -> None:
    sizes = sorted(-(-(len(job.prompt) + job.num_output) // 16) for job in jobs)
    demand = sum(sizes[-16:])
    whole, quarter = (
        Simulation(
            device=TWO_CORES, num_blocks=num_blocks, limits=SchedulerLimits(max_num_seqs=16)
        ).play(jobs)
        for num_blocks in (demand, demand // 4)
    )
    assert whole.num_preemptions == 0
    assert quarter.output_per_s >= 0.70 * whole.output_per_s
    # No thrash: computing again what was taken away is a small part of the time.
    again = quarter.num_prefilled - whole.num_prefilled
    assert again * TWO_CORES.per_prefill_s <= 0.03 * quarter.seconds
    assert max(played.num_preemptions for played in quarter.jobs.values()) <= 4


def test_streams_never_wait_for_a_long_prompt() -> None:
    """Every step of the long prompt also decodes all that stream, and takes no longer than the
    target, though attention makes its last chunks dearer."""

    class Quadratic(Device):
        def seconds(self, plan: SchedulerOutput) -> float:
            chunks = plan.scheduled[plan.num_decodes :]
            return Device.seconds(self, plan) + sum(
                1e-7 * item.num_tokens * (item.start + item.num_tokens / 2) for item in chunks
            )

    simulation = Simulation(device=Quadratic(), num_blocks=16_384)
    seconds: list[float] = []

    def watch(plan: SchedulerOutput) -> None:
        if plan.num_prefill_tokens and plan.num_decodes:
            assert plan.num_decodes >= 8
            seconds.append(simulation.device.seconds(plan))

    for index in range(8):
        simulation.send(Job(f"stream{index}", tokens(10 + index, 40), 300))
    for _ in range(5):
        simulation.step()
    simulation.on_step = watch
    simulation.send(Job("long", tuple(range(16_000)), 4))
    outcome = simulation.play(())
    assert len(seconds) > 60
    assert max(seconds) < 0.25 * 1.3
    assert sorted(seconds)[len(seconds) // 2] == pytest.approx(0.25, rel=0.1)
    assert outcome.select("long")[0].ttft_s < 40


def test_wrong_drafts_cost_time_and_the_target_still_holds() -> None:
    drafter = RandomDrafter(Random(3), share=0.0)
    simulation = Simulation(drafter=drafter)
    outcome = simulation.play(chat_load(), concurrency=16)
    assert drafter.num_drafted > 1000
    assert outcome.itl_s(0.99) < 0.25 * 1.3
    assert outcome.num_output == 32 * 128


@pytest.mark.parametrize("enable_prefix_cache", [True, False])
def test_four_choices_compute_their_prompt_once(enable_prefix_cache: bool) -> None:
    jobs = [
        Job(f"choice{i}", tokens(1, 500), 20, same_prompt_as="choice0" if i else None)
        for i in range(4)
    ]
    outcome = Simulation(enable_prefix_cache=enable_prefix_cache).play(jobs)
    assert outcome.num_prefilled == 500 + 3
    cached = [played.num_cached_tokens for played in outcome.jobs.values()]
    assert cached == [0, 499, 499, 499]


def test_a_more_urgent_priority_is_served_first() -> None:
    jobs = [Job(f"batch{i}", tokens(100 + i, 500), 50, priority=1) for i in range(30)]
    jobs += [Job(f"person{i}", tokens(200 + i, 500), 50, at_s=1.0) for i in range(3)]
    outcome = Simulation(limits=SchedulerLimits(max_num_seqs=64)).play(jobs)
    assert outcome.ttft_s(0.99, "person") < 1.2
    assert outcome.ttft_s(0.5, "batch") > 2.0
