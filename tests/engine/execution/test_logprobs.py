from __future__ import annotations

import math

import pytest
import torch

from engine.execution.logprobs import LOWEST_LOGPROB, token_logprobs


def test_they_are_the_model_s_own() -> None:
    logits = torch.tensor([[0.0, 2.0, -1.0, 1.0], [5.0, 5.0, 0.0, 0.0]])
    wanted = torch.log_softmax(logits.double(), 1)
    first, second = token_logprobs(logits, [2, 1], [3, 0])
    assert (first.token_id, second.token_id) == (2, 1)
    assert first.logprob == pytest.approx(float(wanted[0, 2]), abs=1e-6)
    assert second.logprob == pytest.approx(float(wanted[1, 1]), abs=1e-6)
    assert [token_id for token_id, _ in first.top] == [1, 3, 0]
    assert [value for _, value in first.top] == pytest.approx(
        [float(wanted[0, token_id]) for token_id in (1, 3, 0)], abs=1e-6
    )
    assert second.top == ()


def test_more_alternatives_than_tokens() -> None:
    (found,) = token_logprobs(torch.zeros(1, 3), [0], [20])
    assert sorted(token_id for token_id, _ in found.top) == [0, 1, 2]
    assert all(value == pytest.approx(-math.log(3)) for _, value in found.top)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -3e38])
def test_they_are_finite_whatever_the_model_says(bad: float) -> None:
    logits = torch.zeros(2, 30)
    logits[0, 3] = bad
    logits[1] = bad
    for one in token_logprobs(logits, [3, 4], [20, 20]):
        values = [one.logprob, *(value for _, value in one.top)]
        assert all(LOWEST_LOGPROB <= value <= 0.0 for value in values)


def test_the_alternatives_do_not_depend_on_company() -> None:
    """Many equally likely ones: which come first is the row's own matter."""
    logits = torch.zeros(6, 500).index_fill_(1, torch.arange(0, 500, 3), 2.0)
    together = token_logprobs(logits, [0] * 6, [1, 2, 5, 20, 3, 3])
    for row, one in enumerate(together):
        (alone,) = token_logprobs(logits[row : row + 1], [0], [len(one.top)])
        assert alone.top == one.top


def test_they_do_not_depend_on_company_or_threads() -> None:
    """To the last bit: torch splits the sum of one row between threads."""
    logits = torch.randn(9, 151_936, generator=torch.Generator().manual_seed(3)) - 12.0
    logits[:, 5] = 0.0  # a total near 1, which shows the last bits of its sum
    num_threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        together = token_logprobs(logits, [5] * 9, [20] * 9)
        alone = [token_logprobs(logits[i : i + 1], [5], [20])[0] for i in range(9)]
    finally:
        torch.set_num_threads(num_threads)
    assert alone == together
    wanted = torch.log_softmax(logits.double(), 1)[:, 5].tolist()
    assert [one.logprob for one in alone] == pytest.approx(wanted, abs=1e-5)
