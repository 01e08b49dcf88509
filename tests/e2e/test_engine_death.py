"""The engine dies in mid-answer: everybody hears of it once, and a supervisor can restart."""

from __future__ import annotations

import contextlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from server.__main__ import EXIT_FAILURE
from tests.e2e.crashing_server import SECRET_DETAIL, TRIGGER
from tests.support.server_process import ServerProcess

NUM_STREAMS = 3


def body(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "scripted", "messages": [{"role": "user", "content": text}], **fields}


def stream(address: str, path: str, content: dict[str, Any], begun: threading.Barrier) -> str:
    """A streamed reply as it was read; the barrier is passed once something has come."""
    with (
        httpx.Client(base_url=address, timeout=30, trust_env=False) as client,
        client.stream("POST", path, json={**content, "stream": True}) as reply,
    ):
        assert reply.status_code == 200
        parts = reply.iter_text()
        text = next(parts)
        begun.wait(30)
        return text + "".join(parts)


def follow(address: str, begun: threading.Barrier) -> tuple[list[dict[str, Any]], int | None]:
    """A socket's messages after its answer has begun, and how it was closed."""
    events: list[dict[str, Any]] = []
    with connect(address.replace("http", "ws") + "/ws/v1", proxy=None) as socket:
        socket.send('{"type":"hello"}')
        socket.send(json.dumps({"type": "chat", "id": "a", "messages": body("hi")["messages"]}))
        while json.loads(socket.recv(30))["type"] != "delta":
            pass
        begun.wait(30)
        try:
            while True:
                events.append(json.loads(socket.recv(30)))
        except ConnectionClosed as end:
            return events, end.rcvd.code if end.rcvd else None


def test_everybody_hears_of_it_once_and_the_process_fails(tmp_path: Path) -> None:
    module = "tests.e2e.crashing_server"
    options = ("--drain-timeout-s", "2", "--log-format", "json")
    begun = threading.Barrier(2 * NUM_STREAMS + 1)
    with ServerProcess(tmp_path, *options, module=module) as server:
        address = server.address
        with ThreadPoolExecutor(2 * NUM_STREAMS + 2) as pool:
            chats = [
                pool.submit(stream, address, "/v1/chat/completions", body("hi"), begun)
                for _ in range(NUM_STREAMS - 1)
            ]
            answers = [
                pool.submit(
                    stream, address, "/v1/responses", {"model": "scripted", "input": "hi"}, begun
                )
            ]
            sockets = [pool.submit(follow, address, begun) for _ in range(NUM_STREAMS)]
            with httpx.Client(base_url=address, timeout=30, trust_env=False) as client:
                assert client.get("/health").status_code == 200
                begun.wait(30)
                fatal = client.post("/v1/chat/completions", json=body(TRIGGER))
                assert fatal.status_code == 500
                assert fatal.json()["error"]["type"] == "server_error"
                with contextlib.suppress(httpx.TransportError):  # it may have ended by now
                    assert client.get("/health").status_code == 503
                for chat in chats:
                    _check_one_error(chat.result(30))
                (response,) = (answer.result(30) for answer in answers)
                assert response.count("response.failed") >= 1
                assert "response.completed" not in response
                for followed in sockets:
                    events, code = followed.result(30)
                    ends = [event for event in events if event["type"] in ("error", "finish")]
                    assert [end.get("code") for end in ends] == ["internal"]
                    assert events[-1] is ends[0], "nothing comes behind the end"
                    assert code == 1001
        assert server.wait(12) == EXIT_FAILURE
    lines = [line for line in server.text.splitlines() if line.startswith("{")]
    failures = [json.loads(line) for line in lines]
    (panic,) = [line for line in failures if line.get("logger") == "engine.async_engine"]
    assert "Panic" in panic["traceback"]
    assert SECRET_DETAIL not in server.text
    assert "The engine failed" in server.text


def _check_one_error(text: str) -> None:
    """The chunks that were answered, then one error, and nothing that looks like an end."""
    events = [event.removeprefix("data: ") for event in text.split("\n\n") if event]
    parsed = [json.loads(event) for event in events if not event.startswith((":", "[DONE]"))]
    errors = [event for event in parsed if "error" in event]
    assert len(errors) == 1
    assert errors[0]["error"]["type"] == "server_error"
    assert parsed[-1] is errors[0]
    reasons = [choice["finish_reason"] for event in parsed for choice in event.get("choices", ())]
    assert set(reasons) <= {None}
