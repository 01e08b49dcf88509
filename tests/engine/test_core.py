from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import EngineCore
from engine.execution.runner import Sample, StepResult
from engine.scheduling.drafter import Drafter
from engine.scheduling.scheduler import SchedulerLimits
from engine.scheduling.scheduler_output import SchedulerOutput
from engine.types import (
    FinishDetail,
    FinishType,
    GenerationRequest,
    RequestId,
    SamplingParams,
    TokenLogprobs,
)
from tests.support.drafters import GuessingDrafter, SlotRunner, always, make_drafting_core
from tests.support.engines import (
    Clock,
    Collected,
    CountingRunner,
    collect,
    expected_tokens,
    make_core,
    make_request,
    run_to_end,
)

EOS = 258


class ListRunner(CountingRunner):
    """Plays the given token ids for every request."""

    def __init__(self, clock: Clock, tokens: list[int]) -> None:
        super().__init__(clock)
        self.tokens = tokens

    def execute(self, plan: SchedulerOutput) -> StepResult:
        super().execute(plan)
        return StepResult(
            [
                Sample((self.tokens[item.sequence.num_output_tokens],))
                for item in plan.scheduled
                if item.samples
            ]
        )


def play(tokens: list[int], **params: object) -> tuple[EngineCore, dict[str, object]]:
    clock = Clock()
    core, _ = make_core(clock=clock, runner=ListRunner(clock, tokens), max_model_len=40)
    core.add(
        GenerationRequest(
            RequestId("r"),
            (1, 2, 3),
            SamplingParams(temperature=0.0, **params),  # type: ignore[arg-type]
        )
    )
    collected = run_to_end(core)["r"]
    finish = collected.outputs[-1].finish
    assert finish is not None
    return core, {
        "text": collected.text,
        "type": finish.detail.type.value,
        "matched": finish.detail.matched,
        "reason": finish.reason.value,
        "tokens": finish.usage.completion_tokens,
    }


def ends(text: str, type_: str, reason: str, tokens: int, matched: object = None) -> object:
    return {
        "text": text,
        "type": type_,
        "matched": matched,
        "reason": reason,
        "tokens": tokens,
    }


def test_eos_ends_counts_and_is_not_shown() -> None:
    assert play([97, 98, EOS])[1] == ends("ab", "eos", "stop", 3)


def test_every_listed_eos_ends() -> None:
    assert play([97, 256])[1] == ends("a", "eos", "stop", 2)


def test_ignore_eos_passes_it() -> None:
    got = play([97, EOS, 98], ignore_eos=True, max_tokens=3)[1]
    assert got == ends("ab", "max_tokens", "length", 3)


def test_a_stop_token_is_named_and_not_shown() -> None:
    got = play([97, 98], stop_token_ids=(98,))[1]
    assert got == ends("a", "stop_token", "stop", 2, 98)


def test_a_stop_string_ends_in_the_same_step() -> None:
    got = play([97, 98, 99, 100], stop=("bc",))[1]
    assert got == ends("a", "stop_string", "stop", 3, "bc")


def test_a_stop_completed_by_the_last_allowed_token_is_a_stop() -> None:
    got = play([97, 98, 99], stop=("c",), max_tokens=3)[1]
    assert got == ends("ab", "stop_string", "stop", 3, "c")


def test_max_tokens_is_a_length_and_sends_what_was_held_back() -> None:
    got = play([97, 98, 99], stop=("cd",), max_tokens=3)[1]
    assert got == ends("abc", "max_tokens", "length", 3)


def test_the_window_is_its_own_kind_of_length() -> None:
    assert play([97] * 60)[1] == ends("a" * 37, "context_window", "length", 37)
    assert play([97] * 60, max_tokens=37)[1] == ends("a" * 37, "max_tokens", "length", 37)


def test_a_cache_that_is_too_small_for_one_answer_says_so() -> None:
    core, _ = make_core(num_blocks=4, block_size=4)
    core.add(make_request("r", 10, max_tokens=50))
    got = run_to_end(core)["r"]
    assert got.finish_type == "kv_capacity"
    assert len(got.token_ids) == 6, "prompt and answer fill 16 slots"


def test_a_deadline_ends_running_and_waiting_requests() -> None:
    core, clock = make_core(limits=SchedulerLimits(max_num_seqs=1))
    core.add(make_request("running", max_tokens=None, deadline_s=0.0105))
    core.add(make_request("waiting", max_tokens=None, deadline_s=0.0055))
    got = run_to_end(core)
    assert (got["running"].finish_type, got["waiting"].finish_type) == ("deadline", "deadline")
    assert clock.now_s == pytest.approx(0.011)
    assert len(got["waiting"].token_ids) == 0


def test_a_deadline_is_not_that_of_the_next_request_of_the_name() -> None:
    core, _ = make_core()
    core.add(make_request("r", max_tokens=1, deadline_s=0.0055))
    assert run_to_end(core)["r"].finish_type == "max_tokens"
    core.add(make_request("r", max_tokens=12, deadline_s=1.0))
    assert run_to_end(core)["r"].finish_type == "max_tokens"


