"""How much of the model's window a question takes that is still being written."""

from __future__ import annotations

from typing import Any

from server.app.budget import reserve
from server.app.prompts import build_messages, language_of
from server.service.errors import PromptTooLongError
from server.service.generation import Generation


class QuestionCounter:
    """Counts in the tokenizer's threads. Owned by the event loop's thread."""

    def __init__(self, generation: Generation, *, max_tokens: int) -> None:
        """`max_tokens`: what an answer may have whose question does not say."""
        self._generation = generation
        self._max_tokens = max_tokens

    async def count(self, text: str) -> dict[str, Any]:
        """The fields of `counted`: the question's `tokens`, the `room` that there is for a
        question without passages and earlier turns, which give way to it, and the `window`, of
        which the instructions take `system` and the answer keeps `reserved`.

        A text that cannot fit whatever its tokens are is not counted: `at_least` is true then,
        and `tokens` what it has at the least."""
        window = self._generation.model.window
        system = await self._generation.count_chat(build_messages(language_of(text), (), (), ""))
        reserved = reserve(window, self._max_tokens)
        at_least = False
        try:
            self._generation.check_size(text, param="text")
        except PromptTooLongError as error:
            tokens, at_least = error.num_tokens, True
        else:
            (tokens,) = await self._generation.count_tokens([text])
        return {
            "tokens": tokens,
            "at_least": at_least,
            "room": max(0, window - system - reserved),
            "window": window,
            "system": system,
            "reserved": reserved,
        }
