"""The sampling kernels in Triton's interpreter, against `Sampler`: the same tokens, exactly."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ModelLoadError
from engine.execution.logit_check import find_failures
from engine.execution.runner import Sample
from engine.execution.sampler import Sampler
from engine.kernels.triton.sampling_layout import MAX_BIASES, SamplingLayout
from engine.scheduling.scheduler_output import ScheduledSequence
from engine.types import RequestId, SamplingParams
from tests.engine.execution.device_sampling import UNWRITTEN, SamplingTrial
from tests.engine.execution.plain_sampling import make_item
from tests.support.triton_interpreter import accept_scalar_arrays

accept_scalar_arrays()

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu has the same")

VOCAB = 201
EOS = (1, 2)
LAYOUT = SamplingLayout(VOCAB, tile=128, part=32, chunk=64, list_size=128)
"""Several tiles, the last one not full; lists that are too short for what some rows keep, and
longer than what is held in registers."""


def random_logits(num_rows: int, seed: int = 0, scale: float = 3.0) -> torch.Tensor:
    chance = torch.Generator().manual_seed(seed)
    return torch.randn(num_rows, VOCAB, generator=chance) * scale


def check(
    logits: torch.Tensor,
    items: list[ScheduledSequence],
    trial: SamplingTrial | None = None,
    num_padding: int = 0,
) -> list[Sample]:
    """Both samplers' draws; the GPU's are compared and returned."""
    trial = trial or SamplingTrial(VOCAB, eos_token_ids=EOS, layout=LAYOUT)
    padding = torch.full((num_padding, logits.shape[1]), math.nan)
    got, failures = trial.draw(torch.cat([logits, padding]), items, num_padding)
    wanted = Sampler(EOS).sample(logits, items)
    assert failures == find_failures(logits, items, wanted)
    for item, mine, theirs in zip(items, got, wanted, strict=True):
        if item.sequence.request_id in failures:
            assert all(0 <= token_id < VOCAB for token_id in mine.token_ids)
            continue
        assert mine.token_ids == theirs.token_ids, item.sequence.request.params
        assert len(mine.logprobs) == len(theirs.logprobs)
        for one, other in zip(mine.logprobs, theirs.logprobs, strict=True):
            assert one.logprob == pytest.approx(other.logprob, abs=1e-5)
            assert [token for token, _ in one.top] == [token for token, _ in other.top]
            values = [value for _, value in one.top]
            assert values == pytest.approx([value for _, value in other.top], abs=1e-5)
    return got


PARAMS = {
    "greedy": SamplingParams(temperature=0.0, logprobs=3),
    "plain": SamplingParams(logprobs=20),
    "hot": SamplingParams(temperature=2.0),
    "cold": SamplingParams(temperature=0.05, logprobs=0),
    "top_k": SamplingParams(top_k=7),
    "top_k of many": SamplingParams(temperature=1.7, top_k=80),
    "top_k of all": SamplingParams(top_k=VOCAB + 9, temperature=1.5),
    "top_p": SamplingParams(top_p=0.7, temperature=0.8),
    "top_p of many": SamplingParams(top_p=0.99, temperature=2.0),
    "top_p of all": SamplingParams(top_p=0.9999999, temperature=0.3),
    "min_p": SamplingParams(min_p=0.1, temperature=1.5),
    "low min_p": SamplingParams(min_p=1e-7, temperature=0.5),
    "all filters": SamplingParams(top_k=8, top_p=0.9, min_p=0.02, temperature=1.3),
}


@pytest.mark.parametrize("name", list(PARAMS))
def test_the_same_tokens_as_on_the_cpu(name: str) -> None:
    items = [make_item(PARAMS[name], name=str(seed), seed=seed) for seed in range(2)]
    check(random_logits(2, seed=len(name)), items)


@pytest.mark.parametrize("name", ["plain", "top_k", "top_p of all", "low min_p", "all filters"])
def test_tails_that_win(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Heads so small that most draws are from the tail, or from what filters leave of it."""
    from engine.execution import logit_rows

    depth = 0.1
    monkeypatch.setattr(logit_rows, "HEAD_DEPTH", depth)
    trial = SamplingTrial(VOCAB, eos_token_ids=EOS, layout=replace(LAYOUT, head_depth=depth))
    items = [make_item(PARAMS[name], name=str(seed), seed=seed) for seed in range(3)]
    logits = random_logits(3, seed=3, scale=1.0)
    got = check(logits, items, trial)
    best = logits.amax(dim=1)
    assert any(
        float(row[one.token_ids[0]]) < float(most) - depth * PARAMS[name].temperature
        for row, one, most in zip(logits, got, best, strict=True)
    )


@pytest.mark.parametrize("name", ["greedy", "plain", "top_k", "top_p", "min_p"])
def test_equal_logits_share_their_fate(name: str) -> None:
    """Coarse logits, where most tokens have company; zeros of both signs among them."""
    logits = random_logits(2, seed=2).round()
    logits[logits == 0] *= -1.0
    params = PARAMS[name]
    if params.logprobs is not None:  # which of equal alternatives come first is anybody's guess
        params = SamplingParams(temperature=params.temperature, logprobs=0)
    check(logits, [make_item(params, name=str(seed), seed=seed) for seed in range(2)])


