"""One line each, with what it took, and never a word of what somebody wrote."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from engine.api import Script
from server.log_lines import OWN_LOGGERS, JsonLines, TextLines
from server.service.auth import Auth
from server.service.limits import ServiceLimits
from tests.server.service.harness import MODEL, SECRET, Json, Server, eventually, serving

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

MARK = "Xmarker"
KEY = f"{MARK}-key"


class Lines:
    """What was logged since the last look."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self._stream = io.StringIO()
        self.handler = logging.StreamHandler(self._stream)
        self.handler.setFormatter(formatter)

    @property
    def text(self) -> str:
        return self._stream.getvalue()

    def events(self, event: str) -> list[Json]:
        found = [json.loads(line) for line in self.text.splitlines()]
        return [line for line in found if line["event"] == event]


@pytest.fixture
def lines() -> Iterator[Lines]:
    yield from _logging(Lines(JsonLines()))


@pytest.fixture
def text_lines() -> Iterator[Lines]:
    yield from _logging(Lines(TextLines()))


def _logging(lines: Lines) -> Iterator[Lines]:
    root = logging.getLogger()
    own = [logging.getLogger(name) for name in OWN_LOGGERS]
    before = [logger.level for logger in own]
    root.addHandler(lines.handler)
    for logger in own:
        logger.setLevel(logging.DEBUG)
    yield lines
    root.removeHandler(lines.handler)
    for logger, level in zip(own, before, strict=True):
        logger.setLevel(level)


async def test_a_request_is_one_line(lines: Lines) -> None:
    async with serving(Script(answer=lambda _: "four"), auth=Auth(SECRET, ["sk"])) as server:
        reply = await server.http.post(
            "/v1/chat/completions",
            json={"model": MODEL, "messages": [{"role": "user", "content": "hi"}]},
            headers={"Authorization": "Bearer sk", "X-Request-Id": "order-66"},
        )
        usage = reply.json()["usage"]
        assert reply.headers["x-request-id"] == "order-66"
    (line,) = lines.events("request")
    assert line.pop("ms") >= 0
    assert line.pop("ts").endswith("+00:00")
    assert line == {
        "level": "info",
        "event": "request",
        "request_id": "order-66",
        "route": "/v1/chat/completions",
        "method": "POST",
        "status": 200,
        "detail": "eos",
        "prompt_tokens": usage["prompt_tokens"],
        "cached_tokens": 0,
        "completion_tokens": usage["completion_tokens"],
        "key": "key-1",
    }


async def test_streams_and_errors_have_their_lines(lines: Lines) -> None:
    async with serving() as server:
        await server.stream("hello", max_tokens=2)
        await server.chat("hello", temperature=-1)
        await server.http.get("/v1/models/none")
        await server.http.get("/v1/none")
        await server.http.put("/v1/models")
        for path in ("/health", "/ready", "/metrics"):
            await server.http.get(path)
    found = [
        (line["level"], line["route"], line["status"], line.get("detail"))
        for line in lines.events("request")
    ]
    assert found == [
        ("info", "/v1/chat/completions", 200, "max_tokens"),
        ("info", "/v1/chat/completions", 400, "bad_request"),
        ("info", "/v1/models/{id}", 404, "not_found"),
        ("info", "/v1/{unknown}", 404, "not_found"),
        ("info", "/v1/models", 405, "bad_request"),
        ("debug", "/health", 200, None),
        ("debug", "/ready", 200, None),
        ("debug", "/metrics", 200, None),
    ]
    assert lines.events("request")[0]["completion_tokens"] == 2


async def test_a_client_that_leaves_is_said(lines: Lines) -> None:
    limits = ServiceLimits(heartbeat_s=0.2)
    async with serving(Script(answer=lambda _: "x" * 4000, token_s=0.01), limits=limits) as server:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
        for is_streamed in (True, False):
            request = asyncio.ensure_future(
                server.http.post("/v1/chat/completions", json={**body, "stream": is_streamed})
            )
            await eventually(lambda: server.engine.stats.num_running == 1)
            request.cancel()
            await asyncio.wait([request])
            await server.until_idle()
    found = [(line["status"], line["detail"]) for line in lines.events("request")]
    assert found == [(200, "client_gone"), (499, "client_gone")]


async def test_a_stream_that_fails_is_a_fault(lines: Lines) -> None:
    """Its status was 200 before anybody knew."""
    async with serving(Script(answer=lambda _: "x" * 40, fail_after=3)) as server:
        assert "server_error" in (await server.chat("hi", stream=True)).text
        assert (await server.chat("hi")).status_code == 500
    found = [(line["level"], line["status"], line["detail"]) for line in lines.events("request")]
    assert found == [("warning", 200, "error"), ("warning", 500, "internal")]


