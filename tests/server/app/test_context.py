"""Prompts that fit exactly, with a tokenizer for which parts and whole do not add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.app.context import Assembled, assemble
from server.app.prompts import Turn
from server.service.errors import PromptTooLongError
from server.service.generation import Generation, Prompt
from server.service.messages import ChatMessage


@dataclass(frozen=True)
class Passage:
    text: str
    title: str = "T"
    locator: str = ""


class Words:
    """Counts words; each message of a chat costs `frame` more, and the whole `surprise` more
    than its parts."""

    def __init__(self, frame: int, surprise: int) -> None:
        self.frame = frame
        self.surprise = surprise

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    async def count_chat(self, messages: Sequence[ChatMessage]) -> int:
        return (await self.prepare_chat(messages)).num_tokens

    async def prepare_chat(self, messages: Sequence[ChatMessage]) -> Prompt:
        counts = [len(str(message.content).split()) + self.frame for message in messages]
        surprise = self.surprise if len(messages[-1].content or "") > 20 else 0
        return Prompt((0,) * (sum(counts) + surprise))


def run(awaitable: Any) -> Assembled:
    """Runs a coroutine that never really waits."""
    try:
        awaitable.send(None)
    except StopIteration as done:
        return cast(Assembled, done.value)
    raise AssertionError("it waited")


def build(words: Words, window: int, passages: int, turns: int, size: int) -> Assembled:
    return run(
        assemble(
            cast(Generation, words),
            language="en",
            passages=[Passage("w " * size) for _ in range(passages)],
            turns=[Turn(f"q{n}", "a " * size) for n in range(turns)],
            question="why",
            window=window,
            max_tokens=10,
        )
    )


@given(
    st.integers(0, 9),
    st.integers(0, 40),
    st.integers(120, 600),
    st.integers(0, 8),
    st.integers(0, 8),
    st.integers(1, 60),
)
def test_the_prompt_always_leaves_room_for_the_answer(
    frame: int, surprise: int, window: int, passages: int, turns: int, size: int
) -> None:
    try:
        assembled = build(Words(frame, surprise), window, passages, turns, size)
    except PromptTooLongError:
        bare = build(Words(frame, surprise), 10_000, 0, 0, 1)
        assert bare.prompt.num_tokens + 10 > window, "only the bare question may be refused"
        return
    context, prompt = assembled.report, assembled.prompt
    assert prompt.num_tokens + context.reserved <= window
    assert prompt.num_tokens == (
        context.system + context.passages + context.history + context.question
    )
    assert context.turns_kept + context.turns_dropped == turns
    assert context.passages_used + context.passages_dropped == passages
    if context.passages_dropped:
        assert context.turns_kept == 0


def test_nothing_is_left_out_where_there_is_room() -> None:
    context = build(Words(4, 0), 2000, 8, 8, 20).report
    assert (context.turns_dropped, context.passages_dropped) == (0, 0)


@given(st.integers(0, 9), st.integers(0, 40), st.integers(60, 400), st.integers(0, 4))
def test_a_summary_counts_as_history(frame: int, surprise: int, window: int, turns: int) -> None:
    try:
        assembled = run(
            assemble(
                cast(Generation, Words(frame, surprise)),
                language="en",
                passages=(),
                turns=[Turn(f"q{n}", "a " * 30) for n in range(turns)],
                question="why",
                window=window,
                max_tokens=10,
                summary=Turn("What so far?", "much " * 20),
            )
        )
    except PromptTooLongError:
        return
    context, prompt = assembled.report, assembled.prompt
    assert prompt.num_tokens + context.reserved <= window
    assert prompt.num_tokens == context.system + context.history + context.question
    assert context.summary in (0, 23 + 2 * frame)
    assert context.turns_kept + context.turns_dropped == turns + (context.summary == 0)
    if context.turns_kept:
        assert context.summary > 0, "the oldest turns go first"


def test_a_question_that_cannot_fit_is_told() -> None:
    with pytest.raises(PromptTooLongError, match="window is 20 tokens") as refused:
        build(Words(0, 0), 20, 1, 0, 5)
    assert refused.value.param == "text"
