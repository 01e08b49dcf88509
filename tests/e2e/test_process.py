"""The server as a person starts and stops it: words, exit codes, signals. Scripted answers."""

from __future__ import annotations

import json
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.support.cases import case
from tests.support.server_process import ROOT, ServerProcess

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


def test_a_data_folder_in_use_is_one_sentence_and_harms_nobody(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path, *SLOW) as first,
        httpx.Client(base_url=first.address, timeout=30) as client,
        client.stream("POST", "/v1/chat/completions", json=question("x" * 200)) as response,
    ):
        events = chunks(response)
        next(events)
        with ServerProcess(tmp_path, "--scripted", wait_ready=False) as second:
            assert second.wait() == 1
        assert f"another Lectern server uses the data folder {tmp_path}" in second.text
        assert len(second.text.splitlines()) == 1
        last = [event for event in events if event["choices"]][-1]
        assert last["choices"][0]["finish_reason"] == "stop"
        # The folder is free as soon as the process is gone, however it has ended.
        first.send_signal(signal.SIGKILL)
        first.wait()
        with ServerProcess(tmp_path, "--scripted") as again:
            assert httpx.get(f"{again.address}/ready").status_code == 200


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


def test_everything_that_is_open_ends_in_time(tmp_path: Path) -> None:
    """ABT-05: a stream, a socket and a whole reply are open when the signal comes. Each gets its
    end, the socket 1001; a balancer is told first, and nobody new is taken."""
    expect = case("ABT-05")["expect"]
    with (
        ServerProcess(tmp_path, *SLOW, "--drain-timeout-s", "2") as server,
        httpx.Client(base_url=server.address, timeout=30, trust_env=False) as client,
        ThreadPoolExecutor(3) as pool,
    ):
        begun = threading.Barrier(3)
        streamed = pool.submit(_stream_to_its_end, server.address, begun)
        followed = pool.submit(_follow_to_its_end, server.address, begun)
        whole = pool.submit(
            httpx.post,
            server.address + "/v1/chat/completions",
            json=question(LONG_QUESTION, stream=False),
            timeout=30,
        )
        begun.wait(30)
        while "lectern_running_sequences 3.0" not in client.get("/metrics").text:
            pass
        began = time.monotonic()
        server.send_signal()
        server.wait_for("Stopping:")
        ready = client.get("/ready")
        assert (ready.status_code, ready.json()["state"]) == (503, "draining")
        assert client.get("/health").status_code == 200, "restarting it would not help"
        refused = client.post("/v1/chat/completions", json=question("new"))
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "shutting_down"
        assert int(refused.headers["retry-after"]) > 0
        assert streamed.result(30) == ("abort", {"type": "shutdown"})
        told = whole.result(30)
        assert told.status_code == 200
        assert told.json()["choices"][0]["finish_detail"] == {"type": "shutdown"}
        assert followed.result(30) == ([{"type": "shutdown"}], 1001)
        assert server.wait(expect["exit_seconds_at_most"]) == expect["exit_code"]
        assert time.monotonic() - began < expect["exit_seconds_at_most"]
    assert "Traceback" not in server.text


def _stream_to_its_end(address: str, begun: threading.Barrier) -> tuple[str, dict[str, Any]]:
    with (
        httpx.Client(base_url=address, timeout=30) as client,
        client.stream("POST", "/v1/chat/completions", json=question(LONG_QUESTION)) as response,
    ):
        events = chunks(response)
        next(events)
        begun.wait(30)
        choice = [event for event in events if event["choices"]][-1]["choices"][0]
        return choice["finish_reason"], choice["finish_detail"]


def _follow_to_its_end(
    address: str, begun: threading.Barrier
) -> tuple[list[dict[str, Any]], int | None]:
    """The details of the finishes that a socket was told, and its close code."""
    finishes = []
    with connect(address.replace("http", "ws") + "/ws/v1", proxy=None) as socket:
        socket.send('{"type":"hello"}')
        messages = question(LONG_QUESTION)["messages"]
        socket.send(json.dumps({"type": "chat", "id": "a", "messages": messages}))
        while json.loads(socket.recv(30))["type"] != "delta":
            pass
        begun.wait(30)
        try:
            while True:
                message = json.loads(socket.recv(30))
                if message["type"] in ("finish", "error"):
                    finishes.append(message.get("finish_detail", message))
        except ConnectionClosed as end:
            return finishes, end.rcvd.code if end.rcvd else None


