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
    ],
)
def test_a_bad_parameter_is_named(field: str, value: object) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**{field: value})  # type: ignore[arg-type]
    assert caught.value.param == field
    assert field in str(caught.value)


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
