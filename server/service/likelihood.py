"""`Likelihood`: how likely the served model holds a text after each of several prompts."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from engine.api import (
    Engine,
    EngineError,
    FinishType,
    GenerationRequest,
    RequestId,
    SamplingParams,
)
from server.service.admission import Admission
from server.service.errors import InternalError, PromptTooLongError, from_engine
from server.service.ids import new_hex
from server.service.prompt import PromptBuilder

_LEAST_CONTEXT = 16
"""With less of a context a likelihood says nothing of it."""


@dataclass(frozen=True, slots=True)
class LikelihoodQuestion:
    """How likely is `text` after each of `contexts`, followed by `lead`? A context keeps its first
    `max_context_tokens` tokens. All are plain characters: nothing in them is a control token."""

    contexts: tuple[str, ...]
    lead: str
    text: str
    max_context_tokens: int


class Likelihood:
    """Owned by the event loop's thread.

    It is the server's own work: no account pays for it, and it takes no place of a request that
    somebody waits for (`is_free`)."""

    def __init__(self, engine: Engine, prompts: PromptBuilder, admission: Admission) -> None:
        self._engine = engine
        self._prompts = prompts
        self._admission = admission

    @property
    def is_free(self) -> bool:
        """Whether nobody waits for the engine."""
        return self._engine.stats.num_waiting == 0

    async def ask(
        self, question: LikelihoodQuestion, *, user: str, salt: str, time_s: float
    ) -> list[float]:
        """The natural logarithm of the probability of the text after each context, as a sum over
        its tokens. `user`: whose work it is; `salt`: of the prefix cache, which keeps the contexts.

        Raises TimeoutError when it takes longer than `time_s` seconds, PromptTooLongError,
        ModelUnavailableError, ShuttingDownError, QueueFullError, InternalError."""
        self._admission.check_engine()
        if not question.contexts:
            return []
        deadline_s = time.monotonic() + time_s
        async with asyncio.timeout(time_s):
            prompts, text = await self._tokens(question)
            params = SamplingParams(temperature=0.0, max_tokens=len(text), logprobs=0)
            requests = [
                GenerationRequest(
                    RequestId(f"likelihood-{new_hex(12)}"),
                    prompt,
                    params,
                    cache_salt=salt,
                    forced_token_ids=text,
                    user=user,
                    deadline_s=deadline_s,
                )
                for prompt in prompts
            ]
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._one(request)) for request in requests]
            except ExceptionGroup as failures:
                raise failures.exceptions[0] from None  # they fail for one reason
        return [task.result() for task in tasks]

    async def _tokens(
        self, question: LikelihoodQuestion
    ) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
        """The prompts and the text."""
        encode = self._engine.tokenizer.encode
        num_chars = sum(map(len, question.contexts)) + len(question.text)

        def work() -> tuple[list[list[int]], list[int], list[int]]:
            contexts = [encode(context, add_bos=True) for context in question.contexts]
            return contexts, encode(question.lead), encode(question.text)

        contexts, lead, text = await self._prompts.in_pool(work, num_chars)
        window = self._engine.model.window
        room = min(question.max_context_tokens, window - len(lead) - len(text) - 1)
        if room < _LEAST_CONTEXT or len(text) > GenerationRequest.MAX_FORCED_TOKENS:
            raise PromptTooLongError(len(lead) + len(text) + _LEAST_CONTEXT, window, param="text")
        return [(*context[:room], *lead) for context in contexts], tuple(text)

    async def _one(self, request: GenerationRequest) -> float:
        total = 0.0
        try:
            async with self._engine.generate(request) as stream:
                async for output in stream:
                    total += sum(entry.logprob for entry in output.logprobs)
        except EngineError as error:
            raise from_engine(error, prompt_param="text") from error
        finish = stream.finish
        if finish is not None and finish.detail.type is FinishType.DEADLINE:
            raise TimeoutError
        if finish is None or finish.detail.type is not FinishType.MAX_TOKENS:
            raise InternalError("The model did not say how likely a text is.")
        return total
