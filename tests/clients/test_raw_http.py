"""HTTP as programs wrote it before there were libraries: pipelined requests, and HTTP/1.0."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

pytestmark = pytest.mark.client

ANSWER = "You asked: hello there"


def request(body: Any, *, version: str = "1.1", close: bool = False) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/{version}\r\nHost: 127.0.0.1\r\n"
    head += "Connection: close\r\n" if close else ""
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def exchange(address: str, data: bytes) -> bytes:
    """Everything that the server says until it closes the connection."""
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(data)
        found = b""
        while piece := connection.recv(65536):
            found += piece
    return found


def read_reply(data: bytes) -> tuple[dict[str, str], bytes, bytes]:
    """The first reply's headers and body, and what follows it."""
    head, rest = data.split(b"\r\n\r\n", 1)
    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    assert lines[0].split(" ")[1] == "200"
    if "content-length" in headers:
        size = int(headers["content-length"])
        return headers, rest[:size], rest[size:]
    assert headers["transfer-encoding"] == "chunked"
    body = b""
    while True:
        length, rest = rest.split(b"\r\n", 1)
        size = int(length, 16)
        body += rest[:size]
        assert rest[size : size + 2] == b"\r\n"
        rest = rest[size + 2 :]
        if size == 0:
            return headers, body, rest


def ask(text: str, *, stream: bool = False) -> Any:
    return {"messages": [{"role": "user", "content": text}], "stream": stream}


def streamed_text(body: bytes) -> str:
    events = body.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


def test_pipelined_requests_are_answered_in_order(address: str) -> None:
    data = exchange(
        address,
        request(ask("one " * 20, stream=True))
        + request(ask("two"))
        + request(ask("three", stream=True))
        + request(ask("four"), close=True),
    )
    found = []
    for _ in range(4):
        headers, body, data = read_reply(data)
        if headers["content-type"].startswith("text/event-stream"):
            found.append(streamed_text(body))
        else:
            found.append(json.loads(body)["choices"][0]["message"]["content"])
    assert found == [
        f"You asked: {('one ' * 20).strip()}",
        "You asked: two",
        "You asked: three",
        "You asked: four",
    ]
    assert data == b""


@pytest.mark.parametrize("stream", [False, True])
def test_http_1_0_gets_no_chunks(address: str, stream: bool) -> None:
    data = exchange(address, request(ask("hello there", stream=stream), version="1.0"))
    headers, body, rest = read_reply(data)
    assert "transfer-encoding" not in headers
    assert rest == b""
    if stream:
        assert streamed_text(body) == ANSWER
    else:
        assert json.loads(body)["choices"][0]["message"]["content"] == ANSWER


def test_what_is_no_http_is_refused(address: str) -> None:
    assert exchange(address, b"HELLO\r\n\r\n").startswith(b"HTTP/1.1 400 ")
