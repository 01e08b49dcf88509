"""Greedy answers equal those of `transformers` on the same weights, token for token, whichever
way the engine comes to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.assembly import assemble_model
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.types import GenerationRequest, RequestId, SamplingParams
from tests.support.engines import Collected, collect, run_to_end
from tests.support.oracle import greedy, load_oracle
from tests.support.tiny_models import TINY_MODELS, build_tiny_model

NUM_TOKENS = 64
LENGTHS = (3, 16, 17, 45, 70)
SHARED = tuple((i * 37 + 11) % 310 + 4 for i in range(48))
PROMPTS = {
    f"p{length}": tuple((i * i + 13 * length) % 310 + 4 for i in range(length))
    for length in LENGTHS
} | {f"shared{tail}": (*SHARED, 5 + tail, 9) for tail in range(2)}


class Reference:
    """A tiny model's folder and what the oracle answers to each prompt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        model = load_oracle(folder)
        self.answers = {name: greedy(model, prompt, NUM_TOKENS) for name, prompt in PROMPTS.items()}


@pytest.fixture(scope="module", params=sorted(TINY_MODELS))
def reference(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Reference:
    folder = tmp_path_factory.mktemp(request.param)
    return Reference(build_tiny_model(folder, request.param))


def make_engine(reference: Reference, *, blocks: int = 200, budget: int = 512) -> EngineCore:
    return assemble_model(
        EngineConfig(
            model=reference.folder,
            dtype="float32",
            block_size=8,
            kv_cache_tokens=blocks * 8,
            max_num_seqs=min(16, budget - 1),
            max_num_batched_tokens=budget,
        ),
        None,
    ).core


def make(name: str, *, given: tuple[int, ...] = (), count: int = NUM_TOKENS) -> GenerationRequest:
    return GenerationRequest(
        RequestId(name),
        PROMPTS[name],
        SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True),
        continued_token_ids=given,
    )


def assert_all_right(reference: Reference, got: dict[str, Collected], names: list[str]) -> None:
    assert {name: got[name].token_ids for name in names} == {
        name: reference.answers[name] for name in names
    }


def test_the_oracle_distinguishes_its_prompts(reference: Reference) -> None:
    """Equality below would mean little if every prompt led to the same answer."""
    assert len({tuple(answer) for answer in reference.answers.values()}) >= 5


def test_alone(reference: Reference) -> None:
    core = make_engine(reference)
    for name in PROMPTS:
        core.add(make(name))
        assert_all_right(reference, run_to_end(core), [name])


def test_in_a_mixed_batch(reference: Reference) -> None:
    """Some are decoding while others are still being prefilled."""
    core = make_engine(reference, budget=60)
    names = list(PROMPTS)
    core.add(make(names[0]))
    got: dict[str, Collected] = {}
    for output in core.step():
        collect(got, output)
    for name in names[1:]:
        core.add(make(name))
        for output in core.step():
            collect(got, output)
    while core.has_work:
        for output in core.step():
            collect(got, output)
    assert_all_right(reference, got, names)


def test_with_prompts_in_odd_chunks(reference: Reference) -> None:
    core = make_engine(reference, budget=7)
    for name in PROMPTS:
        core.add(make(name))
    assert_all_right(reference, run_to_end(core), list(PROMPTS))


def test_with_preemption(reference: Reference) -> None:
    core = make_engine(reference, blocks=30)
    for name in PROMPTS:
        core.add(make(name))
    got = run_to_end(core)
    assert core.stats().num_preemptions > 0
    assert_all_right(reference, got, list(PROMPTS))


def test_with_prefix_hits(reference: Reference) -> None:
    core = make_engine(reference)
    for name in ("shared0", "shared1", "shared0", "p45", "p45"):
        core.add(make(name))
        got = run_to_end(core)
        assert_all_right(reference, got, [name])
    assert core.stats().cached_tokens == 2 * 48 + 40


def test_continued(reference: Reference) -> None:
    """An answer that was cut goes on token for token."""
    core = make_engine(reference)
    answer = reference.answers["p17"]
    core.add(make("p17", given=tuple(answer[:23]), count=NUM_TOKENS - 23))
    assert run_to_end(core)["p17"].token_ids == answer[23:]
