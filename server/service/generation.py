"""`Generation`: the way from messages to an answer, used by every route and by the application."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property, partial
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
    RequestOutput,
    SamplingParams,
    Tokenizer,
    Usage,
)
from server.service import request_terms
from server.service.admission import Admission
from server.service.answer_pieces import LogprobShape, PieceReader
from server.service.auth import Caller
from server.service.errors import (
    InternalError,
    ModelNotFoundError,
    PromptTooLongError,
    ServiceError,
    from_engine,
)
from server.service.fan_out import FanOut
from server.service.http import ClientGoneError, SlowClientError
from server.service.ledger import Entry, Ledger
from server.service.limits import ServiceLimits
from server.service.messages import ChatMessage
from server.service.metrics import Metrics
from server.service.options import GenerationOptions
from server.service.preparation_gate import PreparationGate
from server.service.prices import PriceList
from server.service.prompt import Prompt, PromptBuilder
from server.service.queue_estimate import QueuePlace
from server.service.reasoning import splitter_for
from server.service.reasoning_markers import ReasoningMarkers, find_markers
from server.service.relay import OnOutput, Relay
from server.service.request_terms import Terms
from server.service.runs import Run
from server.service.template_options import NEW_TURN, TemplateOptions
from server.service.usage import timing_json, usage_json

ENGINE_FAILED = "The engine failed while answering."
_LATE = Prompt(())
"""In place of a prompt that was not ready at its request's deadline."""

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
    detail: dict[str, Any]
    """What is told of `finish.detail`."""
    reasoning_tokens: int = 0
    thinking_s: float | None = None
    """See `Relay.thinking_s`."""