async def test_ids_in_a_body_are_nothing(lines: Lines) -> None:
    """CON-01: `request_id` is no field of this API; two requests with one are two requests."""
    async with serving(Script(answer=lambda prompt: prompt[-60:], token_s=0.002)) as server:
        replies = await asyncio.gather(
            *(server.chat(f"say {letter}", request_id="same\nlevel=error") for letter in "ab")
        )
        texts = [reply.json()["choices"][0]["message"]["content"] for reply in replies]
        assert ["say a" in texts[0], "say b" in texts[1]] == [True, True]
        await server.until_idle()
    ids = {line["request_id"] for line in lines.events("request")}
    assert len(ids) == 2
    assert "same" not in lines.text


async def test_a_run_is_one_line(lines: Lines) -> None:
    auth = Auth(SECRET, ["sk"])
    script = Script(answer=lambda _: "answer")
    async with serving(script, auth=auth) as server, server.socket() as socket:
        await socket.hello(token="sk")
        await socket.ask("hi")
        finish = (await socket.answer())[-1]
        await socket.send("chat", id="b", messages=[{"role": "user", "content": "y" * 9000}])
        assert (await socket.answer())[-1]["code"] == "prompt_too_long"
    good, bad = lines.events("run")
    assert good.pop("ms") >= 0
    assert {name: good[name] for name in ("run", "detail", "level", "key")} == {
        "run": finish["run"],
        "key": "key-1",
        "detail": "eos",
        "level": "info",
    }
    assert good["completion_tokens"] == finish["usage"]["completion_tokens"]
    assert (bad["detail"], "prompt_tokens" in bad) == ("prompt_too_long", False)


async def test_the_site_has_ids_and_lines_too(lines: Lines) -> None:
    async def one(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.path_params["name"])

    async def broken(_: Request) -> NoReturn:
        raise KeyError(MARK)

    site = Starlette(
        routes=[
            Route("/", one),
            Route("/api/one/{name}/part", one),
            Route("/static/{name:path}", one),
            Route("/broken", broken),
        ]
    )
    async with serving(site=site) as server:
        for path, pattern, status in (
            ("/api/one/part/part", "/api/one/{name}/{name}", 200),
            ("/api/one/x/part", "/api/one/{name}/part", 200),
            ("/static/a/b.css", "/static/{name}", 200),
            ("/nowhere/at/all", "/{unknown}", 404),
            ("/broken", "/broken", 500),
        ):
            reply = await server.http.get(path, headers={"X-Request-Id": "me"})
            assert (reply.status_code, reply.headers["x-request-id"]) == (status, "me")
            line = lines.events("request")[-1]
            assert (line["route"], line["status"], line["request_id"]) == (pattern, status, "me")
        foreign = await server.http.post("/api/one/x/part", headers={"Origin": "http://evil"})
        assert foreign.status_code == 403
        assert foreign.headers["x-request-id"]
    assert "KeyError" in lines.text
    assert MARK not in lines.text


async def test_nothing_that_somebody_wrote_is_logged(lines: Lines) -> None:
    """Prompts, answers, headers, keys, addresses, queries: over every route and failure."""
    auth = Auth(SECRET, [KEY])
    limits = ServiceLimits(max_body_bytes=20_000)
    script = Script(answer=lambda _: f"{MARK} answer " * 3)
    async with serving(script, auth=auth, limits=limits) as server:
        await _use_everything(server)
        await _fail_everywhere(server)
    assert len(lines.events("request")) > 40
    assert len(lines.events("run")) >= 2
    assert "ValueError" in lines.text, "a bug was met on the way"
    assert MARK not in lines.text


async def test_the_same_in_text(text_lines: Lines) -> None:
    async with serving(auth=Auth(SECRET, [KEY])) as server:
        await _fail_everywhere(server)
    assert "request_id=" in text_lines.text
    assert "ValueError" in text_lines.text
    assert MARK not in text_lines.text


_HEADERS = {"Authorization": f"Bearer {KEY}", "X-Other": MARK, "User-Agent": MARK}
_BODIES: dict[str, Json] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": MARK}]},
    "/v1/completions": {"prompt": MARK, "max_tokens": 64},
    "/v1/responses": {"input": MARK},
    "/tokenize": {"prompt": MARK},
    "/detokenize": {"tokens": [1, 2]},
}


async def _use_everything(server: Server) -> None:
    for path, body in _BODIES.items():
        for extra in ({}, {"stream": True}, {"user": MARK, MARK: MARK}):
            content = {"model": MODEL, **body, **extra}
            await server.http.post(f"{path}?q={MARK}", json=content, headers=_HEADERS)
    for path in ("/v1/models", f"/v1/models/{MARK}", "/metrics", f"/v1/runs/{MARK}/events"):
        await server.http.get(path, headers=_HEADERS)
    async with server.socket() as socket:
        await socket.hello(token=KEY)
        await socket.ask(MARK, id=MARK)
        await socket.answer()


