"""`POST /v1/chat/completions` and `POST /v1/completions`: validate, submit, reply or stream.

The two differ in their bodies and shapes only. All choices of a request live in one block:
whatever ends it (a reply, an error, a client that goes away) aborts what still runs.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass

from engine.api import Finish, FinishReason, OutputStream, RequestOutput, Usage
from server.service.admission import Admission
from server.service.auth import Auth
from server.service.errors import (
    InternalError,
    ModelNotFoundError,
    ServiceError,
    UnauthorizedError,
    from_unknown,
)
from server.service.generation import ENGINE_FAILED, Generation
from server.service.http import (
    ClientGoneError,
    Headers,
    Receive,
    Scope,
    Send,
    SlowClientError,
    abort_connection,
    read_body,
    read_json_object,
    request_id,
    send_error,
    send_reply,
    text_header,
    watch_client,
)
from server.service.limits import ServiceLimits
from server.service.options import GenerationOptions
from server.service.prompt import Prompt
from server.service.replies import (
    DONE,
    ChatShape,
    Choice,
    ChunkEncoder,
    ReplyHead,
    Shape,
    TextShape,
    whole_reply,
)
from server.service.schemas import (
    ChatCompletionBody,
    CompletionBody,
    CompletionFields,
    parse,
)
from server.service.sse import error_frame, event_stream
from server.service.usage import total_usage

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Job:
    """One checked request: every prompt `num_choices` times."""

    shape: Shape
    body: CompletionFields
    prompts: Sequence[Prompt]
    options: GenerationOptions
    param: str
    headers: Headers

    @property
    def num_choices(self) -> int:
        return self.body.num_choices


Prepare = Callable[[bytes, Headers], Awaitable[_Job]]


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

    async def chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._serve(scope, receive, send, self._prepare_chat)

    async def text(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._serve(scope, receive, send, self._prepare_text)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, prepare: Prepare) -> None:
        headers: Headers = [(b"x-request-id", request_id(scope))]
        try:
            user = self._auth.user_from_bearer(text_header(scope, b"authorization"))
            if user is None:
                raise UnauthorizedError("A valid API key is required.")
            self._admission.check()
            body = await read_body(scope, receive, self._limits)
            # Tenants with keys of their own do not share prefixes.
            salt = "" if self._auth.is_open else user
            async with watch_client(receive):
                job = await prepare(body, headers)
                await self._answer(job, send, salt)
        except (ClientGoneError, ConnectionError):
            return
        except SlowClientError:
            abort_connection(send)
        except ServiceError as error:
            await send_error(send, error, headers)
        except Exception as error:
            log.exception("a completion request failed")
            await send_error(send, from_unknown(error), headers)

    async def _prepare_chat(self, raw: bytes, headers: Headers) -> _Job:
        body, ignored = parse(read_json_object(raw), ChatCompletionBody, self._limits)
        self._check_model(body, ignored, headers)
        limit = body.max_completion_tokens
        options = body.options(body.max_tokens if limit is None else limit)
        options.to_params(self._limits)
        prompt = await self._generation.prepare_chat(body.messages)
        return _Job(ChatShape(), body, [prompt], options, "messages", headers)

    async def _prepare_text(self, raw: bytes, headers: Headers) -> _Job:
        body, ignored = parse(read_json_object(raw), CompletionBody, self._limits)
        self._check_model(body, ignored, headers)
        prompts = body.prompts(self._limits.max_prompts)
        default = self._limits.completions_max_tokens
        options = body.options(default if body.max_tokens is None else body.max_tokens)
        options.to_params(self._limits)
        made = [await self._generation.prompts.raw(prompt) for prompt in prompts]
        return _Job(TextShape(), body, made, options, "prompt", headers)

    def _check_model(
        self, body: CompletionFields, ignored: Sequence[str], headers: Headers
    ) -> None:
        if ignored:
            headers.append((b"x-lectern-ignored", ", ".join(ignored).encode()))
        served = self._generation.model.name
        if body.model is not None and body.model != served:
            raise ModelNotFoundError(body.model, served)

    async def _answer(self, job: _Job, send: Send, salt: str) -> None:
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
            streams: list[OutputStream] = []
            for prompt in job.prompts:
                for index in range(job.num_choices):
                    submitted = self._generation.submit(
                        f"{head.id}-{len(streams)}",
                        prompt,
                        job.options.to_params(self._limits, index=index),
                        salt=salt,
                        param=job.param,
                    )
                    streams.append(await stack.enter_async_context(submitted))
            if job.body.stream:
                await self._stream(job, head, streams, send)
                return
            choices = [await _collect(stream) for stream in streams]
        usage = total_usage([choice.finish.usage for choice in choices], job.num_choices)
        await send_reply(send, whole_reply(job.shape, head, choices, usage), headers=job.headers)

    async def _stream(
        self, job: _Job, head: ReplyHead, streams: Sequence[OutputStream], send: Send
    ) -> None:
        encoder = ChunkEncoder(job.shape, head, includes_usage=job.body.includes_usage)
        usages: dict[int, Usage] = {}
        opened: set[int] = set()
        async with (
            event_stream(send, self._limits, job.headers) as writer,
            aclosing(_merged(streams)) as outputs,
        ):
            async for index, output in outputs:
                finish = output.finish
                if finish is not None and finish.reason is FinishReason.ERROR:
                    error = InternalError(finish.message or ENGINE_FAILED)
                    await writer.end(error_frame(error))
                    return
                if not output.text and finish is None:
                    continue
                frames = b""
                if index not in opened:
                    opened.add(index)
                    frames = encoder.opening(index)
                if output.text:
                    frames += encoder.text(index, output.text)
                if finish is not None:
                    frames += encoder.finish(index, finish)
                    usages[index] = finish.usage
                    if len(usages) == len(streams):
                        await writer.end(frames + self._last_frames(job, encoder, usages))
                        return
                await writer.write(frames)
            await writer.end(error_frame(InternalError(ENGINE_FAILED)))

    @staticmethod
    def _last_frames(job: _Job, encoder: ChunkEncoder, usages: dict[int, Usage]) -> bytes:
        if not job.body.includes_usage:
            return DONE
        in_order = [usages[index] for index in sorted(usages)]
        return encoder.usage(total_usage(in_order, job.num_choices)) + DONE


async def _collect(stream: OutputStream) -> Choice:
    """The whole answer. Raises InternalError if the engine failed."""
    text = ""
    finish: Finish | None = None
    async for output in stream:
        text += output.text
        finish = output.finish
    if finish is None or finish.reason is FinishReason.ERROR:
        raise InternalError((finish and finish.message) or ENGINE_FAILED)
    return Choice(text, finish)


async def _merged(
    streams: Sequence[OutputStream],
) -> AsyncGenerator[tuple[int, RequestOutput], None]:
    """The outputs of all streams as they come, with the stream's index."""
    if len(streams) == 1:
        async for output in streams[0]:
            yield 0, output
        return
    waiting = {asyncio.create_task(stream.get()): i for i, stream in enumerate(streams)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                index = waiting.pop(task)
                merged = task.result()
                if merged is None:
                    continue
                if merged.finish is None:
                    waiting[asyncio.create_task(streams[index].get())] = index
                yield index, merged
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
