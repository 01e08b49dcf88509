"""MEM-01 over HTTP: what a client that does not read its stream can take from a whole server."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from scripts.process_watch import MemoryWatch
from tests.e2e.endless_server import SHORT
from tests.support.cases import case
from tests.support.server_process import TIMEOUT_S, ServerProcess

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")

SEND_TIMEOUT_S = 2


def test_a_stream_that_is_not_read(tmp_path: Path) -> None:
    """An endless answer of 1 KiB a token, of which three events are read: the server's memory is
    bounded, others keep their speed, and after the send timeout the request is aborted and the
    connection closed."""
    expect = case("MEM-01")["expect"]
    options = ("--scripted-token-s", "0.0002", "--max-model-len", "65536")
    with (
        ServerProcess(
            tmp_path,
            *options,
            f"--send-timeout-s={SEND_TIMEOUT_S}",
            module="tests.e2e.endless_server",
        ) as server,
        httpx.Client(base_url=server.address, trust_env=False, timeout=TIMEOUT_S) as http,
    ):
        alone_s = sorted(_time_of_short_answer(http) for _ in range(5))[2]
        num_sockets = _num_sockets(server)
        with _stalled(server) as stalled, MemoryWatch(server.pid, 0.05) as memory:
            began_s = time.monotonic()
            times: list[float] = []
            # The engine's own bound ends the answer, or the send timeout does; then the
            # connection goes, whose client has taken nothing since.
            while _is_busy(http) or _num_sockets(server) > num_sockets:
                times.append(_time_of_short_answer(http))
                assert time.monotonic() - began_s < TIMEOUT_S, "the stalled stream goes on"
            waited_s = time.monotonic() - began_s
            data = _rest_of(stalled)
        growth = max(size for _, size in memory.curve) - memory.curve[0][1]
        assert growth < expect["rss_growth_mib_less_than"] << 20
        assert sorted(times)[len(times) // 2] < 3 * alone_s + 0.1
        assert waited_s < SEND_TIMEOUT_S + 10
        assert b"[DONE]" not in data


def _time_of_short_answer(http: httpx.Client) -> float:
    began_s = time.monotonic()
    body = {"messages": [{"role": "user", "content": SHORT}], "stream": True}
    reply = http.post("/v1/chat/completions", json=body)
    assert reply.text.endswith("data: [DONE]\n\n")
    return time.monotonic() - began_s


def _is_busy(http: httpx.Client) -> bool:
    lines = http.get("/metrics").text.splitlines()
    (line,) = [one for one in lines if one.startswith("lectern_running_sequences ")]
    return float(line.split()[1]) > 0


def _num_sockets(server: ServerProcess) -> int:
    """Sockets that the server has open."""
    count = 0
    for name in os.listdir(f"/proc/{server.pid}/fd"):
        with suppress(FileNotFoundError):  # it was closed meanwhile
            count += os.readlink(f"/proc/{server.pid}/fd/{name}").startswith("socket:")
    return count


@contextmanager
def _stalled(server: ServerProcess) -> Iterator[socket.socket]:
    """A client with a small buffer that reads three events of an endless answer."""
    parts = urlsplit(server.address)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        connection.settimeout(TIMEOUT_S)
        connection.connect((parts.hostname, parts.port))
        fields = {"messages": [{"role": "user", "content": "go on for ever"}], "stream": True}
        body = json.dumps(fields).encode()
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        received = b""
        while received.count(b"data: ") < 3:
            received += connection.recv(1024)
        yield connection


def _rest_of(connection: socket.socket) -> bytes:
    """What was on the line when the connection was dropped."""
    data = b""
    try:
        while piece := connection.recv(1 << 16):
            data += piece
    except ConnectionError:
        pass
    return data
