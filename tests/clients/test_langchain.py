"""`langchain-openai` against a real server."""

from __future__ import annotations

import pytest

from tests.clients.conftest import Run

ANSWER = "You asked: hello there"


@pytest.mark.client
def test_langchain(run_program: Run) -> None:
    found = run_program("langchain_chat.py")
    assert found["invoke"] == [ANSWER, "stop", True, True]
    assert found["cut"] == ["You aske", "length", "You aske"]
    assert found["stream"] == [ANSWER, "stop", True, True]
    assert found["astream"] == [ANSWER, ANSWER]
    assert found["batch"] == ["You asked: a", "You asked: b", "You asked: c"]
    assert found["text"] == "You asked: h"
    assert found["response"] == [ANSWER, "completed", True, True]
    assert found["response given back"] == "You asked: second"
    assert found["response stream"] == [ANSWER, "completed", True, True]
    assert found["cut response"] == [
        "You aske",
        "incomplete",
        {"reason": "max_output_tokens"},
    ]
    assert found["aborted"] == ["abort", "incomplete", {"reason": "abort"}]
    assert found["too long"] == [True, "context_length_exceeded"]
