"""Drafts over real forward passes: the same tokens, log probabilities and ends as without,
greedy and sampled, alone and together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pytest

import engine.assembly
from engine.assembly import assemble_model
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.kernels.native.build import find_compiler
from engine.kernels.native.library import load_library
from engine.scheduling.drafter import Drafter
from engine.scheduling.scheduler_output import SchedulerOutput
from engine.speculation.prompt_lookup import PromptLookupDrafter
from engine.types import Finish, GenerationRequest, RequestId, SamplingParams, TokenLogprobs
from tests.support.drafters import GuessingDrafter, always, any_of
from tests.support.engines import Collected, run_to_end
from tests.support.tiny_models import build_tiny_model

NUM_TOKENS = 48
PARAMS = {
    "greedy": SamplingParams(temperature=0.0),
    "sampled": SamplingParams(temperature=1.0, seed=1),
    "filtered": SamplingParams(temperature=0.7, top_k=20, top_p=0.9, min_p=0.01, seed=2),
    "penalties": SamplingParams(
        temperature=0.0, presence_penalty=0.5, frequency_penalty=0.4, repetition_penalty=1.2
    ),
    "sampled_penalties": SamplingParams(
        temperature=1.0, frequency_penalty=1.0, repetition_penalty=1.3, seed=3
    ),
    "min_tokens": SamplingParams(
        temperature=1.3, min_tokens=30, stop_token_ids=tuple(range(160)), seed=4
    ),
    "min_tokens_greedy": SamplingParams(temperature=0.0, min_tokens=20, stop=("e", "a", "t", "i")),
    "logit_bias": SamplingParams(temperature=1.0, logit_bias=((7, 3.0), (9, -100.0)), seed=5),
    "repetitive": SamplingParams(
        temperature=1.0, logit_bias=tuple((token_id, 30.0) for token_id in (7, 70, 170)), seed=9
    ),
    "logprobs": SamplingParams(temperature=0.0, logprobs=3),
    "sampled_logprobs": SamplingParams(temperature=1.0, logprobs=0, presence_penalty=1.0, seed=6),
    "ends_somewhere": SamplingParams(temperature=1.5, seed=7, stop_token_ids=tuple(range(40, 48))),
    "stop_string": SamplingParams(temperature=1.2, seed=8, stop=("e", "a")),
}
PHRASE = (17, 92, 143, 201, 64, 31, 250, 88)
PROMPTS = {
    name: (*PHRASE, 5 + index, *((index * 31 + i * i) % 300 + 4 for i in range(9)), *PHRASE[:3])
    for index, name in enumerate(PARAMS)
}


def request(name: str, given: tuple[int, ...] = ()) -> GenerationRequest:
    params = PARAMS[name]
    values = {field: getattr(params, field) for field in params.__slots__}
    values |= {"max_tokens": NUM_TOKENS - len(given), "ignore_eos": name != "ends_somewhere"}
    return GenerationRequest(
        RequestId(name), PROMPTS[name], SamplingParams(**values), continued_token_ids=given
    )


class EagerLookup(PromptLookupDrafter):
    """Believes that rows are free, whatever this machine is busy with."""

    def observe_step(self, output: SchedulerOutput, seconds: float) -> None:
        super().observe_step(output, 0.01)


class Model:
    """A tiny model's folder, and engines over it."""

    def __init__(self, folder: Path, weights: Literal["float", "q4"]) -> None:
        self.folder = folder
        self.weights = weights
        core = self.core(None)
        self.answers: dict[str, Collected] = {}
        for name in PARAMS:
            core.add(request(name))
            self.answers |= run_to_end(core)

    def core(self, drafter: Drafter | None, *, num_blocks: int = 200) -> EngineCore:
        config = EngineConfig(
            model=self.folder,
            dtype="float32",
            weights=self.weights,
            block_size=8,
            kv_cache_tokens=num_blocks * 8,
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine.assembly, "_drafter", lambda config, runner: drafter)
            return assemble_model(config, None).core

    def next_token(self, token_ids: list[int]) -> int:
        """What was answered at this place."""
        for name, prompt in PROMPTS.items():
            if tuple(token_ids[: len(prompt)]) == prompt:
                answer = self.answers[name].token_ids
                index = len(token_ids) - len(prompt)
                return answer[index] if index < len(answer) else 3
        raise AssertionError("an unknown prompt")


