"""One request's choices, whole and piece by piece."""

from __future__ import annotations

import asyncio

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
from server.service.answer_pieces import PieceReader
from server.service.choice_streams import ChoiceStream, collected
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
    reader = PieceReader(ByteTokenizer(), TextShape().logprobs) if logprobs else None
    return stream, ChoiceStream(index, stream, reader)


async def until_read(stream: OutputStream) -> None:
    """Lets others run until nothing waits for the stream's reader; fails if nobody reads."""
    for _ in range(20):
        if not stream.pending_chars:
            return
        await asyncio.sleep(0)
    pytest.fail(f"{stream.request_id} has no reader")


@pytest.mark.parametrize("logprobs", [False, True])
async def test_a_whole_answer(logprobs: bool) -> None:
    stream, choice = make(logprobs=logprobs)
    put(stream, "ab")
    put(stream, "c", END)
    answer = await choice.collect()
    assert (answer.piece.text, answer.finish) == ("abc", END)
    told = answer.piece.logprobs
    assert (told and told["tokens"]) == (["a", "b", "c"] if logprobs else None)


async def test_an_answer_without_text_has_its_empty_list() -> None:
    stream, choice = make(logprobs=True)
    put(stream, "", END)
    answer = await choice.collect()
    assert answer.piece.logprobs is not None
    assert answer.piece.logprobs["tokens"] == []


async def test_an_engine_that_fails_is_an_internal_error() -> None:
    stream, choice = make()
    put(stream, "a", Finish(FinishDetail(FinishType.ERROR), message="The model failed."))
    with pytest.raises(InternalError, match="The model failed"):
        await choice.collect()


async def test_whole_answers_are_read_side_by_side() -> None:
    """What comes for a later choice does not wait until the first one ends."""
    pairs = [make(index, logprobs=True) for index in range(3)]
    choices = [choice for _, choice in pairs]
    reading = asyncio.create_task(collected(choices))
    for letter in "xyz":
        for index in (2, 1, 0):
            await until_read(pairs[index][0])
            put(pairs[index][0], f"{letter}{index}")
    for stream, _ in pairs:
        await until_read(stream)
        assert not reading.done()
        put(stream, "", END)
    answers = await reading
    assert [answer.piece.text for answer in answers] == [f"x{i}y{i}z{i}" for i in range(3)]
    assert [answer.finish for answer in answers] == [END] * 3
    assert answers[1].piece.logprobs is not None
    assert answers[1].piece.logprobs["tokens"] == ["x", "1", "y", "1", "z", "1"]


async def test_one_choice_that_fails_ends_the_reading_of_all() -> None:
    pairs = [make(index) for index in range(3)]
    choices = [choice for _, choice in pairs]
    reading = asyncio.create_task(collected(choices))
    put(pairs[1][0], "a", Finish(FinishDetail(FinishType.ERROR), message="The model failed."))
    with pytest.raises(InternalError, match="The model failed"):
        await reading
    for index in (0, 2):
        stream, _ = pairs[index]
        put(stream, "b", END)
        assert await stream.get() is not None, "nobody else reads any more"


@pytest.mark.parametrize("logprobs", [False, True])
async def test_a_follower_takes_what_has_come_since(logprobs: bool) -> None:
    stream, choice = make(0, logprobs=logprobs)
    marks: list[int] = []
    choice.follow(lambda: marks.append(1))
    assert choice.take() is None
    put(stream, "ab")
    put(stream, "c")
    assert len(marks) == 1
    delta = choice.take()
    assert delta is not None
    assert (delta.piece.text, delta.finish) == ("abc", None)
    told = delta.piece.logprobs
    assert (told and told["tokens"]) == (["a", "b", "c"] if logprobs else None)
    put(stream, "", END)
    assert len(marks) == 2
    delta = choice.take()
    assert delta is not None
    assert (delta.piece.text, delta.finish) == ("", END)
    assert choice.take() is None


async def test_who_no_longer_follows_leaves_the_stream_to_others() -> None:
    stream, choice = make()
    choice.follow(lambda: pytest.fail("nobody follows"))
    choice.unfollow()
    put(stream, "b", END)
    assert (await choice.collect()).piece.text == "b"
