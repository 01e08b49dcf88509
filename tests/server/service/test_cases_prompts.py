"""Cases about what becomes of messages, played over HTTP and WebSocket: the engine is asked what
it would be asked for by anybody."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from engine.api import GenerationRequest
from engine.text.byte_tokenizer import ByteTokenizer
from tests.server.service.harness import TINY_MODEL, Json, Server, filled, serving
from tests.server.service.played_cases import is_met
from tests.server.service.recorded_requests import recorded_requests
from tests.support.cases import case

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

MARKS = ("<|im_start|>", "<|im_end|>")


async def _ask(server: Server, body: Json, how: str) -> None:
    """Asks by one of the ways in, to the end."""
    if how == "socket":
        async with server.socket() as socket:
            await socket.hello()
            await socket.send("chat", id="q", messages=body["messages"], options={"max_tokens": 1})
            assert (await socket.answer())[-1]["type"] == "finish"
        return
    route = "/v1/responses" if how == "responses" else "/v1/chat/completions"
    if how == "responses":
        body = {"input": body["messages"], "max_output_tokens": 1}
    reply = await server.http.post(route, json={**body, "stream": how == "streamed"})
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize("how", ["whole", "streamed", "responses", "socket"])
async def test_a_user_cannot_write_another_turn(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """TOK-01: as many control tokens as for harmless messages, and every character is there."""
    played = case("TOK-01")
    body = filled(played["input"]["requests"][0]["json"])
    harmless = {**body, "messages": [{**one, "content": "x"} for one in body["messages"]]}
    async with serving() as server:
        found = recorded_requests(server, monkeypatch)
        for one in (body, harmless):
            await _ask(server, one, how)
    tokenizer = ByteTokenizer()
    ids = {mark: tokenizer.special_tokens[mark] for mark in MARKS}
    counts = [
        {mark: request.prompt_token_ids.count(token_id) for mark, token_id in ids.items()}
        for request in found
    ]
    assert counts == [played["expect"]["count_ids"]] * 2
    decoded = tokenizer.decode(found[0].prompt_token_ids)
    assert played["expect"]["decoded_prompt_contains"] in decoded
    assert body["messages"][1]["content"] in decoded


async def test_tokenize_shows_a_user_s_control_tokens_as_text() -> None:
    """TOK-01."""
    played = case("TOK-01")
    body = filled(played["input"]["requests"][0]["json"])
    async with serving() as server:
        reply = await server.http.post("/tokenize", json={"messages": body["messages"]})
        tokens = reply.json()["tokens"]
    for mark, count in played["expect"]["count_ids"].items():
        assert tokens.count(ByteTokenizer().special_tokens[mark]) == count


@pytest.mark.parametrize("role", ["user", "system", "assistant", "developer", "tool"])
async def test_text_parts_are_one_text(role: str) -> None:
    """TPL-01: the same prompt as of the joined text, whoever says it."""
    played = case("TPL-01")
    parts = played["input"]["requests"][0]["json"]["messages"][0]["content"]
    texts = played["expect"]["rendered_prompt_contains_in_order"]
    async with serving() as server:
        prompts = []
        for content in (parts, "".join(texts)):
            body = {"messages": [{"role": role, "content": content}]}
            told = (await server.http.post("/tokenize", json=body)).json()
            reply = await server.http.post("/v1/chat/completions", json={**body, "max_tokens": 1})
            assert reply.json()["usage"]["prompt_tokens"] == told["count"]
            prompts.append(ByteTokenizer().decode_all(told["tokens"]))
    assert prompts[0] == prompts[1]
    assert 0 < prompts[0].index(texts[0]) < prompts[0].index(texts[1])
    assert not any(text in prompts[0] for text in played["expect"]["rendered_prompt_lacks"])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_template_that_refuses(stream: bool) -> None:
    """TPL-03: the caller is told in the template's words, streamed or not, and over WebSocket."""
    played = case("TPL-03")
    async with serving() as server:
        server.engine.tokenizer.chat_template = played["input"]["model_template"]  # type: ignore[misc]
        for request, expect in zip(
            played["input"]["requests"], played["expect"]["each"], strict=True
        ):
            body = {**filled(request["json"]), "stream": stream}
            reply = await server.http.post(request["path"], json=body)
            if reply.status_code == 200:
                assert expect == {"status": 200}
                continue
            assert reply.headers["content-type"] == "application/json"
            assert is_met(expect, reply.status_code, reply.json()), reply.text
            async with server.socket() as socket:
                await socket.hello()
                await socket.send("chat", id="q", messages=body["messages"])
                error = (await socket.answer())[-1]
                assert (error["code"], error["param"]) == ("bad_request", "messages")
                assert expect["message_contains"] in error["message"]


@pytest.mark.parametrize("has_template", [True, False])
@pytest.mark.parametrize("content", ["hello", "<|endoftext|>hello"])
async def test_one_bos(
    has_template: bool, content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TPL-05: a tokenizer that puts a BOS in front, with a template that writes one and with one
    that does not; raw completions have it once, even where the caller wrote it."""
    played = case("TPL-05")["input"]
    template = played["template"] if has_template else played["template"].partition("}}")[2]
    folder = shutil.copytree(TINY_MODEL, tmp_path / "model")
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text("utf-8"))
    config |= {
        "bos_token": "<|endoftext|>",
        "add_bos_token": True,
        "chat_template": template,
    }
    path.write_text(json.dumps(config), "utf-8")
    async with serving(model=folder) as server:
        bos = server.engine.tokenizer.special_tokens["<|endoftext|>"]
        found = recorded_requests(server, monkeypatch)
        body: Json = {"messages": [{"role": "user", "content": content}], "max_tokens": 1}
        assert (await server.http.post("/v1/chat/completions", json=body)).status_code == 200
        for prompt in (content, played["raw_completion_prompt"]):
            body = {"prompt": prompt, "max_tokens": 1}
            assert (await server.http.post("/v1/completions", json=body)).status_code == 200
        told = (await server.http.post("/tokenize", json={"prompt": content})).json()
        bare = {"prompt": content, "add_special_tokens": False}
        untold = (await server.http.post("/tokenize", json=bare)).json()
    chat, raw, plain = found
    _check_bos(chat, bos, int(has_template))
    _check_bos(raw, bos, 1)
    _check_bos(plain, bos, 1)
    assert tuple(told["tokens"]) == raw.prompt_token_ids
    assert untold["tokens"].count(bos) == content.count("<|endoftext|>")


def _check_bos(request: GenerationRequest, bos: int, count: int) -> None:
    assert request.prompt_token_ids.count(bos) == count
    assert (request.prompt_token_ids[0] == bos) == bool(count)
