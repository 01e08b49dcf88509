"""Cases of faults seen in other servers: answers that came out of the prefix cache wrong, and
counts of cached tokens that were not true. On a tiny real model."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from engine.types import FinishType, RequestId, Usage
from tests.support.case_engine import ask, copy_model, make_core, prompt_tokens, run_alone
from tests.support.cases import case
from tests.support.engines import Collected, collect, run_to_end


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_model(tmp_path_factory.mktemp("case"))


def usage(got: Collected) -> Usage:
    finish = got.outputs[-1].finish
    assert finish is not None
    return finish.usage


def test_pfx_01_a_prompt_that_is_all_cached_still_gets_its_first_token(folder: Path) -> None:
    played = case("PFX-01")
    given = played["input"]
    requests = [
        ask(f"r{index}", prompt_tokens(size, index + 1), given["max_tokens"])
        for index, size in enumerate(given["prompts_tokens"])
    ]
    cold = run_alone(folder, requests)
    core = make_core(folder, block_size=given["block_size"])
    cached = []
    for _ in range(given["repeat_each"]):
        for request in requests:
            core.add(request)
            (got,) = run_to_end(core).values()
            assert got.token_ids == cold[request.request_id].token_ids
            assert got.text == cold[request.request_id].text
            assert usage(got).prompt_tokens == len(request.prompt_token_ids)
            cached.append(usage(got).cached_tokens)
    assert cached[:4] == [0, 0, 0, 0]
    assert cached[4:8] == cached[8:] == played["expect"]["cached_tokens_later_any_of"][0]


def test_pfx_01_all_at_once(folder: Path) -> None:
    """Equal prompts in one moment: one computes, the others take what it has computed."""
    core = make_core(folder)
    requests = [ask(f"r{index}", prompt_tokens(32, 1), 6) for index in range(4)]
    for request in requests:
        core.add(request)
    got = run_to_end(core)
    (cold, *_) = run_alone(folder, requests[:1]).values()
    assert all(item.token_ids == cold.token_ids for item in got.values())
    assert [usage(got[request.request_id]).cached_tokens for request in requests] == [0, 24, 24, 24]


def test_pfx_04_what_is_cached_counts_when_it_is_used(folder: Path) -> None:
    given = case("PFX-04")["input"]
    core = make_core(
        folder, block_size=given["block_size"], kv_cache_tokens=given["kv_pool_tokens"]
    )
    first = ask("P", prompt_tokens(64, 1), 4)
    long = ask("Q", prompt_tokens(110, 2), 10)
    core.add(first)
    before = run_to_end(core)["P"]
    core.add(long)
    core.step()
    again = ask("P again", first.prompt_token_ids, 4)
    core.add(again)
    got: dict[str, Collected] = {}
    for output in core.step():
        collect(got, output)
    assert core.stats().num_waiting == 1, "Q has filled the pool"
    while core.has_work:
        for output in core.step():
            collect(got, output)
    assert got["P again"].token_ids == before.token_ids
    assert got["P again"].text == before.text
    # Q took 15 of 16 blocks, so at most one of P's eight was left.
    assert usage(got["P again"]).cached_tokens in (0, 8)


def test_pfx_04_random_rounds_in_a_small_pool(folder: Path) -> None:
    """100 requests with common beginnings, three at a time, in 16 blocks: always something is
    evicted that somebody waits for."""
    random = Random(4)
    requests = []
    for index in range(100):
        prompt = prompt_tokens(8 * random.randrange(1, 7), random.randrange(4))
        prompt += prompt_tokens(random.randrange(1, 20), 10 + random.randrange(3))
        requests.append(ask(f"r{index}", prompt, random.randrange(1, 9)))
    cold = run_alone(folder, requests)
    core = make_core(folder, kv_cache_tokens=128)
    got: dict[str, Collected] = {}
    pending = list(reversed(requests))
    while pending or core.has_work:
        while pending and core.stats().num_running + core.stats().num_waiting < 3:
            core.add(pending.pop())
        for output in core.step():
            collect(got, output)
        core.check()
    assert {name: item.token_ids for name, item in got.items()} == {
        name: item.token_ids for name, item in cold.items()
    }
    stats = core.stats()
    assert stats.cached_tokens == sum(usage(item).cached_tokens for item in got.values()) > 500
    assert stats.prefix_hit_tokens == stats.cached_tokens
    assert stats.prefix_lookup_tokens == stats.prompt_tokens


@pytest.mark.parametrize("enable_prefix_cache", [True, False])
@pytest.mark.parametrize("size", [31, 32, 33, 1])
def test_choices_share_their_prompt_and_nothing_else(
    folder: Path, enable_prefix_cache: bool, size: int
) -> None:
    """Four sampled answers to one prompt are what each would be alone, though three of them
    computed one token of it only, and all write on behind the same block."""
    prompt = prompt_tokens(size, 5)
    requests = [
        ask(
            f"c{index}",
            prompt,
            24,
            temperature=1.0,
            seed=70 + index,
            same_prompt_as="c0" if index else None,
        )
        for index in range(4)
    ]
    core = make_core(folder, enable_prefix_cache=enable_prefix_cache)
    for request in requests:
        core.add(request)
    got = run_to_end(core)
    alone = run_alone(folder, requests)
    answers = {name: item.token_ids for name, item in got.items()}
    assert answers == {name: item.token_ids for name, item in alone.items()}
    assert len({tuple(answer) for answer in answers.values()}) == 4
    assert [usage(got[request.request_id]).cached_tokens for request in requests] == [
        0,
        *[size - 1] * 3,
    ]
    assert core.stats().used_blocks == 0


@pytest.mark.parametrize("num_steps", [0, 1, 2, 5])
def test_choices_go_on_without_the_one_that_led(folder: Path, num_steps: int) -> None:
    prompt = prompt_tokens(90, 6)
    requests = [
        ask(f"c{index}", prompt, 12, same_prompt_as="c0" if index else None) for index in range(3)
    ]
    core = make_core(folder, enable_prefix_cache=False, max_num_batched_tokens=40)
    for request in requests:
        core.add(request)
    got: dict[str, Collected] = {}
    for _ in range(num_steps):
        for output in core.step():
            collect(got, output)
    for output in core.abort(RequestId("c0"), FinishType.CANCELLED):
        collect(got, output)
    while core.has_work:
        for output in core.step():
            collect(got, output)
        core.check()
    (cold,) = run_alone(folder, requests[:1]).values()
    assert got["c1"].token_ids == got["c2"].token_ids == cold.token_ids
    assert cold.token_ids[: len(got["c0"].token_ids)] == got["c0"].token_ids
