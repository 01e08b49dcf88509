"""`litellm` against a real server."""

from __future__ import annotations

import pytest

from tests.clients.conftest import Run

ANSWER = "You asked: hello there"


@pytest.mark.client
def test_litellm(run_program: Run) -> None:
    found = run_program("litellm_chat.py")
    assert found["whole"] == [ANSWER, "stop", True, True]
    assert found["stream"] == [ANSWER, "stop", True]
    assert found["rebuilt"] == ANSWER
    assert found["cut"] == [["You aske"] * 2, ["length"] * 2]
    assert found["async"] == [ANSWER, ANSWER]
    assert found["text"] == ["You asked: h", "length"]
    assert found["response"] == [ANSWER, "completed"]
    assert found["response stream"] == [ANSWER, "response.completed"]
    # It knows no such reason: `stop`, with the truth beside it; a stream it takes for broken.
    assert found["aborted"] == {
        "finish_detail": {"type": "deadline"},
        "native_finish_reason": "abort",
    }
    assert found["aborted stream"] == "ServiceUnavailableError"
    assert found["too long"] == "ContextWindowExceededError"
    assert found["another model"] == "NotFoundError"
