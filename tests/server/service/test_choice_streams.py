"""One request's choices, whole and merged."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from engine.api import (
    Finish,
    FinishDetail,
    FinishType,
    OutputStream,
    RequestId,
    RequestOutput,
    TokenLogprobs,
)
from engine.text.byte_tokenizer import ByteTokenizer
from server.service.choice_streams import ChoiceStream, merged
from server.service.errors import InternalError
from server.service.replies import TextShape

pytestmark = pytest.mark.anyio

END = Finish(FinishDetail(FinishType.MAX_TOKENS))


def put(stream: OutputStream, text: str, finish: Finish | None = None) -> None:
    ids = tuple(text.encode())
    told = tuple(TokenLogprobs(token_id, -1.0) for token_id in ids)
    stream.put(RequestOutput(stream.request_id, text, ids, finish=finish, logprobs=told))


def make(index: int = 0, *, logprobs: bool = False) -> tuple[OutputStream, ChoiceStream]:
    stream = OutputStream(RequestId(f"r{index}"))
    tokenizer = ByteTokenizer() if logprobs else None
    return stream, ChoiceStream(index, stream, TextShape(), tokenizer)


@pytest.mark.parametrize("logprobs", [False, True])
async def test_a_whole_answer(logprobs: bool) -> None:
    stream, choice = make(logprobs=logprobs)
    put(stream, "ab")
    put(stream, "c", END)
    answer = await choice.collect()
    assert (answer.text, answer.finish) == ("abc", END)
    told = answer.logprobs
    assert (told and told["tokens"]) == (["a", "b", "c"] if logprobs else None)


async def test_an_answer_without_text_has_its_empty_list() -> None:
    stream, choice = make(logprobs=True)
    put(stream, "", END)
    answer = await choice.collect()
    assert answer.logprobs is not None
    assert answer.logprobs["tokens"] == []


async def test_an_engine_that_fails_is_an_internal_error() -> None:
    stream, choice = make()
    put(stream, "a", Finish(FinishDetail(FinishType.ERROR), message="The model failed."))
    with pytest.raises(InternalError, match="The model failed"):
        await choice.collect()


@pytest.mark.parametrize("count", [1, 3])
async def test_choices_merge_as_they_come(count: int) -> None:
    pairs = [make(index, logprobs=True) for index in range(count)]
    seen: list[tuple[int, str]] = []
    async with aclosing(merged([choice for _, choice in pairs])) as deltas:
        for round_ in "xyz":
            for index in reversed(range(count)):
                put(pairs[index][0], round_, END if round_ == "z" else None)
                delta = await anext(deltas)
                seen.append((delta.index, delta.text))
                assert delta.logprobs is not None
                assert delta.logprobs["tokens"] == [round_]
                assert delta.finish is (END if round_ == "z" else None)
        with pytest.raises(StopAsyncIteration):
            await anext(deltas)
    assert seen == [(index, round_) for round_ in "xyz" for index in reversed(range(count))]


async def test_leaving_early_leaves_no_reader() -> None:
    pairs = [make(index) for index in range(2)]
    async with aclosing(merged([choice for _, choice in pairs])) as deltas:
        put(pairs[0][0], "a")
        await anext(deltas)
    for stream, choice in pairs:
        reading = asyncio.create_task(choice.get())
        put(stream, "b", END)
        assert (delta := await reading) is not None
        assert delta.text == "b"
