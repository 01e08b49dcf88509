"""`hello` over a real socket: sessions, keys and what to resume."""

from __future__ import annotations

import pytest

from server.service.auth import Auth
from server.service.limits import ServiceLimits
from tests.server.service.harness import SECRET, serving
from tests.server.service.socket_events import close_code

pytestmark = pytest.mark.anyio


async def test_keys() -> None:
    limits = ServiceLimits(hello_timeout_s=0.5)
    async with serving(auth=Auth(SECRET, ["sk-good"]), limits=limits) as server:
        async with server.socket() as socket:
            await socket.ask()
            assert (await socket.receive())["code"] == "unauthorized"
            await socket.hello(token="sk-good")
            await socket.ask(max_tokens=1)
            assert (await socket.answer())[-1]["type"] == "finish"
        for token in ("sk-bad", None):
            async with server.socket() as socket:
                await socket.send("hello", token=token)
                assert (await socket.receive())["code"] == "unauthorized"
                assert await close_code(socket) == 1008
        async with server.socket() as silent:
            assert await close_code(silent) == 1008


async def test_hello_again_names_a_session_that_works() -> None:
    """A second hello without a token answered a random name in place of the session."""
    async with serving() as server:
        async with server.socket() as socket:
            await socket.ask()
            run = (await socket.answer())[0]["run"]
            session = (await socket.hello())["session"]
            assert (await socket.hello())["session"] == session
        async with server.socket() as socket:
            resume = [{"run": run, "after_seq": 0}]
            welcome = await socket.hello(token=session, resume=resume)
            assert welcome["session"] == session
            assert (await socket.answer())[-1]["run"] == run
            assert (await socket.hello())["session"] == session


async def test_a_hello_may_resume_only_so_many_runs() -> None:
    """Hundreds of unknown runs filled the outbox, and the socket closed as overloaded."""
    async with serving(limits=ServiceLimits(max_resumes=3)) as server, server.socket() as socket:
        unknown = [{"run": f"r{n}"} for n in range(4)]
        await socket.send("hello", resume=unknown)
        error = await socket.receive()
        assert (error["code"], error["param"]) == ("bad_request", "resume")
        assert "3" in error["message"]
        assert (await socket.hello(resume=unknown[:3]))["limits"]["max_resumes"] == 3
        assert [(await socket.receive())["code"] for _ in range(3)] == ["resume_gone"] * 3
