"""`POST /tokenize` and `POST /detokenize`: what the model reads, as token ids, and back.

Both show what the completion routes do: a `prompt` is a raw completion's, in which the text of a
control token is that token, and `messages` go through the model's chat template.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from server.service.admission import Admission
from server.service.errors import BadRequestError
from server.service.events import to_json
from server.service.exchange import Exchange
from server.service.generation import Generation
from server.service.http import read_json_object, watch_client
from server.service.limits import ServiceLimits
from server.service.messages import ChatMessage
from server.service.template_options import template_options
from server.service.token_logprobs import TokenTexts
from server.service.validation import refuse_nul, told_validation

MAX_TOKENS = 1 << 18
"""Tokens that one request may ask to see the text of."""
_SLICE_ITEMS = 1 << 15


class TokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    """One of `prompt` and `messages`. `add_special_tokens`: whether a prompt gets the BOS token
    that the model's tokenizer puts in front; None: yes. Templates write their own."""

    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    tokens: list[int]
    model: str | None = None


Body = TypeVar("Body", TokenizeBody, DetokenizeBody)


class TokenizeRoutes:
    """Owned by the event loop's thread."""

    def __init__(self, generation: Generation, admission: Admission, limits: ServiceLimits) -> None:
        self._generation = generation
        self._admission = admission
        self._limits = limits

    async def tokenize(self, exchange: Exchange) -> None:
        body = await self._read(exchange, TokenizeBody)
        if (body.prompt is None) == (body.messages is None):
            raise BadRequestError("either prompt or messages must be given", param="prompt")
        with self._admission.enter_tokenizer(exchange.caller.user):
            async with watch_client(exchange.receive):
                token_ids = await self._encode(body)
                reply = await self._generation.prompts.in_pool(
                    lambda: self._tokenized(token_ids, with_texts=bool(body.return_token_strs)),
                    len(token_ids),
                )
        await exchange.reply(reply)

    async def detokenize(self, exchange: Exchange) -> None:
        body = await self._read(exchange, DetokenizeBody)
        if len(body.tokens) > MAX_TOKENS:
            raise BadRequestError(f"tokens may hold at most {MAX_TOKENS} ids", param="tokens")
        with self._admission.enter_tokenizer(exchange.caller.user):
            async with watch_client(exchange.receive):
                text = await self._generation.prompts.text_of(body.tokens, param="tokens")
        await exchange.reply(to_json({"prompt": text}))

    async def _read(self, exchange: Exchange, kind: type[Body]) -> Body:
        """The checked body. Raises ServiceError."""
        self._admission.check()
        raw = read_json_object(await self._admission.bodies.read(exchange))
        try:
            body = msgspec.convert(raw, kind)
        except msgspec.ValidationError as error:
            raise told_validation(error) from None
        self._generation.check_model(body.model)
        return body

    async def _encode(self, body: TokenizeBody) -> Sequence[int]:
        if body.messages is not None:
            template = template_options(
                body.add_generation_prompt, body.continue_final_message, body.chat_template_kwargs
            )
            prompt = await self._generation.prepare_chat(body.messages, template=template)
            return prompt.token_ids
        text = body.prompt or ""
        refuse_nul(text, "prompt")
        add_bos = body.add_special_tokens is not False
        encode = self._generation.tokenizer.encode
        return await self._generation.prompts.in_pool(
            lambda: encode(text, parse_special=True, add_bos=add_bos), len(text)
        )

    def _tokenized(self, token_ids: Sequence[int], *, with_texts: bool) -> bytes:
        strs = b""
        if with_texts:
            texts = TokenTexts(self._generation.tokenizer)
            strs = b',"token_strs":' + list_json([texts.text_of(one) for one in token_ids])
        return b'{"count":%d,"max_model_len":%d,"tokens":%b%b}' % (
            len(token_ids),
            self._generation.model.window,
            list_json(token_ids),
            strs,
        )


def list_json(items: Sequence[Any]) -> bytes:
    """The JSON of a list, however long, made in slices: encoding holds the interpreter's lock."""
    slices = (items[at : at + _SLICE_ITEMS] for at in range(0, len(items), _SLICE_ITEMS))
    return b"[%b]" % b",".join(to_json(one)[1:-1] for one in slices)
