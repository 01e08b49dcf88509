from __future__ import annotations

import math
import random

import pytest
import torch

from engine.execution.random_choice import choose_tokens
from engine.execution.runner import Sample
from engine.execution.sampler import Sampler
from engine.types import RequestId, SamplingParams
from tests.engine.execution import plain_sampling
from tests.engine.execution.plain_sampling import (
    adjusted,
    check_draws,
    distribution,
    make_item,
)

VOCAB = 2000
PARAMS = [
    SamplingParams(temperature=0.0),
    SamplingParams(),
    SamplingParams(top_p=0.95, presence_penalty=1.0),
    SamplingParams(top_k=20, repetition_penalty=1.2, frequency_penalty=0.3),
    SamplingParams(min_p=0.05, logit_bias=((5, 3.0), (6, -100.0))),
    SamplingParams(temperature=0.0, presence_penalty=0.5, min_tokens=9),
]


def random_logits(num_rows: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(num_rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def tokens(samples: list[Sample]) -> list[tuple[int, ...]]:
    return [sample.token_ids for sample in samples]


@pytest.mark.parametrize("temperature", [5e-324, 1e-45, 1e-30, 1e-6, 1e-4])
@pytest.mark.parametrize("top_p", [1.0, 1e-12])
def test_tiny_temperatures_and_top_p_are_greedy(temperature: float, top_p: float) -> None:
    """SMP-03."""
    logits = random_logits(4) * 4
    params = SamplingParams(temperature=temperature, top_p=top_p)
    got = Sampler().sample(logits, [make_item(params, name=str(i)) for i in range(4)])
    assert tokens(got) == [(i,) for i in logits.argmax(-1).tolist()]


def test_top_k_1_takes_the_first_of_the_likeliest() -> None:
    logits = torch.tensor([[0.0, 4.0, 4.0]])
    for seed in range(20):
        item = make_item(SamplingParams(top_k=1), seed=seed)
        assert tokens(Sampler().sample(logits, [item])) == [(1,)]


def test_every_row_of_a_mixed_batch_equals_the_row_written_out() -> None:
    """Penalties, bias, filters and draw, each row with parameters and a history of its own."""
    chance = random.Random(2)
    items, wanted = [], []
    logits = random_logits(60)
    for row in range(60):
        params = PARAMS[row % len(PARAMS)]
        prompt = tuple(chance.randrange(VOCAB) for _ in range(30))
        output = tuple(chance.randrange(20) for _ in range(row % 12))
        items.append(make_item(params, name=str(row), prompt=prompt, output=output, seed=row))
        values = adjusted(logits[row].tolist(), params, prompt, output, (0, 1))
        values = torch.tensor(values, dtype=torch.float32).tolist()
        if params.temperature == 0.0:
            wanted.append((max(range(VOCAB), key=lambda i: values[i]),))
        else:
            wanted.append((plain_sampling.draw(values, params, row, 30 + len(output)),))
    assert tokens(Sampler((0, 1)).sample(logits, items)) == wanted


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.8, presence_penalty=0.9),
        SamplingParams(frequency_penalty=0.5, repetition_penalty=1.4, top_p=0.9),
        SamplingParams(repetition_penalty=0.7, top_k=5, logit_bias=((3, 1.5), (0, -2.0))),
        SamplingParams(min_tokens=10, stop_token_ids=(1,), min_p=0.05),
        SamplingParams(
            temperature=1.4,
            presence_penalty=-0.5,
            frequency_penalty=0.3,
            repetition_penalty=1.1,
            logit_bias=((7, 2.0),),
            top_k=7,
            top_p=0.95,
            min_p=0.02,
        ),
    ],
)
def test_draws_follow_the_exact_distribution(params: SamplingParams) -> None:
    logits = [2.0, 1.5, 1.0, 0.2, 0.0, -0.5, -1.0, -3.0]
    prompt, output = (0, 0, 4), (1, 3, 3, 1, 3)
    items = [
        make_item(params, name=str(seed), prompt=prompt, output=output, seed=seed)
        for seed in range(4000)
    ]
    got = Sampler((2,)).sample(torch.tensor(logits).repeat(4000, 1), items)
    probs = distribution(adjusted(logits, params, prompt, output, (2,)), params)
    check_draws([sample.token_ids[0] for sample in got], probs)


def test_a_row_does_not_depend_on_its_company() -> None:
    logits = random_logits(18)
    items = [
        make_item(PARAMS[i % 6], name=str(i), output=tuple(range(i)), seed=i) for i in range(18)
    ]
    together = Sampler().sample(logits, items)
    alone = [Sampler().sample(logits[i : i + 1], items[i : i + 1])[0] for i in range(18)]
    assert together == alone
    back = Sampler().sample(logits.flip(0), items[::-1])
    assert back == together[::-1]


