"""`GenerationOptions`: what a client may choose about one answer, before it is validated."""

from __future__ import annotations

from typing import Any

import msgspec

from engine.api import InvalidRequestError, SamplingParams
from server.service.errors import BadRequestError
from server.service.limits import ServiceLimits

MAX_MAX_TOKENS = 2**31 - 1


class GenerationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """None everywhere means the default of `SamplingParams`; `max_tokens` None: as far as the
    window reaches. `stop` is one string or a list."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None

    def to_params(self, limits: ServiceLimits, *, index: int = 0) -> SamplingParams:
        """The checked sampling parameters of choice `index`, whose seed is `seed + index`.

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
        if self.max_tokens is not None and self.max_tokens > MAX_MAX_TOKENS:
            raise BadRequestError(
                f"max_tokens must be at most {MAX_MAX_TOKENS}", param="max_tokens"
            )
        if self.top_k is not None and self.top_k > MAX_MAX_TOKENS:
            raise BadRequestError(f"top_k must be at most {MAX_MAX_TOKENS}", param="top_k")
        chosen: dict[str, Any] = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            # -1 is another common way to say "off".
            "top_k": 0 if self.top_k == -1 else self.top_k,
            "min_p": self.min_p,
            "ignore_eos": self.ignore_eos,
        }
        try:
            return SamplingParams(
                seed=_choice_seed(self.seed, index),
                max_tokens=self.max_tokens,
                stop=stop,
                stop_token_ids=tuple(self.stop_token_ids or ()),
                **{name: value for name, value in chosen.items() if value is not None},
            )
        except InvalidRequestError as error:
            raise BadRequestError(str(error), param=error.param) from None


def _choice_seed(seed: int | None, index: int) -> int | None:
    if seed is None or index == 0:
        return seed
    return seed + index if seed + index < 2**64 else seed + index - 2**64
