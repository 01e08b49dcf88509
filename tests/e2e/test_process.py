"""The server as a person starts and stops it: words, exit codes, signals. Scripted answers."""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.support.server_process import ServerProcess

# An answer of this scripted server repeats the question, four characters in each token.
SLOW = ("--scripted", "--scripted-token-s", "0.02")
LONG_QUESTION = "why " * 700


def chunks(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """The JSON of each SSE event up to [DONE]."""
    for line in response.iter_lines():
        if line == "data: [DONE]":
            return
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))
    raise AssertionError("the stream was cut without [DONE]")


def question(text: str, **fields: Any) -> dict[str, Any]:
    return {
        "model": "scripted",
        "messages": [{"role": "user", "content": text}],
        "stream": True,
        **fields,
    }


def test_ready_means_that_it_answers(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "--scripted", "--scripted-token-s", "0") as server:
        with httpx.Client(base_url=server.address) as client:
            assert client.get("/ready").status_code == 200
            assert client.get("/").status_code == 200
            with client.stream(
                "POST", "/v1/chat/completions", json=question("Are you there?")
            ) as response:
                text = "".join(
                    chunk["choices"][0]["delta"].get("content", "")
                    for chunk in chunks(response)
                    if chunk["choices"]
                )
        assert "Are you there?" in text
        assert server.stop() == 0
    assert server.text.count("Lectern is ready: http://127.0.0.1:") == 1
    assert "Traceback" not in server.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_open_streams_by_a_finish(tmp_path: Path, number: int) -> None:
    """No stream is cut: each gets its finish reason and [DONE], and the exit code is 0."""
    num_streams = 3
    running = threading.Barrier(num_streams + 1)
    with ServerProcess(tmp_path, *SLOW, "--drain-timeout-s", "0.3") as server:

        def stream() -> dict[str, Any]:
            with (
                httpx.Client(base_url=server.address, timeout=30) as client,
                client.stream(
                    "POST", "/v1/chat/completions", json=question(LONG_QUESTION)
                ) as response,
            ):
                events = chunks(response)
                next(events)
                running.wait(30)
                return [event for event in events if event["choices"]][-1]

        with ThreadPoolExecutor(num_streams) as pool:
            answers = [pool.submit(stream) for _ in range(num_streams)]
            running.wait(30)
            server.send_signal(number)
            for answer in answers:
                choice = answer.result(30)["choices"][0]
                assert choice["finish_reason"] == "abort"
                assert choice["finish_detail"] == {"type": "shutdown"}
        assert server.wait() == 0
    assert "Traceback" not in server.text


def test_streams_that_can_end_in_time_do(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, *SLOW, "--drain-timeout-s", "30") as server:
        with (
            httpx.Client(base_url=server.address, timeout=30) as client,
            client.stream("POST", "/v1/chat/completions", json=question("x" * 200)) as response,
        ):
            events = chunks(response)
            next(events)
            server.send_signal()
            last = [event for event in events if event["choices"]][-1]
            assert last["choices"][0]["finish_reason"] == "stop"
        assert server.wait() == 0


def test_a_second_ctrl_c_does_not_wait(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path, *SLOW, "--drain-timeout-s", "600") as server,
        httpx.Client(base_url=server.address, timeout=30) as client,
        client.stream("POST", "/v1/chat/completions", json=question(LONG_QUESTION)) as response,
    ):
        next(chunks(response))
        server.send_signal(signal.SIGINT)
        server.wait_for("Stopping")
        server.send_signal(signal.SIGINT)
        assert server.wait() == 130


def test_an_unknown_option_is_an_error(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "--no-such-option", wait_ready=False) as server:
        assert server.wait() == 2
    assert "--no-such-option" in server.text


def test_a_wrong_value_is_one_sentence(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "--max-num-seqs", "0", wait_ready=False) as server:
        assert server.wait() == 2
    assert len(server.text.splitlines()) == 1
    assert "from 1 to 4096" in server.text


def test_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = str(busy.getsockname()[1])
        with ServerProcess(tmp_path, "--scripted", "--port", port, wait_ready=False) as server:
            assert server.wait() == 1
    assert f"Port {port} on 127.0.0.1 is in use" in server.text
    assert len(server.text.splitlines()) == 1


def test_a_broken_model_is_one_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"this is no model")
    with ServerProcess(tmp_path, "--model", str(broken), wait_ready=False) as server:
        assert server.wait() == 1
    assert "Lectern cannot start: " in server.text
    assert "broken.gguf" in server.text
    assert "Traceback" not in server.text


def test_a_database_that_cannot_be_opened_is_one_sentence(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}"  # a folder
    with ServerProcess(tmp_path, "--scripted", "--database-url", url, wait_ready=False) as server:
        assert server.wait() == 1
    assert "Lectern cannot start: the database" in server.text
    assert "Traceback" not in server.text


def test_a_database_in_memory_is_one_sentence(tmp_path: Path) -> None:
    """It was a traceback."""
    with ServerProcess(
        tmp_path, "--scripted", "--database-url", "sqlite://", wait_ready=False
    ) as server:
        assert server.wait() == 2
    assert "must be a file" in server.text
    assert "--database-url" in server.text
    assert "Traceback" not in server.text


def test_a_locked_database_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """SIGTERM took 91 s while another process held the write lock; the client of a running
    answer heard of its end after 61 s."""
    with ServerProcess(tmp_path, *SLOW, "--drain-timeout-s", "0.3") as server:
        address = server.address.replace("http", "ws") + "/ws/v1"
        with connect(address, proxy=None) as socket:
            socket.send('{"type":"hello"}')
            socket.send(json.dumps({"type": "ask", "id": "a", "text": "When are office hours?"}))
            while json.loads(socket.recv(30))["type"] != "delta":
                pass
            lock = sqlite3.connect(tmp_path / "lectern.db", isolation_level=None, timeout=10)
            lock.execute("BEGIN IMMEDIATE")
            began = time.monotonic()
            server.send_signal()
            while json.loads(socket.recv(15))["type"] not in ("finish", "error"):
                pass
            assert time.monotonic() - began < 6
        assert server.wait(12) == 0
        lock.execute("ROLLBACK")
        lock.close()
    assert "Traceback" not in server.text
