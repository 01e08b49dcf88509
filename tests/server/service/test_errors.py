"""Every error has its one way to be told."""

from __future__ import annotations

import json

import pytest

from engine import api
from server.service import errors

CODES = {
    "bad_request",
    "unauthorized",
    "forbidden",
    "not_found",
    "conversation_busy",
    "rate_limited",
    "queue_full",
    "prompt_too_long",
    "model_unavailable",
    "resume_gone",
    "shutting_down",
    "internal",
}


def _subclasses(kind: type[errors.ServiceError]) -> list[type[errors.ServiceError]]:
    return [kind, *(sub for child in kind.__subclasses__() for sub in _subclasses(child))]


def test_every_code_of_the_protocol_and_no_other() -> None:
    assert {kind.code for kind in _subclasses(errors.ServiceError)} == CODES


@pytest.mark.parametrize("kind", _subclasses(errors.ServiceError))
def test_status_and_type_agree(kind: type[errors.ServiceError]) -> None:
    assert 400 <= kind.http_status < 600
    if kind is not errors.ServiceError:
        assert (kind.openai_type == "server_error") == (kind.http_status >= 500)


@pytest.mark.parametrize(
    ("raised", "status", "code", "openai_code"),
    [
        (api.PromptTooLongError(200, 128), 400, "prompt_too_long", "context_length_exceeded"),
        (api.InvalidRequestError("x", param="seed"), 400, "bad_request", "invalid_value"),
        (api.OverloadedError("x"), 429, "queue_full", "queue_full"),
        (api.ShuttingDownError("x"), 503, "shutting_down", "shutting_down"),
        (api.EngineDeadError("x"), 503, "model_unavailable", "model_unavailable"),
        (api.EngineError("/a/path"), 500, "internal", "internal"),
        (ValueError("/a/path"), 500, "internal", "internal"),
        (errors.NotFoundError("x"), 404, "not_found", "not_found"),
    ],
)
def test_other_people_s_errors(raised: Exception, status: int, code: str, openai_code: str) -> None:
    told = errors.from_unknown(raised)
    assert (told.http_status, told.code) == (status, code)
    body = json.loads(told.openai_body())["error"]
    assert body["code"] == openai_code
    assert set(body) == {"message", "type", "param", "code"}
    assert "/a/path" not in body["message"]
    assert told.event_fields()["retryable"] is (status in (429, 500, 503))


@pytest.mark.parametrize("kind", [errors.RateLimitedError, errors.QueueFullError])
def test_who_asks_too_much_always_hears_when_to_ask_again(kind: type[errors.ServiceError]) -> None:
    assert kind("x").event_fields()["retry_after_ms"] == 1000
    assert kind("x", retry_after_ms=0).event_fields()["retry_after_ms"] == 0
    assert "retry_after_ms" not in errors.NotFoundError("x").event_fields()


def test_a_long_prompt_keeps_the_engine_s_words() -> None:
    told = errors.from_engine(
        api.PromptTooLongError(300, 256, what="KV cache"), prompt_param="prompt"
    )
    assert "KV cache" in json.loads(told.openai_body())["error"]["message"]
    assert told.param == "prompt"