def test_no_address_that_a_user_names_is_fetched(tmp_path: Path) -> None:
    """SEC-05: the server fetches nothing for anybody, whatever the address is called."""
    played = case("SEC-05")
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        ServerProcess(tmp_path, "--scripted", "--scripted-token-s", "0") as server,
        httpx.Client(base_url=server.address, timeout=30, trust_env=False) as client,
    ):
        own = str(listener.getsockname()[1])
        _become_teacher(server, client)
        for request in played["input"]["requests"]:
            text = json.dumps(request["json"]).replace("@listener", own)
            content = json.loads(text.replace("@default", "scripted"))
            # As the sample course's teacher, who may upload files: an address is none.
            (course,) = client.get("/api/courses").json()["courses"]
            upload = f"/api/courses/{course['id']}/materials"
            for path in (upload, "/upload", "/api/courses", "/api/materials", "/v1/files"):
                address = path if request["path"] == "UPLOAD" else request["path"]
                reply = client.request(request["method"], address, json=content)
                assert reply.status_code in played["expect"]["status_any_of"], reply.text
        url = f"http://127.0.0.1:{own}/x"
        hostile = {"metadata": {"url": url}, "user": url, "image_url": url, "webhook": url}
        reply = client.post("/v1/chat/completions", json=question(f"see {url}", **hostile))
        assert reply.status_code in (200, 400)
        with connect(server.address.replace("http", "ws") + "/ws/v1", proxy=None) as web_socket:
            web_socket.send('{"type":"hello"}')
            ask = {"type": "ask", "id": "a", "text": f"What does {url} say? ![x]({url})"}
            web_socket.send(json.dumps(ask))
            while json.loads(web_socket.recv(30))["type"] not in ("finish", "error"):
                pass
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody has knocked
            listener.accept()
        assert played["expect"]["hits"] == 0


def test_keys_from_making_to_revoking(tmp_path: Path) -> None:
    """Made and revoked beside a running server that other machines reach."""
    first = _keys(tmp_path, "create", "program").strip()
    options = ("--scripted", "--scripted-token-s", "0", "--host", "0.0.0.0", "--log-level", "debug")
    with ServerProcess(tmp_path, *options) as server:
        address = server.address.replace("0.0.0.0", "127.0.0.1")
        with httpx.Client(base_url=address, timeout=30, trust_env=False) as client:
            bearer = {"Authorization": f"Bearer {first}"}
            body = question("Marker of a prompt", stream=False)
            answered = client.post("/v1/chat/completions", json=body, headers=bearer)
            assert answered.status_code == 200
            assert client.post("/v1/chat/completions", json=body).status_code == 401
            assert client.get("/metrics", headers=bearer).status_code == 403
            metrics = _keys(tmp_path, "create", "scraper", "--access", "metrics").strip()
            _until(lambda: client.get("/metrics", headers=_bearer(metrics)).status_code == 200)
            # The page is for people with an account; its socket then opens by the cookie.
            page = client.get("/")
            assert (page.status_code, page.headers["location"]) == (303, "/login?next=%2F")
            assert client.get("/api/courses").status_code == 401
            link = _become_teacher(server, client)
            session = client.cookies["lectern_session"]
            assert client.get("/").status_code == 200
            assert client.get("/api/conversations").status_code == 200
            for path in ("/api/conversations/Marker of", "/c/Marker of", "/api/Marker of"):
                client.get(path, params={"q": "Marker of a query"})
                client.delete(path)
            with connect(
                address.replace("http", "ws") + "/ws/v1",
                proxy=None,
                additional_headers={"Cookie": f"lectern_session={session}"},
            ) as web_socket:
                web_socket.send('{"type":"hello"}')
                assert json.loads(web_socket.recv(30))["type"] == "welcome"
                ask = {"type": "ask", "id": "a", "text": "Marker of a question"}
                web_socket.send(json.dumps(ask))
                while json.loads(web_socket.recv(30))["type"] not in ("finish", "error"):
                    pass
                with connect(address.replace("http", "ws") + "/ws/v1", proxy=None) as program:
                    program.send(json.dumps({"type": "hello", "token": first}))
                    assert json.loads(program.recv(30))["type"] == "welcome"
                    _keys(tmp_path, "revoke", "program")
                    _expect_policy_close(program)
                assert client.post("/api/logout").status_code == 204
                _expect_policy_close(web_socket)
            assert client.post("/v1/chat/completions", json=body, headers=bearer).status_code == 401
            client.cookies["lectern_session"] = session
            assert client.get("/api/conversations").status_code == 401
        assert server.stop() == 0
    assert "Traceback" not in server.text
    for secret in (first, metrics, session, "Marker of"):
        assert secret not in server.text
    assert server.text.count(link) == 1, "on the console, and in no line of the log"
    assert "key=program" in server.text


def _become_teacher(server: ServerProcess, client: httpx.Client) -> str:
    """Makes the first teacher's account by the link on the console; the link's token."""
    server.wait_for("/start/")
    token = re.search(r"/start/([\w-]+)", server.text)
    assert token is not None
    new = {"name": "Dr. Wu", "login": "wu", "password": "correct horse"}
    made = client.post(f"/api/links/{token[1]}", json=new)
    assert made.status_code == 201, made.text
    return token[1]


def _expect_policy_close(web_socket: ClientConnection) -> None:
    with pytest.raises(ConnectionClosed) as closed:
        web_socket.recv(5)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _until(condition: Callable[[], bool]) -> None:
    """Returns when the server has heard of a change, which takes a second where it has time."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end


def _keys(data_dir: Path, *argv: str) -> str:
    """What `scripts/keys` says."""
    command = [sys.executable, "-m", "server.keys", "--data-dir", str(data_dir), *argv]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
