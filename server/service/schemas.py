"""OpenAI request bodies: which fields are read, which are known but not supported, and how both
are checked.

A body goes three ways: fields of the struct are converted and checked; a field of `_NOT_SUPPORTED`
is refused unless its value is neutral, that is, would not change the answer; fields of
`_NO_EFFECT` are accepted; any other field is ignored and named in the reply's `X-Lectern-Ignored`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from engine.api import SamplingParams
from server.service.errors import BadRequestError
from server.service.limits import ServiceLimits
from server.service.messages import ChatMessage
from server.service.options import MAX_MAX_TOKENS, GenerationOptions
from server.service.template_options import TemplateOptions, template_options
from server.service.validation import check_metadata, ignored_names, told_validation

MAX_LOGPROBS = SamplingParams.MAX_LOGPROBS


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class CompletionFields(GenerationOptions, frozen=True, kw_only=True):
    """What both endpoints share. None means the default everywhere."""

    model: str | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    service_tier: str | None = None
    metadata: dict[str, str] | None = None

    @property
    def num_choices(self) -> int:
        return 1 if self.n is None else self.n

    @property
    def num_prompts(self) -> int:
        return 1

    @property
    def num_logprobs(self) -> int | None:
        """How many alternatives are told with each token's log probability; None: tell none."""
        raise NotImplementedError

    @property
    def length_limit(self) -> tuple[str, int | None]:
        """The field that says how long an answer may be, and what it says."""
        return "max_tokens", self.max_tokens

    @property
    def least_max_tokens(self) -> int:
        """The shortest answer that may be asked for."""
        return 1

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def options(self, max_tokens: int | None) -> GenerationOptions:
        """With the endpoint's own word on `max_tokens`. Raises BadRequestError for a
        `min_tokens` beyond it."""
        if max_tokens is not None and (self.min_tokens or 0) > max_tokens:
            raise BadRequestError(
                f"min_tokens ({self.min_tokens}) must not be more than max_tokens ({max_tokens})",
                param="min_tokens",
            )
        fields = {name: getattr(self, name) for name in GenerationOptions.__struct_fields__}
        return GenerationOptions(**{**fields, "max_tokens": max_tokens})

    def check(self) -> None:
        """Raises BadRequestError for fields that do not go together."""


class ChatCompletionBody(CompletionFields, frozen=True, kw_only=True):
    messages: list[ChatMessage]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @property
    def length_limit(self) -> tuple[str, int | None]:
        if self.max_completion_tokens is None:
            return "max_tokens", self.max_tokens
        return "max_completion_tokens", self.max_completion_tokens

    @property
    def num_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    def template(self) -> TemplateOptions:
        """How the messages become a prompt. Raises BadRequestError."""
        return template_options(
            self.add_generation_prompt, self.continue_final_message, self.chat_template_kwargs
        )

    def check(self) -> None:
        self.template()
        if self.top_logprobs is None:
            return
        if not 0 <= self.top_logprobs <= MAX_LOGPROBS:
            raise BadRequestError(
                f"top_logprobs must be from 0 to {MAX_LOGPROBS}, not {self.top_logprobs}",
                param="top_logprobs",
            )
        if self.top_logprobs and not self.logprobs:
            raise BadRequestError("top_logprobs needs logprobs to be true", param="top_logprobs")


