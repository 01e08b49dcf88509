"""Two steps in flight: one is planned while nobody knows what the one before it samples."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from engine.core import EngineCore
from engine.scheduling.scheduler import SchedulerLimits
from engine.types import FinishType, RequestId
from tests.support.engines import (
    Clock,
    Collected,
    PipelinedRunner,
    RandomDrafter,
    collect,
    expected_tokens,
    make_core,
    make_request,
    run_to_end,
)


def pipelined(
    *, block_size: int = 4, **options: object
) -> tuple[EngineCore, PipelinedRunner, Clock]:
    clock = Clock()
    runner = PipelinedRunner(clock, block_size)
    core, _ = make_core(runner=runner, clock=clock, block_size=block_size, **options)  # type: ignore[arg-type]
    return core, runner, clock


def steps(core: EngineCore, count: int) -> dict[str, Collected]:
    got: dict[str, Collected] = {}
    for _ in range(count):
        for output in core.step():
            collect(got, output)
        core.check()
    return got


def test_a_step_is_launched_before_the_one_before_it_is_waited_for() -> None:
    core, runner, _ = pipelined()
    core.add(make_request("r", (5, 6, 7), max_tokens=4))
    assert core.step() == [], "the first one only begins"
    assert len(runner.in_flight) == 1
    expected = expected_tokens((5, 6, 7), 4)
    seen: list[int] = []
    for _ in range(3):
        (output,) = core.step()
        seen += output.token_ids
        assert len(runner.in_flight) == 1
    (output,) = core.step()
    assert [*seen, *output.token_ids] == expected
    assert runner.max_in_flight == 2
    assert runner.num_pending == 3, "all but the first token were computed unseen"
    assert not core.has_work


@pytest.mark.parametrize(
    ("options", "max_tokens", "type_", "count"),
    [
        ({}, 5, "max_tokens", 5),
        ({}, 1, "max_tokens", 1),
        ({"max_model_len": 10}, None, "context_window", 7),
        ({"num_blocks": 2}, 20, "kv_capacity", 5),
    ],
)
def test_what_surely_ends_in_flight_is_not_computed_again(
    options: dict[str, int], max_tokens: int | None, type_: str, count: int
) -> None:
    core, runner, _ = pipelined(**options)
    core.add(make_request("r", (5, 6, 7), max_tokens=max_tokens))
    got = run_to_end(core)["r"]
    assert got.finish_type == type_
    assert got.token_ids == expected_tokens((5, 6, 7), count)
    assert runner.num_sampled == count


def test_what_was_computed_behind_a_stop_is_dropped() -> None:
    core, runner, _ = pipelined(block_size=2)
    answer = expected_tokens((5, 6, 7), 9)
    stop = bytes(answer[3:6]).decode()
    core.add(make_request("r", (5, 6, 7), max_tokens=30, stop=(stop,)))
    got = run_to_end(core)["r"]
    assert got.finish_type == "stop_string"
    assert got.token_ids == answer[:6]
    assert runner.num_sampled == 7
    stats = core.stats()
    assert stats.generated_tokens == 6
    assert stats.num_steps == 7
    finish = got.outputs[-1].finish
    assert finish is not None
    assert finish.usage.completion_tokens == 6
    # Its last token was computed in vain, so what the prefix cache has ends before it.
    core.add(make_request("again", (5, 6, 7, *answer[:8]), max_tokens=1))
    again = run_to_end(core)["again"].outputs[-1].finish
    assert again is not None
    assert again.usage.cached_tokens == 8


@pytest.mark.parametrize("num_steps", [1, 2, 5])
def test_an_abort_while_its_step_is_in_flight_is_the_last_word(num_steps: int) -> None:
    core, runner, _ = pipelined(num_blocks=6)
    core.add(make_request("r", (5, 6, 7), max_tokens=None))
    steps(core, num_steps)
    (output,) = core.abort(RequestId("r"), FinishType.CANCELLED)
    assert output.finish is not None
    assert output.finish.usage.completion_tokens == num_steps - 1
    assert core.stats().used_blocks == 0, "the device keeps the order, so nobody has to wait"
    assert core.has_work, "its step is still to be waited for"
    core.add(make_request("r", (9, 9, 9, 9), max_tokens=12))
    got = run_to_end(core)["r"]
    assert got.token_ids == expected_tokens((9, 9, 9, 9), 12), "a new request of the same name"
    assert not runner.in_flight
    assert not runner.tokens, "all were forgotten"


def test_a_deadline_ends_a_request_with_steps_in_flight() -> None:
    core, runner, _ = pipelined()
    core.add(make_request("late", (5, 6, 7), max_tokens=None, deadline_s=0.0045))
    core.add(make_request("other", (6, 7), max_tokens=9))
    got = run_to_end(core)
    assert got["late"].finish_type == "deadline"
    assert got["late"].token_ids == expected_tokens((5, 6, 7), 5)
    assert got["other"].token_ids == expected_tokens((6, 7), 9)
    assert runner.num_sampled == 5 + 1 + 9


def test_preempted_ones_keep_the_token_that_was_in_flight() -> None:
    core, _, _ = pipelined(num_blocks=20)
    requests = [make_request(name, 10, max_tokens=50) for name in "abcd"]
    for request in requests:
        core.add(request)
    got = run_to_end(core)
    assert core.stats().num_preemptions > 0
    for request in requests:
        assert got[request.request_id].token_ids == expected_tokens(request.prompt_token_ids, 50)
    assert core.stats().generated_tokens == 200, "none is computed twice"


def test_who_gave_its_blocks_back_may_end_with_the_token_in_flight() -> None:
    def until_preempted(stops: dict[str, str]) -> tuple[EngineCore, dict[str, Collected]]:
        core, _, _ = pipelined(num_blocks=20)
        for name in "abcd":
            stop = (stops[name],) if name in stops else ()
            core.add(make_request(name, 10, max_tokens=50, stop=stop))
        got: dict[str, Collected] = {}
        for _ in range(100):
            for output in core.step():
                collect(got, output)
            if core.stats().num_preemptions:
                return core, got
        raise AssertionError("nobody is preempted")

    core, got = until_preempted({})
    (name,) = [seq.request_id for seq in core._scheduler.sequences() if seq.num_preemptions]
    assert got[name].finish is None
    # The last of these came in the very step that took the blocks away.
    answer = bytes(got[name].token_ids).decode()
    core, got = until_preempted({name: answer[-3:]})
    assert got[name].finish_type == "stop_string"
    assert got[name].text == answer[:-3]
    core.check()
    for other, more in run_to_end(core).items():
        assert other != name
        assert more.finish_type == "max_tokens"
    assert core.stats().used_blocks == 0


def test_nobody_is_preempted_while_another_ends_in_flight() -> None:
    """The blocks of the one that ends are there a step later."""
    core, runner, _ = pipelined(num_blocks=4)
    core.add(make_request("long", (1, 2, 3, 4), max_tokens=9))
    core.add(make_request("short", (5, 6, 7), max_tokens=5))
    got = run_to_end(core)
    assert core.stats().num_preemptions == 0
    assert got["long"].token_ids == expected_tokens((1, 2, 3, 4), 9)
    assert got["short"].token_ids == expected_tokens((5, 6, 7), 5)
    assert runner.num_sampled == 14


def test_what_a_failed_step_computed_is_found_by_nobody() -> None:
    core, runner, _ = pipelined(limits=SchedulerLimits(max_num_batched_tokens=8))
    prompt = tuple(range(16))
    core.add(make_request("bad", prompt))
    core.step()  # the first half of the prompt begins, and is sound
    runner.failing.add(RequestId("bad"))
    got = run_to_end(core)["bad"]
    assert got.finish_type == "error"
    assert got.token_ids == []
    core.add(make_request("good", (*prompt, 50), max_tokens=3))
    good = run_to_end(core)["good"]
    assert good.token_ids == expected_tokens((*prompt, 50), 3)
    assert good.outputs[-1].finish is not None
    assert good.outputs[-1].finish.usage.cached_tokens == 8


def test_a_failure_ends_a_request_once_though_it_has_a_later_step() -> None:
    core, runner, _ = pipelined()
    core.add(make_request("bad", (5, 6, 7), max_tokens=None))
    core.add(make_request("good", (6, 7), max_tokens=12))
    got = steps(core, 3)
    runner.failing.add(RequestId("bad"))
    for name, more in run_to_end(core).items():
        for output in more.outputs:
            collect(got, output)
        assert got[name].finish is not None
    assert got["bad"].finish_type == "error"
    assert got["good"].token_ids == expected_tokens((6, 7), 12)


def test_a_step_takes_from_the_end_of_the_one_before() -> None:
    core, _, clock = pipelined()
    core.add(make_request("r", (5, 6, 7), max_tokens=6))
    while core.has_work:
        core.step()
        if core.stats().num_steps:
            assert core.stats().last_step_s == pytest.approx(0.001)
    assert clock.now_s == pytest.approx(0.006)
    clock.now_s += 5.0
    core.add(make_request("s", (5, 6, 7), max_tokens=2))
    run_to_end(core)
    assert core.stats().last_step_s == pytest.approx(0.001), "not the time without work"


def test_choices_share_a_prompt_that_is_in_flight() -> None:
    core, runner, _ = pipelined()
    prompt = tuple(range(10))
    core.add(make_request("r0", prompt, max_tokens=5))
    for index in (1, 2):
        core.add(make_request(f"r{index}", prompt, max_tokens=5 + index, same_prompt_as="r0"))
    steps(core, 2)
    assert core.stats().num_forks == 2, "as soon as it is launched"
    assert runner.num_copies == 2
    got = run_to_end(core)
    for index in (1, 2):
        assert got[f"r{index}"].token_ids == expected_tokens(prompt, 5 + index)


def test_an_equal_prompt_waits_for_the_blocks_in_flight() -> None:
    core, _, _ = pipelined()
    prompt = tuple(range(10))
    core.add(make_request("first", prompt, max_tokens=5))
    core.add(make_request("second", prompt, max_tokens=5))
    got = run_to_end(core)
    for name in ("first", "second"):
        assert got[name].token_ids == expected_tokens(prompt, 5)
    finish = got["second"].outputs[-1].finish
    assert finish is not None
    assert finish.usage.cached_tokens == 8


@pytest.mark.parametrize(("num_requests", "in_flight"), [(2, 1), (3, 2)])
def test_drafts_want_one_step_in_flight(num_requests: int, in_flight: int) -> None:
    drafter = RandomDrafter(Random(1), 1.0, max_batch=2)
    core, runner, _ = pipelined(drafter=drafter)
    for index in range(num_requests):
        core.add(make_request(f"r{index}", (5, index), max_tokens=20))
    while core.stats().generated_tokens < num_requests:
        core.step()
    runner.max_in_flight = len(runner.in_flight)
    while core.stats().generated_tokens < num_requests * 10:
        core.step()
    assert runner.max_in_flight == in_flight
    assert (core.stats().drafted_tokens > 0) == (num_requests <= 2)
    assert (runner.num_pending > 0) == (num_requests > 2)


def test_two_in_flight_become_one_when_drafts_are_possible() -> None:
    drafter = RandomDrafter(Random(1), 0.7, max_batch=1)
    core, runner, _ = pipelined(drafter=drafter)
    core.add(make_request("long", (5, 6), max_tokens=60))
    core.add(make_request("short", (6, 7), max_tokens=5))
    got = run_to_end(core)
    assert got["long"].token_ids == expected_tokens((5, 6), 60)
    assert got["short"].token_ids == expected_tokens((6, 7), 5)
    assert runner.max_in_flight == 2
    assert core.stats().accepted_tokens > 0


def test_progress_is_that_of_its_own_step() -> None:
    core, _, _ = pipelined(limits=SchedulerLimits(max_num_batched_tokens=33))
    core.add(make_request("r", 80, max_tokens=1))
    progress = [output.progress for output in run_to_end(core)["r"].outputs]
    assert [(p.prefilled, p.total) for p in progress if p] == [(33, 80), (66, 80), (80, 80)]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_requests_that_come_and_go_get_what_they_get_alone(depth: int) -> None:
    """Enough company that somebody ends in every step."""
    clock = Clock()
    runner = PipelinedRunner(clock, 4, depth=depth)
    core, _ = make_core(runner=runner, clock=clock, limits=SchedulerLimits(max_num_seqs=6))
    requests = [make_request(f"r{i}", 3 + i % 9, max_tokens=1 + (5 * i) % 13) for i in range(40)]
    for request in requests:
        core.add(request)
    got = run_to_end(core)
    for request in requests:
        assert request.params.max_tokens is not None
        expected = expected_tokens(request.prompt_token_ids, request.params.max_tokens)
        assert got[request.request_id].token_ids == expected
    assert runner.max_in_flight == depth
    assert runner.num_sampled == core.stats().generated_tokens


def test_forget_comes_once_for_each_request_whatever_is_in_flight() -> None:
    core, runner, _ = pipelined()
    forgotten: list[str] = []
    forget: Callable[[RequestId], None] = runner.forget

    def count(request_id: RequestId) -> None:
        forgotten.append(request_id)
        forget(request_id)

    runner.forget = count  # type: ignore[method-assign]
    core.add(make_request("a", (5, 6, 7), max_tokens=4))
    core.add(make_request("b", (6, 7), max_tokens=None))
    core.add(make_request("c", (7, 7, 7), max_tokens=9))
    steps(core, 3)
    core.abort(RequestId("b"), FinishType.CANCELLED)
    core.add(make_request("never", (8, 8)))
    core.abort(RequestId("never"), FinishType.CANCELLED)
    run_to_end(core)
    assert sorted(forgotten) == ["a", "b", "c", "never"]
