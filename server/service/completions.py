"""`POST /v1/chat/completions` and `POST /v1/completions`: validate, submit, reply or stream.

The two differ in their bodies and shapes only. All choices of a request live in one block:
whatever ends it (a reply, an error, a client that goes away) aborts what still runs.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from engine.api import (
    Finish,
    FinishDetail,
    FinishType,
    OutputStream,
    RequestId,
    RequestOutput,
    Usage,
)
from server.service.admission import Admission
from server.service.answer_pieces import PieceReader
from server.service.auth import Auth
from server.service.choice_streams import ChoiceStream, collected
from server.service.completion_stream import StreamJob, stream_answer
from server.service.exchange import Exchange
from server.service.generation import Generation
from server.service.http import read_json_object, watch_client
from server.service.ids import new_hex
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
from server.service.request_terms import Terms, body_terms
from server.service.schemas import (
    ChatCompletionBody,
    CompletionBody,
    CompletionFields,
    parse,
)
from server.service.usage import total_usage


@dataclass(frozen=True, slots=True)
class _Job:
    """One checked request: every prompt `num_choices` times."""

    shape: Shape
    body: CompletionFields
    prompts: Sequence[Prompt]
    options: GenerationOptions
    param: str
    terms: Terms
    echoes: Sequence[str] = ()
    """The text of each prompt, where it is told in front of its answers."""

    @property
    def is_echo_only(self) -> bool:
        """Whether nothing is to be generated."""
        return bool(self.echoes) and self.body.max_tokens == 0

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
        body = await self._admission.bodies.read(exchange)
        async with watch_client(exchange.receive):
            with self._admission.enter(caller.user) as ticket:
                async with self._generation.gate.place(len(body)):
                    job = await prepare(body, exchange)
                ticket.extend(
                    num_sequences=job.num_sequences,
                    prompt_tokens=sum(prompt.num_tokens for prompt in job.prompts),
                )
                await self._answer(job, exchange)

    async def _prepare_chat(self, raw: bytes, exchange: Exchange) -> _Job:
        body, ignored = parse(read_json_object(raw), ChatCompletionBody, self._limits)
        exchange.tell_ignored(ignored)
        self._generation.check_model(body.model)
        _, limit = body.length_limit
        options = body.options(limit)
        options.to_params(self._limits)
        terms = body_terms(exchange, body, self._limits, is_open=self._auth.is_open)
        prompt = await self._generation.prepare_chat(
            body.messages, template=body.template(), deadline_s=terms.deadline_s
        )
        return _Job(ChatShape(), body, [prompt], options, "messages", terms)

    async def _prepare_text(self, raw: bytes, exchange: Exchange) -> _Job:
        body, ignored = parse(read_json_object(raw), CompletionBody, self._limits)
        exchange.tell_ignored(ignored)
        self._generation.check_model(body.model)
        prompts = body.prompts(self._limits.max_prompts)
        default = self._limits.completions_max_tokens
        # 0: the prompt's echo is all that is wanted, and the engine is not asked.
        options = body.options(default if body.max_tokens is None else body.max_tokens or None)
        options.to_params(self._limits)
        terms = body_terms(exchange, body, self._limits, is_open=self._auth.is_open)
        made = [
            await self._generation.prepare_raw(prompt, deadline_s=terms.deadline_s)
            for prompt in prompts
        ]
        echoes = [await self._text_of(prompt) for prompt in prompts] if body.echo else ()
        return _Job(TextShape(), body, made, options, "prompt", terms, echoes)

    async def _text_of(self, prompt: str | Sequence[int]) -> str:
        if isinstance(prompt, str):
            return prompt
        return await self._generation.prompts.text_of(prompt)

    async def _answer(self, job: _Job, exchange: Exchange) -> None:
        rooms = [self._generation.room(prompt, param=job.param) for prompt in job.prompts]
        asked = job.options.max_tokens
        is_lowered = asked is not None and asked > min(rooms)
        # The default of raw completions is ours: lowering it needs no notice.
        if isinstance(job.body, CompletionBody) and job.body.max_tokens is None:
            is_lowered = False
        head = ReplyHead(
            job.shape.id_prefix + new_hex(12),
            int(time.time()),
            self._generation.model.name,
            min(rooms) if is_lowered else None,
            self._generation.prices,
        )
        async with AsyncExitStack() as stack:
            salt = self._auth.cache_salt(exchange.caller)
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
        for number, prompt in enumerate(job.prompts):
            first_id: str | None = None
            for index in range(job.num_choices):
                name = f"{head.id}-{len(choices)}"
                reader = self._reader(job, number)
                if job.is_echo_only:
                    stream = _echoed(name, prompt)
                    choices.append(ChoiceStream(len(choices), stream, reader))
                    continue
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
                choices.append(ChoiceStream(len(choices), stream, reader))
                first_id = first_id or name
        return choices

    def _reader(self, job: _Job, number: int) -> PieceReader | None:
        """What reads an answer to the prompt of that number."""
        return self._generation.piece_reader(
            job.prompts[number],
            job.options,
            logprobs=None if job.body.num_logprobs is None else job.shape.logprobs,
            echo=job.echoes[number] if job.echoes else "",
            splits_reasoning=isinstance(job.body, ChatCompletionBody),
        )


def _echoed(name: str, prompt: Prompt) -> OutputStream:
    """An answer of no tokens."""
    request_id = RequestId(name)
    stream = OutputStream(request_id)
    usage = Usage(prompt_tokens=prompt.num_tokens)
    stream.put(RequestOutput(request_id, finish=Finish(FinishDetail(FinishType.MAX_TOKENS), usage)))
    return stream
