"""The `openai` package against a real server."""

from __future__ import annotations

import time
import urllib.request

import pytest

from tests.clients.conftest import Run

pytestmark = pytest.mark.client

ANSWER = "You asked: hello there"


def test_sync(run_program: Run) -> None:
    found = run_program("openai_sync.py")
    assert found["whole"] == [ANSWER, "stop", {"type": "eos"}, True, True]
    assert found["streamed"] == [ANSWER, "stop", True]
    assert found["helper"] == [True, 1, ANSWER, "stop"]
    assert found["several"] == [["You asked: h"] * 2, ["length"] * 2, ["You asked: h"] * 2]
    assert found["raw"] == ["mine-1", ANSWER]
    assert found["streaming response"] == [200, "data: [DONE]"]
    assert found["text"] == ["You asked: h", "length", "You asked: h"]
    assert found["response"] == [ANSWER, "completed", {"purpose": "test"}, True]
    assert found["response given back"] == "You asked: second"
    assert found["cut response"] == ["You aske", "incomplete", "max_output_tokens", "You aske"]
    assert found["response events"] == [
        ANSWER,
        True,
        "response.created",
        "response.completed",
        ANSWER,
    ]
    assert found["response helper"] == [ANSWER, ANSWER, "completed"]
    assert found["aborted"] == ["abort", ["incomplete", "abort", {"type": "deadline"}]]
    assert found["models"] == [["scripted"], "scripted"]
    too_long = ["BadRequestError", 400, "context_length_exceeded", "messages"]
    assert found["errors"] == [
        ["NotFoundError", 404, "model_not_found", "model"],
        too_long,
        too_long,
        ["BadRequestError", 400, "invalid_value", "temperature"],
        ["BadRequestError", 400, "invalid_value", "tools"],
    ]
    assert found["timeout"] == "raised"


def test_async_and_clients_that_leave(run_program: Run, address: str) -> None:
    before = finished(address, "client_gone")
    found = run_program("openai_async.py")
    assert found["many"] == [f"You asked: question {index}" for index in range(16)]
    assert found["helper"] == ["You asked: hello", "stop"]
    assert found["response"] == "You asked: hello"
    assert found["models"] == ["scripted"]
    assert found["left"] == 3
    # One that is not aborted would end, and count as another kind.
    until = time.monotonic() + 10
    while finished(address, "client_gone") < before + 9:
        assert time.monotonic() < until, "the engine still works for clients that have gone"


def finished(address: str, detail: str) -> float:
    """How many generations ended so."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=10) as reply:
        lines = reply.read().decode().splitlines()
    wanted = f'lectern_generations_finished_total{{detail="{detail}"}} '
    return sum(float(line.removeprefix(wanted)) for line in lines if line.startswith(wanted))
