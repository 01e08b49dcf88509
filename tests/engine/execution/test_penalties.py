from __future__ import annotations

import random

import pytest
import torch

from engine.execution.penalties import LogitAdjuster
from engine.types import RequestId, SamplingParams
from tests.engine.execution.plain_sampling import adjusted, make_item

VOCAB = 40
EOS = (2, 5)


def random_logits(num_rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(num_rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(presence_penalty=1.5),
        SamplingParams(frequency_penalty=-0.7),
        SamplingParams(repetition_penalty=1.3),
        SamplingParams(repetition_penalty=0.8, presence_penalty=0.4, frequency_penalty=0.2),
        SamplingParams(logit_bias=((3, 100.0), (VOCAB - 1, -100.0))),
        SamplingParams(min_tokens=5, stop_token_ids=(7, 8)),
        SamplingParams(min_tokens=5, stop_token_ids=(7,), ignore_eos=True),
        SamplingParams(
            min_tokens=6,
            logit_bias=((2, 50.0), (9, 1.0)),
            repetition_penalty=2.0,
            presence_penalty=1.0,
        ),
    ],
)
def test_each_row_equals_the_definition(params: SamplingParams) -> None:
    """With drafts: a row's history has those before it, and `min_tokens` may end among them."""
    prompt, output, drafts = (1, 1, 2, 30), (4, 9, 4), (9, 6, 4)
    item = make_item(params, prompt=prompt, output=output, drafts=drafts)
    logits = random_logits(4)
    before = logits.clone()
    got = LogitAdjuster(EOS).adjust(logits, (item,))
    assert torch.equal(logits, before), "the model's logits are read only"
    for row in range(4):
        want = adjusted(logits[row].tolist(), params, prompt, output + drafts[:row], EOS)
        assert got[row].tolist() == pytest.approx(want, rel=1e-6)


def test_unlike_requests_in_one_batch_over_several_steps() -> None:
    """Each row as if it were alone; rows that ask for nothing keep their very values."""
    chance = random.Random(4)
    params = [
        SamplingParams(),
        SamplingParams(presence_penalty=1.0, frequency_penalty=0.5),
        SamplingParams(repetition_penalty=1.7),
        SamplingParams(logit_bias=((0, 2.0),)),
        SamplingParams(temperature=0.0),
        SamplingParams(min_tokens=3),
    ]
    adjuster = LogitAdjuster(EOS)
    outputs: list[tuple[int, ...]] = [()] * len(params)
    for step in range(6):
        drafts = [
            tuple(chance.randrange(VOCAB) for _ in range(chance.choice([0, 0, 2]))) for _ in params
        ]
        items = tuple(
            make_item(one, name=f"r{i}", output=outputs[i], drafts=drafts[i])
            for i, one in enumerate(params)
        )
        logits = random_logits(sum(1 + len(one) for one in drafts), seed=step)
        got = adjuster.adjust(logits, items)
        row = 0
        for i, one in enumerate(params):
            for count in range(1 + len(drafts[i])):
                output = outputs[i] + drafts[i][:count]
                want = adjusted(logits[row].tolist(), one, (0, 1, 2), output, EOS)
                assert got[row].tolist() == pytest.approx(want, rel=1e-6), (step, i, count)
                if i in (0, 4):
                    assert torch.equal(got[row], logits[row])
                row += 1
            outputs[i] += (chance.randrange(VOCAB), chance.randrange(VOCAB))


def test_a_continued_answer_counts_as_output() -> None:
    params = SamplingParams(frequency_penalty=1.0, presence_penalty=0.5, min_tokens=4)
    logits = random_logits(1)
    whole = make_item(params, output=(4, 4, 6))
    continued = make_item(params, continued=(4, 4), output=(6,))
    want = LogitAdjuster(EOS).adjust(logits, (whole,))
    assert torch.equal(LogitAdjuster(EOS).adjust(logits, (continued,)), want)


def test_a_batch_that_asks_for_nothing_is_not_even_copied() -> None:
    logits = random_logits(3)
    items = tuple(make_item(SamplingParams(temperature=0.0), name=str(i)) for i in range(2))
    drafted = make_item(SamplingParams(min_tokens=2), output=(1, 1))  # it has them already
    assert LogitAdjuster(EOS).adjust(logits, (*items, drafted)) is logits


def test_an_ended_request_is_forgotten() -> None:
    """Its id may come again with other tokens."""
    adjuster = LogitAdjuster()
    params = SamplingParams(presence_penalty=2.0)
    logits = random_logits(1)
    adjuster.adjust(logits, (make_item(params, output=(4, 5)),))
    adjuster.forget(RequestId("r"))
    adjuster.forget(RequestId("never seen"))
    got = adjuster.adjust(logits, (make_item(params, output=(6,)),))
    changed = torch.nonzero(got[0] != logits[0]).flatten().tolist()
    assert changed == [6]


@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize("unknown", [-1, -VOCAB, VOCAB, VOCAB + 5, 10 * VOCAB])
def test_an_end_that_the_model_has_no_logit_for_changes_nothing(row: int, unknown: int) -> None:
    """Neither a row beside the request's own, nor anything outside the batch."""
    holding = SamplingParams(min_tokens=3, stop_token_ids=(7,))
    items = tuple(
        make_item(holding if i == row else SamplingParams(), name=f"r{i}") for i in range(3)
    )
    logits = random_logits(3)
    got = LogitAdjuster((*EOS, unknown)).adjust(logits, items)
    want = logits.clone()
    want[row, [*EOS, 7]] = -torch.inf
    assert torch.equal(got, want)


def test_a_stop_token_that_the_model_has_no_logit_for_changes_nothing() -> None:
    params = SamplingParams(min_tokens=3, stop_token_ids=(VOCAB + 1,))
    items = (make_item(params), make_item(SamplingParams(), name="other"))
    logits = random_logits(2)
    assert LogitAdjuster().adjust(logits, items) is logits
