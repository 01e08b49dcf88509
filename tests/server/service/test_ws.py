"""`/ws/v1` over a real socket: handshake, frames, limits of a connection, shutdown."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from engine.api import Script
from server.service.auth import COOKIE_NAME
from server.service.limits import ServiceLimits
from tests.server.service.harness import Server, Socket, eventually, serving
from tests.server.service.socket_events import SLOW, close_code

pytestmark = pytest.mark.anyio


async def test_a_bad_frame_costs_one_error(server: Server) -> None:
    """WSK-01: the connection stays open, and so do the others."""
    async with server.socket() as first, server.socket() as second:
        await first.hello()
        await second.hello()
        for frame in ("{not json", "[]", '{"type":"dance"}', '{"type":"ask","id":"x"}', "[" * 9999):
            await first.connection.send(frame)
            error = await first.receive()
            assert (error["type"], error["code"]) == ("error", "bad_request")
        await first.connection.send(b"bytes")
        assert (await first.receive())["code"] == "bad_request"
        await first.send("chat", id="x", messages=[], options={"max_tokens": "many"})
        error = await first.receive()
        assert (error["id"], error["param"]) == ("x", "options.max_tokens")
        for socket in (first, second):
            await socket.ask(max_tokens=4)
            assert (await socket.answer())[-1]["type"] == "finish"


async def test_cookie_and_origin() -> None:
    async with serving() as server:
        auth = server.service.auth
        user, session = auth.new_session()
        host = server.base_url.removeprefix("http://")
        async with server.socket(cookie=f"{COOKIE_NAME}={session}", origin=server.base_url) as own:
            welcome = await own.hello()
            assert welcome["session"] != session, "a cookie that scripts cannot read stays so"
            await own.ask()
            run = server.service.runs.get((await own.receive())["run"])
            assert run is not None
            assert run.owner == user
        for origin in ("http://evil.example", f"http://{host}.evil.example", "null", "file://"):
            async with server.socket(origin=origin) as socket:
                with pytest.raises(ConnectionClosed) as closed:
                    await socket.receive()
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == 1008


async def test_frames_that_are_too_big() -> None:
    """WSK-03: 64 KiB is an ordinary question; a frame of 32 MiB and fragments without an end
    close with 1009, which the client can read although it is still sending."""
    piece = bytes(64 << 10)
    async with serving() as server, server.socket() as other:
        await other.hello()
        async with server.socket() as socket:
            await socket.hello()
            await socket.ask("讲" * ((64 << 10) // 3))
            assert (await socket.answer())[-1]["code"] == "prompt_too_long"
        huge = [_frame_head(0x81, 32 << 20), *[piece] * 512]
        assert await _close_code_after(server, huge) == 1009
        fragments = [_frame_head(0x01, len(piece)) + piece]
        fragments += [_frame_head(0x00, len(piece)) + piece] * 999
        assert await _close_code_after(server, fragments) == 1009
        await other.ask(max_tokens=1)
        assert (await other.answer())[-1]["type"] == "finish"


def _frame_head(first: int, size: int) -> bytes:
    """Opcode and FIN, a 64-bit length, and a mask of zeros."""
    return bytes([first, 0xFF]) + size.to_bytes(8, "big") + bytes(4)


async def _close_code_after(server: Server, pieces: list[bytes]) -> int:
    """Sends raw bytes, all of them if the server lets it, then reads the close frame."""
    host, port = server.base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"GET /ws/v1 HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    async with asyncio.timeout(10):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        head = await reader.readexactly(4)
        assert head[0] == 0x88
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    return int.from_bytes(head[2:4], "big")


async def test_no_courses_without_an_application(server: Server) -> None:
    async with server.socket() as socket:
        await socket.hello()
        await socket.send("ask", id="a", course="c", text="hi")
        error = await socket.receive()
        assert (error["id"], error["code"]) == ("a", "not_found")


async def test_shutdown_ends_runs_then_sockets() -> None:
    """ABT-05: the answer ends as `shutdown`, the socket closes with 1001."""
    async with serving(SLOW) as server, server.socket() as socket:
        await socket.hello()
        await socket.ask()
        await socket.until("delta")
        ending = asyncio.create_task(server.service.shutdown(0.05))
        finish = (await socket.answer())[-1]
        assert finish["finish_detail"] == {"type": "shutdown"}
        assert await close_code(socket) == 1001
        await ending
        async with server.socket() as late:
            assert await close_code(late) == 1001


async def test_a_socket_that_does_not_read_is_dropped_and_its_run_goes_on() -> None:
    script = Script(answer=lambda _: [b"x" * 50_000] * 200, token_s=0.002)
    limits = ServiceLimits(send_timeout_s=0.3)
    async with (
        serving(script, limits=limits) as server,
        connect(
            server.ws_url, max_queue=1, close_timeout=0.1, compression=None, proxy=None
        ) as connection,
    ):
        socket = Socket(connection)
        await socket.hello()
        await socket.ask()
        run = server.service.runs.get((await socket.receive())["run"])
        assert run is not None
        await eventually(lambda: server.service.sockets.num_sessions == 0)
        await eventually(lambda: run.is_finished)
        assert len(run.text) == 200 * 50_000