def test_abort_frees_blocks_at_once_and_only_once() -> None:
    core, _ = make_core()
    core.add(make_request("a", max_tokens=None))
    core.step()
    assert core.stats().used_blocks > 0
    outputs = core.abort(RequestId("a"), FinishType.CANCELLED)
    assert [output.finish.detail.type for output in outputs if output.finish] == ["cancelled"]
    assert core.stats().used_blocks == 0
    assert core.abort(RequestId("a"), FinishType.CANCELLED) == []
    assert core.abort(RequestId("unknown"), FinishType.CANCELLED) == []
    assert not core.has_work


def test_abort_before_it_was_ever_scheduled() -> None:
    core, _ = make_core()
    core.add(make_request("a"))
    (output,) = core.abort(RequestId("a"), FinishType.CLIENT_GONE)
    assert output.finish is not None
    assert output.finish.timing.queue_s is None
    core.check()


def test_a_failed_request_hurts_nobody_else() -> None:
    clock = Clock()

    class FailingRunner(CountingRunner):
        def execute(self, plan: SchedulerOutput) -> StepResult:
            result = super().execute(plan)
            return StepResult(result.samples, {RequestId("bad"): "broken"})

    core, _ = make_core(clock=clock, runner=FailingRunner(clock))
    core.add(make_request("good", (5, 6, 7)))
    core.add(make_request("bad"))
    got = run_to_end(core)
    assert got["bad"].finish_type == "error"
    assert got["good"].token_ids == expected_tokens((5, 6, 7), 8)


def test_a_continuation_goes_on_where_the_answer_stood() -> None:
    prompt = (1, 2, 3)
    whole = expected_tokens(prompt, 9)
    core, _ = make_core()
    core.add(
        GenerationRequest(
            RequestId("r"),
            prompt,
            SamplingParams(temperature=0.0, max_tokens=5),
            continued_token_ids=tuple(whole[:4]),
        )
    )
    got = run_to_end(core)["r"]
    assert got.token_ids == whole[4:]
    assert got.text == bytes(whole[4:]).decode()


def test_cached_tokens_are_what_the_cache_supplied() -> None:
    core, _ = make_core(block_size=8)
    prompt = tuple(range(32))
    seen = []
    for size in (32, 32, 33, 24):
        core.add(make_request("r", prompt[:size] + (99,) * (size - 32), max_tokens=2))
        finish = run_to_end(core)["r"].outputs[-1].finish
        assert finish is not None
        seen.append((finish.usage.prompt_tokens, finish.usage.cached_tokens))
    assert seen == [(32, 0), (32, 24), (33, 32), (24, 16)]


def test_four_requests_in_a_pool_for_two_give_what_each_gives_alone() -> None:
    core, _ = make_core(num_blocks=20, block_size=4)
    requests = [make_request(name, 10, max_tokens=50) for name in "abcd"]
    for request in requests:
        core.add(request)
    got = run_to_end(core)
    assert core.stats().num_preemptions > 0
    for request in requests:
        expected = expected_tokens(request.prompt_token_ids, 50)
        assert got[request.request_id].token_ids == expected
        assert got[request.request_id].text == bytes(expected).decode()
    stats = core.stats()
    assert stats.used_blocks == 0
    assert stats.free_blocks + stats.cached_blocks == stats.total_blocks


def test_progress_counts_up_to_the_prompt() -> None:
    core, _ = make_core(limits=SchedulerLimits(max_num_batched_tokens=33))
    core.add(make_request("r", 80, max_tokens=1))
    progress = [output.progress for output in run_to_end(core)["r"].outputs]
    assert [(p.prefilled, p.total) for p in progress if p] == [(33, 80), (66, 80), (80, 80)]


def test_abort_all_ends_everything() -> None:
    core, _ = make_core(limits=SchedulerLimits(max_num_seqs=1))
    collected: dict[str, object] = {}
    for name in "abc":
        core.add(make_request(name, max_tokens=None))
    for output in [*core.step(), *core.abort_all(FinishType.SHUTDOWN)]:
        collect(collected, output)  # type: ignore[arg-type]
    assert {entry.finish_type for entry in collected.values()} == {"shutdown"}  # type: ignore[attr-defined]
    assert not core.has_work


def letters(text: str, prompt: tuple[int, ...] = (1, 2, 3)) -> Callable[[list[int]], int]:
    """A model that says `text`, one byte a token, and ends."""
    encoded = text.encode()

    def model(token_ids: list[int]) -> int:
        index = len(token_ids) - len(prompt)
        return encoded[index] if index < len(encoded) else EOS

    return model


