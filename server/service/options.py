"""`GenerationOptions`: what a client may choose about one answer, before it is validated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from engine.api import InvalidRequestError, SamplingParams
from server.service.errors import BadRequestError
from server.service.limits import ServiceLimits

MAX_MAX_TOKENS = 2**31 - 1
_TOKEN_ID = re.compile(r"[0-9]{1,9}")


class GenerationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """None everywhere means the default of `SamplingParams`, which says what each field means;
    `max_tokens` None: as far as the window reaches. `stop` is one string or a list; `logit_bias`
    has token ids as strings, as OpenAI's."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    logit_bias: dict[str, float] | None = None
    include_stop_str_in_output: bool | None = None
    timeout: float | None = None
    priority: str | None = None
    """These two as `request_terms.terms` has them."""

    def to_params(
        self,
        limits: ServiceLimits,
        *,
        defaults: Mapping[str, float] | None = None,
        index: int = 0,
        logprobs: int | None = None,
    ) -> SamplingParams:
        """The checked sampling parameters of choice `index`, whose seed is `seed + index`.
        `defaults` are the model's own, for fields that are None.

        Raises BadRequestError naming the field."""
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        if len(stop) > limits.max_stops:
            raise BadRequestError(f"stop may hold at most {limits.max_stops} strings", param="stop")
        if any(len(text) > limits.max_stop_chars for text in stop):
            raise BadRequestError(
                f"a stop string may have at most {limits.max_stop_chars} characters", param="stop"
            )
        if len(self.stop_token_ids or ()) > limits.max_stops:
            raise BadRequestError(
                f"stop_token_ids may hold at most {limits.max_stops} ids", param="stop_token_ids"
            )
        for name in ("max_tokens", "min_tokens", "top_k"):
            value = getattr(self, name)
            if value is not None and value > MAX_MAX_TOKENS:
                raise BadRequestError(f"{name} must be at most {MAX_MAX_TOKENS}", param=name)
        chosen: dict[str, Any] = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            # -1 is another common way to say "off".
            "top_k": 0 if self.top_k == -1 else self.top_k,
            "min_p": self.min_p,
            "ignore_eos": self.ignore_eos,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "repetition_penalty": self.repetition_penalty,
            "min_tokens": self.min_tokens,
        }
        try:
            return SamplingParams(
                seed=_choice_seed(self.seed, index),
                max_tokens=self.max_tokens,
                stop=stop,
                stop_token_ids=tuple(self.stop_token_ids or ()),
                logit_bias=_logit_bias(self.logit_bias or {}, limits.max_logit_biases),
                logprobs=logprobs,
                **{
                    **(defaults or {}),
                    **{name: value for name, value in chosen.items() if value is not None},
                },
            )
        except InvalidRequestError as error:
            raise BadRequestError(str(error), param=error.param) from None


def _choice_seed(seed: int | None, index: int) -> int | None:
    if seed is None or index == 0:
        return seed
    return seed + index if seed + index < 2**64 else seed + index - 2**64


def _logit_bias(biases: Mapping[str, float], most: int) -> tuple[tuple[int, float], ...]:
    """Raises BadRequestError for too many, and for a key that is no token id. Whether the model
    has such a token is the engine's to say."""
    if len(biases) > most:
        raise BadRequestError(f"logit_bias may hold at most {most} tokens", param="logit_bias")
    for key in biases:
        if not _TOKEN_ID.fullmatch(key):
            raise BadRequestError(
                f"logit_bias has the key {key[:40]!r}, which is no token id", param="logit_bias"
            )
    return tuple((int(key), bias) for key, bias in biases.items())
