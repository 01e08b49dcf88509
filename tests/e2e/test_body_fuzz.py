"""Bodies that are nearly right, or nothing at all: every request soon gets a reply of the API's
own, and never one that says that the server failed."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.server_process import ServerProcess

REFUSALS = {400, 404, 413}
ENDS = (b"data: [DONE]", b"event: response.completed", b"event: response.incomplete")
QUESTION = [{"role": "user", "content": "hi"}]
BODIES: dict[str, Any] = {
    "/v1/chat/completions": {
        "messages": [*QUESTION, {"role": "assistant", "tool_calls": [], "content": "é"}, *QUESTION],
        "n": 2,
        "temperature": 0.5,
        "stop": ["x"],
        "logit_bias": {"5": 1.5},
        "logprobs": True,
        "top_logprobs": 2,
        "metadata": {"a": "b"},
        "stream": False,
    },
    "/v1/completions": {"prompt": ["a", "b"], "echo": True, "max_tokens": 3, "stream": True},
    "/v1/responses": {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        "reasoning": {"effort": None},
        "text": {"format": {"type": "text"}},
        "max_output_tokens": 5,
    },
    "/tokenize": {"messages": QUESTION, "add_generation_prompt": True},
    "/detokenize": {"tokens": [1, 2, 3]},
}
PIECES = (
    *(b'"\\ud800"', b"\xff", b"\x00", b"\\u0000", b"1e999", b"-0.0", b"NaN", b"9" * 400),
    *(b"null", b"[]", b"{}", b'""', b"true", b"-1", b"[" * 3000, b'{"a":' * 3000, b'"' * 7),
    *(b",", b":", b"\xe2\x80\xa8", b"a" * 70_000, b'"stream":true,', b'"\xef\xbf\xbe"'),
)
"""What is put into bodies: ends of ranges, broken texts, nesting, and what JSON has no word for."""


@st.composite
def bodies(draw: st.DrawFn) -> tuple[str, bytes]:
    """An address, and a body for it that was damaged a few times; or any bytes."""
    path = draw(st.sampled_from(sorted(BODIES)))
    if draw(st.integers(0, 9)) == 0:
        return path, draw(st.binary(max_size=200))
    body = json.dumps(BODIES[path], ensure_ascii=False).encode()
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(body)))
        end = min(len(body), start + draw(st.integers(0, 12)))
        body = body[:start] + draw(st.sampled_from(PIECES)) + body[end:]
    return path, body


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("fuzz")
    with ServerProcess(folder, "--scripted", "--scripted-token-s", "0") as server:
        yield server


def post(address: str, path: str, body: bytes) -> tuple[int, http.client.HTTPMessage, bytes]:
    """One request over a connection of its own; longer than 10 seconds is a failure."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=10)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read()
    finally:
        connection.close()


@settings(
    max_examples=400,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(made=bodies())
def test_a_damaged_body_gets_a_reply(server: ServerProcess, made: tuple[str, bytes]) -> None:
    status, headers, reply = post(server.address, *made)
    assert headers["x-request-id"]
    if status == 200 and headers.get_content_type() == "text/event-stream":
        last = reply.split(b"\n\n")[-2]
        assert last.startswith(ENDS)
    elif status == 200:
        assert json.loads(reply).get("error") is None
    else:
        assert status in REFUSALS, reply
        error = json.loads(reply)["error"]
        assert error["message"]
        assert "Traceback" not in error["message"]


def test_the_server_took_no_harm(server: ServerProcess) -> None:
    """After all that: it answers, nothing is left running, and its log has no fault of its own."""
    status, _, reply = post(
        server.address, "/v1/chat/completions", json.dumps({"messages": QUESTION}).encode()
    )
    assert status == 200
    assert json.loads(reply)["choices"][0]["message"]["content"] == "You asked: hi"
    assert "Traceback" not in server.text
    assert " ERROR " not in server.text
