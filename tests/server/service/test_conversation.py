"""An application behind the WebSocket: what it is asked, and how its refusals are told."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from server.service.auth import UserId
from server.service.errors import NotFoundError
from server.service.limits import ServiceLimits
from server.service.messages import Ask, Carry, Continue, Count, Edit, Feedback, Regenerate, Undo
from server.service.runs import Run, RunRegistry
from tests.server.service.harness import Json, Socket, eventually, serving
from tests.server.service.socket_events import FINISH

pytestmark = pytest.mark.anyio

Opening = Ask | Continue | Regenerate | Edit | Carry


@dataclass
class Recorder:
    """Remembers what it was asked; an answer says the kind of message and waits for the gate."""

    runs: RunRegistry | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    seen: list[Opening | Feedback] = field(default_factory=list)
    counted: list[str] = field(default_factory=list)

    async def ask(self, user: UserId, message: Ask) -> Run:
        if message.course == "missing":
            raise NotFoundError("There is no such course.", param="course")
        if message.course == "slow":
            await self.gate.wait()
        return self._open(user, message, message.conversation)

    async def continue_(self, user: UserId, message: Continue) -> Run:
        return self._open(user, message, None)

    async def regenerate(self, user: UserId, message: Regenerate) -> Run:
        return self._open(user, message, None)

    async def edit(self, user: UserId, message: Edit) -> Run:
        return self._open(user, message, None)

    async def feedback(self, user: UserId, message: Feedback) -> None:
        if message.message == "slow":
            await self.gate.wait()
        self.seen.append(message)
        if message.message == "broken":
            raise RuntimeError("a bug")

    async def carry(self, user: UserId, message: Carry) -> Run:
        return self._open(user, message, None)

    async def undo(self, user: UserId, message: Undo) -> dict[str, Any]:
        return {"message": {"id": message.message, "text": "less"}}

    async def count(self, user: UserId, message: Count) -> dict[str, Any]:
        self.counted.append(message.text)
        if message.text.startswith("slow"):
            await self.gate.wait()
        return {"tokens": len(message.text), "room": 10, "window": 20}

    def welcome(self, user: UserId) -> dict[str, Any]:
        return {"defaults": {"max_tokens": 7}}

    def _open(self, user: UserId, message: Opening, conversation: str | None) -> Run:
        async def produce(run: Run) -> None:
            self.seen.append(message)
            run.emit(
                "accepted",
                id=message.id,
                conversation=conversation,
                message="m1",
                user_message="m0",
                parent=None,
            )
            run.emit("delta", text=type(message).__name__)
            await self.gate.wait()
            run.emit("finish", **FINISH)

        assert self.runs is not None
        return self.runs.open(user, produce, key=message.id, conversation=conversation)


async def _texts(socket: Socket) -> list[Json]:
    return [event for event in await socket.answer() if event["type"] == "delta"]


async def test_each_message_reaches_the_application() -> None:
    app = Recorder()
    app.gate.set()
    async with serving(app=app) as server, server.socket() as socket:
        app.runs = server.service.runs
        assert (await socket.hello())["defaults"] == {"max_tokens": 7}
        await socket.send("ask", id="1", course="c", text="hi", options={"max_tokens": 5})
        assert (await _texts(socket))[0]["text"] == "Ask"
        await socket.send("continue", id="2", message="m1")
        assert (await _texts(socket))[0]["text"] == "Continue"
        await socket.send("regenerate", id="3", message="m1")
        assert (await _texts(socket))[0]["text"] == "Regenerate"
        await socket.send("edit", id="4", message="m0", text="new")
        assert (await _texts(socket))[0]["text"] == "Edit"
        await socket.send("carry", id="4b", message="m1")
        assert (await _texts(socket))[0]["text"] == "Carry"
        await socket.send("feedback", id="5", message="m1", value="up", note="good")
        assert await socket.receive() == {"type": "done", "id": "5"}
        await socket.send("undo", id="6", message="m1")
        told = {"type": "done", "id": "6", "message": {"id": "m1", "text": "less"}}
        assert await socket.receive() == told
        await socket.send("count", id="7", text="four")
        counts = {"tokens": 4, "room": 10, "window": 20}
        assert await socket.receive() == {"type": "counted", "id": "7", **counts}
        ask, *_, feedback = app.seen
        assert isinstance(ask, Ask)
        assert ask.options.max_tokens == 5
        assert isinstance(feedback, Feedback)
        assert feedback.note == "good"


async def test_refusals_and_bugs_bear_the_message_s_id() -> None:
    app = Recorder()
    async with serving(app=app) as server, server.socket() as socket:
        app.runs = server.service.runs
        await socket.hello()
        await socket.send("ask", id="1", course="missing", text="hi")
        error = await socket.receive()
        assert (error["id"], error["code"], error["param"]) == ("1", "not_found", "course")
        await socket.send("feedback", id="2", message="broken", value="down")
        error = await socket.receive()
        assert (error["id"], error["code"]) == ("2", "internal")
        assert "a bug" not in error["message"]

        await socket.send("ask", id="3", conversation="c1", text="first")
        await socket.until("delta")
        await socket.send("ask", id="4", conversation="c1", text="second")
        error = await socket.receive()
        assert (error["id"], error["code"]) == ("4", "conversation_busy")
        assert error["retryable"] is True

        async with server.socket() as other:
            assert (await other.hello())["active_runs"] == []
        app.gate.set()
        assert (await socket.answer())[-1]["type"] == "finish"


async def test_a_reload_finds_the_running_answer() -> None:
    app = Recorder()
    async with serving(app=app) as server, server.socket() as socket:
        app.runs = server.service.runs
        session = (await socket.hello())["session"]
        await socket.send("ask", id="1", conversation="c1", text="hi")
        accepted = (await socket.until("delta"))[0]
        async with server.socket() as reloaded:
            welcome = await reloaded.hello(token=session)
            assert welcome["active_runs"] == [
                {"run": accepted["run"], "conversation": "c1", "message": "m1", "last_seq": 2}
            ]
            await reloaded.send("attach", run=accepted["run"], after_seq=0)
            app.gate.set()
            assert [event["seq"] for event in await reloaded.answer()] == [1, 2, 3]


async def test_a_message_that_waits_holds_up_no_cancel_and_no_ping() -> None:
    """A feedback that waited for the database kept the whole socket from being read."""
    app = Recorder()
    async with serving(app=app) as server, server.socket() as socket:
        app.runs = server.service.runs
        await socket.hello()
        await socket.send("ask", id="1", conversation="c1", text="hi")
        run = (await socket.until("delta"))[-1]["run"]
        for n, message in enumerate(("slow", "m1", "m2")):
            await socket.send("feedback", id=f"f{n}", message=message, value="up")
        await socket.send("cancel", run=run)
        await socket.send("ping", id="p")
        assert await socket.receive() == {"type": "pong", "id": "p"}
        running = app.runs.get(run)
        assert running is not None
        assert running.cancel_detail is not None
        await socket.send("ask", id="2", conversation="c2", text="hi")
        assert (await socket.until("delta"))[-1]["text"] == "Ask"
        assert not [one for one in app.seen if isinstance(one, Feedback)]
        app.gate.set()
        await socket.answer()
        await eventually(lambda: len(app.seen) == 5)
        judged = [one.id for one in app.seen if isinstance(one, Feedback)]
        assert judged == ["f0", "f1", "f2"], "in order: the last one counts"


async def test_what_was_received_still_happens_after_the_client_left() -> None:
    app = Recorder()
    async with serving(app=app) as server:
        app.runs = server.service.runs
        async with server.socket() as socket:
            await socket.hello()
            await socket.send("ask", id="1", course="slow", text="hi")
            await socket.send("ask", id="2", text="hi")
            await socket.send("ping")
            await socket.receive()
        app.gate.set()
        await eventually(lambda: server.service.sockets.num_sessions == 0)
        await eventually(lambda: [one.id for one in app.seen] == ["1", "2"])


async def test_messages_that_wait_are_bounded() -> None:
    app = Recorder()
    limits = ServiceLimits(max_waiting_messages=2)
    async with serving(app=app, limits=limits) as server, server.socket() as socket:
        await socket.hello()
        await socket.send("feedback", id="first", message="slow", value="up")
        await socket.send("ping")
        await socket.receive()
        for n in range(3):
            await socket.send("feedback", id=f"f{n}", message="m1", value="up")
        error = await socket.receive()
        assert (error["id"], error["code"], error["retryable"]) == ("f2", "rate_limited", True)
        app.gate.set()
        await eventually(lambda: len(app.seen) == 3)


async def test_only_the_newest_text_waits_to_be_counted() -> None:
    app = Recorder()
    async with serving(app=app) as server, server.socket() as socket:
        await socket.hello()
        for n in range(5):
            await socket.send("count", id=f"c{n}", text=f"slow {n}")
        refused = [await socket.receive() for _ in range(2)]
        assert [(one["id"], one["code"]) for one in refused] == [
            ("c2", "rate_limited"),
            ("c3", "rate_limited"),
        ]
        assert app.counted == ["slow 0", "slow 1"]
        await socket.send("ping")
        assert await socket.receive() == {"type": "pong"}, "the socket is read all the while"
        app.gate.set()
        counted = [await socket.receive() for _ in range(3)]
        assert {one["id"] for one in counted} == {"c0", "c1", "c4"}
        assert {one["type"] for one in counted} == {"counted"}


async def test_a_count_is_given_up_with_its_socket() -> None:
    app = Recorder()
    async with serving(app=app) as server:
        async with server.socket() as socket:
            await socket.hello()
            await socket.send("count", id="c", text="slow")
            await eventually(lambda: app.counted == ["slow"])
        await eventually(lambda: server.service.sockets.num_sessions == 0)


async def test_a_question_that_is_being_taken_at_shutdown_hears_that_it_was_not() -> None:
    """The socket closed before the refusal was sent."""
    app = Recorder()
    async with serving(app=app) as server, server.socket() as socket:
        app.runs = server.service.runs
        await socket.hello()
        await socket.send("ask", id="1", course="slow", text="hi")
        await socket.send("ping")
        await socket.receive()
        ending = asyncio.create_task(server.service.shutdown(5))
        await eventually(lambda: server.service.admission.state == "stopped")
        app.gate.set()
        error = await socket.receive()
        assert (error["id"], error["code"]) == ("1", "shutting_down")
        await ending
