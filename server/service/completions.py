"""`POST /v1/chat/completions` and `POST /v1/completions`: validate, submit, reply or stream.

The two differ in their bodies and shapes only. All choices of a request live in one block:
whatever ends it (a reply, an error, a client that goes away) aborts what still runs.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from server.service.admission import Admission
from server.service.answer_pieces import PieceReader
from server.service.auth import Auth, Caller
from server.service.choice_streams import ChoiceStream, collected
from server.service.completion_stream import StreamJob, stream_answer
from server.service.errors import ModelNotFoundError
from server.service.exchange import Exchange
from server.service.generation import Generation
from server.service.http import Headers, read_body, read_json_object, watch_client
from server.service.limits import ServiceLimits
from server.service.options import GenerationOptions
from server.service.prompt import Prompt
from server.service.replies import (
    ChatShape,
    ChunkEncoder,
    ReplyHead,
    Shape,
    TextShape,
    whole_reply,
)
from server.service.request_terms import Terms
from server.service.schemas import (
    ChatCompletionBody,
    CompletionBody,
    CompletionFields,
    parse,
)
from server.service.usage import total_usage

_MAX_OWNER_CHARS = 128


@dataclass(frozen=True, slots=True)
class _Job:
    """One checked request: every prompt `num_choices` times."""

    shape: Shape
    body: CompletionFields
    prompts: Sequence[Prompt]
    options: GenerationOptions
    param: str
    terms: Terms

    @property
    def num_choices(self) -> int:
        return self.body.num_choices

    @property
    def num_sequences(self) -> int:
        return len(self.prompts) * self.num_choices


Prepare = Callable[[bytes, Exchange], Awaitable[_Job]]


class CompletionRoutes:
    """Owned by the event loop's thread."""

    def __init__(
        self,
        generation: Generation,
        admission: Admission,
        auth: Auth,
        limits: ServiceLimits,
    ) -> None:
        self._generation = generation
        self._admission = admission
        self._auth = auth
        self._limits = limits

    async def chat(self, exchange: Exchange) -> None:
        await self._serve(exchange, self._prepare_chat)

    async def text(self, exchange: Exchange) -> None:
        await self._serve(exchange, self._prepare_text)

    async def _serve(self, exchange: Exchange, prepare: Prepare) -> None:
        caller = exchange.caller
        self._admission.check()
        body = await read_body(exchange.scope, exchange.receive, self._limits)
        # Tenants with keys of their own do not share prefixes.
        salt = "" if self._auth.is_open else caller.user
        async with watch_client(exchange.receive):
            job = await prepare(body, exchange)
            with self._admission.enter(caller.user, num_sequences=job.num_sequences):
                await self._answer(job, exchange, salt)

    async def _prepare_chat(self, raw: bytes, exchange: Exchange) -> _Job:
        body, ignored = parse(read_json_object(raw), ChatCompletionBody, self._limits)
        self._check_model(body, ignored, exchange.headers)
        limit = body.max_completion_tokens
        options = body.options(body.max_tokens if limit is None else limit)
        options.to_params(self._limits)
        terms = self._terms(exchange, body)
        prompt = await self._generation.prepare_chat(body.messages)
        return _Job(ChatShape(), body, [prompt], options, "messages", terms)

    async def _prepare_text(self, raw: bytes, exchange: Exchange) -> _Job:
        body, ignored = parse(read_json_object(raw), CompletionBody, self._limits)
        self._check_model(body, ignored, exchange.headers)
        prompts = body.prompts(self._limits.max_prompts)
        default = self._limits.completions_max_tokens
        options = body.options(default if body.max_tokens is None else body.max_tokens)
        options.to_params(self._limits)
        terms = self._terms(exchange, body)
        made = [await self._generation.prompts.raw(prompt) for prompt in prompts]
        return _Job(TextShape(), body, made, options, "prompt", terms)

    def _terms(self, exchange: Exchange, body: CompletionFields) -> Terms:
        return Terms(
            exchange.arrived_s + self._limits.request_timeout_s,
            user=self._owner(exchange.caller, body),
            account=exchange.caller.user,
        )

    def _owner(self, caller: Caller, body: CompletionFields) -> str:
        """Whose fair share of the engine a request takes: its key's; without keys, whoever the
        caller says that it asks for (OpenAI's `user`), apart from users that we know."""
        if not self._auth.is_open:
            return caller.user
        return f"client:{body.user}"[:_MAX_OWNER_CHARS] if body.user else ""

    def _check_model(
        self, body: CompletionFields, ignored: Sequence[str], headers: Headers
    ) -> None:
        if ignored:
            headers.append((b"x-lectern-ignored", ", ".join(ignored).encode()))
        served = self._generation.model.name
        if body.model is not None and body.model != served:
            raise ModelNotFoundError(body.model, served)

    async def _answer(self, job: _Job, exchange: Exchange, salt: str) -> None:
        rooms = [self._generation.room(prompt, param=job.param) for prompt in job.prompts]
        asked = job.options.max_tokens
        is_lowered = asked is not None and asked > min(rooms)
        # The default of raw completions is ours: lowering it needs no notice.
        if isinstance(job.body, CompletionBody) and job.body.max_tokens is None:
            is_lowered = False
        head = ReplyHead(
            job.shape.id_prefix + secrets.token_hex(12),
            int(time.time()),
            self._generation.model.name,
            min(rooms) if is_lowered else None,
        )
        async with AsyncExitStack() as stack:
            choices = await self._submit(job, head, stack, salt)
            if job.body.stream:
                encoder = ChunkEncoder(
                    job.shape,
                    head,
                    includes_usage=job.body.includes_usage,
                    num_choices=job.num_choices,
                )
                finishes = await stream_answer(exchange, StreamJob(encoder, choices), self._limits)
                if len(finishes) == len(choices):
                    exchange.ended(finishes, job.num_choices)
                return
            answers = await collected(choices)
        exchange.ended([answer.finish for answer in answers], job.num_choices)
        usage = total_usage([answer.finish.usage for answer in answers], job.num_choices)
        await exchange.reply(whole_reply(job.shape, head, answers, usage))

    async def _submit(
        self, job: _Job, head: ReplyHead, stack: AsyncExitStack, salt: str
    ) -> list[ChoiceStream]:
        """Every choice of every prompt as a request of its own, prompt by prompt; what `stack`
        ends, they end with."""
        choices: list[ChoiceStream] = []
        for prompt in job.prompts:
            first_id: str | None = None
            for index in range(job.num_choices):
                name = f"{head.id}-{len(choices)}"
                submitted = self._generation.submit(
                    name,
                    prompt,
                    job.options.to_params(
                        self._limits,
                        defaults=self._generation.model.sampling_defaults,
                        index=index,
                        logprobs=job.body.num_logprobs,
                    ),
                    salt=salt,
                    param=job.param,
                    terms=job.terms,
                    same_prompt_as=first_id,
                )
                stream = await stack.enter_async_context(submitted)
                choices.append(ChoiceStream(len(choices), stream, self._reader(job)))
                first_id = first_id or name
        return choices

    def _reader(self, job: _Job) -> PieceReader | None:
        if job.body.num_logprobs is None:
            return None
        return PieceReader(self._generation.tokenizer, job.shape.logprobs)
