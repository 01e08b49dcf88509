"""`/ws/v1` over a real socket: the protocol as any client sees it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from engine.api import Script
from server.service.auth import COOKIE_NAME, Auth
from server.service.events import EVENT_FIELDS
from server.service.limits import ServiceLimits
from tests.server.service.harness import (
    MODEL,
    SECRET,
    Json,
    Server,
    Socket,
    case,
    eventually,
    scripted_answer,
    serving,
)

pytestmark = pytest.mark.anyio

SLOW = Script(answer=lambda _: "".join(f"{n:03d} " for n in range(100)), token_s=0.004)
SLOW_TEXT = "".join(f"{n:03d} " for n in range(100))


def _text(events: list[Json]) -> str:
    text = ""
    for event in events:
        if event["type"] == "snapshot":
            text = event["text"]
        elif event["type"] == "delta":
            text += event["text"]
    return text


def _check_run(events: list[Json]) -> None:
    """Numbers without a gap, the fields of each type, one end."""
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert len({event["run"] for event in events}) == 1
    for event in events:
        assert set(EVENT_FIELDS[event["type"]]) <= event.keys()
    assert [event["type"] in ("finish", "error") for event in events].count(True) == 1
    assert events[-1]["type"] in ("finish", "error")


async def test_hello_and_a_chat(server: Server) -> None:
    async with server.socket() as socket:
        assert socket.connection.subprotocol == "lectern.v1"
        welcome = await socket.hello(locale="zh-CN")
        assert welcome["model"] == {
            "name": MODEL,
            "is_fallback": False,
            "max_model_len": 4096,
            "window": 4096,
        }
        assert welcome["limits"]["max_message_bytes"] > 0
        assert welcome["active_runs"] == []
        await socket.ask("Where?", max_tokens=4, temperature=0, seed=1, stop="never")
        events = await socket.answer()
        _check_run(events)
        assert [event["type"] for event in events[:2]] == ["accepted", "start"]
        assert events[0]["id"] == "q1"
        finish = events[-1]
        assert finish["finish_reason"] == "length"
        assert finish["finish_detail"] == {"type": "max_tokens"}
        assert finish["usage"]["completion_tokens"] == 4
        assert finish["usage"]["prompt_tokens_details"] == {
            "cached_tokens": finish["usage"]["prompt_cache_hit_tokens"]
        }
        assert finish["timing"]["ttft_ms"] <= finish["timing"]["total_ms"]
        assert _text(events) == "You asked: Where"
        await socket.send("ping", id="p")
        assert await socket.receive() == {"type": "pong", "id": "p"}


@pytest.mark.parametrize("name", ["FIN-01", "STP-01", "SSE-01", "DET-01"])
async def test_the_end_is_the_same_as_over_http(name: str) -> None:
    played = case(name)
    script = Script(answer=lambda _: scripted_answer(played["input"]["stub_emits"]))
    async with serving(script) as server, server.socket() as socket:
        await socket.hello()
        await socket.ask(**played["input"]["request"])
        events = await socket.answer()
        assert _text(events) in played["expect"]["text_any_of"]
        assert events[-1]["finish_reason"] == played["expect"]["finish_reason"]
        assert events[-1]["usage"]["completion_tokens"] == played["expect"]["sampled_tokens"]


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


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": ""}, "stop"),
        ({"temperature": 9}, "temperature"),
    ],
)
async def test_bad_options_end_the_run_with_one_error(
    server: Server, options: Json, param: str
) -> None:
    async with server.socket() as socket:
        await socket.hello()
        await socket.ask(**options)
        events = await socket.answer()
        _check_run(events)
        assert events[-1] | {"message": ""} == {
            "type": "error",
            "run": events[0]["run"],
            "seq": 2,
            "id": "q1",
            "code": "bad_request",
            "message": "",
            "retryable": False,
            "param": param,
        }


async def test_a_prompt_that_is_too_long() -> None:
    async with serving(max_model_len=128) as server, server.socket() as socket:
        await socket.hello()
        await socket.ask("x" * 200)
        error = (await socket.answer())[-1]
        assert error["code"] == "prompt_too_long"
        assert "128" in error["message"]
        await socket.ask("x", id="q2", max_tokens=1000)
        start = (await socket.until("start"))[-1]
        assert start["max_tokens_lowered"] is True
        assert start["max_tokens"] == 128 - start["prompt_tokens"]


async def test_cancel_ends_the_answer_and_keeps_the_socket() -> None:
    async with serving(SLOW) as server, server.socket() as socket:
        await socket.hello()
        await socket.ask()
        run = (await socket.until("delta"))[-1]["run"]
        await socket.send("cancel", run=run)
        finish = (await socket.answer())[-1]
        assert finish["finish_reason"] == "abort"
        assert finish["finish_detail"] == {"type": "cancelled"}
        assert 0 < finish["usage"]["completion_tokens"] < 100
        await server.until_idle()
        await socket.send("cancel", run=run)
        await socket.send("cancel", run="nothing")
        assert (await socket.receive())["code"] == "not_found"


async def test_a_run_outlives_its_socket() -> None:
    """Leaving is not cancelling: another socket of the same user reads every character once."""
    async with serving(SLOW) as server:
        async with server.socket() as socket:
            session = (await socket.hello())["session"]
            await socket.ask()
            first = [*(await socket.until("delta")), await socket.receive()]
        async with server.socket() as socket:
            welcome = await socket.hello(token=session)
            (active,) = welcome["active_runs"]
            assert active["run"] == first[0]["run"]
            assert active["last_seq"] >= first[-1]["seq"]
            await socket.send("attach", run=active["run"], after_seq=first[-1]["seq"])
            rest = await socket.answer()
        _check_run(first + rest)
        assert _text(first + rest) == SLOW_TEXT
        async with server.socket() as socket:
            await socket.hello(
                token=session,
                resume=[{"run": active["run"], "after_seq": 0}, {"run": "old", "after_seq": 3}],
            )
            gone = await socket.receive()
            assert (gone["code"], gone["run"]) == ("resume_gone", "old")
            again = await socket.answer()
            assert [event["type"] for event in again] == ["accepted", "start", "snapshot", "finish"]
            assert (again[:2], again[-1]) == (first[:2], rest[-1])
            assert _text(again) == SLOW_TEXT


async def test_two_sockets_follow_one_run() -> None:
    async with serving(SLOW) as server, server.socket() as first, server.socket() as second:
        session = (await first.hello())["session"]
        await second.hello(token=session)
        await first.ask()
        accepted = await first.receive()
        await second.send("attach", run=accepted["run"], after_seq=0)
        theirs, others = await asyncio.gather(first.answer(), second.answer())
        assert [accepted, *theirs] == others
        assert _text(others) == SLOW_TEXT


async def test_attaching_again_starts_over_without_a_mix() -> None:
    async with serving(SLOW) as server, server.socket() as socket:
        await socket.hello()
        await socket.ask()
        await socket.until("delta")
        run = (await socket.receive())["run"]
        await socket.send("attach", run=run, after_seq=0)
        events = await socket.answer()
        from_start = events[[event["seq"] for event in events].index(1) :]
        _check_run(from_start)
        assert _text(from_start) == SLOW_TEXT


async def test_the_same_id_gives_the_same_run() -> None:
    async with serving(SLOW) as server, server.socket() as socket:
        await socket.hello()
        for _ in range(3):
            await socket.ask(id="once")
        events = await socket.answer()
        _check_run(events)
        assert _text(events) == SLOW_TEXT
        assert server.engine.stats.num_finished == 1


async def test_two_answers_on_one_socket_do_not_mix() -> None:
    """WSK-05 for plain chats: each frame bears its run."""
    script = Script(
        answer=lambda prompt: "a" * 40 if "first" in prompt else "b" * 5,
        token_chars=1,
        token_s=0.005,
    )
    async with serving(script) as server, server.socket() as socket:
        await socket.hello()
        await socket.ask("first", id="q1")
        await socket.until("delta")
        await socket.ask("second", id="q2")
        events = [*(await socket.answer()), *(await socket.answer())]
        runs = {event["id"]: event["run"] for event in events if event["type"] == "accepted"}
        texts = {event["run"]: "" for event in events}
        for event in events:
            texts[event["run"]] += event.get("text", "")
        assert texts.pop(runs["q2"]) == "b" * 5
        (first,) = texts.values()
        assert set(first) == {"a"}


async def test_another_user_cannot_see_or_end_a_run() -> None:
    async with serving(SLOW) as server, server.socket() as mine, server.socket() as theirs:
        await mine.hello()
        await theirs.hello()
        await mine.ask()
        run = (await mine.receive())["run"]
        await theirs.send("attach", run=run, after_seq=0)
        assert (await theirs.receive())["code"] == "resume_gone"
        await theirs.send("cancel", run=run)
        assert (await theirs.receive())["code"] == "not_found"
        assert (await mine.answer())[-1]["finish_detail"] == {"type": "eos"}


async def test_a_late_reader_gets_a_snapshot() -> None:
    script = Script(answer=lambda _: SLOW_TEXT, token_chars=1, token_s=0.001)
    limits = ServiceLimits(run_log_max_events=16)
    async with serving(script, limits=limits) as server, server.socket() as socket:
        session = (await socket.hello())["session"]
        await socket.ask()
        run = (await socket.receive())["run"]
        assert _text(await socket.answer()) == SLOW_TEXT
        async with server.socket() as late:
            await late.hello(token=session)
            await late.send("attach", run=run, after_seq=0)
            events = await late.answer()
        assert [event["type"] for event in events[:3]] == ["accepted", "start", "snapshot"]
        assert events[2]["through_seq"] + 1 == events[3]["seq"]
        assert _text(events) == SLOW_TEXT
        assert len(events) < 25


async def test_a_run_s_events_over_sse() -> None:
    async with serving(SLOW) as server, server.socket() as socket:
        session = (await socket.hello())["session"]
        await socket.ask()
        run = (await socket.receive())["run"]
        events = await socket.answer()
        path = f"/v1/runs/{run}/events"
        own = {"authorization": f"Bearer {session}"}
        whole = await server.http.get(path, headers=own)
        kept = ("accepted", "start", "snapshot", "finish")
        assert [whole.text.count(f'"type":"{name}"') for name in kept] == [1, 1, 1, 1]
        last = len(events) + 1
        rest = await server.http.get(path, headers={**own, "last-event-id": str(last - 1)})
        assert rest.text.startswith(f"id: {last}\n")
        assert (await server.http.get(path)).status_code == 410


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


async def test_keys() -> None:
    limits = ServiceLimits(hello_timeout_s=0.2)
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
                assert await _close_code(socket) == 1008
        async with server.socket() as silent:
            assert await _close_code(silent) == 1008


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
        b"GET /ws/v1 HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
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


async def test_runs_per_connection_are_bounded() -> None:
    limits = ServiceLimits(max_runs_per_connection=2)
    async with serving(SLOW, limits=limits) as server, server.socket() as socket:
        await socket.hello()
        for name in ("q1", "q2", "q3"):
            await socket.ask(id=name)
        events = await socket.until("error")
        assert (events[-1]["id"], events[-1]["code"]) == ("q3", "rate_limited")
        await socket.answer()
        await socket.answer()
        await socket.ask(id="q4")
        assert (await socket.answer())[-1]["type"] == "finish"


async def test_a_queued_question_hears_its_place() -> None:
    async with serving(SLOW, max_num_seqs=1) as server, server.socket() as socket:
        await socket.hello()
        await socket.ask(id="q1")
        await socket.until("start")
        await socket.ask(id="q2")
        queued = [event for event in await socket.answer() if event["type"] == "queued"]
        assert [event["position"] for event in queued] == [1]
        assert (await socket.answer())[-1]["finish_detail"] == {"type": "eos"}


async def test_a_long_first_step_is_no_queue() -> None:
    """On an idle server a long prompt was told to be next in line, with nobody before it."""
    async with serving(Script(prefill_s=0.8)) as server, server.socket() as socket:
        await socket.hello()
        await socket.ask()
        assert "queued" not in {event["type"] for event in await socket.answer()}


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


async def test_runs_per_user_are_bounded_over_all_sockets() -> None:
    """Opening sockets, asking and leaving made runs without any bound."""
    limits = ServiceLimits(max_runs_per_user=2)
    slower = Script(answer=lambda _: SLOW_TEXT, token_s=0.02)
    async with serving(slower, limits=limits) as server:
        async with server.socket() as socket:
            session = (await socket.hello())["session"]
            for name in ("q1", "q2"):
                await socket.ask(id=name)
                await socket.until("accepted")
        async with server.socket() as socket:
            await socket.hello(token=session)
            await socket.ask(id="q3")
            error = await socket.receive()
            assert (error["id"], error["code"]) == ("q3", "rate_limited")
            async with server.socket() as other:
                await other.hello()
                await other.ask(max_tokens=1)
                assert (await other.answer())[-1]["type"] == "finish"
            user = server.service.auth.user_from_session(session)
            assert user is not None
            await eventually(lambda: not server.service.runs.active(user))
            await socket.ask(id="q3", max_tokens=1)
            assert (await socket.answer())[-1]["type"] == "finish"


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
        assert await _close_code(socket) == 1001
        await ending
        async with server.socket() as late:
            assert await _close_code(late) == 1001


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


async def _close_code(socket: Socket) -> int | None:
    async with asyncio.timeout(5):
        await socket.connection.wait_closed()
    return socket.connection.close_code
