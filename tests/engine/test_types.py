from __future__ import annotations

import math

import pytest

from engine.errors import InvalidRequestError
from engine.types import (
    Finish,
    FinishDetail,
    FinishReason,
    FinishType,
    Progress,
    RequestId,
    RequestOutput,
    SamplingParams,
)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 2.5),
        ("temperature", math.nan),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", -1.0),
        ("top_k", -1),
        ("max_tokens", 0),
        ("seed", 2**64),
        ("stop", ("a", "")),
        ("presence_penalty", -2.1),
        ("frequency_penalty", 2.1),
        ("presence_penalty", math.nan),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", -1.0),
        ("repetition_penalty", math.inf),
        ("min_tokens", -1),
        ("logprobs", -1),
        ("logprobs", 21),
        ("logit_bias", ((5, 100.5),)),
        ("logit_bias", ((5, math.nan),)),
        ("logit_bias", ((5, 1.0), (5, 2.0))),
        ("logit_bias", tuple((token_id, 1.0) for token_id in range(1025))),
        ("stop_token_ids", tuple(range(257))),
    ],
)
def test_a_bad_parameter_is_named(field: str, value: object) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**{field: value})  # type: ignore[arg-type]
    assert caught.value.param == field
    assert field in str(caught.value)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("presence_penalty", (-2.0, 2.0)),
        ("repetition_penalty", (1e-9, 100.0)),
        ("logprobs", (0, 20)),
        ("logit_bias", (((0, -100.0), (1, 100.0)), ())),
        ("logit_bias", (tuple((token_id, 1.0) for token_id in range(1024)),)),
        ("min_tokens", (0, 10**9)),
        ("stop_token_ids", (tuple(range(256)),)),
    ],
)
def test_the_ends_of_a_range_are_in_it(field: str, values: tuple[object, ...]) -> None:
    for value in values:
        assert getattr(SamplingParams(**{field: value}), field) == value  # type: ignore[arg-type]


@pytest.mark.parametrize("token_id", [-1, 260, 1 << 40])
def test_token_ids_outside_the_vocabulary_are_named(token_id: int) -> None:
    """SMP-01: the boundary itself is outside."""
    for params, field in (
        (SamplingParams(logit_bias=((3, 1.0), (token_id, 1.0))), "logit_bias"),
        (SamplingParams(stop_token_ids=(token_id,)), "stop_token_ids"),
    ):
        with pytest.raises(InvalidRequestError, match=f"{field}.*{token_id}.*260") as caught:
            params.check_vocabulary(260)
        assert caught.value.param == field
    SamplingParams(logit_bias=((0, 1.0), (259, 1.0)), stop_token_ids=(259,)).check_vocabulary(260)


def test_every_finish_type_has_a_reason() -> None:
    reasons = {type_: type_.reason for type_ in FinishType}
    assert reasons[FinishType.STOP_STRING] is FinishReason.STOP
    assert reasons[FinishType.KV_CAPACITY] is FinishReason.LENGTH
    assert reasons[FinishType.CLIENT_GONE] is FinishReason.ABORT


def test_detail_names_what_matched_only_where_there_is_something() -> None:
    assert FinishDetail(FinishType.EOS).to_json() == {"type": "eos"}
    detail = FinishDetail(FinishType.STOP_TOKEN, 0)
    assert detail.to_json() == {"type": "stop_token", "matched": 0}


def test_merged_deltas_keep_order_and_the_latest_progress() -> None:
    first = RequestOutput(RequestId("r"), "a", (1,), Progress(1, 2, 0))
    end = Finish(FinishDetail(FinishType.EOS))
    merged = first.merge(RequestOutput(RequestId("r"), "b", (2,), finish=end))
    assert merged == RequestOutput(RequestId("r"), "ab", (1, 2), Progress(1, 2, 0), end)
