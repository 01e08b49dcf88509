"""One run, told in every way there is: each reader gets the same bytes for the same event."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest

from server.service.http import ASGIApp
from server.service.run import Run
from server.service.ws_protocol import LingeringWebSocketProtocol
from tests.server.service.harness import Json, Server, Socket, eventually, serving
from tests.server.service.socket_events import FINISH, check_run, text_in
from tests.server.service.wrappers import Wrapped

pytestmark = pytest.mark.anyio

ACCEPTED = {"id": "q", "conversation": None, "message": None, "user_message": None, "parent": None}
START = {
    "model": "m",
    "prompt_tokens": 3,
    "cached_tokens": 0,
    "max_tokens": 9,
    "max_tokens_lowered": False,
    "continued": False,
}
TEXTS = (
    *(
        " word",
        'quote " and \\',
        "line\nbreak\r\n",
        "\u2028\u2029\u0085",
        "\x00\x1f\x7f",
        "讲义",
        "👩‍🎓",
    ),
    *("x" * size for size in (16, 17, 18, 125, 126, 70_000)),  # around the sizes of frame heads
    "data: [DONE]\n\n",
    "end",
)
Step = tuple[str, dict[str, Any]]
STEPS: tuple[Step, ...] = (
    ("accepted", ACCEPTED),
    ("queued", {"position": 2, "eta_ms": 1500}),
    ("start", START),
    ("progress", {"prefilled": 1, "total": 3}),
    ("thinking", {"text": "hm\u2028"}),
    *(("delta", {"text": text}) for text in TEXTS),
    ("citation", {"n": 1, "passage": "p"}),
    ("finish", FINISH),
)


class Stepped:
    """A run that tells one of STEPS each time it is told to."""

    def __init__(self, server: Server) -> None:
        self._gate = asyncio.Semaphore(0)
        user, self.session = server.service.auth.new_session()
        self.run = server.service.runs.open(user, self._produce)

    async def _produce(self, run: Run) -> None:
        for type, fields in STEPS:
            await self._gate.acquire()
            if type == "delta":
                run.emit_delta(fields["text"])
            else:
                run.emit(type, **fields)

    async def step(self) -> None:
        before = self.run.last_seq
        self._gate.release()
        await eventually(lambda: self.run.last_seq > before)


async def over_websocket(server: Server, stepped: Stepped, after_seq: int) -> list[str]:
    async with server.socket() as socket:
        await socket.hello(token=stepped.session)
        await socket.send("attach", run=stepped.run.id, after_seq=after_seq)
        return await frames(socket, stepped.run.id)


async def frames(socket: Socket, run: str) -> list[str]:
    """The frames of a run as they came, to its end."""
    found: list[str] = []
    async with asyncio.timeout(10):
        while not found or '"type":"finish"' not in found[-1]:
            frame = await socket.connection.recv()
            assert isinstance(frame, str)
            assert run in frame
            found.append(frame)
    return found


async def over_sse(
    server: Server, stepped: Stepped, after_seq: int, *, by_header: bool
) -> list[str]:
    own = {"authorization": f"Bearer {stepped.session}"}
    params = {}
    if by_header:
        own["last-event-id"] = str(after_seq)
    else:
        params["after_seq"] = str(after_seq)
    path = f"/v1/runs/{stepped.run.id}/events"
    response = await server.http.get(path, headers=own, params=params)
    assert response.status_code == 200
    return payloads(response, after_seq)


def payloads(response: httpx.Response, after_seq: int) -> list[str]:
    """The data of each event; checks the framing."""
    events = response.text.split("\n\n")
    assert events.pop() == ""
    found: list[str] = []
    for number, event in enumerate(events, after_seq + 1):
        id_line, data_line = event.split("\n")
        assert id_line == f"id: {number}"
        assert data_line.splitlines() == [data_line], "one line for every kind of reader"
        found.append(data_line.removeprefix("data: "))
    return found


@pytest.mark.one_loop
@pytest.mark.parametrize("middleware", [None, Wrapped], ids=["direct", "asgi"])
async def test_all_readers_get_the_same_bytes(
    middleware: Callable[[ASGIApp], ASGIApp] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct: list[Sequence[bytes]] = []
    write_texts = LingeringWebSocketProtocol.write_texts

    def counted(protocol: LingeringWebSocketProtocol, messages: Sequence[bytes]) -> None:
        direct.append(messages)
        write_texts(protocol, messages)

    monkeypatch.setattr(LingeringWebSocketProtocol, "write_texts", counted)
    async with serving(middleware=middleware) as server:
        stepped = Stepped(server)
        reading: list[tuple[int, asyncio.Task[list[str]]]] = []

        async def all_attached() -> None:
            await eventually(lambda: stepped.run.num_readers == len(reading))

        async with asyncio.TaskGroup() as tasks:
            for seq in range(len(STEPS)):
                readers = (
                    over_websocket(server, stepped, seq),
                    over_sse(server, stepped, seq, by_header=True),
                    over_sse(server, stepped, seq, by_header=False),
                )
                reading += [(seq, tasks.create_task(reader)) for reader in readers]
                await all_attached()
                await stepped.step()
        live = reading[0][1].result()
        events = [_event(frame) for frame in live]
        check_run(events)
        assert [event["type"] for event in events] == [type for type, _ in STEPS]
        assert text_in(events) == "".join(TEXTS)
        for seq, task in reading:
            assert task.result() == live[seq:], f"a reader after {seq}"
        late = await over_websocket(server, stepped, 0)
        assert text_in([_event(frame) for frame in late]) == "".join(TEXTS)
        by_sse = await server.http.get(
            f"/v1/runs/{stepped.run.id}/events",
            headers={"authorization": f"Bearer {stepped.session}"},
        )
        told = [line[6:] for line in by_sse.text.split("\n") if line.startswith("data: ")]
        assert told == late, "what stands for an ended run is the same, too"
        assert bool(direct) is (middleware is None), "the fast way is taken where there is one"


def _event(frame: str) -> Json:
    found: Json = json.loads(frame)
    return found
