"""The GPU's sampling kernels at real sizes, against `Sampler` on the CPU with the same logits."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

pytest.importorskip("triton")

from engine.execution.logit_check import find_failures
from engine.execution.runner import Sample
from engine.execution.sampler import Sampler
from engine.kernels.triton.sampling_layout import SamplingLayout
from engine.scheduling.scheduler_output import ScheduledSequence
from engine.types import SamplingParams
from tests.engine.execution.device_sampling import UNWRITTEN, SamplingTrial
from tests.engine.execution.plain_sampling import make_item

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

VOCAB = 151_936
EOS = (151_643, 151_645)
BIASES = tuple((token_id * 97, (token_id % 200) / 10 - 10.0) for token_id in range(1000))
PARAMS = [
    SamplingParams(temperature=0.0, logprobs=3),
    SamplingParams(temperature=0.6),
    SamplingParams(logprobs=20),
    SamplingParams(temperature=1.8),
    SamplingParams(top_p=0.95, presence_penalty=1.0, logprobs=5),
    SamplingParams(top_p=0.999, temperature=1.5),
    SamplingParams(top_k=20, repetition_penalty=1.2, frequency_penalty=0.3),
    SamplingParams(top_k=50, top_p=0.9, temperature=0.7),
    SamplingParams(top_k=590),
    SamplingParams(top_k=2000, min_p=1e-7),
    SamplingParams(top_k=40_000, top_p=0.99),
    SamplingParams(min_p=0.05, logit_bias=BIASES),
    SamplingParams(temperature=0.0, presence_penalty=0.5, min_tokens=9),
    SamplingParams(temperature=0.01, min_tokens=9, stop_token_ids=(5, 6, 7)),
]


def random_logits(
    num_rows: int, seed: int, dtype: torch.dtype = torch.float32, scale: float = 3.0
) -> torch.Tensor:
    """On the GPU: flat rows, and rows with a peak as those of a language model have it."""
    chance = torch.Generator("cuda").manual_seed(seed)
    logits = torch.randn(num_rows, VOCAB, generator=chance, device="cuda") * scale
    logits[::2, :300] += torch.linspace(20.0, 0.0, 300, device="cuda")
    return logits.to(dtype)


def mixed_items(num_items: int) -> list[ScheduledSequence]:
    return [
        make_item(
            PARAMS[i % len(PARAMS)],
            name=str(i),
            prompt=tuple(range(i, 3 * i + 2)),
            output=tuple(range(i % 9)),
            forced=tuple(range(5)) if i % 5 == 0 else (),
            seed=i * 1_000_003,
        )
        for i in range(num_items)
    ]


def make_trial(num_rows: int, layout: SamplingLayout | None = None) -> SamplingTrial:
    return SamplingTrial(
        VOCAB,
        num_slots=num_rows,
        max_rows=num_rows,
        device="cuda",
        eos_token_ids=EOS,
        layout=layout,
    )


def assert_equal_samples(
    got: list[Sample], wanted: list[Sample], items: list[ScheduledSequence], dtype: torch.dtype
) -> None:
    wrong = [
        (item.sequence.request.params, mine.token_ids, theirs.token_ids)
        for item, mine, theirs in zip(items, got, wanted, strict=True)
        if mine.token_ids != theirs.token_ids
    ]
    assert wrong == []
    for mine, theirs in zip(got, wanted, strict=True):
        assert len(mine.logprobs) == len(theirs.logprobs)
        for one, other in zip(mine.logprobs, theirs.logprobs, strict=True):
            assert one.logprob == pytest.approx(other.logprob, abs=1e-5)
            values = [value for _, value in one.top]
            assert values == pytest.approx([value for _, value in other.top], abs=1e-5)
            ids = [token_id for token_id, _ in one.top]
            if dtype == torch.float32:
                assert ids == [token_id for token_id, _ in other.top]
            # Coarse logits have equals, whose order torch does not promise; ours is by id.
            assert all(a < b for (a, x), (b, y) in pairwise(one.top) if x == y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_same_draws_as_on_the_cpu(dtype: torch.dtype) -> None:
    items = mixed_items(56)
    logits = random_logits(56, 0, dtype)
    on_cpu = logits.float().cpu()
    got, failures = make_trial(56).draw(logits, items)
    assert failures == {}
    assert_equal_samples(got, Sampler(EOS).sample(on_cpu, items), items, dtype)


@pytest.mark.parametrize("temperature", [0.2, 0.6, 1.0, 2.0])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (50, 0.9), (0, 0.95), (1000, 1.0)])
def test_thousands_of_draws(temperature: float, top_k: int, top_p: float) -> None:
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p)
    trial, sampler = make_trial(64), Sampler(EOS)
    for step in range(4):
        logits = random_logits(64, step + 1, scale=1.5 + step)
        items = [make_item(params, name=f"{step}.{i}", seed=64 * step + i) for i in range(64)]
        trial.slots.clear()
        got, _ = trial.draw(logits, items)
        assert_equal_samples(got, sampler.sample(logits.cpu(), items), items, torch.float32)


def test_tails_that_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """With heads so small that the tail often wins."""
    from engine.execution import logit_rows

    depth = 3.0
    monkeypatch.setattr(logit_rows, "HEAD_DEPTH", depth)
    items = mixed_items(56)
    logits = random_logits(56, 5)
    got, _ = make_trial(56, SamplingLayout(VOCAB, head_depth=depth)).draw(logits, items)
    assert_equal_samples(got, Sampler(EOS).sample(logits.cpu(), items), items, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_does_not_depend_on_its_company(dtype: torch.dtype) -> None:
    items = mixed_items(64)
    logits = random_logits(64, 3, dtype)
    together, _ = make_trial(64).draw(logits, items)
    trial = make_trial(1)
    for index, item in enumerate(items):
        trial.slots.clear()
        alone, _ = trial.draw(logits[index : index + 1], [item])
        assert alone == [together[index]], item.sequence.request.params


def test_replays_of_a_graph_count_and_go_on_by_themselves() -> None:
    """One graph, captured before any request came, draws eight tokens of each; the host only moves
    the positions. Requests come and go between the replays; some rows are padding."""
    num_rows, num_items = 32, 28
    trial = make_trial(num_rows)
    logits = random_logits(num_rows, 1) * 0.2
    logits[:, :12] += 9.0  # few likely tokens, which come again
    static = torch.empty_like(logits)
    rows = trial.rows([], num_rows)
    trial.launch(static.fill_(math.nan), rows)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        trial.sampler.launch(static, *rows, trial.last_tokens, trial.out)
    answers: list[list[int]] = [[] for _ in range(num_items)]
    names = [str(i) for i in range(num_items)]
    sampler = Sampler(EOS)
    for step in range(8):
        if step == 4:  # another request in the same slot
            trial.sampler.leave(trial.slots.pop("7"))
            answers[7], names[7] = [], "late"
        items = [
            make_item(PARAMS[i % len(PARAMS)], name=names[i], output=answers[i], seed=i)
            for i in range(num_items)
        ]
        for item in items:
            if item.sequence.request_id not in trial.slots:
                trial.enter(item)
        trial.sampler.upload()
        for buffer, new in zip(rows, trial.rows(items, num_rows - num_items), strict=True):
            buffer.copy_(new)
        static.copy_(logits.roll(step, 1))
        trial.out.tokens.fill_(UNWRITTEN)
        graph.replay()
        tokens, logprobs = trial.out.tokens.cpu().numpy(), trial.out.logprobs.cpu().numpy()
        got, failures = trial.sampler.read(tokens, items, range(num_items), logprobs)
        assert failures == {}
        wanted = sampler.sample(static[:num_items].cpu(), items)
        assert_equal_samples(got, wanted, items, torch.float32)
        assert tokens[num_items:].tolist() == [UNWRITTEN] * (num_rows - num_items)
        last = trial.last_tokens.tolist()
        for item, one in zip(items, got, strict=True):
            assert last[trial.slots[item.sequence.request_id]] == one.token_ids[0]
        assert last[num_rows] == UNWRITTEN
        for answer, one in zip(answers, got, strict=True):
            answer += one.token_ids


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_rows_without_numbers_fail_alone(bad: float) -> None:
    items = mixed_items(42)
    logits = random_logits(42, 2)
    logits[::3, 77_777] = bad
    logits[1::3] = bad
    got, failures = make_trial(42).draw(logits, items)
    wanted = Sampler(EOS).sample(logits.cpu(), items)
    assert failures == find_failures(logits.cpu(), items, wanted)
    for item, one, other in zip(items, got, wanted, strict=True):
        if item.sequence.request_id in failures:
            assert all(0 <= token_id < VOCAB for token_id in one.token_ids)
        else:
            assert one.token_ids == other.token_ids, item.sequence.request.params


def test_rough_noise_is_close_enough() -> None:
    """What is drawn is exact only if the rough noise is never further off than it says."""
    import triton
    import triton.language as tl

    from engine.kernels.triton.sampling_noise import NOISE_ERROR, gumbel, rough_gumbel

    @triton.jit  # type: ignore[untyped-decorator]
    def differences(key, out, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        ids = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        exact = gumbel(key, ids)
        error = tl.abs(rough_gumbel(key, ids).to(tl.float64) - exact)
        tl.store(out + tl.program_id(0), tl.max(error, axis=0))

    out = torch.full((1 << 16,), math.nan, dtype=torch.float64, device="cuda")
    for key in (3, -5):  # a hundred million numbers
        differences[(len(out),)](key, out, BLOCK=1024)
        assert float(out.max()) < NOISE_ERROR.value / 4
