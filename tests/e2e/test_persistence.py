"""PER-01 of tests/cases: a stop, a page that goes away and a kill lose nothing that was
acknowledged."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

from tests.support.cases import case
from tests.support.server_process import ServerProcess

QUESTION = "When are the office hours of the teaching assistants?"
MODULE = "tests.e2e.lasting_server"


class Reader:
    """A browser: a session, a socket, and what it has read of an answer."""

    def __init__(self, address: str, cookie: str = "") -> None:
        self._address = address
        self.cookie = cookie
        self.cookie = cookie or self._get("/").headers["set-cookie"].partition(";")[0]
        self.accepted: dict[str, Any] = {}
        self.text = ""

    def _get(self, path: str) -> httpx.Response:
        headers = {"Cookie": self.cookie} if self.cookie else {}
        with httpx.Client(base_url=self._address, timeout=30, trust_env=False) as client:
            return client.get(path, headers=headers)

    @contextmanager
    def connect(self) -> Iterator[ClientConnection]:
        with connect(
            self._address.replace("http", "ws") + "/ws/v1",
            additional_headers={"Cookie": self.cookie},
            proxy=None,
        ) as socket:
            socket.send('{"type":"hello"}')
            yield socket

    def ask(self, socket: ClientConnection, **fields: Any) -> None:
        socket.send(json.dumps({"type": "ask", "text": QUESTION, **fields}))

    def read(self, socket: ClientConnection, num_deltas: int) -> None:
        """Reads until so many deltas have come, or the end."""
        while num_deltas:
            event = json.loads(socket.recv(30))
            if event["type"] == "accepted":
                self.accepted = event
            elif event["type"] == "delta":
                self.text += event["text"]
                num_deltas -= 1
            elif event["type"] in ("finish", "error"):
                assert event["type"] == "finish", event
                return

    def history(self) -> list[dict[str, Any]]:
        reply = self._get(f"/api/conversations/{self.accepted['conversation']}")
        assert reply.status_code == 200, reply.text
        messages: list[dict[str, Any]] = reply.json()["messages"]
        return messages


def test_stopped_reloaded_and_killed_answers_are_kept(tmp_path: Path) -> None:
    """The three runs of PER-01: Stop, a page that goes away, and SIGKILL, each after 10 tokens."""
    assert "SIGKILL after 10 tokens" in case("PER-01")["input"]["script"][-1]
    with ServerProcess(tmp_path, "--drain-timeout-s", "0.1", module=MODULE) as server:
        stopped = Reader(server.address)
        with stopped.connect() as socket:
            stopped.ask(socket, id="1")
            stopped.read(socket, 10)
            socket.send(json.dumps({"type": "cancel", "run": stopped.accepted["run"]}))
            stopped.read(socket, -1)
        question, answer = stopped.history()
        assert (question["text"], answer["state"]) == (QUESTION, "stopped")
        assert answer["text"] == stopped.text
        with stopped.connect() as socket:
            stopped.ask(socket, id="2", conversation=stopped.accepted["conversation"])
            stopped.read(socket, 1)
            assert len(stopped.history()) == 4, "the next question follows what is shown"

        gone = Reader(server.address)
        with gone.connect() as socket:
            gone.ask(socket, id="3")
            gone.read(socket, 10)
        assert [message["role"] for message in gone.history()] == ["user", "assistant"]

        killed = Reader(server.address)
        with killed.connect() as socket:
            killed.ask(socket, id="4")
            killed.read(socket, 10)
            while not killed.history()[1]["text"]:  # saved once a second
                killed.read(socket, 1)
            saved = killed.history()[1]["text"]
            server.send_signal(signal.SIGKILL)
            server.wait()

    with ServerProcess(tmp_path, "--drain-timeout-s", "0.1", module=MODULE) as server:
        for before in (gone, killed):
            after = Reader(server.address, before.cookie)
            after.accepted = before.accepted
            question, answer = after.history()
            assert (question["text"], answer["state"]) == (QUESTION, "interrupted")
            assert answer["finish_detail"] == {"type": "interrupted"}
            assert answer["can_continue"]
        assert answer["text"].startswith(saved)
        with after.connect() as socket:
            after.ask(socket, id="4")  # as a page does that never heard of the end
            after.read(socket, -1)
        assert after.text == answer["text"], "never two copies"
        with after.connect() as socket:
            after.ask(socket, id="5", conversation=after.accepted["conversation"])
            after.read(socket, 1)
        messages = after.history()
        assert [message["role"] for message in messages] == ["user", "assistant"] * 2
        assert messages[2]["parent"] == messages[1]["id"]
