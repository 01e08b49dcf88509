"""What the body of `POST /v1/responses` may not hold."""

from __future__ import annotations

import pytest

from server.service.errors import BadRequestError
from server.service.limits import ServiceLimits
from server.service.response_schemas import parse_response_body
from tests.server.service.harness import Json


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": 3}, "input"),
        ({"input": []}, "input"),
        ({"input": [], "instructions": "Be brief."}, "input"),
        ({"input": [{"type": "reasoning", "id": "rs_1", "summary": []}]}, "input"),
        ({"input": ["text"]}, "input[0]"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [3]}]}, "input[0].content[0]"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input[0].content[0]",
        ),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0].type"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 2**40}, "max_output_tokens"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": -1}, "top_logprobs"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": "high"}, "top_p"),
        ({"min_tokens": 3, "max_output_tokens": 2}, "min_tokens"),
        ({"metadata": {"a": 1}}, "metadata[...]"),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata"),
        ({"metadata": {"a": "x" * 513}}, "metadata"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"background": 0}, "background"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"truncation": "auto"}, "truncation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"text": "plain"}, "text"),
        ({"reasoning": {"effort": "high"}}, "reasoning.effort"),
    ],
    ids=str,
)
def test_what_cannot_be_served_is_refused_by_name(fields: Json, param: str) -> None:
    def check() -> None:
        body, _ = parse_response_body({"input": "hi", **fields})
        body.messages()
        body.options().to_params(ServiceLimits())

    with pytest.raises(BadRequestError) as refused:
        check()
    assert refused.value.param == param
