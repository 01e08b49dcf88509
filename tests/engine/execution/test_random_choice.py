from __future__ import annotations

import random

import pytest
import torch

from engine.execution import logit_rows
from engine.execution.keyed_noise import draw_key
from engine.execution.random_choice import choose_tokens
from engine.types import SamplingParams
from tests.engine.execution import plain_sampling
from tests.engine.execution.plain_sampling import check_draws, distribution

LOGITS = [2.0, 1.5, 1.0, 0.2, 0.0, -0.5, -1.0, -3.0]


def keys(count: int, seed: int = 1234) -> torch.Tensor:
    return torch.tensor([draw_key(seed, position) for position in range(count)])


def draws(logits: list[float], params: SamplingParams, count: int) -> list[int]:
    """`count` draws in one batch, at positions 0, 1, …"""
    rows = torch.tensor(logits).expand(count, -1)
    found: list[int] = choose_tokens(rows, [params] * count, keys(count)).tolist()
    return found


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(temperature=0.7),
        SamplingParams(temperature=1.3, top_k=5),
        SamplingParams(top_p=0.8),
        SamplingParams(top_p=0.05),
        SamplingParams(min_p=0.2),
        SamplingParams(temperature=1.2, top_k=6, top_p=0.9, min_p=0.1),
        SamplingParams(temperature=2.0, top_k=100, top_p=0.99),
        SamplingParams(temperature=0.5, top_p=0.97, min_p=0.01),
    ],
)
def test_draws_follow_the_exact_distribution(params: SamplingParams) -> None:
    check_draws(draws(LOGITS, params, 6000), distribution(LOGITS, params))


@pytest.mark.parametrize("depth", [0.4, 1.8, 2.6])
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(top_p=0.9),
        SamplingParams(top_k=6),
        SamplingParams(min_p=0.05),
        SamplingParams(top_k=7, top_p=0.95),
        SamplingParams(top_k=8),
    ],
)
def test_a_heavy_tail_has_its_exact_share(
    monkeypatch: pytest.MonkeyPatch, depth: float, params: SamplingParams
) -> None:
    """The head so small that the tail often wins, and that filters reach into it."""
    monkeypatch.setattr(logit_rows, "HEAD_DEPTH", depth)
    check_draws(draws(LOGITS, params, 6000), distribution(LOGITS, params))


def test_a_flat_distribution_keeps_all_that_the_filters_leave() -> None:
    """More tokens than any short cut looks at."""
    slope = torch.linspace(0.0, 1e-3, 1000)
    for params, least, most in (
        (SamplingParams(top_p=0.9), 500, 901),
        (SamplingParams(top_k=400), 330, 400),
        (SamplingParams(), 550, 1000),
    ):
        seen = set(choose_tokens(slope.expand(1000, -1), [params] * 1000, keys(1000)).tolist())
        assert least < len(seen) <= most


def test_a_flat_distribution_deep_in_the_vocabulary() -> None:
    """One likely token and 3,000 that lie far below, but weigh as much together: top-p and top-k
    must look at them."""
    logits = torch.cat([torch.tensor([12.5]), torch.zeros(3000)])
    logits[1:] -= torch.arange(3000) * 1e-4
    for params in (SamplingParams(top_p=0.999), SamplingParams(top_k=2000), SamplingParams()):
        probs = distribution(logits.tolist(), params)
        assert 0.001 < 1 - probs[0] < 0.02
        chosen = choose_tokens(logits.expand(2000, -1), [params] * 2000, keys(2000)).tolist()
        check_draws([int(token_id > 0) for token_id in chosen], [probs[0], 1 - probs[0]])
        assert all(probs[token_id] > 0.0 for token_id in chosen)
        assert len(set(chosen)) > 5


def test_ties_at_the_edge_of_top_k_stay_together() -> None:
    logits = [3.0, 2.0, 2.0, 2.0, 1.0]
    params = SamplingParams(top_k=2)
    assert set(draws(logits, params, 300)) == {0, 1, 2, 3}


def test_a_batch_of_unlike_rows_equals_the_rows_written_out() -> None:
    """Token for token, each row with parameters of its own."""
    chance = random.Random(7)
    rows, params, row_keys, wanted = [], [], [], []
    for index in range(400):
        spread = chance.choice([0.5, 3.0, 8.0])
        logits = [chance.gauss(0.0, spread) for _ in range(300)]
        # As float32, as the sampler sees them.
        logits = torch.tensor(logits).tolist()
        one = SamplingParams(
            temperature=chance.choice([0.3, 0.8, 1.0, 2.0]),
            top_k=chance.choice([0, 0, 2, 40, 299, 1000]),
            top_p=chance.choice([1.0, 1.0, 0.95, 0.3]),
            min_p=chance.choice([0.0, 0.0, 0.05, 1e-7]),
        )
        rows.append(logits)
        params.append(one)
        row_keys.append(draw_key(index, index))
        wanted.append(plain_sampling.draw(logits, one, index, index))
    chosen = choose_tokens(torch.tensor(rows), params, torch.tensor(row_keys)).tolist()
    assert chosen == wanted


def test_a_row_does_not_depend_on_its_company() -> None:
    chance = torch.Generator().manual_seed(1)
    logits = torch.randn(24, 2000, generator=chance) * 4
    params = [
        SamplingParams(top_k=top_k, top_p=top_p, min_p=min_p)
        for top_k in (0, 30)
        for top_p in (1.0, 0.9)
        for min_p in (0.0, 0.02)
    ] * 3
    row_keys = keys(24)
    together = choose_tokens(logits, params, row_keys).tolist()
    alone = [
        choose_tokens(logits[i : i + 1], params[i : i + 1], row_keys[i : i + 1]).item()
        for i in range(24)
    ]
    assert together == alone
    backwards = choose_tokens(logits.flip(0), params[::-1], row_keys.flip(0)).tolist()
    assert backwards == together[::-1]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_rows_that_are_not_finite_give_some_token(bad: float) -> None:
    logits = torch.zeros(4, 50)
    logits[1] = bad
    logits[2, 7] = bad
    for params in (SamplingParams(), SamplingParams(top_k=3, top_p=0.5, min_p=0.1)):
        chosen = choose_tokens(logits, [params] * 4, keys(4)).tolist()
        assert all(0 <= token_id < 50 for token_id in chosen)
        fine = choose_tokens(logits[[0, 3]], [params] * 2, keys(4)[[0, 3]]).tolist()
        assert [chosen[0], chosen[3]] == fine
        for seed in range(20):
            (token_id,) = choose_tokens(logits[2:3], [params], keys(1, seed)).tolist()
            assert (token_id == 7) is (bad == float("inf"))


def test_blocked_tokens_are_never_drawn() -> None:
    logits = [-float("inf"), 0.0, 0.0, -float("inf")]
    for params in (SamplingParams(), SamplingParams(top_k=4), SamplingParams(top_p=0.999)):
        assert set(draws(logits, params, 200)) == {1, 2}


def test_a_blocked_token_does_not_hide_the_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A k as large as the vocabulary keeps all tokens that can be drawn, those of the tail too."""
    monkeypatch.setattr(logit_rows, "HEAD_DEPTH", 0.4)
    logits = [1.0, 0.3, 0.0, -float("inf")]
    params = SamplingParams(top_k=4)
    check_draws(draws(logits, params, 3000), distribution(logits, params))
