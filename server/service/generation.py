"""`Generation`: the way from messages to an answer, used by every route and by the application."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from engine.api import (
    Engine,
    EngineError,
    Finish,
    FinishDetail,
    FinishReason,
    FinishType,
    GenerationRequest,
    ModelInfo,
    OutputStream,
    RequestId,
    SamplingParams,
    Tokenizer,
)
from server.service.admission import Admission
from server.service.errors import InternalError, PromptTooLongError, from_engine
from server.service.http import SlowClientError
from server.service.limits import ServiceLimits
from server.service.messages import ChatMessage
from server.service.metrics import Metrics
from server.service.options import GenerationOptions
from server.service.prompt import Prompt, PromptBuilder
from server.service.relay import OnOutput, Relay
from server.service.request_terms import Terms
from server.service.runs import Run
from server.service.usage import timing_json, usage_json

ENGINE_FAILED = "The engine failed while answering."

__all__ = ["Completion", "Generation", "GenerationOptions", "Prompt"]


@dataclass(frozen=True, slots=True)
class Completion:
    """A generation that has ended, however it ended. `token_ids` are the new ones only;
    `max_tokens` is what was really allowed, `lowered` when the caller had asked for more."""

    text: str
    token_ids: tuple[int, ...]
    prompt_token_ids: tuple[int, ...]
    finish: Finish
    model: str
    max_tokens: int
    lowered: bool


class Generation:
    """Owned by the event loop's thread."""

    def __init__(
        self, engine: Engine, limits: ServiceLimits, admission: Admission, metrics: Metrics
    ) -> None:
        self._engine = engine
        self._limits = limits
        self._admission = admission
        self._metrics = metrics
        self.prompts = PromptBuilder(engine, limits.tokenizer_threads)

    @property
    def model(self) -> ModelInfo:
        return self._engine.model

    @property
    def tokenizer(self) -> Tokenizer:
        return self._engine.tokenizer

    def close(self) -> None:
        self.prompts.close()

    async def prepare_chat(
        self,
        messages: Sequence[ChatMessage],
        *,
        continue_ids: Sequence[int] = (),
        add_generation_prompt: bool = True,
    ) -> Prompt:
        """Template and tokenizer over `messages`; `continue_ids` are the output tokens of a cut
        answer to go on with. Raises BadRequestError, ModelUnavailableError, ShuttingDownError."""
        self._admission.check_engine()
        return await self.prompts.chat(
            messages, continue_ids=continue_ids, add_generation_prompt=add_generation_prompt
        )

    def check_size(self, text: str, *, param: str) -> None:
        """Raises PromptTooLongError for a text that cannot fit the window whatever its tokens
        are: it is not worth the time to count them."""
        self.prompts.check_size(text, param=param)

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text, outside any template."""
        return await self.prompts.count(texts)

    async def count_chat(self, messages: Sequence[ChatMessage]) -> int:
        """The prompt size of `messages`, template and generation prompt included."""
        return (await self.prompts.chat(messages)).num_tokens

    def room(self, prompt: Prompt, *, param: str = "messages") -> int:
        """Tokens that the window leaves for the answer. Raises PromptTooLongError for none."""
        limit = self.model.window
        if prompt.num_tokens >= limit:
            raise PromptTooLongError(prompt.num_tokens, limit, param=param)
        return limit - prompt.num_tokens

    @asynccontextmanager
    async def submit(
        self,
        request_id: str,
        prompt: Prompt,
        params: SamplingParams,
        *,
        salt: str = "",
        param: str = "messages",
        terms: Terms,
        may_continue: bool = False,
        same_prompt_as: str | None = None,
    ) -> AsyncIterator[OutputStream]:
        """`engine.generate` with the service's limits and errors; leaving the block aborts.
        `may_continue` and `same_prompt_as`: see `GenerationRequest`.

        Raises ServiceError before anything was accepted; `param` names the prompt's field."""
        self._admission.check_engine()
        # The engine gets max_tokens as it was asked: only then can it tell a full window from
        # the caller's own limit.
        request = GenerationRequest(
            RequestId(request_id),
            prompt.token_ids,
            params,
            continued_token_ids=prompt.continued_token_ids,
            continued_text=prompt.continued_text,
            cache_salt=salt,
            may_continue=may_continue,
            user=terms.user,
            priority=terms.priority,
            same_prompt_as=None if same_prompt_as is None else RequestId(same_prompt_as),
            deadline_s=terms.deadline_s,
        )
        context = self._engine.generate(request)
        try:
            stream = await context.__aenter__()
        except EngineError as error:
            raise from_engine(error, prompt_param=param) from error
        left = FinishType.CLIENT_GONE
        try:
            yield stream
        except SlowClientError:
            left = FinishType.SLOW_CLIENT
            self._engine.abort(request.request_id, left)
            raise
        finally:
            await context.__aexit__(None, None, None)
            if stream.finish is None:
                self._metrics.left(left)
            else:
                self._metrics.finished(stream.finish)

    async def relay(
        self,
        run: Run,
        prompt: Prompt,
        options: GenerationOptions,
        *,
        salt: str,
        on_output: OnOutput | None = None,
        may_continue: bool = False,
    ) -> Completion:
        """Generates, and tells the run: queued, start, progress, delta. Honours `run.cancel()`.
        `may_continue`: see `GenerationRequest`.

        Returns when the engine's terminal output is there, and emits no `finish`: store the
        answer first, then call `finish_run`. `on_output` gets each new piece (its text and its
        tokens) on the hot path. Raises ServiceError if the engine took nothing."""
        params = options.to_params(self._limits, defaults=self.model.sampling_defaults)
        room = self.room(prompt)
        max_tokens = min(params.max_tokens or room, room)
        lowered = params.max_tokens is not None and params.max_tokens > room
        start: dict[str, object] = {
            "model": self.model.name,
            "prompt_tokens": prompt.num_tokens,
            "max_tokens": max_tokens,
            "max_tokens_lowered": lowered,
            "continued": bool(prompt.continued_token_ids),
        }
        deadline_s = time.monotonic() + self._limits.request_timeout_s
        terms = Terms(deadline_s, user=run.owner, account=run.owner)
        relay = Relay(self._engine, run, start, on_output)
        if run.cancel_detail is not None:
            finish: Finish | None = Finish(FinishDetail(run.cancel_detail))
        else:
            request_id = RequestId(run.id)
            async with self.submit(
                request_id, prompt, params, salt=salt, terms=terms, may_continue=may_continue
            ) as stream:
                with run.cancelling(lambda detail: self._engine.abort(request_id, detail)):
                    finish = await relay.read(stream)
        if finish is None:
            raise InternalError(ENGINE_FAILED)
        return Completion(
            relay.text,
            tuple(relay.token_ids),
            prompt.token_ids,
            finish,
            self.model.name,
            max_tokens,
            lowered,
        )

    def finish_run(
        self,
        run: Run,
        completion: Completion,
        *,
        can_continue: bool,
        usage: dict[str, Any] | None = None,
        timing: dict[str, Any] | None = None,
    ) -> None:
        """Ends the run with its `finish` event, or with `error` if the engine failed. `usage`
        and `timing` are the whole answer's where it has earlier parts; None: the completion's."""
        finish = completion.finish
        if finish.reason is FinishReason.ERROR:
            run.fail(InternalError(finish.message or ENGINE_FAILED))
            return
        run.emit(
            "finish",
            finish_reason=finish.reason.value,
            finish_detail=finish.detail.to_json(),
            usage=usage or usage_json(finish.usage),
            timing=timing or timing_json(finish.timing, finish.usage),
            can_continue=can_continue,
        )
