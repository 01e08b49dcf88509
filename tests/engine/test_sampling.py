"""Sampling through the whole engine, on a tiny real model: a seeded answer depends on its request
alone, whatever happens around it."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest

from engine import assembly
from engine.assembly import assemble_model
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.scheduling.scheduler_output import SchedulerOutput
from engine.scheduling.sequence import Sequence
from engine.text.tokenizer import HFTokenizer
from engine.types import FinishType, GenerationRequest, RequestId, SamplingParams
from tests.support.engines import Collected, collect, run_to_end
from tests.support.tiny_models import build_tiny_model

PROMPT = tuple(b"seeded prompt")
COUNT = 48
KINDS = {
    "plain": SamplingParams(temperature=0.8),
    "filters": SamplingParams(temperature=1.1, top_k=60, top_p=0.95, min_p=0.01),
    "penalties": SamplingParams(
        temperature=0.9, presence_penalty=0.8, frequency_penalty=0.4, repetition_penalty=1.3
    ),
    "greedy_penalties": SamplingParams(
        temperature=0.0, presence_penalty=0.6, frequency_penalty=0.5, repetition_penalty=1.1
    ),
    "bias": SamplingParams(logit_bias=((40, 2.0), (41, -100.0)), min_p=0.02),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("model"), "llama")


def make_core(folder: Path, *, blocks: int = 200, budget: int = 512) -> EngineCore:
    return assemble_model(
        EngineConfig(
            model=folder,
            dtype="float32",
            block_size=8,
            kv_cache_tokens=blocks * 8,
            max_num_seqs=min(16, budget - 1),
            max_num_batched_tokens=budget,
            speculation="off",
        ),
        None,
    ).core


def make(
    name: str,
    params: SamplingParams,
    *,
    prompt: tuple[int, ...] = PROMPT,
    given: tuple[int, ...] = (),
    count: int = COUNT,
    seed: int | None = 42,
) -> GenerationRequest:
    params = dataclasses.replace(params, seed=seed, max_tokens=count, ignore_eos=True)
    return GenerationRequest(RequestId(name), prompt, params, continued_token_ids=given)


def company(index: int) -> GenerationRequest:
    """Unseeded, of every kind, with prompts of different lengths."""
    params = list(KINDS.values())[index % len(KINDS)]
    prompt = tuple((index * 31 + place * 7) % 250 for place in range(5 + 9 * index))
    return make(f"other{index}", params, prompt=prompt, count=20 + 10 * index, seed=None)


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, list[int]]:
    core = make_core(folder)
    answers = {}
    for kind, params in KINDS.items():
        core.add(make(kind, params))
        answers[kind] = run_to_end(core)[kind].token_ids
    assert len({tuple(answer) for answer in answers.values()}) == len(KINDS)
    assert all(len(answer) == COUNT for answer in answers.values())
    return answers


def test_together_in_one_batch(folder: Path, alone: dict[str, list[int]]) -> None:
    core = make_core(folder)
    for kind, params in KINDS.items():
        core.add(make(kind, params))
    for index in range(4):
        core.add(company(index))
    got = run_to_end(core)
    assert {kind: got[kind].token_ids for kind in KINDS} == alone


def test_in_chunks_with_preemption(folder: Path, alone: dict[str, list[int]]) -> None:
    core = make_core(folder, blocks=20, budget=9)
    for kind, params in KINDS.items():
        core.add(make(kind, params))
    got = run_to_end(core)
    assert core.stats().num_preemptions > 0
    assert {kind: got[kind].token_ids for kind in KINDS} == alone


@pytest.mark.parametrize("given", [1, 17, 47])
def test_continued(folder: Path, alone: dict[str, list[int]], given: int) -> None:
    """The tokens of the cut answer count for penalties as they did when they were drawn."""
    core = make_core(folder)
    for kind, params in KINDS.items():
        answer = tuple(alone[kind][:given])
        core.add(make(kind, params, given=answer, count=COUNT - given))
    got = run_to_end(core)
    assert {kind: got[kind].token_ids for kind in KINDS} == {
        kind: answer[given:] for kind, answer in alone.items()
    }


class _Guesses:
    """A `Drafter` that knows the answers and is often wrong."""

    max_batch = 1 << 30

    def __init__(self, answers: dict[str, list[int]]) -> None:
        self._answers = answers
        self._chance = random.Random(0)
        self.num_accepted = 0

    def propose(self, sequence: Sequence, limit: int, num_decoding: int) -> tuple[int, ...]:
        start = sequence.num_output_tokens
        right = self._answers[sequence.request_id][start : start + min(limit, 4)]
        return tuple(
            token_id if self._chance.random() < 0.7 else self._chance.randrange(300)
            for token_id in right
        )

    def observe(self, sequence: Sequence, num_drafted: int, num_accepted: int) -> None:
        self.num_accepted += num_accepted

    def observe_step(self, output: SchedulerOutput, seconds: float) -> None:
        pass

    def forget(self, sequence: Sequence) -> None:
        pass


def test_with_drafts(
    folder: Path, alone: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    guesses = _Guesses(alone)
    monkeypatch.setattr(assembly, "_drafter", lambda *_: guesses)
    core = make_core(folder)
    for kind, params in KINDS.items():
        core.add(make(kind, params))
    got = run_to_end(core)
    assert {kind: got[kind].token_ids for kind in KINDS} == alone
    assert guesses.num_accepted > len(KINDS) * COUNT / 3


def test_company_of_every_sort(folder: Path) -> None:
    """SMP-05: the same 16 ids alone, with others that start later or earlier, beside another
    seed, and after an aborted request; three rounds."""
    target = make("target", SamplingParams(temperature=0.8), count=16)

    def play(before: list[GenerationRequest], after: list[GenerationRequest]) -> list[int]:
        core = make_core(folder)
        got: dict[str, Collected] = {}
        for request in before:
            core.add(request)
            for output in core.step():
                collect(got, output)
        core.add(target)
        for request in after:
            core.add(request)
        while core.has_work:
            for output in core.step():
                collect(got, output)
        return got["target"].token_ids

    def after_an_aborted_one() -> list[int]:
        core = make_core(folder)
        core.add(target)
        for _ in range(5):
            core.step()
        core.abort(target.request_id, FinishType.CANCELLED)
        core.add(target)
        return run_to_end(core)["target"].token_ids

    seven = make("seven", SamplingParams(temperature=0.8), seed=7, count=16)
    rounds = [
        [
            play([], []),
            play([], [company(0)]),
            play([company(index) for index in range(3)], []),
            play([], [seven]),
            after_an_aborted_one(),
        ]
        for _ in range(3)
    ]
    assert len({tuple(answer) for answers in rounds for answer in answers}) == 1
    core = make_core(folder)
    core.add(seven)
    assert run_to_end(core)["seven"].token_ids != rounds[0][0]


def test_min_tokens_holds_back_every_end(folder: Path) -> None:
    """EOS and stop tokens are not drawn, and a stop string is text, among the first so many."""
    core = make_core(folder)
    (letter,) = HFTokenizer.from_folder(folder).encode("a")
    eos, stop = 2, 5
    # The stop token before EOS before the letter, and nothing else.
    wish = ((stop, 100.0), (eos, 80.0), (letter, 60.0))
    base = SamplingParams(
        temperature=0.0, logit_bias=wish, max_tokens=9, stop_token_ids=(stop,), min_tokens=6
    )

    def play(given: tuple[int, ...] = (), **changes: Any) -> Collected:
        params = dataclasses.replace(base, **changes)
        core.add(GenerationRequest(RequestId("r"), PROMPT, params, continued_token_ids=given))
        return run_to_end(core)["r"]

    at_once = play(min_tokens=0)
    assert (at_once.token_ids, at_once.finish_type) == ([stop], "stop_token")
    held = play(stop=("aa",))
    assert held.token_ids == [letter] * 6 + [stop]
    assert (held.finish_type, held.text) == ("stop_token", "a" * 6)
    continued = play((letter,) * 4, stop=("aa",))
    assert continued.token_ids == held.token_ids[4:]
    assert continued.text == "aa"

    matched = play(logit_bias=((letter, 60.0),), stop_token_ids=(), stop=("aa",))
    assert len(matched.token_ids) == 7
    assert (matched.finish_type, matched.text) == ("stop_string", "a" * 5)
    ignoring = play(ignore_eos=True)
    assert ignoring.token_ids[:7] == [eos] * 6 + [stop], "EOS is a token like others there"
    limited = play(max_tokens=3)
    assert (limited.token_ids, limited.finish_type) == ([letter] * 3, "max_tokens")


def test_logprobs_of_each_token(folder: Path) -> None:
    """One entry a token, greedy ones the likeliest, the same whatever is drafted or sampled."""
    core = make_core(folder)
    greedy = dataclasses.replace(KINDS["plain"], temperature=0.0, logprobs=2)
    core.add(make("greedy", greedy))
    core.add(make("random", dataclasses.replace(KINDS["filters"], logprobs=20)))
    core.add(make("silent", KINDS["plain"]))
    got = run_to_end(core)
    for name, num_top in (("greedy", 2), ("random", 20), ("silent", None)):
        told = [one for output in got[name].outputs for one in output.logprobs]
        if num_top is None:
            assert told == []
            continue
        assert [one.token_id for one in told] == got[name].token_ids
        assert all(len(one.top) == num_top for one in told)
        assert all(-30 < one.logprob <= one.top[0][1] <= 0.0 for one in told)
        if name == "greedy":
            assert all(one.top[0] == (one.token_id, one.logprob) for one in told)
