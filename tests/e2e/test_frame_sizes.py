"""What a WebSocket client can make a whole server hold in memory, by what it sends and by what it
does not read."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.sync.client import ClientConnection, connect

from tests.support.cases import case
from tests.support.server_process import TIMEOUT_S, ServerProcess

MIB = 1 << 20
PIECE = bytes(64 << 10)
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc"
)


class Memory:
    """The resident memory of a process, in bytes."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")

    def forget_peak(self) -> int:
        """From now on `peak` counts; what is resident now."""
        (self._folder / "clear_refs").write_text("5")
        return self._read("VmRSS")

    @property
    def peak(self) -> int:
        return self._read("VmHWM")

    def _read(self, name: str) -> int:
        lines = (self._folder / "status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def test_frames_that_are_too_big(tmp_path: Path) -> None:
    """WSK-03: an ordinary long question is answered in words; a frame of 32 MiB, and fragments
    without an end, close with 1009 that the client can read, and take no memory."""
    expected = case("WSK-03")["expect"]["each"]
    with ServerProcess(tmp_path, "--scripted", "--scripted-token-s", "0") as server:
        memory = Memory(server.pid)
        with _connected(server) as other, _connected(server) as asking:
            _ask(asking, "讲" * ((64 << 10) // 3))
            assert _end_of(asking)["code"] == "prompt_too_long"
            before = memory.forget_peak()
            codes = [
                _close_code_after(server, [_frame_head(0x81, 32 * MIB), *[PIECE] * 512]),
                _close_code_after(
                    server,
                    [
                        _frame_head(0x01, len(PIECE)) + PIECE,
                        *[_frame_head(0x00, len(PIECE)) + PIECE] * 999,
                    ],
                ),
            ]
            assert codes == [one["close"] for one in expected[1:]]
            assert memory.peak - before < 64 * MIB
            _ask(other, "still there?", max_tokens=2)
            assert _end_of(other)["finish_reason"] == "length"


def test_a_socket_that_stops_reading(tmp_path: Path) -> None:
    """MEM-01 by WebSocket: an endless answer of 1 KiB a token and a client that reads three
    events of it. Its memory is bounded, others keep their speed, and after the send timeout the
    connection is closed and the answer, which nobody is to come back for, ends."""
    options = ("--scripted-token-s", "0.001", "--max-model-len", "65536", "--send-timeout-s", "2")
    with ServerProcess(
        tmp_path, *options, "--abandon-grace-s", "0", module="tests.e2e.endless_server"
    ) as server:
        memory = Memory(server.pid)
        with _connected(server) as other:
            alone_s = _time_of_short_answer(other)
            with _stalled(server):
                before = memory.forget_peak()
                until_s = time.monotonic() + TIMEOUT_S
                times: list[float] = []
                while _num_running(server) > 0 or len(times) < 5:
                    times.append(_time_of_short_answer(other))
                    assert time.monotonic() < until_s, "the stalled answer goes on"
                growth = memory.peak - before
    assert sorted(times)[len(times) // 2] < 3 * alone_s + 0.1
    assert growth < 32 * MIB


@contextmanager
def _connected(server: ServerProcess) -> Iterator[ClientConnection]:
    url = server.address.replace("http://", "ws://") + "/ws/v1"
    with connect(url, subprotocols=["lectern.v1"], compression=None, proxy=None) as connection:  # type: ignore[list-item]
        connection.send('{"type":"hello"}')
        assert json.loads(connection.recv(TIMEOUT_S))["type"] == "welcome"
        yield connection


def _ask(connection: ClientConnection, text: str, *, id: str = "q", **options: int) -> None:
    messages = [{"role": "user", "content": text}]
    connection.send(
        json.dumps({"type": "chat", "id": id, "messages": messages, "options": options})
    )


def _end_of(connection: ClientConnection) -> dict[str, object]:
    while True:
        event: dict[str, object] = json.loads(connection.recv(TIMEOUT_S))
        if event["type"] in ("finish", "error"):
            return event


def _time_of_short_answer(connection: ClientConnection) -> float:
    began_s = time.monotonic()
    _ask(connection, "a short answer", id=f"q{began_s}")
    assert _end_of(connection)["type"] == "finish"
    return time.monotonic() - began_s


def _num_running(server: ServerProcess) -> int:
    """Sequences in the engine, as /metrics has it."""
    text = httpx.get(f"{server.address}/metrics", trust_env=False).text
    (line,) = [one for one in text.splitlines() if one.startswith("lectern_running_sequences ")]
    return int(float(line.split()[1]))


@contextmanager
def _stalled(server: ServerProcess) -> Iterator[None]:
    """A client that reads the first events of an endless answer, then nothing."""
    with _raw(server) as connection:
        message = {
            "type": "chat",
            "id": "endless",
            "on_disconnect": "abandon",
            "messages": [{"role": "user", "content": "go on for ever"}],
        }
        payload = json.dumps(message).encode()
        connection.sendall(_frame_head(0x81, len(payload)) + payload)
        received = b""
        while received.count(b'"type":"delta"') < 3:
            received += connection.recv(4096)
        yield


@contextmanager
def _raw(server: ServerProcess) -> Iterator[socket.socket]:
    """A WebSocket whose frames are written by hand, with a small receive buffer."""
    parts = urlsplit(server.address)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        connection.settimeout(TIMEOUT_S)
        connection.connect((parts.hostname, parts.port))
        connection.sendall(
            b"GET /ws/v1 HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(1)
        assert b" 101 " in head
        yield connection


def _frame_head(first: int, size: int) -> bytes:
    """Opcode and FIN, a 64-bit length, and a mask of zeros."""
    return bytes([first, 0xFF]) + size.to_bytes(8, "big") + bytes(4)


def _close_code_after(server: ServerProcess, pieces: list[bytes]) -> int:
    """Sends all of it, then reads the close frame."""
    with _raw(server) as connection:
        for piece in pieces:
            connection.sendall(piece)
        head = b""
        while len(head) < 4:
            head += connection.recv(4 - len(head))
        assert head[0] == 0x88
        return int.from_bytes(head[2:4], "big")