@pytest.fixture(
    scope="module",
    params=[("llama", "float"), ("qwen3", "float"), ("llama", "q4")],
    ids=lambda param: "-".join(param),
)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    name, weights = request.param
    if weights != "float" and load_library() is None:
        assert find_compiler() is None, "run scripts/setup: the native kernels are not built"
        assert not os.environ.get("CI"), "install g++: nothing may be skipped here"
        pytest.skip("no native kernels")
    return Model(build_tiny_model(tmp_path_factory.mktemp(name), name), weights)


def finish_of(got: Collected) -> Finish:
    finish = got.outputs[-1].finish
    assert finish is not None
    return finish


def logprobs_of(got: Collected) -> list[TokenLogprobs]:
    return [entry for output in got.outputs for entry in output.logprobs]


def assert_same(got: Collected, expected: Collected) -> None:
    assert got.token_ids == expected.token_ids
    assert got.text == expected.text
    assert finish_of(got).detail == finish_of(expected).detail
    assert finish_of(got).usage.completion_tokens == finish_of(expected).usage.completion_tokens
    for one, other in zip(logprobs_of(got), logprobs_of(expected), strict=True):
        assert one.token_id == other.token_id
        assert one.logprob == pytest.approx(other.logprob, abs=1e-3)
        assert dict(one.top) == pytest.approx(dict(other.top), abs=1e-3)


def drafters(model: Model) -> dict[str, Drafter]:
    return {
        "right": GuessingDrafter(model.next_token, always(5), always(99)),
        "wrong": GuessingDrafter(model.next_token, always(5), always(0)),
        "partly_right": GuessingDrafter(model.next_token, always(5), any_of(range(6))),
        "prompt_lookup": EagerLookup(max_draft_tokens=6, max_batch=16),
    }


def test_the_answers_differ_and_end_in_different_ways(model: Model) -> None:
    """Equality below would mean little otherwise."""
    assert len({tuple(got.token_ids) for got in model.answers.values()}) == len(PARAMS)
    assert model.answers["stop_string"].finish_type == "stop_string"
    assert model.answers["min_tokens"].finish_type == "stop_token"
    assert 30 < len(model.answers["min_tokens"].token_ids) < 45
    assert len(model.answers["min_tokens_greedy"].token_ids) > 20
    assert model.answers["ends_somewhere"].finish_type in ("stop_token", "eos")
    assert len(logprobs_of(model.answers["logprobs"])) == NUM_TOKENS


@pytest.mark.parametrize("kind", ["right", "wrong", "partly_right", "prompt_lookup"])
def test_alone(model: Model, kind: str) -> None:
    core = model.core(drafters(model)[kind])
    for name in PARAMS:
        core.add(request(name))
        assert_same(run_to_end(core)[name], model.answers[name])
    stats = core.stats()
    assert stats.drafted_tokens > 0
    assert (stats.accepted_tokens > 0) == (kind != "wrong")
    if kind == "right":
        assert stats.accepted_tokens > 0.7 * stats.generated_tokens


@pytest.mark.parametrize("kind", ["partly_right", "prompt_lookup"])
def test_together_with_some_preempted(model: Model, kind: str) -> None:
    """In a cache too small for all, where blocks of one are soon another's."""
    core = model.core(drafters(model)[kind], num_blocks=30)
    for name in PARAMS:
        core.add(request(name))
    got = run_to_end(core)
    assert core.stats().num_preemptions > 0
    for name in PARAMS:
        assert_same(got[name], model.answers[name])


def test_a_continuation_is_what_the_whole_answer_is(model: Model) -> None:
    core = model.core(drafters(model)["partly_right"])
    for name in ("greedy", "sampled", "penalties", "sampled_penalties", "filtered"):
        whole = model.answers[name].token_ids
        for cut in (1, 7, 20):
            core.add(request(name, tuple(whole[:cut])))
            assert run_to_end(core)[name].token_ids == whole[cut:]
