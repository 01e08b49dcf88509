"""`POST /v1/chat/completions` and `POST /v1/completions`: validate, submit, reply or stream.

The two differ in their bodies and shapes only. All choices of a request live in one block:
whatever ends it (a reply, an error, a client that goes away) aborts what still runs.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass

from engine.api import FinishReason, Usage
from server.service.admission import Admission
from server.service.auth import Auth, UserId
from server.service.choice_streams import ChoiceStream, collected, merged
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

_MAX_OWNER_CHARS = 128


@dataclass(frozen=True, slots=True)
class _Job:
    """One checked request: every prompt `num_choices` times. `user`: whose work it is, as far as
    anybody says."""

    shape: Shape
    body: CompletionFields
    prompts: Sequence[Prompt]
    options: GenerationOptions
    param: str
    headers: Headers
    user: str

    @property
    def num_choices(self) -> int:
        return self.body.num_choices


Prepare = Callable[[bytes, Headers, UserId], Awaitable[_Job]]


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
                job = await prepare(body, headers, user)
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

    async def _prepare_chat(self, raw: bytes, headers: Headers, user: UserId) -> _Job:
        body, ignored = parse(read_json_object(raw), ChatCompletionBody, self._limits)
        self._check_model(body, ignored, headers)
        limit = body.max_completion_tokens
        options = body.options(body.max_tokens if limit is None else limit)
        options.to_params(self._limits)
        prompt = await self._generation.prepare_chat(body.messages)
        owner = self._owner(user, body)
        return _Job(ChatShape(), body, [prompt], options, "messages", headers, owner)

    async def _prepare_text(self, raw: bytes, headers: Headers, user: UserId) -> _Job:
        body, ignored = parse(read_json_object(raw), CompletionBody, self._limits)
        self._check_model(body, ignored, headers)
        prompts = body.prompts(self._limits.max_prompts)
        default = self._limits.completions_max_tokens
        options = body.options(default if body.max_tokens is None else body.max_tokens)
        options.to_params(self._limits)
        made = [await self._generation.prompts.raw(prompt) for prompt in prompts]
        owner = self._owner(user, body)
        return _Job(TextShape(), body, made, options, "prompt", headers, owner)

    def _owner(self, user: UserId, body: CompletionFields) -> str:
        """Whose fair share of the engine a request takes: its key's; without keys, whoever the
        caller says that it asks for (OpenAI's `user`), apart from users that we know."""
        if not self._auth.is_open:
            return user
        return f"client:{body.user}"[:_MAX_OWNER_CHARS] if body.user else ""

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
            choices = await self._submit(job, head, stack, salt)
            if job.body.stream:
                await self._stream(job, head, choices, send)
                return
            answers = await collected(choices)
        usage = total_usage([answer.finish.usage for answer in answers], job.num_choices)
        await send_reply(send, whole_reply(job.shape, head, answers, usage), headers=job.headers)

    async def _submit(
        self, job: _Job, head: ReplyHead, stack: AsyncExitStack, salt: str
    ) -> list[ChoiceStream]:
        """Every choice of every prompt as a request of its own, prompt by prompt; what `stack`
        ends, they end with."""
        tokenizer = None
        if job.body.num_logprobs is not None:
            tokenizer = self._generation.tokenizer
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
                    user=job.user,
                    same_prompt_as=first_id,
                )
                stream = await stack.enter_async_context(submitted)
                choices.append(ChoiceStream(len(choices), stream, job.shape, tokenizer))
                first_id = first_id or name
        return choices

    async def _stream(
        self, job: _Job, head: ReplyHead, choices: Sequence[ChoiceStream], send: Send
    ) -> None:
        encoder = ChunkEncoder(job.shape, head, includes_usage=job.body.includes_usage)
        usages: dict[int, Usage] = {}
        opened: set[int] = set()
        async with (
            event_stream(send, self._limits, job.headers) as writer,
            aclosing(merged(choices)) as deltas,
        ):
            async for delta in deltas:
                index, finish = delta.index, delta.finish
                if finish is not None and finish.reason is FinishReason.ERROR:
                    error = InternalError(finish.message or ENGINE_FAILED)
                    await writer.end(error_frame(error))
                    return
                has_piece = bool(delta.text) or delta.logprobs is not None
                if not has_piece and finish is None:
                    continue
                frames = b""
                if index not in opened:
                    opened.add(index)
                    frames = encoder.opening(index)
                if has_piece:
                    frames += encoder.text(index, delta.text, delta.logprobs)
                if finish is not None:
                    frames += encoder.finish(index, finish)
                    usages[index] = finish.usage
                    if len(usages) == len(choices):
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