@pytest.mark.parametrize("params", PARAMS)
def test_drafts_change_nothing(params: SamplingParams) -> None:
    """Whatever was drafted, what comes out is the beginning of the answer without drafts, and
    one token more than drafts were right."""
    logits = random_logits(6)
    answer: list[int] = []
    for row in range(6):
        item = make_item(params, output=tuple(answer))
        answer += Sampler().sample(logits[row : row + 1], [item])[0].token_ids
    sampler = Sampler()
    for num_right in range(6):
        drafts = [*answer[:num_right], *[1999] * (5 - num_right)]
        item = make_item(params, drafts=drafts)
        other = make_item(SamplingParams(), name="other", drafts=(3, 4), seed=9)
        got = sampler.sample(torch.cat([random_logits(3, seed=2), logits]), [other, item])
        assert got[1].token_ids == tuple(answer[: num_right + 1])


def test_a_greedy_batch_costs_no_more_than_its_argmax(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a greedy batch was sampled")

    monkeypatch.setattr("engine.execution.sampler.choose_tokens", refuse)
    monkeypatch.setattr("engine.execution.sampler.token_logprobs", refuse)
    monkeypatch.setattr(torch.Tensor, "clone", refuse)
    logits = random_logits(5)
    params = SamplingParams(temperature=0.0)
    items = [make_item(params, name="a", drafts=(3, 4)), make_item(params, name="b", drafts=(7,))]
    got = Sampler().sample(logits, items)
    best = logits.argmax(-1).tolist()
    assert tokens(got) == [(best[0],), (best[3],)]


def test_only_random_rows_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def choose(logits: torch.Tensor, *rest: object) -> torch.Tensor:
        sizes.append(len(logits))
        return choose_tokens(logits, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("engine.execution.sampler.choose_tokens", choose)
    logits = torch.tensor([[0.0, 5.0, 1.0]] * 3)
    greedy = make_item(SamplingParams(temperature=0.0), name="g")
    drawn = make_item(SamplingParams(temperature=2.0, top_k=2), name="r")
    got = Sampler().sample(logits, [greedy, drawn, greedy])
    assert (got[0].token_ids, got[2].token_ids) == ((1,), (1,))
    assert got[1].token_ids[0] in (1, 2)
    assert sizes == [1]


def test_logprobs_are_the_raw_model_s_and_only_where_asked() -> None:
    """Of each accepted token, whatever penalties and filters made of it."""
    logits = random_logits(5)
    best = logits.argmax(-1).tolist()
    asks = SamplingParams(temperature=0.0, logprobs=3, logit_bias=((9, 100.0),))
    items = [
        make_item(SamplingParams(temperature=0.0), name="silent"),
        make_item(asks, name="asks", drafts=(9, 9, 8)),
    ]
    silent, told = Sampler().sample(logits, items)
    assert (silent.token_ids, silent.logprobs) == ((best[0],), ())
    assert told.token_ids == (9, 9, 9)
    wanted = torch.log_softmax(logits, 1)
    for row, one in enumerate(told.logprobs, 1):
        assert one.token_id == 9
        assert one.logprob == pytest.approx(float(wanted[row, 9]), abs=1e-5)
        assert one.top[0][0] == best[row]
        assert len(one.top) == 3


def test_forced_tokens_take_the_place_of_draws() -> None:
    """Those that are still to come, draft or not; then drafts must be right again."""
    params = SamplingParams(temperature=0.0, logprobs=0)
    logits = random_logits(5)
    likeliest = logits.argmax(-1).tolist()
    items = [
        make_item(params, name="a", output=(4,), forced=(4, 8, 9), drafts=(8, 9, 5)),
        make_item(params, name="b"),
    ]
    got = Sampler().sample(logits, items)
    assert tokens(got) == [(8, 9, likeliest[2]), (likeliest[4],)]
    expected = torch.log_softmax(logits, -1)[[0, 1, 2], [8, 9, likeliest[2]]].tolist()
    assert [entry.logprob for entry in got[0].logprobs] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_raise_nothing(bad: float) -> None:
    """SMP-03: and the other rows are as ever."""
    logits = random_logits(6)
    items = [make_item(one, name=str(i), output=(4, 4)) for i, one in enumerate(PARAMS)]
    right = tokens(Sampler().sample(logits, items))
    for where in (slice(None), 17):
        broken = logits.clone()
        broken[[0, 2, 4], where] = bad
        got = tokens(Sampler().sample(broken, items))
        assert all(0 <= token_id < VOCAB for (token_id,) in got)
        assert got[1::2] == right[1::2]


def test_a_forgotten_request_starts_anew() -> None:
    sampler = Sampler()
    logits = torch.tensor([[3.0, 2.0, 1.0]])
    params = SamplingParams(temperature=0.0, presence_penalty=2.0)
    assert tokens(sampler.sample(logits, [make_item(params, prompt=(2,), output=(0,))])) == [(1,)]
    sampler.forget(RequestId("r"))
    assert tokens(sampler.sample(logits, [make_item(params, prompt=(2,))])) == [(0,)]
