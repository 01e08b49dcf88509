"""With drafts, whatever they are, every request gets what it gets without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import EngineCore
from engine.scheduling.drafter import Drafter
from engine.scheduling.scheduler import SchedulerLimits
from engine.speculation.prompt_lookup import PromptLookupDrafter
from engine.types import FinishType, GenerationRequest, RequestId, SamplingParams
from tests.support.drafters import (
    DRAFTERS,
    GuessingDrafter,
    NextToken,
    always,
    any_of,
    make_drafting_core,
)
from tests.support.engines import (
    Collected,
    collect,
    expected_tokens,
    make_request,
    next_token,
    run_to_end,
)

EOS = 258
PROMPT = tuple(b"The scheduler gives each step a budget; a step has a budget of tokens.")


def quoting_model(token_ids: list[int]) -> int:
    """Repeats its prompt from the start, with a word of its own here and there, then ends."""
    num_output = len(token_ids) - len(PROMPT)
    if num_output == 60:
        return EOS
    return PROMPT[num_output % 40] if num_output % 11 else 97 + num_output % 26


def make(name: str, prompt: tuple[int, ...] = PROMPT, **params: object) -> GenerationRequest:
    return GenerationRequest(
        RequestId(name),
        prompt,
        SamplingParams(temperature=0.0, **params),  # type: ignore[arg-type]
    )


def outcome(collected: Collected) -> tuple[object, ...]:
    """All that a client learns, except how it was cut into deltas."""
    finish = collected.outputs[-1].finish
    assert finish is not None
    return collected.text, collected.token_ids, finish.detail, finish.usage.completion_tokens


def play(
    requests: Sequence[GenerationRequest], drafter: Drafter | None, **options: object
) -> tuple[EngineCore, dict[str, tuple[object, ...]]]:
    core = make_drafting_core(drafter, **options)  # type: ignore[arg-type]
    for request in requests:
        core.add(request)
    got = run_to_end(core)
    assert core.stats().used_blocks == 0
    return core, {name: outcome(one) for name, one in got.items()}


@dataclass(frozen=True)
class Scene:
    """Requests and the limits they run in."""

    requests: tuple[GenerationRequest, ...]
    model: NextToken = next_token
    num_blocks: int = 64
    max_model_len: int = 10_000
    ends: tuple[str, ...] = ("max_tokens",)


LETTERS = bytes(expected_tokens((5, 6, 7), 40)).decode()
SCENES = {
    "alone": Scene((make_request("r", (5, 6, 7), max_tokens=40),)),
    "one_token": Scene((make_request("r", (5, 6, 7), max_tokens=1),)),
    "two_tokens": Scene((make_request("r", (5, 6, 7), max_tokens=2),)),
    "together": Scene(tuple(make_request(f"r{i}", 5 + 7 * i, max_tokens=20) for i in range(4))),
    "stop_string_inside": Scene(
        (make_request("r", (5, 6, 7), max_tokens=40, stop=(LETTERS[9:12],)),),
        ends=("stop_string",),
    ),
    "stop_string_across_steps": Scene(
        (make_request("r", (5, 6, 7), max_tokens=40, stop=(LETTERS[3:15], "zz")),),
        ends=("stop_string",),
    ),
    "stop_token": Scene(
        (make("r", (5, 6, 7), stop_token_ids=(ord(LETTERS[13]),)),), ends=("stop_token",)
    ),
    "eos": Scene((make("r"),), quoting_model, ends=("eos",)),
    "eos_ignored": Scene((make("r", ignore_eos=True, max_tokens=70),), quoting_model),
    "window": Scene((make("r", (5, 6, 7)),), max_model_len=40, ends=("context_window",)),
    "cache_full": Scene((make("r", (5, 6, 7)),), num_blocks=7, ends=("kv_capacity",)),
    "choices_of_one_prompt": Scene(
        (
            make_request("r", (5, 6, 7, 8, 9, 10), max_tokens=20),
            replace(
                make_request("s", (5, 6, 7, 8, 9, 10), max_tokens=30),
                same_prompt_as=RequestId("r"),
            ),
        )
    ),
    "preempted": Scene(
        tuple(make_request(name, 10, max_tokens=50) for name in "abcd"), num_blocks=20
    ),
}


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("name", SCENES)
def test_any_drafts_give_what_none_give(name: str, drafter: str) -> None:
    scene = SCENES[name]
    limits = {
        "num_blocks": scene.num_blocks,
        "max_model_len": scene.max_model_len,
        "model": scene.model,
    }
    _, without = play(scene.requests, None, **limits)
    core, with_drafts = play(scene.requests, DRAFTERS[drafter](scene.model), **limits)
    assert with_drafts == without
    assert {one[2].type.value for one in without.values()} == set(scene.ends)  # type: ignore[attr-defined]
    stats = core.stats()
    never_fits = name == "cache_full" and drafter == "too_long"
    if name not in ("one_token", "two_tokens") and not never_fits:
        assert stats.drafted_tokens > 0
    if drafter == "wrong":
        assert stats.accepted_tokens == 0
    if drafter == "right" and name == "alone":
        assert stats.accepted_tokens == 31
        assert stats.num_steps == 1 + 8, "four drafts and one more token a step"
    if name == "preempted" and drafter != "too_long":
        assert stats.num_preemptions > 0


@pytest.mark.parametrize("name", SCENES)
def test_prompt_lookup_gives_what_no_drafts_give(name: str) -> None:
    scene = SCENES[name]
    limits = {
        "num_blocks": scene.num_blocks,
        "max_model_len": scene.max_model_len,
        "model": scene.model,
    }
    _, without = play(scene.requests, None, **limits)
    core, with_drafts = play(scene.requests, PromptLookupDrafter(), **limits)
    assert with_drafts == without
    if scene.model is quoting_model:
        stats = core.stats()
        assert stats.accepted_tokens >= 20
        assert stats.num_steps <= stats.generated_tokens - stats.accepted_tokens + 1


def test_drafts_stay_within_what_the_sequence_may_become() -> None:
    drafter = GuessingDrafter(next_token, always(40), always(99))
    core = make_drafting_core(drafter, max_model_len=30)
    core.add(make_request("r", (5, 6, 7), max_tokens=12))
    core.add(make("s", (5, 6, 8)))
    run_to_end(core)
    assert [limit for name, limit in drafter.asked if name == "r"] == [10]
    assert [limit for name, limit in drafter.asked if name == "s"] == [25]


def test_drafts_never_take_more_of_a_step_than_its_token_budget() -> None:
    drafter = GuessingDrafter(next_token, always(40), always(1))
    limits = SchedulerLimits(max_num_seqs=3, max_num_batched_tokens=12)
    core = make_drafting_core(drafter, limits=limits)
    for name in "abc":
        core.add(make_request(name, 4, max_tokens=30))
    while core.has_work:
        before = len(drafter.asked)
        core.step()
        asked = drafter.asked[before:]
        assert all(limit <= 9 for _, limit in asked)
    assert any(limit < 9 for _, limit in drafter.asked), "what one takes, the next has not"


def test_a_full_cache_makes_no_room_for_drafts() -> None:
    """They are dropped rather than preempt anybody."""
    drafter = GuessingDrafter(next_token, always(9), always(99))
    requests = [make_request(name, 4, max_tokens=12) for name in "ab"]
    core, got = play(requests, drafter, num_blocks=8, block_size=4)
    assert core.stats().num_preemptions == 0
    for request in requests:
        assert got[request.request_id][1] == expected_tokens(request.prompt_token_ids, 12)


def test_drafts_fill_the_last_blocks_and_no_more() -> None:
    """Of nine drafts, six and the token behind them fill three blocks that hold a prompt of four
    and its token."""
    drafter = GuessingDrafter(next_token, always(9), always(3))
    _, got = play([make("r", (5, 6, 7, 8))], drafter, num_blocks=3)
    assert got["r"][1] == expected_tokens((5, 6, 7, 8), 8)
    assert got["r"][2].type is FinishType.KV_CAPACITY  # type: ignore[attr-defined]
    assert [limit for _, limit in drafter.asked] == [6, 2]
    assert drafter.observed == [(6, 3), (2, 2)]


def test_wrong_drafts_never_reach_the_prefix_cache() -> None:
    """Each answer's blocks are found again by a request for exactly its tokens, and by none for
    the drafts that were refused; `SlotRunner` fails where a block holds anything else."""
    drafter = GuessingDrafter(next_token, always(7), any_of((0, 1, 3)))
    core = make_drafting_core(drafter)
    core.add(make_request("first", (5, 6, 7), max_tokens=30))
    answer = run_to_end(core)["first"].token_ids
    refused = [*answer[:10], *(token ^ 1 for token in answer[10:])]
    for name, tokens, num_cached in (("same", answer, 32), ("other", refused, 12)):
        prompt = (5, 6, 7, *tokens)
        core.add(make_request(name, prompt, max_tokens=5))
        got = run_to_end(core)[name]
        assert got.token_ids == expected_tokens(prompt, 5)
        finish = got.outputs[-1].finish
        assert finish is not None
        assert finish.usage.cached_tokens == num_cached


def test_an_answer_cut_between_drafts_goes_on_as_if_it_had_not_been() -> None:
    whole = expected_tokens((5, 6, 7), 40)
    for cut in range(1, 12):
        core = make_drafting_core(DRAFTERS["partly_right"](next_token))
        core.add(make_request("r", (5, 6, 7), max_tokens=cut))
        first = run_to_end(core)["r"].token_ids
        core.add(
            GenerationRequest(
                RequestId("r"),
                (5, 6, 7),
                SamplingParams(temperature=0.0, max_tokens=40 - cut),
                continued_token_ids=tuple(first),
            )
        )
        assert first + run_to_end(core)["r"].token_ids == whole


def test_an_abort_between_steps_with_drafts_leaves_no_block_behind() -> None:
    drafter = DRAFTERS["of_any_length"](next_token)
    core = make_drafting_core(drafter)
    core.add(make_request("a", 20, max_tokens=None))
    core.add(make_request("b", 20, max_tokens=12))
    got: dict[str, Collected] = {}
    for _ in range(3):
        for output in core.step():
            collect(got, output)
    core.abort(RequestId("a"), FinishType.CANCELLED)
    core.check()
    assert run_to_end(core)["b"].finish_type == "max_tokens"
    assert sorted(drafter.forgotten) == ["a", "b"]
    assert core.stats().used_blocks == 0


def test_the_drafter_learns_what_became_of_its_drafts() -> None:
    drafter = GuessingDrafter(next_token, always(3), always(2))
    core, _ = play([make_request("r", (5, 6, 7), max_tokens=11)], drafter)
    # One token with the prompt, three with each draft, and one that no draft is left for.
    assert drafter.observed == [(3, 2), (3, 2), (3, 2)]
    stats = core.stats()
    assert (stats.drafted_tokens, stats.accepted_tokens) == (9, 6)
    assert drafter.num_steps == stats.num_steps == 5
    assert stats.generated_tokens == 11


def test_what_lies_behind_an_end_does_not_count_as_accepted() -> None:
    drafter = GuessingDrafter(quoting_model, always(30), always(99))
    core, got = play([make("r", stop_token_ids=(PROMPT[5],))], drafter, model=quoting_model)
    assert got["r"][2].type is FinishType.STOP_TOKEN  # type: ignore[attr-defined]
    stats = core.stats()
    assert stats.drafted_tokens == 30
    assert stats.accepted_tokens == stats.generated_tokens - 2
    assert stats.generated_tokens == len(got["r"][1])  # type: ignore[arg-type]


requests = st.lists(
    st.tuples(
        st.sampled_from(((), tuple(range(8)), (*range(8), 50, 51, 52))),
        st.integers(1, 14),
        st.integers(1, 30),
        st.lists(st.text("abcdefgh", min_size=1, max_size=2), max_size=2),
    ),
    min_size=1,
    max_size=6,
)


@given(
    requests,
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=20),
    st.integers(13, 40),
    st.booleans(),
)
def test_any_requests_with_any_drafts_in_any_pool(
    drawn: list[tuple[tuple[int, ...], int, int, list[str]]],
    guesses: list[tuple[int, int]],
    num_blocks: int,
    caching: bool,
) -> None:
    def cycle(which: int) -> Callable[[], int]:
        turn = iter(range(1 << 30))
        return lambda: guesses[next(turn) % len(guesses)][which]

    made = [
        make_request(
            f"r{index}",
            prefix + tuple((index * 13 + i) % 90 for i in range(tail)),
            max_tokens=max_tokens,
            stop=tuple(stops),
        )
        for index, (prefix, tail, max_tokens, stops) in enumerate(drawn)
    ]
    options = {
        "num_blocks": num_blocks,
        "max_model_len": 50,
        "enable_prefix_cache": caching,
        "limits": SchedulerLimits(max_num_seqs=4, max_num_batched_tokens=20, min_chunk_tokens=4),
    }
    drafter = GuessingDrafter(next_token, cycle(0), cycle(1))
    assert play(made, drafter, **options)[1] == play(made, None, **options)[1]
    assert [count for count, _ in drafter.observed] == drafter.proposed, "none are taken back"