class CompletionBody(CompletionFields, frozen=True, kw_only=True):
    prompt: str | list[str | int | list[int]]
    logprobs: int | bool | None = None
    best_of: int | None = None
    echo: bool | None = None

    @property
    def least_max_tokens(self) -> int:
        return 0 if self.echo else 1

    @property
    def num_prompts(self) -> int:
        prompt = self.prompt
        # The first item tells: `prompts` refuses a list of several kinds.
        is_one = isinstance(prompt, str) or not prompt or isinstance(prompt[0], int)
        return 1 if is_one else len(prompt)

    @property
    def num_logprobs(self) -> int | None:
        return None if self.logprobs is False else self.logprobs

    def check(self) -> None:
        if self.logprobs is True or not 0 <= (self.logprobs or 0) <= MAX_LOGPROBS:
            raise BadRequestError(
                f"logprobs must be a number from 0 to {MAX_LOGPROBS}, not {self.logprobs}",
                param="logprobs",
            )
        if self.echo and self.num_logprobs is not None:
            raise BadRequestError(
                "echo together with logprobs is not supported by this server: it does not "
                "compute the probabilities of a prompt's tokens",
                param="echo",
            )
        if self.best_of is not None and self.best_of != self.num_choices:
            raise BadRequestError(
                "best_of is not supported by this server, unless it equals n", param="best_of"
            )

    def prompts(self, max_prompts: int) -> list[str | list[int]]:
        """One or more prompts: a text, a list of texts, token ids, or a list of those.
        Raises BadRequestError."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        # No loops in Python over what may be a list of half a million.
        kinds = set(map(type, self.prompt))
        if kinds == {int}:
            return [cast(list[int], self.prompt)]
        if len(self.prompt) > max_prompts:
            raise BadRequestError(f"prompt may hold at most {max_prompts} prompts", param="prompt")
        if len(kinds) == 1:
            return [item for item in self.prompt if not isinstance(item, int)]
        raise BadRequestError(
            "prompt must be a text, a list of texts, token ids or a list of lists of token ids, "
            "and not be empty",
            param="prompt",
        )


Body = TypeVar("Body", bound=CompletionFields)

_OFF: tuple[Any, ...] = (None, False)
_EMPTY: tuple[Any, ...] = (None, [], {})
_NOT_SUPPORTED: dict[str, tuple[Any, ...]] = {
    "top_logprobs": (None, 0),
    "echo": _OFF,
    "chat_template": (None,),
    "documents": _EMPTY,
    "structured_outputs": (None,),
    "use_beam_search": _OFF,
    "truncate_prompt_tokens": (None,),
    "allowed_token_ids": _EMPTY,
    "bad_words": _EMPTY,
    "skip_special_tokens": (None, True),
    "prompt_logprobs": (None,),
    "suffix": (None, ""),
    "best_of": (None, 1),
    "tools": _EMPTY,
    "tool_choice": (None, "none", "auto"),
    "functions": _EMPTY,
    "function_call": (None, "none", "auto"),
    "response_format": (None, {"type": "text"}),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "reasoning_effort": (None,),
    "verbosity": (None,),
    "web_search_options": (None,),
    "guided_json": (None,),
    "guided_regex": (None,),
    "guided_choice": (None,),
    "guided_grammar": (None,),
}
"""Known fields that this server does not implement, each with its neutral values. An endpoint
that does read one of them says so in its struct."""

_NO_EFFECT = frozenset(
    {
        "store",
        "parallel_tool_calls",
        "prediction",
        "prompt_cache_key",
        "safety_identifier",
        "request_id",
    }
)
"""Known fields that do not change the answer."""


def parse(
    raw: dict[str, Any], kind: type[Body], limits: ServiceLimits
) -> tuple[Body, Sequence[str]]:
    """The checked body, and the names of fields that were ignored (safe in a header).

    Raises BadRequestError naming the field."""
    try:
        body = msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise told_validation(error) from None
    name, limit = body.length_limit
    if limit is not None and limit < (least := body.least_max_tokens):
        raise BadRequestError(f"{name} must be at least {least}, not {limit}", param=name)
    if limit is not None and limit > MAX_MAX_TOKENS:
        raise BadRequestError(f"{name} must be at most {MAX_MAX_TOKENS}", param=name)
    if not 1 <= body.num_choices <= limits.max_choices:
        raise BadRequestError(f"n must be from 1 to {limits.max_choices}", param="n")
    num_sequences = body.num_prompts * body.num_choices
    if num_sequences > (most := limits.max_sequences_per_request):
        raise BadRequestError(
            f"prompt ({body.num_prompts}) times n ({body.num_choices}) asks for {num_sequences} "
            f"answers; one request may ask for at most {most}",
            param="prompt" if body.num_prompts > 1 else "n",
        )
    check_metadata(body.metadata or {})
    body.check()
    for field, neutral in unsupported_fields(kind).items():
        if field in raw and not is_among(raw[field], neutral):
            raise BadRequestError(f"{field} is not supported by this server", param=field)
    return body, ignored_names(raw, _known_fields(kind))


@cache
def _read_fields(kind: type[GenerationOptions]) -> frozenset[str]:
    return frozenset(field.encode_name for field in msgspec.structs.fields(kind))


@cache
def _known_fields(kind: type[CompletionFields]) -> frozenset[str]:
    return _read_fields(kind) | _NO_EFFECT | _NOT_SUPPORTED.keys()


def is_among(value: Any, neutral: tuple[Any, ...]) -> bool:
    """Whether `value` is one of `neutral`, of the same kind."""
    # 0 == False, but `logprobs: 0` asks for something where `logprobs: false` does not.
    return any(
        value == item and isinstance(value, bool) == isinstance(item, bool) for item in neutral
    )


@cache
def unsupported_fields(kind: type[GenerationOptions]) -> dict[str, tuple[Any, ...]]:
    """Fields that this server knows and `kind` does not read, each with its neutral values."""
    read = _read_fields(kind)
    return {name: values for name, values in _NOT_SUPPORTED.items() if name not in read}


def fields_without_effect(kind: type[GenerationOptions]) -> frozenset[str]:
    """Fields that are accepted and change nothing."""
    return _NO_EFFECT - _read_fields(kind)
