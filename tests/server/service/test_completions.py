"""The OpenAI routes: models, keys, limits, labels, and what the engine is asked."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from engine.api import Script
from server.service.auth import Auth
from server.service.limits import ServiceLimits
from tests.server.service.harness import MODEL, SECRET, Server, parse_sse, serving, text_of
from tests.server.service.recorded_requests import recorded_requests

pytestmark = pytest.mark.anyio


async def test_body_over_the_limit() -> None:
    async with serving(limits=ServiceLimits(max_body_bytes=1000)) as server:
        assert (await server.chat("x" * 800)).status_code == 200
        declared = await server.chat("x" * 2000)
        assert declared.status_code == 413

        async def chunks() -> Any:
            for _ in range(20):
                yield b"x" * 100

        chunked = await server.http.post("/v1/chat/completions", content=chunks())
        assert chunked.status_code == 413
        assert chunked.json()["error"]["code"] == "request_too_large"
        assert (await server.http.get("/health")).status_code == 200


async def test_wrong_model_method_and_path(server: Server) -> None:
    missing = await server.chat(model="gpt-4")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"
    assert missing.json()["error"]["param"] == "model"
    wrong = await server.http.get("/v1/chat/completions")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert (await server.http.get("/v1/nothing")).json()["error"]["code"] == "not_found"
    assert (await server.http.get("/v1/models/gpt-4")).status_code == 404
    assert (await server.http.get(f"/v1/models/{MODEL}")).json()["object"] == "model"


async def test_api_keys() -> None:
    async with serving(auth=Auth(SECRET, ["sk-good"])) as server:
        for headers in ({}, {"authorization": "Bearer sk-bad"}, {"authorization": "sk-good"}):
            refused = await server.http.get("/v1/models", headers=headers)
            assert refused.status_code == 401
        assert (await server.chat()).json()["error"]["type"] == "authentication_error"
        server.http.headers["authorization"] = "Bearer sk-good"
        assert (await server.chat()).status_code == 200


async def test_request_ids_are_only_labels() -> None:
    """CON-01: the same id twice at once, and ids that are no header's business."""
    script = Script(
        answer=lambda prompt: ("a" if "say a" in prompt else "b") * 20, token_chars=1, token_s=0.005
    )
    async with serving(script) as server:

        async def ask(letter: str) -> httpx.Response:
            body = {"messages": [{"role": "user", "content": f"say {letter}"}], "stream": True}
            return await server.http.post(
                "/v1/chat/completions", json=body, headers={"x-request-id": "same"}
            )

        replies = await asyncio.gather(ask("a"), ask("b"))
        assert [text_of(parse_sse(reply.text)) for reply in replies] == ["a" * 20, "b" * 20]
        assert {reply.headers["x-request-id"] for reply in replies} == {"same"}
        for odd in (b"x" * 10_000, "中文".encode(), b"a b", b""):
            server.http.headers.pop("x-request-id", None)
            reply = await server.http.post(
                "/v1/chat/completions",
                json={"messages": [{"role": "user", "content": "say a"}]},
                headers=[(b"x-request-id", odd)],
            )
            assert reply.status_code == 200
            assert reply.headers["x-request-id"].encode("latin-1") != odd
        await server.until_idle()


async def test_choices_share_their_prompt_and_have_seeds_of_their_own(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = recorded_requests(server, monkeypatch)
    await server.http.post("/v1/completions", json={"prompt": ["a", "b"], "n": 3, "seed": 8})
    ids = [request.request_id for request in found]
    assert len(set(ids)) == 6
    assert [request.same_prompt_as for request in found] == [
        *(None, ids[0], ids[0]),
        *(None, ids[3], ids[3]),
    ]
    assert [request.params.seed for request in found] == [8, 9, 10] * 2
    assert [request.prompt_token_ids for request in found] == [(97,)] * 3 + [(98,)] * 3


async def test_a_request_is_its_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key's; without keys, whoever the caller names, never one of our own users."""
    async with serving() as server:
        found = recorded_requests(server, monkeypatch)
        own, session = server.service.auth.new_session()
        for fields in ({}, {"user": "ann"}, {"user": own}, {"user": "x" * 5000}):
            assert (await server.chat(**fields)).status_code == 200
        owners = [request.user for request in found]
        assert owners[0] == ""
        assert len(set(owners)) == 4
        assert own not in owners
        assert max(map(len, owners)) < 200
        async with server.socket() as socket:
            await socket.hello(token=session)
            await socket.ask()
            await socket.answer()
        assert found[-1].user == own
    async with serving(auth=Auth(SECRET, ["sk-one", "sk-two"])) as server:
        found = recorded_requests(server, monkeypatch)
        for key in ("sk-one", "sk-one", "sk-two"):
            server.http.headers["authorization"] = f"Bearer {key}"
            await server.chat(user=f"not {key}")
        owners = [request.user for request in found]
        assert owners[0] == owners[1] != owners[2]
        assert all(owners)
