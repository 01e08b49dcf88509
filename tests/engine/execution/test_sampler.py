from __future__ import annotations

import math

import pytest
import torch

from engine.execution import sampler
from engine.execution.sampler import Sampler, gumbel, sample_row
from engine.scheduling.scheduler_output import ScheduledSequence
from engine.scheduling.sequence import Sequence
from engine.types import GenerationRequest, RequestId, SamplingParams

VOCAB = 2000


def reference_probs(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """The distribution written out token by token: temperature, top-k, top-p, min-p."""
    probs = torch.softmax(logits.double() / params.temperature, 0)
    order = sorted(range(len(probs)), key=lambda i: (-float(probs[i]), i))
    if params.top_k:
        order = order[: params.top_k]
    total = sum(float(probs[i]) for i in order)
    kept: list[int] = []
    mass = 0.0
    for token in order:
        if kept and mass >= params.top_p:
            break
        kept.append(token)
        mass += float(probs[token]) / total
    best = float(probs[kept[0]])
    kept = [token for token in kept if float(probs[token]) >= params.min_p * best]
    out = torch.zeros_like(probs)
    out[kept] = probs[kept]
    return out / out.sum()


def draw(logits: torch.Tensor, params: SamplingParams, count: int) -> torch.Tensor:
    counts = torch.zeros(len(logits), dtype=torch.float64)
    for position in range(count):
        counts[sample_row(logits, params, seed=1234, position=position)] += 1
    return counts


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.7),
        SamplingParams(temperature=1.3, top_k=5),
        SamplingParams(temperature=1.0, top_p=0.8),
        SamplingParams(temperature=1.0, min_p=0.2),
        SamplingParams(temperature=1.2, top_k=6, top_p=0.9, min_p=0.1),
    ],
)
def test_draws_follow_the_exact_distribution(params: SamplingParams) -> None:
    logits = torch.tensor([2.0, 1.5, 1.0, 0.2, 0.0, -0.5, -1.0, -3.0])
    count = 4000
    expected = reference_probs(logits, params)
    counts = draw(logits, params, count)
    assert counts[expected == 0].sum() == 0
    kept = expected > 0
    chi2 = ((counts - count * expected)[kept] ** 2 / (count * expected)[kept]).sum()
    # 99.99 % point of chi-squared with 7 degrees of freedom, the most that occur here. The
    # draws are fixed by the seed: this cannot fail by chance.
    assert float(chi2) < 29.9


def test_top_p_beyond_the_first_thousand_tokens_keeps_them() -> None:
    """A flat distribution needs more candidates than the short cut looks at."""
    logits = torch.zeros(VOCAB)
    params = SamplingParams(temperature=1.0, top_p=0.9)
    seen = {sample_row(logits, params, 9, position) for position in range(3000)}
    assert 1300 < len(seen) <= 1801


@pytest.mark.parametrize("temperature", [1e-45, 1e-30, 1e-6, 1e-4])
@pytest.mark.parametrize("top_p", [1.0, 1e-12])
def test_tiny_temperatures_and_top_p_are_greedy(temperature: float, top_p: float) -> None:
    torch.manual_seed(0)
    logits = torch.randn(4, VOCAB) * 10
    params = SamplingParams(temperature=temperature, top_p=top_p)
    got = Sampler().sample(logits, tuple(make(params) for _ in range(4)))
    assert [sample.token_ids for sample in got] == [(i,) for i in logits.argmax(-1).tolist()]


def make(params: SamplingParams, seed: int = 5, size: int = 3) -> ScheduledSequence:
    request = GenerationRequest(RequestId("r"), tuple(range(size)), params)
    return ScheduledSequence(Sequence(request, arrival_s=0.0, seed=seed), size - 1, 1, True)


def test_a_row_does_not_depend_on_its_company() -> None:
    torch.manual_seed(1)
    logits = torch.randn(6, VOCAB)
    params = SamplingParams(temperature=1.0, top_p=0.95)
    sequences = tuple(make(params, seed=seed) for seed in range(6))
    together = Sampler().sample(logits, sequences)
    alone = [Sampler().sample(logits[i : i + 1], (sequences[i],))[0] for i in range(6)]
    assert together == alone


def test_seed_and_position_each_change_the_draw() -> None:
    logits = torch.zeros(VOCAB)
    params = SamplingParams(temperature=1.0)
    by_seed = {sample_row(logits, params, seed, 0) for seed in range(30)}
    by_position = {sample_row(logits, params, 0, position) for position in range(30)}
    assert min(len(by_seed), len(by_position)) > 25
    assert sample_row(logits, params, 2**64 - 1, 7) == sample_row(logits, params, 2**64 - 1, 7)


def test_gumbel_noise_has_the_right_mean_and_variance() -> None:
    noise = gumbel(3, 11, torch.arange(200_000))
    assert torch.isfinite(noise).all()
    assert float(noise.mean()) == pytest.approx(0.5772, abs=0.01)
    assert float(noise.var()) == pytest.approx(math.pi**2 / 6, abs=0.03)


def test_the_largest_hash_gives_finite_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 53 bits the largest one rounded to 1, and its token won whatever its logit."""
    monkeypatch.setattr(
        sampler, "_shift_right", lambda bits, count: torch.full_like(bits, (1 << (64 - count)) - 1)
    )
    assert torch.isfinite(gumbel(0, 0, torch.arange(3))).all()


def test_greedy_rows_and_random_rows_share_a_batch() -> None:
    logits = torch.tensor([[0.0, 5.0, 1.0], [0.0, 5.0, 1.0]])
    greedy = make(SamplingParams(temperature=0.0))
    random = make(SamplingParams(temperature=2.0, top_k=2))
    got = Sampler().sample(logits, (greedy, random))
    assert got[0].token_ids == (1,)
    assert got[1].token_ids[0] in (1, 2)
