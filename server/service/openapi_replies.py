"""What the server's replies hold, as structs that are never filled: the OpenAPI document is made
from them, and tests hold real replies against it.

An `UNSET` default means that the field may be missing; None that it may be null.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from engine.api import EngineState, FinishReason, FinishType


class ErrorDetail(msgspec.Struct):
    """`param` names the field at fault; `code` is the machine's word."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(msgspec.Struct):
    """OpenAI's error object."""

    error: ErrorDetail


class FinishDetailReply(msgspec.Struct, rename={"place": "in"}):
    """What exactly ended an answer. `matched`: the stop string, or the id of the stop token."""

    type: FinishType
    matched: str | int | UnsetType = UNSET
    place: Literal["reasoning"] | UnsetType = UNSET


class Cost(msgspec.Struct):
    """By the operator's prices, where there are any."""

    amount: float
    currency: str


class PromptTokensDetails(msgspec.Struct):
    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct):
    reasoning_tokens: int


class UsageReply(msgspec.Struct):
    """Tokens, with the cached part of the prompt in both common forms."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    prompt_cache_hit_tokens: int
    prompt_cache_miss_tokens: int
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET
    cost: Cost | UnsetType = UNSET


class TokenAlternative(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TokenAlternative):
    top_logprobs: list[TokenAlternative]


class ChatLogprobs(msgspec.Struct):
    content: list[TokenLogprob]
    refusal: None


class TextLogprobs(msgspec.Struct):
    """One entry in each list for every token of the text."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


class AnswerMessage(msgspec.Struct):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str | UnsetType | None = UNSET


class ChatChoice(msgspec.Struct):
    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    finish_detail: FinishDetailReply


class TextChoice(msgspec.Struct):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: FinishReason
    finish_detail: FinishDetailReply


class _CompletionReply(msgspec.Struct, kw_only=True):
    id: str
    created: int
    model: str
    max_tokens: int | UnsetType = UNSET
    max_tokens_lowered: Literal[True] | UnsetType = UNSET


class ChatCompletion(_CompletionReply, kw_only=True):
    """`max_tokens` is told when it had to be lowered to what the window leaves."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: UsageReply


class TextCompletion(_CompletionReply, kw_only=True):
    """`max_tokens` is told when it had to be lowered to what the window leaves."""

    object: Literal["text_completion"]
    choices: list[TextChoice]
    usage: UsageReply


class Delta(msgspec.Struct):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct):
    index: int
    delta: Delta
    finish_reason: FinishReason | None
    logprobs: ChatLogprobs | None = None
    finish_detail: FinishDetailReply | UnsetType = UNSET


class TextChunkChoice(msgspec.Struct):
    index: int
    text: str
    finish_reason: FinishReason | None
    logprobs: TextLogprobs | None = None
    finish_detail: FinishDetailReply | UnsetType = UNSET


class ChatCompletionChunk(_CompletionReply, kw_only=True):
    """One event of a streamed chat. With `stream_options.include_usage` every chunk has `usage`:
    null, but in the last, which has no choices."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice]
    usage: UsageReply | UnsetType | None = UNSET


class TextCompletionChunk(_CompletionReply, kw_only=True):
    """One event of a streamed text completion."""

    object: Literal["text_completion"]
    choices: list[TextChunkChoice]
    usage: UsageReply | UnsetType | None = UNSET


class OutputText(msgspec.Struct):
    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[TokenLogprob]


class ReasoningText(msgspec.Struct):
    type: Literal["reasoning_text"]
    text: str


ItemStatus = Literal["in_progress", "completed", "incomplete"]


class MessageItem(msgspec.Struct, tag_field="type", tag="message"):
    id: str
    status: ItemStatus
    role: Literal["assistant"]
    content: list[OutputText]


class ReasoningItem(msgspec.Struct, tag_field="type", tag="reasoning"):
    id: str
    status: ItemStatus
    summary: list[Any]
    content: list[ReasoningText]


class IncompleteDetails(msgspec.Struct):
    reason: Literal["max_output_tokens", "abort"]


class ResponseError(msgspec.Struct):
    code: str
    message: str


class InputTokensDetails(msgspec.Struct):
    cached_tokens: int
    cache_write_tokens: int


class ResponseUsage(msgspec.Struct):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: CompletionTokensDetails
    total_tokens: int
    cost: Cost | UnsetType = UNSET


class Response(msgspec.Struct, kw_only=True):
    """A response, whole or as far as it has come. `max_tokens_lowered`: `max_output_tokens` is
    what the window leaves, not what was asked."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    error: ResponseError | None
    incomplete_details: IncompleteDetails | None
    finish_detail: FinishDetailReply | UnsetType = UNSET
    model: str
    output: list[MessageItem | ReasoningItem]
    usage: ResponseUsage | None
    instructions: str | None
    max_output_tokens: int | None
    max_tokens_lowered: Literal[True] | UnsetType = UNSET
    metadata: dict[str, str]
    temperature: float
    top_p: float
    top_logprobs: int
    user: str | None
    store: Literal[False]
    background: Literal[False]
    parallel_tool_calls: bool
    previous_response_id: None
    reasoning: dict[str, Any]
    text: dict[str, Any]
    tool_choice: Literal["auto"]
    tools: list[Any]
    truncation: Literal["disabled"]


class ResponseEvent(msgspec.Struct):
    """One event of a streamed response; the other fields go with its type. Exactly one of
    `response.completed`, `response.incomplete` and `response.failed` is the last."""

    type: str
    sequence_number: int
    response: Response | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    content_index: int | UnsetType = UNSET
    item_id: str | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET


class Model(msgspec.Struct):
    """`max_model_len`: prompt and answer together, in tokens."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int
    context_length: int


class ModelList(msgspec.Struct):
    object: Literal["list"]
    data: list[Model]


class Tokenized(msgspec.Struct):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | UnsetType = UNSET


class Detokenized(msgspec.Struct):
    prompt: str


class Health(msgspec.Struct):
    status: Literal["ok", "engine failed"]


class Readiness(msgspec.Struct):
    ready: bool
    state: EngineState


BY_ROUTE = (
    Error,
    ChatCompletion,
    ChatCompletionChunk,
    TextCompletion,
    TextCompletionChunk,
    Response,
    ResponseEvent,
    Model,
    ModelList,
    Tokenized,
    Detokenized,
    Health,
    Readiness,
)
"""Those that the document's paths refer to; the others are in them."""