@pytest.mark.parametrize("chunk", [32, 128])
@pytest.mark.parametrize(
    "params",
    [SamplingParams(temperature=2.0, top_p=0.34), SamplingParams(temperature=2.0, top_k=35)],
)
def test_floors_in_rows_that_fit_into_no_list(params: SamplingParams, chunk: int) -> None:
    """What is left of such a row is listed while its floor is searched: here 10 tokens at the
    floor and 70 just below, which would be drawn often. Registers hold them or not."""
    layout = SamplingLayout(VOCAB, tile=128, part=32, chunk=chunk, list_size=90)
    trial = SamplingTrial(VOCAB, eos_token_ids=EOS, layout=layout)
    logits = torch.linspace(-1.0, 0.0, VOCAB)
    logits[:30], logits[180:190], logits[50:120] = 2.0, 1.0, 0.999999
    items = [make_item(params, name=str(seed), seed=seed) for seed in range(6)]
    check(logits.repeat(6, 1), items, trial)


def test_greedy_takes_the_first_of_the_likeliest() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, [140, 141, 190]] = 2.0
    assert check(logits, [make_item(SamplingParams(temperature=0.0))])[0].token_ids == (140,)


@settings(max_examples=10)
@given(
    st.builds(
        SamplingParams,
        temperature=st.floats(0.0, 2.0),
        top_k=st.just(0) | st.integers(1, VOCAB),
        top_p=st.just(1.0) | st.floats(0.01, 1.0),
        min_p=st.just(0.0) | st.floats(0.0, 1.0),
        presence_penalty=st.just(0.0) | st.floats(-2.0, 2.0),
        frequency_penalty=st.just(0.0) | st.floats(-2.0, 2.0),
        repetition_penalty=st.just(1.0) | st.floats(0.1, 3.0),
        min_tokens=st.integers(0, 6),
        stop_token_ids=st.just(()) | st.just((0, 200)),
    ),
    st.integers(0, 2**64 - 1),
    st.integers(0, 1000),
)
def test_any_parameters(params: SamplingParams, seed: int, logit_seed: int) -> None:
    item = make_item(params, prompt=(0, 9, 200), output=(5, 9, 5), seed=seed)
    check(random_logits(1, seed=logit_seed), [item])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_rows_without_numbers_fail_alone(bad: float) -> None:
    kinds = ["greedy", "plain", "top_k", "min_p", "top_p", "all filters"]
    items = [make_item(PARAMS[kind], name=str(i), seed=i) for i, kind in enumerate(kinds)]
    logits = random_logits(6, seed=7)
    logits[::2] = bad  # minus infinity throughout is a failure
    logits[1::2, 17] = bad  # as one of many it is not
    check(logits, items)
    # Nor where it is the first.
    logits = random_logits(2, seed=8)
    logits[:, 0] = -math.inf
    check(logits, items[:2])


def test_bias_and_min_tokens() -> None:
    biases = tuple((token_id, 30.0 - token_id / 10) for token_id in range(0, 200, 1))
    kinds = [
        SamplingParams(temperature=0.0, logit_bias=((5, 100.0), (200, -100.0)), logprobs=2),
        SamplingParams(logit_bias=biases, top_k=5),
        SamplingParams(temperature=0.0, min_tokens=4, logit_bias=((1, 90.0), (7, 80.0))),
        SamplingParams(min_tokens=3, stop_token_ids=(7,), ignore_eos=True, top_p=0.8),
    ]
    for num_output in (2, 4):  # the blocked tokens are free again for the second
        items = [
            make_item(one, name=str(i), output=[9] * num_output, seed=i)
            for i, one in enumerate(kinds)
        ]
        got = check(random_logits(4, seed=5), items)
        assert got[0].token_ids == (5,)
        assert got[2].token_ids == ((7,) if num_output == 2 else (1,))


PENALTIES = [
    SamplingParams(temperature=0.0, presence_penalty=1.5),
    SamplingParams(frequency_penalty=0.8, repetition_penalty=1.3, top_k=40),
    SamplingParams(temperature=0.7, repetition_penalty=0.8, presence_penalty=-0.5, logprobs=2),
]


