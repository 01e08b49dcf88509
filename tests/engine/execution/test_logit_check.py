from __future__ import annotations

import math

import pytest
import torch

from engine.execution.logit_check import NOT_FINITE, find_failures
from engine.execution.sampler import Sampler
from engine.types import RequestId, SamplingParams
from tests.engine.execution.plain_sampling import make_item

GREEDY = SamplingParams(temperature=0.0)
DRAWN = SamplingParams(top_p=0.9)


def failures(logits: torch.Tensor, *params: SamplingParams) -> dict[RequestId, str]:
    items = [make_item(one, name=f"r{i}") for i, one in enumerate(params)]
    return {**find_failures(logits, items, Sampler().sample(logits, items))}


@pytest.mark.parametrize("params", [GREEDY, DRAWN])
@pytest.mark.parametrize(
    ("bad", "where"),
    [(math.nan, 3), (math.inf, 3), (math.nan, slice(None)), (-math.inf, slice(None))],
)
def test_rows_that_are_not_finite_fail_alone(
    params: SamplingParams, bad: float, where: int | slice
) -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(1))
    logits[1, where] = bad
    assert failures(logits, params, params, params) == {"r1": NOT_FINITE}


def test_tokens_that_cannot_be_drawn_are_no_failure() -> None:
    """Some -inf in the model's own row, a ban of `min_tokens` and a bias as low as may be."""
    logits = torch.zeros(3, 4)
    logits[0, :3] = -math.inf
    banned = SamplingParams(min_tokens=5, stop_token_ids=(0, 1, 2))
    biased = SamplingParams(logit_bias=((0, -100.0), (1, -100.0)))
    assert failures(logits, DRAWN, banned, biased) == {}


@pytest.mark.parametrize(("drafts", "fails"), [((1, 1), True), ((1, 2), True), ((2, 1), False)])
def test_only_rows_that_a_sample_rests_on_count(drafts: tuple[int, int], fails: bool) -> None:
    """Token 1 is likeliest in the first rows; behind a wrong draft nothing is used. The request
    behind is not blamed."""
    logits = torch.tensor([[0.0, 1.0, 0.0], [0.0, math.nan, 0.0], [0.0, 1.0, 0.0]])
    logits = torch.cat([logits, torch.zeros(1, 3)])
    items = [make_item(GREEDY, name="a", drafts=drafts), make_item(GREEDY, name="b")]
    found = find_failures(logits, items, Sampler().sample(logits, items))
    assert dict(found) == ({"a": NOT_FINITE} if fails else {})
