"""Sampling fields and log probabilities through the official client, on a tiny real model."""

from __future__ import annotations

from collections.abc import AsyncIterator

import openai
import pytest
from openai.types.chat.chat_completion_token_logprob import ChatCompletionTokenLogprob

from tests.server.service.harness import MODEL, TINY_MODEL, serving
from tests.server.service.test_openai_client import QUESTION

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]


@pytest.fixture
async def client(anyio_backend: object) -> AsyncIterator[openai.AsyncOpenAI]:
    async with (
        serving(model=TINY_MODEL) as server,
        openai.DefaultAsyncHttpxClient(trust_env=False) as http,
    ):
        yield openai.AsyncOpenAI(
            base_url=server.base_url + "/v1", api_key="none", http_client=http, max_retries=0
        )


async def test_log_probabilities_of_a_chat(client: openai.AsyncOpenAI) -> None:
    """Streamed and whole alike; the bytes of the tokens join to the text."""
    whole = await client.chat.completions.create(
        model=MODEL, messages=QUESTION, max_tokens=30, seed=3, logprobs=True, top_logprobs=4, n=2
    )
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=QUESTION,
        max_tokens=30,
        seed=3,
        logprobs=True,
        top_logprobs=4,
        n=2,
        stream=True,
    )
    streamed: dict[int, list[ChatCompletionTokenLogprob]] = {0: [], 1: []}
    async for chunk in stream:
        for piece in chunk.choices:
            if piece.logprobs is not None:
                streamed[piece.index] += piece.logprobs.content or []
    assert len(whole.choices) == 2
    for choice in whole.choices:
        assert choice.logprobs is not None
        content = choice.logprobs.content
        assert content
        assert streamed[choice.index] == content
        text = choice.message.content
        assert text is not None
        joined = b"".join(bytes(one.bytes or []) for one in content).decode(errors="replace")
        assert joined.rstrip("\ufffd") == text.rstrip("\ufffd")
        for one in content:
            assert len(one.top_logprobs) == 4
            values = [other.logprob for other in one.top_logprobs]
            assert values == sorted(values, reverse=True)
            assert 0.0 >= values[0] >= one.logprob > -100.0


async def test_log_probabilities_of_a_text(client: openai.AsyncOpenAI) -> None:
    ask = {"model": MODEL, "prompt": ["one", "two"], "max_tokens": 20, "seed": 5, "logprobs": 2}
    whole = await client.completions.create(**ask)  # type: ignore[call-overload]
    stream = await client.completions.create(**ask, stream=True)  # type: ignore[call-overload]
    pieces: dict[int, list[tuple[str, float, int]]] = {0: [], 1: []}
    async for chunk in stream:
        for piece in chunk.choices:
            if piece.logprobs is not None:
                pieces[piece.index] += zip(
                    piece.logprobs.tokens,
                    piece.logprobs.token_logprobs,
                    piece.logprobs.text_offset,
                    strict=True,
                )
    for choice in whole.choices:
        told = choice.logprobs
        assert told is not None
        assert pieces[choice.index] == list(
            zip(told.tokens, told.token_logprobs, told.text_offset, strict=True)
        )
        for token, logprob, offset, top in zip(
            told.tokens, told.token_logprobs, told.text_offset, told.top_logprobs, strict=True
        ):
            assert top[token] == logprob
            assert len(top) in (2, 3)
            if len(token) == 1:
                assert token in choice.text[offset : offset + 2]
    none = await client.completions.create(model=MODEL, prompt="one", max_tokens=3, logprobs=0)
    assert none.choices[0].logprobs is not None
    assert none.choices[0].logprobs.top_logprobs is None
    assert len(none.choices[0].logprobs.token_logprobs or ()) == 3


async def test_every_sampling_field_is_taken(client: openai.AsyncOpenAI) -> None:
    async def ask(**changes: object) -> str | None:
        fields = {
            "model": MODEL,
            "messages": QUESTION,
            "max_tokens": 24,
            "temperature": 1.1,
            "top_p": 0.95,
            "seed": 11,
            "presence_penalty": 0.5,
            "frequency_penalty": 0.5,
            "logit_bias": {"65": 3},
            "user": "somebody",
            "extra_body": {
                "top_k": 50,
                "min_p": 0.001,
                "repetition_penalty": 1.2,
                "min_tokens": 24,
                "stop_token_ids": [66],
                "ignore_eos": False,
            },
            **changes,
        }
        reply = await client.chat.completions.create(**fields)  # type: ignore[call-overload]
        assert reply.usage.completion_tokens == 24
        text: str | None = reply.choices[0].message.content
        return text

    first = await ask()
    assert first is not None
    assert await ask() == first
    assert "B" not in first
    assert await ask(seed=12) != first
    assert await ask(logit_bias={"65": 100}) == "A" * 24


async def test_refusals_name_the_field(client: openai.AsyncOpenAI) -> None:
    for fields, param in (
        ({"logit_bias": {"260": 1}}, "logit_bias"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"extra_body": {"repetition_penalty": -1}}, "repetition_penalty"),
    ):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(model=MODEL, messages=QUESTION, **fields)
        assert refused.value.param == param
