"""The `websockets` package against a real server."""

from __future__ import annotations

import pytest

from tests.clients.conftest import Run


@pytest.mark.client
def test_websockets(run_program: Run) -> None:
    found = run_program("websockets_chat.py")
    assert found["subprotocol"] == "lectern.v1"
    assert found["welcome"] == "welcome"
    assert found["sync"] == ["You asked: hello there", "stop", True, True]
    assert found["pong"]["type"] == "pong"
    assert found["two"] == ["You asked: first one", "You asked: second one"]
    assert found["active"] == [True]
    assert found["cancelled"] == ["abort", {"type": "cancelled"}]