async def _fail_everywhere(server: Server) -> None:
    huge = f"{MARK} " * 9000
    for path, body in _BODIES.items():
        for wrong in (
            {"model": MARK},
            {"temperature": MARK},
            {"messages": [{"role": MARK, "content": MARK}]},
            {"messages": [{"role": "user", "content": [{"type": MARK}]}], "prompt": {MARK: MARK}},
            {"stop": [MARK, ""], "input": 7},
        ):
            await server.http.post(path, json={"model": MODEL, **body, **wrong}, headers=_HEADERS)
        for raw in (MARK.encode(), b'{"' + MARK.encode(), b"\xff" + MARK.encode(), huge.encode()):
            await server.http.post(path, content=raw, headers=_HEADERS)
        await server.http.post(path, json=body, headers={"Authorization": f"Bearer {MARK}-wrong"})
        await server.http.put(path, content=MARK, headers=_HEADERS)
    await server.http.get(f"/v1/{MARK}", headers=_HEADERS)
    await server.http.get(f"/{MARK}", headers=_HEADERS)
    _break(server)
    for path in ("/v1/chat/completions", "/v1/completions"):
        content = {"model": MODEL, **_BODIES[path]}
        reply = await server.http.post(path, json=content, headers=_HEADERS)
        assert reply.status_code == 500
        assert MARK not in reply.text
    async with server.socket() as socket:
        await socket.send("hello", token=f"{MARK}-wrong")
        await socket.receive()
    async with server.socket() as socket:
        await socket.hello(token=KEY)
        for frame in (MARK, f'{{"type": "{MARK}"}}', f'{{"type": "ask", "id": "{MARK}"}}'):
            await socket.connection.send(frame)
            await socket.receive()
        await socket.ask(MARK, id=f"{MARK}-2")
        assert (await socket.answer())[-1]["code"] == "internal"


def _break(server: Server) -> None:
    """From now on the tokenizer raises what bugs raise: an error that quotes the text."""

    def encode(text: str, *_: Any, **__: Any) -> NoReturn:
        raise ValueError(f"cannot encode {text!r}: {MARK}")

    server.engine.tokenizer.encode = encode  # type: ignore[method-assign]


async def test_an_id_cannot_forge_a_line(text_lines: Lines) -> None:
    """CON-01: what is no short word is not taken; a word that looks like fields is quoted."""
    async with serving() as server:
        port = server.port
        for value in (
            b'x"status=500',
            b"a=b,level=error",
            b"\xe6\x88\x91",
            b"x" * 200,
            b"a b",
            b"",
        ):
            reply = await _raw(
                port, b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX-Request-Id: " + value
            )
            assert reply.startswith(b"HTTP/1.1 200 "), value
        for line_end in (b"\n", b"\r", b"\r\n", b"\0", b"\x0b", b"\x85", b"\xe2\x80\xa8"):
            # As a header's end it begins the next header; elsewhere it is not allowed in one.
            head = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX-Request-Id: one" + line_end
            reply = await _raw(port, head + b"X-Forged: request status=500")
            assert reply[:12] in (b"HTTP/1.1 200", b"HTTP/1.1 400")
            assert b"forged" not in reply.lower()
    requests = [line for line in text_lines.text.splitlines() if "INFO request " in line]
    assert all(line.count(" status=") == 1 and " status=200 " in line for line in requests)
    assert len(requests) == len(
        [line for line in text_lines.text.splitlines() if "request_id=" in line]
    )
    assert "forged" not in text_lines.text.lower()
    assert r'request_id="x\"status=500"' in text_lines.text
    assert 'request_id="a=b,level=error"' in text_lines.text


async def _raw(port: int, head: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head + b"\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(5):
        reply = await reader.read()
    writer.close()
    return reply


def test_a_message_is_one_line_whatever_is_in_it() -> None:
    record = logging.LogRecord("uvicorn", 30, "f", 1, "a %s", ("b\nINFO\x1b[0m\u2028c",), None)
    assert TextLines().format(record).endswith(r"WARNING uvicorn: a b\nINFO\x1b[0m\u2028c")
    assert json.loads(JsonLines().format(record))["message"] == "a b\nINFO\x1b[0m\u2028c"
    assert "\n" not in JsonLines().format(record)


def test_an_error_is_told_by_kind_and_place() -> None:
    try:
        try:
            os.stat("/nowhere/" + MARK)
        except OSError as error:
            raise ValueError(MARK) from error
    except ValueError as error:
        record = logging.LogRecord(
            "server", 40, "f", 1, "a request failed", (), (type(error), error, error.__traceback__)
        )
    told = TextLines().format(record)
    assert "ValueError" in told
    assert "because of FileNotFoundError (No such file or directory)" in told
    assert "test_request_log.py" in told
    assert MARK not in told.replace(f'"/nowhere/" + {MARK}', "")


async def test_asyncio_s_objects_are_left_out() -> None:
    record = logging.LogRecord("asyncio", 40, "f", 1, f"Task failed\nfuture: {MARK}", (), None)
    assert json.loads(JsonLines().format(record))["message"] == "Task failed"
