"""The official client works unchanged: sync and async, streamed and whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from engine.api import Script
from tests.server.service.harness import MODEL, Server, serving

pytestmark = pytest.mark.anyio

QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


@asynccontextmanager
async def _client(server: Server) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.DefaultAsyncHttpxClient(trust_env=False) as http:
        yield openai.AsyncOpenAI(
            base_url=server.base_url + "/v1", api_key="none", http_client=http, max_retries=0
        )


async def test_async_whole_and_streamed() -> None:
    async with (
        serving(Script(answer=lambda _: "The answer is 42.")) as server,
        _client(server) as client,
    ):
        whole = await client.chat.completions.create(
            model=MODEL,
            messages=QUESTION,
            stop=["never"],
            max_tokens=50,
            temperature=0.5,
            top_p=0.9,
            seed=3,
        )
        assert whole.choices[0].message.content == "The answer is 42."
        assert whole.choices[0].finish_reason == "stop"
        assert whole.usage is not None
        assert whole.usage.prompt_tokens_details is not None
        assert whole.usage.prompt_tokens_details.cached_tokens is not None

        stream = await client.chat.completions.create(
            model=MODEL,
            messages=QUESTION,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        assert (
            "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
            == "The answer is 42."
        )
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
        assert chunks[-1].usage.prompt_tokens_details is not None

        text = await client.completions.create(model=MODEL, prompt="hi", max_tokens=2)
        assert text.choices[0].text == "The answ"
        assert text.choices[0].finish_reason == "length"
        pieces = await client.completions.create(model=MODEL, prompt="hi", stream=True)
        assert "".join([c.choices[0].text async for c in pieces]) == "The answer is 42."
        assert [model.id async for model in client.models.list()] == [MODEL]
        assert (await client.models.retrieve(MODEL)).id == MODEL


async def test_sync_whole_and_streamed() -> None:
    def talk(base_url: str) -> tuple[str | None, str, str | None]:
        with (
            openai.DefaultHttpxClient(trust_env=False) as http,
            openai.OpenAI(base_url=base_url + "/v1", api_key="none", http_client=http) as client,
        ):
            whole = client.chat.completions.create(
                model=MODEL,
                messages=QUESTION,
            )
            stream = client.chat.completions.create(
                model=MODEL,
                messages=QUESTION,
                stream=True,
                max_tokens=2,
            )
            chunks = list(stream)
            return (
                whole.choices[0].message.content,
                "".join(chunk.choices[0].delta.content or "" for chunk in chunks),
                chunks[-1].choices[0].finish_reason,
            )

    async with serving(Script(answer=lambda _: "The answer is 42.")) as server:
        found = await asyncio.to_thread(talk, server.base_url)
    assert found == ("The answer is 42.", "The answ", "length")


async def test_errors_are_the_client_library_s_own() -> None:
    async with serving(max_model_len=64) as server, _client(server) as client:
        with pytest.raises(openai.BadRequestError) as too_long:
            await client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": "x" * 200}],
                stream=True,
            )
        assert too_long.value.code == "context_length_exceeded"
        with pytest.raises(openai.NotFoundError) as missing:
            await client.completions.create(model="gpt-4", prompt="x")
        assert missing.value.code == "model_not_found"


async def test_an_engine_error_in_mid_stream_is_raised() -> None:
    """SSE-03: three deltas, then one error event; no finish chunk, no internals."""
    script = Script(answer=lambda _: "onetwothreefourfive", token_s=0.01, fail_after=3)
    async with serving(script) as server, _client(server) as client:
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=QUESTION,
            stream=True,
        )
        texts: list[str] = []

        async def read() -> None:
            async for chunk in stream:
                assert chunk.choices[0].finish_reason is None
                texts.append(chunk.choices[0].delta.content or "")

        with pytest.raises(openai.APIError) as failed:
            await read()
        assert "".join(texts) == "onetwothreef"
        assert "failed" in failed.value.message
        assert "Traceback" not in failed.value.message
        assert (await server.http.get("/health")).status_code == 200


async def test_an_aborted_answer_parses() -> None:
    """`abort` is not a word of OpenAI's, but the client takes it as it is."""
    script = Script(answer=lambda _: "word " * 1000, token_s=0.01)
    async with serving(script) as server, _client(server) as client:
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=QUESTION,
            stream=True,
        )
        reasons: list[str | None] = []
        details: list[object] = []
        ending: asyncio.Task[None] | None = None
        async for chunk in stream:
            ending = ending or asyncio.create_task(server.service.shutdown(0))
            reasons.append(chunk.choices[0].finish_reason)
            details.append(getattr(chunk.choices[0], "finish_detail", None))
        assert ending is not None
        await ending
        assert reasons[-1] == "abort"
        assert details[-1] == {"type": "shutdown"}