def test_counts_are_kept_from_step_to_step() -> None:
    """Without a word from the host: the same answers as with the whole history."""
    trial = SamplingTrial(VOCAB, eos_token_ids=EOS, layout=LAYOUT)
    answers: list[list[int]] = [[], [], []]
    for step in range(5):
        items = [
            make_item(one, name=str(i), prompt=(3, 4, 4), continued=(8,), output=answer, seed=i)
            for i, (one, answer) in enumerate(zip(PENALTIES, answers, strict=True))
        ]
        # Few tokens are likely, so that they come again.
        logits = random_logits(3, seed=step) * 0.3
        logits[:, :9] += 8.0
        got = check(logits, items, trial)
        for index, (answer, sample) in enumerate(zip(answers, got, strict=True)):
            assert int(trial.last_tokens[trial.slots[str(index)]]) == sample.token_ids[0]
            answer += sample.token_ids
    assert any(len(set(answer)) < 5 for answer in answers)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.0, logprobs=2),
        SamplingParams(top_p=0.6, logprobs=0),
        SamplingParams(temperature=0.0, frequency_penalty=1.5, repetition_penalty=1.4),
    ],
)
def test_forced_tokens_are_taken_counted_and_end(params: SamplingParams) -> None:
    """Beside a row that is free, and in a slot that is free afterwards."""
    trial = SamplingTrial(VOCAB, num_slots=2, eos_token_ids=EOS, layout=LAYOUT)
    forced = (7, 199, 7, 0)
    answer: list[int] = []
    others: list[int] = []
    for step in range(6):
        items = [
            make_item(params, name="a", continued=(3, 9), output=answer, forced=forced),
            make_item(params, name="b", output=others),
        ]
        for mine, sample in zip(
            (answer, others), check(random_logits(2, seed=step), items, trial), strict=True
        ):
            mine += sample.token_ids
    assert tuple(answer[:4]) == forced != tuple(others[:4])
    trial.sampler.leave(0)
    trial.slots.pop("a")
    check(random_logits(1, seed=9), [make_item(params, name="c", continued=(3, 9))], trial)


def test_padding_rows_and_rows_that_do_not_sample_write_nothing() -> None:
    trial = SamplingTrial(VOCAB, layout=LAYOUT)
    items = [make_item(PARAMS["plain"], name="a"), make_item(PARAMS["top_p"], name="b")]
    check(random_logits(2), items, trial, num_padding=2)
    assert trial.out.tokens[2:].tolist() == [UNWRITTEN] * 14
    assert int(trial.last_tokens[trial.num_slots]) == UNWRITTEN
    rows = trial.rows(items)
    rows[2][0] = 0
    before = trial.last_tokens.clone()
    trial.launch(random_logits(2, seed=1), rows)
    assert int(trial.out.tokens[0]) == UNWRITTEN
    assert int(trial.last_tokens[0]) == int(before[0])
    assert int(trial.out.tokens[1]) >= 0


def test_a_slot_has_nothing_of_its_last_request() -> None:
    trial = SamplingTrial(VOCAB, num_slots=1, eos_token_ids=EOS, layout=LAYOUT)
    heavy = SamplingParams(
        presence_penalty=2.0, logit_bias=((3, 100.0),), min_tokens=50, top_k=3, logprobs=2
    )
    first = make_item(heavy, name="first", output=(5, 6, 7))
    check(random_logits(1), [first], trial)
    for name, params in (
        ("second", SamplingParams(temperature=0.0, presence_penalty=0.3)),
        ("third", SamplingParams()),
    ):
        trial.sampler.leave(0)
        trial.slots.clear()
        check(random_logits(1, seed=4), [make_item(params, name=name, output=(9,))], trial)


def test_a_row_does_not_depend_on_its_company() -> None:
    kinds = list(PARAMS.values())[1:6]
    items = [make_item(one, name=str(i), seed=i) for i, one in enumerate(kinds)]
    logits = random_logits(5, seed=9)
    together = check(logits, items)
    order = [3, 0]
    assert check(logits[order], [items[i] for i in order]) == [together[i] for i in order]


def test_a_slot_holds_all_that_a_request_may_ask_for() -> None:
    """As many biases and stop tokens as are allowed, and more tokens to come than int64 counts."""
    vocab_size = 2 * MAX_BIASES
    params = SamplingParams(
        temperature=0.0,
        min_tokens=10**30,
        stop_token_ids=tuple(range(3, 3 + SamplingParams.MAX_STOP_TOKEN_IDS)),
        logit_bias=tuple((token_id, 5.0) for token_id in range(SamplingParams.MAX_LOGIT_BIASES)),
    )
    trial = SamplingTrial(vocab_size, eos_token_ids=(MAX_BIASES - 1,))
    logits = torch.zeros(1, vocab_size)
    logits[0, [3, MAX_BIASES - 1, MAX_BIASES - 2, MAX_BIASES]] = torch.tensor([9.0, 8.0, 6.0, 10.0])
    samples, _ = trial.draw(logits, [make_item(params)])
    assert samples[0].token_ids == (MAX_BIASES - 2,)


def test_a_model_with_more_ends_than_a_slot_holds() -> None:
    SamplingTrial(VOCAB, eos_token_ids=range(256), layout=LAYOUT)
    with pytest.raises(ModelLoadError, match=r"257 tokens .* at most 256"):
        SamplingTrial(VOCAB, eos_token_ids=range(257), layout=LAYOUT)


def test_log_probabilities_must_have_been_copied() -> None:
    trial = SamplingTrial(VOCAB, layout=LAYOUT)
    item = make_item(PARAMS["greedy"], name=RequestId("a"))
    trial.draw(random_logits(1), [item])
    with pytest.raises(ValueError, match="log probabilities"):
        trial.sampler.read(trial.out.tokens.numpy(), [item], [0])