def in_parts(
    text: str, stops: tuple[str, ...], cuts: list[int], *, drafter: Drafter | None = None
) -> tuple[str, FinishDetail]:
    """The joined text of an answer that is cut after so many tokens each time and continued,
    and how its last part ended."""
    core = make_drafting_core(drafter, model=letters(text))
    shown = ""
    tokens: tuple[int, ...] = ()
    for max_tokens in (*cuts, None):
        core.add(
            GenerationRequest(
                RequestId("r"),
                (1, 2, 3),
                SamplingParams(temperature=0.0, max_tokens=max_tokens, stop=stops),
                continued_token_ids=tokens,
                continued_text=shown if tokens else None,
                may_continue=True,
            )
        )
        got = run_to_end(core)["r"]
        shown, tokens = shown + got.text, (*tokens, *got.token_ids)
        finish = got.outputs[-1].finish
        assert finish is not None
        if finish.detail.type is not FinishType.MAX_TOKENS:
            return shown, finish.detail
    raise AssertionError("the last part has no limit")


def test_a_cut_inside_a_stop_string_shows_nothing_of_it() -> None:
    text = "See you on Thursday, 3 pm."
    stopped = ("See you on ", FinishDetail(FinishType.STOP_STRING, "Thursday"))
    for cut in range(1, 19):
        assert in_parts(text, ("Thursday",), [cut]) == stopped
    assert in_parts(text, ("Thursday",), [13, 1, 2]) == stopped


def test_what_was_kept_back_at_a_cut_comes_with_the_continuation() -> None:
    text = "See you on Thursday, 3 pm."
    whole = (text, FinishDetail(FinishType.EOS))
    for cut in range(1, len(text)):
        assert in_parts(text, ("Thursday afternoon",), [cut]) == whole
    assert in_parts("on Thurs", ("Thursday",), [8]) == ("on Thurs", whole[1])


def test_who_cannot_continue_gets_all_of_a_cut_answer() -> None:
    core = make_drafting_core(None, model=letters("on Thursday"))
    core.add(make_request("r", (1, 2, 3), max_tokens=6, stop=("Thursday",)))
    assert run_to_end(core)["r"].text == "on Thu"


@pytest.mark.parametrize(
    ("detail", "text"),
    [
        (FinishType.CANCELLED, "on "),
        (FinishType.DEADLINE, "on "),
        (FinishType.CONTEXT_WINDOW, "on Thu"),
        (FinishType.EOS, "on Thu"),
    ],
)
def test_only_a_cut_that_leaves_room_keeps_text_back(detail: FinishType, text: str) -> None:
    window = 9 if detail is FinishType.CONTEXT_WINDOW else 40
    model = letters("on Thu" if detail is FinishType.EOS else "on Thursday")
    core = make_drafting_core(None, model=model, max_model_len=window)
    core.add(
        GenerationRequest(
            RequestId("r"),
            (1, 2, 3),
            SamplingParams(temperature=0.0, stop=("Thursday",)),
            may_continue=True,
        )
    )
    got: dict[str, Collected] = {}
    for _ in range(6):
        for output in core.step():
            collect(got, output)
    if detail.leaves_room:
        for output in core.abort(RequestId("r"), detail):
            collect(got, output)
    else:
        for name, more in run_to_end(core).items():
            for output in more.outputs:
                collect(got, output)
                assert name == "r"
    assert (got["r"].text, got["r"].finish_type) == (text, detail.value)


@given(
    st.text("ab好", min_size=1, max_size=14),
    st.lists(st.text("ab好", min_size=1, max_size=4), max_size=2),
    st.lists(st.integers(1, 9), max_size=3),
    st.integers(0, 5),
)
def test_cuts_change_nothing_at_all(
    text: str, stops: list[str], cuts: list[int], num_drafts: int
) -> None:
    """Whether one token comes in a step or several."""
    drafter = GuessingDrafter(letters(text), always(num_drafts), always(99))
    uncut = in_parts(text, tuple(stops), [])
    assert in_parts(text, tuple(stops), cuts) == uncut
    assert in_parts(text, tuple(stops), cuts, drafter=drafter) == uncut


def test_several_tokens_in_one_step_are_one_delta() -> None:
    """Each with its log probability, the first of them the time to the first token."""

    class Certain(SlotRunner):
        def execute(self, plan: SchedulerOutput) -> StepResult:
            result = super().execute(plan)
            return StepResult(
                [
                    Sample(one.token_ids, tuple(TokenLogprobs(t, -0.5) for t in one.token_ids))
                    for one in result.samples
                ]
            )

    clock, model = Clock(), letters("abcdefgh")
    core = make_drafting_core(
        GuessingDrafter(model, always(3), always(99)),
        runner=Certain(clock, block_size=4, next_token=model),
        clock=clock,
    )
    core.add(make_request("r", (1, 2, 3), max_tokens=None, stop=("g",)))
    got = run_to_end(core)["r"]
    assert [output.text for output in got.outputs] == ["a", "bcde", "f"]
    assert [len(output.token_ids) for output in got.outputs] == [1, 4, 2]
    for output in got.outputs:
        assert [entry.token_id for entry in output.logprobs] == list(output.token_ids)
    finish = got.outputs[-1].finish
    assert finish is not None
    assert finish.usage.completion_tokens == 7
    assert finish.timing.ttft_s == pytest.approx(0.001)
    assert finish.timing.total_s == pytest.approx(0.003)
