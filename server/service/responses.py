"""`POST /v1/responses`: OpenAI's newer endpoint, stateless, streamed or whole."""

from __future__ import annotations

import time

from server.service.admission import Admission
from server.service.auth import Auth
from server.service.choice_streams import ChoiceStream
from server.service.completion_stream import StreamJob, stream_answer
from server.service.errors import BadRequestError
from server.service.exchange import Exchange
from server.service.generation import Generation
from server.service.http import read_json_object, watch_client
from server.service.ids import new_hex
from server.service.limits import ServiceLimits
from server.service.prompt import Prompt
from server.service.request_terms import Terms, body_terms
from server.service.response_events import ResponseEncoder, whole_response
from server.service.response_object import ResponseHead, response_logprobs
from server.service.response_schemas import ResponseBody, parse_response_body


class ResponseRoutes:
    """Owned by the event loop's thread."""

    def __init__(
        self, generation: Generation, admission: Admission, auth: Auth, limits: ServiceLimits
    ) -> None:
        self._generation = generation
        self._admission = admission
        self._auth = auth
        self._limits = limits

    async def create(self, exchange: Exchange) -> None:
        caller = exchange.caller
        self._admission.check()
        raw = await self._admission.bodies.read(exchange)
        async with watch_client(exchange.receive):
            with self._admission.enter(caller.user) as ticket:
                async with self._generation.gate.place(len(raw)):
                    body, terms, prompt = await self._prepare(raw, exchange)
                ticket.extend(num_sequences=1, prompt_tokens=prompt.num_tokens)
                await self._answer(exchange, body, prompt, terms)

    async def _prepare(self, raw: bytes, exchange: Exchange) -> tuple[ResponseBody, Terms, Prompt]:
        body, ignored = parse_response_body(read_json_object(raw))
        exchange.tell_ignored(ignored)
        self._generation.check_model(body.model)
        # Checked before the template takes its time.
        body.options().to_params(self._limits)
        terms = body_terms(exchange, body, self._limits, is_open=self._auth.is_open)
        return body, terms, await self._prompt(body, terms.deadline_s)

    async def _prompt(self, body: ResponseBody, deadline_s: float) -> Prompt:
        """Raises BadRequestError in this endpoint's words: what the template refuses stood in
        `input`."""
        messages = body.messages()
        try:
            return await self._generation.prepare_chat(
                messages, template=body.template(), deadline_s=deadline_s
            )
        except BadRequestError as error:
            if (error.param or "").startswith("messages"):
                error.param = "input"
            raise

    async def _answer(
        self, exchange: Exchange, body: ResponseBody, prompt: Prompt, terms: Terms
    ) -> None:
        room = self._generation.room(prompt, param="input")
        asked = body.max_output_tokens
        is_lowered = asked is not None and asked > room
        params = body.options().to_params(
            self._limits,
            defaults=self._generation.model.sampling_defaults,
            logprobs=body.num_logprobs,
        )
        head = ResponseHead(
            new_hex(16),
            int(time.time()),
            self._generation.model.name,
            body,
            params,
            room if is_lowered else asked,
            is_lowered,
            self._generation.prices,
        )
        reader = self._generation.piece_reader(
            prompt, body, logprobs=None if body.num_logprobs is None else response_logprobs
        )
        async with self._generation.submit(
            f"resp_{head.key}",
            prompt,
            params,
            salt=self._auth.cache_salt(exchange.caller),
            param="input",
            terms=terms,
        ) as stream:
            choice = ChoiceStream(0, stream, reader)
            if body.stream:
                job = StreamJob(ResponseEncoder(head), [choice])
                finishes = await stream_answer(exchange, job, self._limits)
                if finishes:
                    exchange.ended(finishes)
                return
            answer = await choice.collect()
        exchange.ended([answer.finish])
        await exchange.reply(
            whole_response(
                head, answer.piece, answer.finish, answer.detail, answer.reasoning_tokens
            )
        )
