"""Greedy answers equal those of `transformers` on the same weights, token for token, whichever
way the engine comes to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from engine.assembly import assemble_model
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.types import GenerationRequest, RequestId, SamplingParams
from tests.support.engines import Collected, collect, run_to_end
from tests.support.oracle import load_oracle, next_tokens
from tests.support.tiny_models import GENERIC_MODELS, TINY_MODELS, build_tiny_model

CPU_SETTINGS = {"device": "cpu", "block_size": 8}
NUM_TOKENS = 32
SHARED = tuple((i * 37 + 11) % 310 + 4 for i in range(32))
PROMPTS = {
    f"p{length}": tuple((i * i + 13 * length) % 310 + 4 for i in range(length))
    for length in (3, 16, 17, 45)
} | {f"shared{tail}": (*SHARED, 5 + tail, 9) for tail in range(2)}


class Reference:
    """A tiny model's folder and the greedy answer to each prompt, as transformers has it.
    `settings` are fields of the configuration of every engine that is made for it."""

    def __init__(self, folder: Path, settings: Mapping[str, Any] = CPU_SETTINGS) -> None:
        self.folder = folder
        self.settings = settings
        self.answers = {}
        model = load_oracle(folder)
        core = self.engine()
        for name, prompt in PROMPTS.items():
            core.add(make(name))
            answer = run_to_end(core)[name].token_ids
            assert len(answer) == NUM_TOKENS
            # One prompt after the other, each alone: the first way that is compared.
            assert answer == next_tokens(model, [*prompt, *answer[:-1]], len(prompt) - 1), name
            self.answers[name] = answer

    def engine(self, *, tokens: int = 1600, budget: int = 512) -> EngineCore:
        """An engine with room for `tokens` tokens, and `budget` tokens a step."""
        return assemble_model(
            EngineConfig(
                model=self.folder,
                dtype="float32",
                kv_cache_tokens=tokens,
                max_num_seqs=min(16, budget - 1),
                max_num_batched_tokens=budget,
                **self.settings,
            ),
            None,
        ).core

    def answers_to(self, names: list[str]) -> dict[str, list[int]]:
        return {name: self.answers[name] for name in names}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Sharing products of this size out to threads costs more than it brings."""
    import torch

    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture(scope="module", params=[*sorted(TINY_MODELS), *sorted(GENERIC_MODELS)])
def reference(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Reference:
    folder = tmp_path_factory.mktemp(request.param)
    return Reference(build_tiny_model(folder, request.param))


def make(name: str, *, given: tuple[int, ...] = (), count: int = NUM_TOKENS) -> GenerationRequest:
    return GenerationRequest(
        RequestId(name),
        PROMPTS[name],
        SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True),
        continued_token_ids=given,
    )


def token_ids(got: dict[str, Collected]) -> dict[str, list[int]]:
    return {name: item.token_ids for name, item in got.items()}


def test_alone_and_the_oracle_distinguishes_its_prompts(reference: Reference) -> None:
    """Each alone was compared when the reference was made. Equality below would mean little if
    every prompt led to the same answer."""
    assert len({tuple(answer) for answer in reference.answers.values()}) >= 5


def test_in_a_mixed_batch(reference: Reference) -> None:
    """Some are decoding while others are still being prefilled."""
    core = reference.engine(budget=60)
    names = list(PROMPTS)
    got: dict[str, Collected] = {}
    for name in names:
        core.add(make(name))
        for output in core.step():
            collect(got, output)
    while core.has_work:
        for output in core.step():
            collect(got, output)
    assert token_ids(got) == reference.answers


def test_with_prompts_in_odd_chunks(reference: Reference) -> None:
    core = reference.engine(budget=7)
    names = ["p17", "p45", "shared1"]
    for name in names:
        core.add(make(name))
    assert token_ids(run_to_end(core)) == reference.answers_to(names)


def test_with_preemption(reference: Reference) -> None:
    """Room for all prompts and for half of what their answers will take."""
    core = reference.engine(tokens=31 * 8)
    for name in PROMPTS:
        core.add(make(name))
    got = run_to_end(core)
    assert core.stats().num_preemptions > 0
    assert token_ids(got) == reference.answers


def test_with_prefix_hits(reference: Reference) -> None:
    core = reference.engine()
    for name in ("shared0", "shared1", "shared0", "p45", "p45"):
        core.add(make(name, count=8))
        assert run_to_end(core)[name].token_ids == reference.answers[name][:8]
    size = reference.settings["block_size"]
    assert core.stats().cached_tokens == 2 * 32 + 44 // size * size


def test_continued(reference: Reference) -> None:
    """An answer that was cut goes on token for token."""
    core = reference.engine()
    answer = reference.answers["p17"]
    core.add(make("p17", given=tuple(answer[:11]), count=NUM_TOKENS - 11))
    assert run_to_end(core)["p17"].token_ids == answer[11:]
