"""Cases of faults seen in other servers: streams that stand still while a prompt is computed, and
answers that a preemption damaged. On a tiny real model."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.core import EngineCore
from engine.execution.runner import LaunchedStep
from engine.scheduling import admission
from engine.scheduling.scheduler_output import SchedulerOutput
from engine.types import FinishType, RequestId
from tests.support.case_engine import ask, copy_model, make_core, prompt_tokens, run_alone
from tests.support.cases import case
from tests.support.engines import Collected, collect, run_to_end


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_model(tmp_path_factory.mktemp("case"))


def watch(core: EngineCore) -> list[SchedulerOutput]:
    """The plans that the engine makes from now on."""
    plans: list[SchedulerOutput] = []
    launch = core._runner.launch

    def seen(plan: SchedulerOutput) -> LaunchedStep:
        plans.append(plan)
        return launch(plan)

    core._runner.launch = seen  # type: ignore[method-assign]
    return plans


@pytest.mark.parametrize("size", [1000, 70, 500])
def test_sch_01_streams_go_on_while_a_long_prompt_is_computed(folder: Path, size: int) -> None:
    played = case("SCH-01")
    given = {request["name"]: request for request in played["input"]["requests"]}
    budget = played["input"]["token_budget_per_step"]
    run = ask("run", prompt_tokens(given["run"]["prompt_tokens"]), given["run"]["max_tokens"])
    long = ask("long", prompt_tokens(size, 3), given["long"]["max_tokens"])
    # A step of the tiny model is over before the target, whatever is in it.
    core = make_core(folder, max_num_batched_tokens=budget, step_time_target_s=60.0)
    got: dict[str, Collected] = {}
    core.add(run)
    while len(got.get("run", Collected()).token_ids) < 5:
        for output in core.step():
            collect(got, output)
    core.add(long)
    plans = watch(core)
    for name, collected in run_to_end(core).items():
        for output in collected.outputs:
            collect(got, output)
        assert got[name].finish is not None
    prefills = [plan for plan in plans if plan.num_prefill_tokens]
    num_decoded = played["expect"]["run_tokens_per_step_while_prefill"]
    for plan in prefills:
        assert [item.num_tokens for item in plan.scheduled if item.sequence.request is run] == [
            num_decoded
        ]
    least = -(-size // (budget - 1))
    assert least <= len(prefills) <= least + 4
    if size == given["long"]["prompt_tokens"]:
        low, high = played["expect"]["long_prefill_steps_between"]
        assert low <= len(prefills) <= high
    alone = run_alone(folder, [run, long])
    for name in ("run", "long"):
        assert got[name].token_ids == alone[name].token_ids
        assert got[name].text == alone[name].text


@pytest.mark.parametrize("enable_prefix_cache", [True, False])
@pytest.mark.parametrize("speculation", ["off", "auto"])
@pytest.mark.parametrize("count", [4, 7])
def test_pre_01_a_preempted_answer_is_the_same(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    enable_prefix_cache: bool,
    speculation: str,
    count: int,
) -> None:
    # Admission would see to it that there is nothing to preempt.
    monkeypatch.setattr(admission, "GROWTH_SHARE", 0.0)
    played = case("PRE-01")
    num_tokens = played["expect"]["completion_tokens"]
    requests = [
        ask(f"r{index}", prompt_tokens(20 + index // 4, index), num_tokens)
        for index in range(count)
    ]
    core = make_core(
        folder,
        block_size=played["input"]["block_size"],
        kv_cache_tokens=played["input"]["kv_pool_tokens"],
        enable_prefix_cache=enable_prefix_cache,
        speculation=speculation,
    )
    for request in requests:
        core.add(request)
    got = run_to_end(core)
    stats = core.stats()
    assert stats.num_preemptions > 0
    assert stats.used_blocks == 0
    assert stats.free_blocks + stats.cached_blocks == stats.total_blocks
    alone = run_alone(folder, requests)
    for name, expected in alone.items():
        assert got[name].token_ids == expected.token_ids, name
        assert got[name].text == expected.text
        assert len(got[name].token_ids) == num_tokens


def test_a_sampled_answer_survives_preemption_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "GROWTH_SHARE", 0.0)
    requests = [
        ask(f"r{index}", prompt_tokens(20, index), 60, temperature=0.9, seed=index, top_p=0.9)
        for index in range(4)
    ]
    core = make_core(folder, kv_cache_tokens=160)
    for request in requests:
        core.add(request)
    got = run_to_end(core)
    assert core.stats().num_preemptions > 0
    alone = run_alone(folder, requests)
    assert {name: item.token_ids for name, item in got.items()} == {
        name: item.token_ids for name, item in alone.items()
    }


def test_a_preempted_request_that_is_aborted_frees_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "GROWTH_SHARE", 0.0)
    core = make_core(folder, kv_cache_tokens=160)
    for index in range(4):
        core.add(ask(f"r{index}", prompt_tokens(20, index), 60))
    while core.stats().num_preemptions == 0:
        core.step()
    (waiting, *_) = core._scheduler.sequences()[core._scheduler.num_running :]
    assert waiting.num_output_tokens > 0
    (output,) = core.abort(RequestId(waiting.request_id), FinishType.CANCELLED)
    assert output.finish is not None
    assert output.finish.usage.completion_tokens == waiting.num_output_tokens
    run_to_end(core)
    assert core.stats().used_blocks == 0
