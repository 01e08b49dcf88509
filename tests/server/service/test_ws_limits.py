"""What one WebSocket, and one user with all of theirs, may take of the server."""

from __future__ import annotations

import pytest

from engine.api import Script
from server.service.auth import Auth
from server.service.limits import ServiceLimits
from tests.server.service.harness import SECRET, Server, eventually, serving
from tests.server.service.socket_events import close_code

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]


async def test_messages_beyond_the_rate_are_refused_by_name() -> None:
    limits = ServiceLimits(max_messages_per_s=1)
    async with serving(limits=limits) as server, server.socket() as socket:
        assert (await socket.hello())["limits"]["max_messages_per_s"] == 1
        for number in range(4):
            await socket.send("ping", id=str(number))
        pong, *refused = [await socket.receive() for _ in range(4)]
        assert pong == {"type": "pong", "id": "0"}, "two seconds' messages may come at once"
        for number, reply in enumerate(refused, 1):
            assert (reply["type"], reply["code"]) == ("error", "rate_limited")
            assert reply["id"] == str(number), "it says which message was not taken"
            assert reply["retryable"] is True
            assert 0 < reply["retry_after_ms"] <= 1001


async def test_a_flood_is_closed_and_others_are_served() -> None:
    limits = ServiceLimits(max_messages_per_s=1)
    async with (
        serving(limits=limits) as server,
        server.socket() as socket,
        server.socket() as other,
    ):
        await socket.hello()
        for _ in range(50):
            await socket.connection.send("{")
        assert await close_code(socket) == 1008
        await other.hello()
        await other.send("ping", id="p")
        assert (await other.receive())["type"] == "pong"


async def test_connections_per_user() -> None:
    """Of one cookie, or one key, or one session; another user's are not counted."""
    limits = ServiceLimits(max_connections_per_user=2)
    async with serving(auth=Auth(SECRET, ["sk-a", "sk-b"]), limits=limits) as server:
        async with server.socket() as first, server.socket() as second:
            for socket in (first, second):
                await socket.hello(token="sk-a")
                await socket.hello(token="sk-a")
            async with server.socket() as third:
                await third.send("hello", token="sk-a")
                error = await third.receive()
                assert (error["code"], error["retryable"]) == ("rate_limited", True)
                assert await close_code(third) == 1013
                assert error["retry_after_ms"] == 5000
                assert third.connection.close_reason == "too many connections; retry after 5000 ms"
            async with server.socket() as other:
                await other.hello(token="sk-b")
        await _all_gone(server)
        async with server.socket() as socket:
            await socket.hello(token="sk-a")


async def test_a_socket_that_becomes_another_user_s_is_counted_there() -> None:
    limits = ServiceLimits(max_connections_per_user=1)
    async with serving(limits=limits) as server:
        _, alice = server.service.auth.new_session()
        _, bob = server.service.auth.new_session()
        async with server.socket() as socket:
            await socket.hello(token=alice)
            await socket.hello(token=bob)
            async with server.socket() as other:
                await other.hello(token=alice)
            async with server.socket() as other:
                await other.send("hello", token=bob)
                assert (await other.receive())["code"] == "rate_limited"


async def test_terms_that_cannot_be_are_refused_before_a_run(server: Server) -> None:
    async with server.socket() as socket:
        await socket.hello()
        bad = ({"timeout": 0}, {"timeout": 1e9}, {"timeout": "soon"}, {"priority": "urgent"})
        for options in bad:
            await socket.ask(**options)
            error = await socket.receive()
            assert (error["type"], error["code"]) == ("error", "bad_request")
            assert error["param"] == f"options.{next(iter(options))}"
            assert error["id"] == "q1"
            assert "run" not in error
        await socket.ask(timeout=5, priority="batch", max_tokens=2)
        assert (await socket.answer())[-1]["finish_detail"] == {"type": "max_tokens"}


async def test_a_timeout_ends_the_answer_as_deadline() -> None:
    script = Script(answer=lambda _: "word" * 1000, token_s=0.01)
    async with serving(script) as server, server.socket() as socket:
        await socket.hello()
        await socket.ask(timeout=0.5)
        finish = (await socket.answer())[-1]
        assert finish["finish_reason"] == "abort"
        assert finish["finish_detail"] == {"type": "deadline"}
        assert 0 < finish["usage"]["completion_tokens"] < 1000
        await server.until_idle()


async def _all_gone(server: Server) -> None:
    await eventually(lambda: server.service.sockets.num_sessions == 0)