class Generation:
    """Owned by the event loop's thread."""

    def __init__(
        self,
        engine: Engine,
        limits: ServiceLimits,
        admission: Admission,
        metrics: Metrics,
        prices: PriceList | None = None,
        fan_out: FanOut | None = None,
        *,
        splits_reasoning: bool = True,
    ) -> None:
        """`splits_reasoning` False: what a model thinks is a part of its answer, with its
        markers."""
        self._engine = engine
        self._splits_reasoning = splits_reasoning
        self._fan_out = fan_out or FanOut()
        self._limits = limits
        self._admission = admission
        self._ledger = Ledger(engine, admission, metrics, prices)
        self.prices = prices
        """None: nothing is said of costs."""
        self.prompts = PromptBuilder(engine, limits.tokenizer_threads)
        self.gate = PreparationGate(limits.tokenizer_threads)

    @property
    def model(self) -> ModelInfo:
        return self._engine.model

    @property
    def tokenizer(self) -> Tokenizer:
        return self._engine.tokenizer

    @cached_property
    def _markers(self) -> ReasoningMarkers | None:
        return find_markers(self.tokenizer)

    def close(self) -> None:
        self.prompts.close()

    def piece_reader(
        self,
        prompt: Prompt,
        options: GenerationOptions,
        *,
        logprobs: LogprobShape | None = None,
        echo: str = "",
        splits_reasoning: bool = True,
        may_continue: bool = False,
    ) -> PieceReader | None:
        """What reads the outputs of one answer to `prompt`; None: their text is told as it is.
        `logprobs` shapes the tokens' probabilities, where they are told; `echo` is told in front
        of the text; `splits_reasoning` False: the answer is one text, as in a raw completion;
        `may_continue`: see `PieceReader`."""
        splitter = None
        if splits_reasoning and self._splits_reasoning and self._markers is not None:
            splitter = splitter_for(self._markers, self.tokenizer, prompt)
        includes_stop = bool(options.include_stop_str_in_output)
        if splitter is None and logprobs is None and not includes_stop and not echo:
            return None
        return PieceReader(
            self.tokenizer,
            logprobs,
            splitter=splitter,
            includes_stop=includes_stop,
            echo=echo,
            may_continue=may_continue,
        )

    async def prepare_chat(
        self,
        messages: Sequence[ChatMessage],
        *,
        continue_ids: Sequence[int] = (),
        template: TemplateOptions = NEW_TURN,
        deadline_s: float | None = None,
    ) -> Prompt:
        """Template and tokenizer over `messages`; `continue_ids` are the output tokens of a cut
        answer to go on with. When `deadline_s` passes first, the prompt is empty: `submit` then
        ends the request. Raises BadRequestError, ModelUnavailableError, ShuttingDownError."""
        self._admission.check_engine()
        work = self.prompts.chat(messages, continue_ids=continue_ids, template=template)
        return await _until(deadline_s, work)

    async def prepare_raw(
        self, prompt: str | Sequence[int], *, deadline_s: float | None = None
    ) -> Prompt:
        """The same of a raw completion's prompt: `PromptBuilder.raw`."""
        return await _until(deadline_s, self.prompts.raw(prompt))

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

    def check_model(self, name: str | None) -> None:
        """Raises ModelNotFoundError for a request that names another model than the served one."""
        if name is not None and name != self.model.name:
            raise ModelNotFoundError(name, self.model.name)

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

        A request whose deadline has passed ends without the engine. The account of `terms` pays
        for the sampled tokens at the end, also where nobody waits for it any more.

        Raises ServiceError before anything was accepted; `param` names the prompt's field."""
        self._admission.check_engine()
        entry = Entry(terms.account, shares_prompt=same_prompt_as is not None)
        if prompt is _LATE or terms.deadline_s <= time.monotonic():
            finish = Finish(FinishDetail(FinishType.DEADLINE), Usage(prompt.num_tokens))
            late = OutputStream(RequestId(request_id))
            late.put(RequestOutput(late.request_id, finish=finish))
            self._ledger.count(entry, finish)
            yield late
            return
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
        self._ledger.observe_queue()
        # Who leaves before the end without an exception has told of the engine's failure for
        # another answer of the same request.
        left: FinishType | None = FinishType.ERROR
        try:
            yield stream
        except SlowClientError:
            left = FinishType.SLOW_CLIENT
            raise
        except (ClientGoneError, ConnectionError, asyncio.CancelledError):
            left = FinishType.CLIENT_GONE
            raise
        except ServiceError as error:
            # The whole request was refused, when this part of it was accepted already.
            left = FinishType.ERROR if isinstance(error, InternalError) else None
            raise
        finally:
            if stream.finish is not None:
                self._ledger.ended(entry, stream.finish)
            else:
                self._engine.abort(request.request_id, left or FinishType.CANCELLED)
                if left is not None:
                    self._ledger.ends_later(entry, stream)
            await context.__aexit__(None, None, None)

    def queue_place(self, request_id: str) -> QueuePlace | None:
        """Where a request waits in the engine's queue; None for one that does not wait, or only
        for the step in which it begins."""
        ahead = self._engine.queue_position(RequestId(request_id))
        self._ledger.observe_queue()
        if ahead is None:
            return None
        # A first step may take long without anybody ahead: that is no queue.
        if not ahead and self._engine.stats.num_waiting == 0:
            return None
        wait_s = self._admission.queue.wait_s(ahead + 1)
        return QueuePlace(ahead + 1, None if wait_s is None else round(wait_s * 1000))

    async def relay(
        self,
        run: Run,
        prompt: Prompt,
        options: GenerationOptions,
        *,
        salt: str,
        terms: Terms | None = None,
        on_output: OnOutput | None = None,
        may_continue: bool = False,
        splits_reasoning: bool = False,
        more_start: Mapping[str, object] | None = None,
    ) -> Completion:
        """Generates, and tells the run: queued, start, progress, thinking, delta. Honours
        `run.cancel()`. `terms` None: what `options` say, from the moment when the run was opened.
        `splits_reasoning` False: what the model thinks is a part of its text.
        `may_continue`: see `GenerationRequest`. `more_start`: further fields of the run's `start`.

        Returns when the engine's terminal output is there, and emits no `finish`: store the
        answer first, then call `finish_run`. `on_output` hears of each output on the hot path.
        Raises ServiceError if the engine took nothing."""
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
            **(more_start or {}),
        }
        terms = terms or self.run_terms(run, options)
        relay = Relay(
            run,
            start,
            self._fan_out,
            partial(self.queue_place, run.id),
            heartbeat_s=self._limits.heartbeat_s,
            on_output=on_output,
            reader=self.piece_reader(
                prompt, options, splits_reasoning=splits_reasoning, may_continue=may_continue
            ),
        )
        if run.cancel_detail is not None:
            finish: Finish | None = Finish(FinishDetail(run.cancel_detail))
        else:
            request_id = RequestId(run.id)
            async with self.submit(
                request_id, prompt, params, salt=salt, terms=terms, may_continue=may_continue
            ) as stream:
                self._admission.charge(terms.account, prompt.num_tokens)
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
            relay.finish_detail(finish),
            relay.reasoning_tokens,
            relay.thinking_s,
        )

    def run_terms(self, run: Run, options: GenerationOptions) -> Terms:
        """The terms of a run's owner. Raises BadRequestError."""
        return request_terms.terms(
            caller=Caller(run.owner),
            limits=self._limits,
            arrived_s=run.opened_s,
            timeout=options.timeout,
            priority=options.priority,
            param_prefix="options.",
        )

    def finish_run(
        self,
        run: Run,
        completion: Completion,
        *,
        can_continue: bool,
        usage: dict[str, Any] | None = None,
        timing: dict[str, Any] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        """Ends the run with its `finish` event, or with `error` if the engine failed. `usage`
        and `timing` are the whole answer's where it has earlier parts; None: the completion's.
        `more`: further fields of the event."""
        finish = completion.finish
        if finish.reason is FinishReason.ERROR:
            run.fail(InternalError(finish.message or ENGINE_FAILED))
            return
        thought = completion.reasoning_tokens or None
        usage = usage or usage_json(finish.usage, prices=self.prices, reasoning_tokens=thought)
        run.emit(
            "finish",
            finish_reason=finish.reason.value,
            finish_detail=completion.detail,
            usage=usage,
            timing=timing or timing_json(finish.timing, finish.usage),
            can_continue=can_continue,
            **(more or {}),
        )


async def _until(deadline_s: float | None, work: Awaitable[Prompt]) -> Prompt:
    """What `work` makes, or an empty prompt when it is not made in time."""
    if deadline_s is None:
        return await work
    try:
        async with asyncio.timeout(deadline_s - time.monotonic()):
            return await work
    except TimeoutError:
        return _LATE
