"""On a real model, a request's answer is its own: greedy or seeded, whatever shares its batch, its
blocks or its prompt, and however short of blocks and tokens the engine is. (That the answers of a
request alone are those of `transformers` is tests/engine/test_parity.py.)"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.types import GenerationRequest
from tests.support.case_engine import ask, copy_model, make_core, prompt_tokens, run_alone
from tests.support.engines import Collected, collect

NUM_TOKENS = 24
EXAMPLES = min(settings.default.max_examples if settings.default else 50, 80)
"""Each takes a quarter of a second."""


@dataclass(frozen=True, slots=True)
class Question:
    """`kind` chooses the beginning, so that some prompts share theirs; `at_step`: when it comes."""

    size: int
    kind: int
    seed: int | None
    num_choices: int
    at_step: int


QUESTIONS = st.builds(
    Question,
    size=st.integers(1, 40),
    kind=st.integers(0, 2),
    seed=st.one_of(st.none(), st.integers(0, 3)),
    num_choices=st.sampled_from((1, 1, 3)),
    at_step=st.integers(0, 30),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[tuple[int, int, int | None], list[int]]:
    """Answers by size, kind and seed, as far as they have been needed."""
    return {}


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    questions=st.lists(QUESTIONS, min_size=2, max_size=6),
    num_blocks=st.integers(9, 40),
    budget=st.integers(9, 64),
    max_num_seqs=st.integers(1, 8),
    caching=st.booleans(),
    speculation=st.sampled_from(("off", "auto")),
)
def test_answers_do_not_depend_on_company(
    folder: Path,
    alone: dict[tuple[int, int, int | None], list[int]],
    questions: list[Question],
    num_blocks: int,
    budget: int,
    max_num_seqs: int,
    caching: bool,
    speculation: str,
) -> None:
    def make(question: Question, name: str, choice: int, leader: str | None) -> GenerationRequest:
        seed = None if question.seed is None else question.seed + 10 * choice
        return ask(
            name,
            prompt_tokens(question.size, question.kind),
            NUM_TOKENS,
            temperature=0.0 if seed is None else 0.9,
            seed=seed,
            same_prompt_as=leader,
        )

    core = make_core(
        folder,
        kv_cache_tokens=8 * num_blocks,
        max_num_batched_tokens=budget,
        max_num_seqs=max_num_seqs,
        enable_prefix_cache=caching,
        speculation=speculation,
    )
    got: dict[str, Collected] = {}
    expected: dict[str, list[int]] = {}
    step = 0
    while core.has_work or step <= max(question.at_step for question in questions):
        for index, question in enumerate(questions):
            for choice in range(question.num_choices if question.at_step == step else 0):
                name = f"q{index}.{choice}"
                request = make(question, name, choice, f"q{index}.0" if choice else None)
                core.add(request)
                key = (question.size, question.kind, request.params.seed)
                if key not in alone:
                    (answer,) = run_alone(folder, [request]).values()
                    alone[key] = answer.token_ids
                expected[name] = alone[key]
        for output in core.step():
            collect(got, output)
        core.check()
        step += 1
    assert {name: item.token_ids for name, item in got.items()} == expected
    assert core.stats().used_blocks == 0
