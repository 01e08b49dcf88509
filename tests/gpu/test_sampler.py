"""The sampler on a CUDA device draws what it draws on the CPU."""

from __future__ import annotations

import pytest

from engine.types import SamplingParams

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

VOCAB = 50_000
PARAMS = [
    SamplingParams(temperature=0.0, logprobs=3),
    SamplingParams(),
    SamplingParams(temperature=1.8),
    SamplingParams(top_p=0.95, presence_penalty=1.0, logprobs=5),
    SamplingParams(top_k=20, repetition_penalty=1.2, frequency_penalty=0.3),
    SamplingParams(top_k=2000, min_p=1e-7),
    SamplingParams(min_p=0.05, logit_bias=((5, 3.0), (6, -100.0))),
    SamplingParams(temperature=0.0, presence_penalty=0.5, min_tokens=9),
]


@pytest.mark.parametrize("depth", [12.0, 3.0])
def test_the_same_draws_as_on_the_cpu(monkeypatch: pytest.MonkeyPatch, depth: float) -> None:
    """With a head so small, too, that the tail often wins."""
    from engine.execution import logit_rows
    from engine.execution.sampler import Sampler
    from tests.engine.execution.plain_sampling import make_item

    monkeypatch.setattr(logit_rows, "HEAD_DEPTH", depth)
    items = [
        make_item(
            PARAMS[i % len(PARAMS)],
            name=str(i),
            output=tuple(range(i % 9)),
            drafts=(3, 4) if i % 5 == 0 else (),
            seed=i,
        )
        for i in range(64)
    ]
    num_rows = sum(1 + len(item.draft_token_ids) for item in items)
    chance = torch.Generator().manual_seed(0)
    logits = torch.randn(num_rows, VOCAB, generator=chance) * 3
    logits[7, 5] = float("nan")
    wanted = Sampler((1, 2)).sample(logits, items)
    got = Sampler((1, 2)).sample(logits.cuda(), items)
    assert [one.token_ids for one in got] == [one.token_ids for one in wanted]
    for mine, theirs in zip(got, wanted, strict=True):
        for one, other in zip(mine.logprobs, theirs.logprobs, strict=True):
            assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
            assert [token_id for token_id, _ in one.top] == [token_id for token_id, _ in other.top]
