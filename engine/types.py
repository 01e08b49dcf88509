"""Values that cross the engine's border: requests in, outputs out. Frozen, free of torch.

Times ending in `_s` are seconds. `deadline_s`, `arrival_s` are on the `time.monotonic()` clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, NewType

import msgspec

from engine.errors import InvalidRequestError

RequestId = NewType("RequestId", str)

LoadProgress = Callable[[str, float | None], None]
"""Called while a model is fetched and loaded: a sentence for people, and a fraction done."""


class EngineState(StrEnum):
    """starting → ready → draining → stopped; or dead, when the engine thread failed."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"
    DEAD = "dead"


class FinishReason(StrEnum):
    """OpenAI's word for how a generation ended, plus `abort` and `error`."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    ABORT = "abort"
    ERROR = "error"


class FinishType(StrEnum):
    """What exactly happened. Each type belongs to one `FinishReason` (`reason`)."""

    EOS = "eos"
    STOP_TOKEN = "stop_token"
    STOP_STRING = "stop_string"
    MAX_TOKENS = "max_tokens"
    CONTEXT_WINDOW = "context_window"
    KV_CAPACITY = "kv_capacity"
    TOOL_CALLS = "tool_calls"
    CANCELLED = "cancelled"
    CLIENT_GONE = "client_gone"
    SLOW_CLIENT = "slow_client"
    DEADLINE = "deadline"
    SHUTDOWN = "shutdown"
    ERROR = "error"

    @property
    def reason(self) -> FinishReason:
        """The OpenAI-style reason that this type is reported under."""
        return _REASONS[self]

    @property
    def leaves_room(self) -> bool:
        """Whether the sequence was cut where it could go on: neither did the model end it, nor is
        the window or the cache full."""
        return self is FinishType.MAX_TOKENS or self.reason in (
            FinishReason.ABORT,
            FinishReason.ERROR,
        )


_REASONS = {
    FinishType.EOS: FinishReason.STOP,
    FinishType.STOP_TOKEN: FinishReason.STOP,
    FinishType.STOP_STRING: FinishReason.STOP,
    FinishType.MAX_TOKENS: FinishReason.LENGTH,
    FinishType.CONTEXT_WINDOW: FinishReason.LENGTH,
    FinishType.KV_CAPACITY: FinishReason.LENGTH,
    FinishType.TOOL_CALLS: FinishReason.TOOL_CALLS,
    FinishType.CANCELLED: FinishReason.ABORT,
    FinishType.CLIENT_GONE: FinishReason.ABORT,
    FinishType.SLOW_CLIENT: FinishReason.ABORT,
    FinishType.DEADLINE: FinishReason.ABORT,
    FinishType.SHUTDOWN: FinishReason.ABORT,
    FinishType.ERROR: FinishReason.ERROR,
}


@dataclass(frozen=True, slots=True)
class FinishDetail:
    """What ended a generation. `matched`: the stop string, or the id of the stop token."""

    type: FinishType
    matched: str | int | None = None

    def to_json(self) -> dict[str, Any]:
        """`{"type": …}` with `matched` only where there is one."""
        if self.matched is None:
            return {"type": self.type.value}
        return {"type": self.type.value, "matched": self.matched}


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one sequence. `completion_tokens` counts every sampled token, EOS too;
    `cached_tokens` is the part of the prompt that was really supplied by the prefix cache, or by
    another choice with the same prompt, and not computed for this one."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds since the request's arrival. None: that point was never reached."""

    queue_s: float | None = None
    ttft_s: float | None = None
    total_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Finish:
    """The terminal part of a request's output. Every accepted request gets exactly one."""

    detail: FinishDetail
    usage: Usage = field(default_factory=Usage)
    timing: Timing = field(default_factory=Timing)
    message: str | None = None
    """For `FinishType.ERROR`: a sentence for people, without a traceback or a path."""

    @property
    def reason(self) -> FinishReason:
        """The OpenAI-style finish reason."""
        return self.detail.type.reason


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a request's prefill stands; sent when it is first scheduled and after each chunk.

    `prefilled` counts prompt tokens whose keys and values are in the cache, `cached` of which
    came from the prefix cache, of `total` prompt tokens."""

    prefilled: int
    total: int
    cached: int


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """How likely a sampled token was, in nats, and the `top` alternatives as (id, logprob), most
    likely first. Log probabilities are those of the model's own distribution, before penalties,
    temperature and filters; they are finite."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class RequestOutput(msgspec.Struct, frozen=True, gc=False):
    """What is new for one request since the last output. Deltas merge (`merge`). `logprobs` has
    one entry for each of `token_ids` where the request asked for them, else none."""

    request_id: RequestId
    text: str = ""
    token_ids: tuple[int, ...] = ()
    progress: Progress | None = None
    finish: Finish | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()

    def merge(self, later: RequestOutput) -> RequestOutput:
        """This delta followed by `later`, as one delta."""
        return RequestOutput(
            self.request_id,
            self.text + later.text,
            self.token_ids + later.token_ids,
            later.progress or self.progress,
            later.finish or self.finish,
            self.logprobs + later.logprobs,
        )


MAX_REPETITION_PENALTY = 100.0
MAX_LOGIT_BIAS = 100.0
"""The largest bias of a token, either way."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen and when a sequence ends. Raises `InvalidRequestError`, which names
    the field and its range.

    The model's logits are changed in this order: `repetition_penalty`, `frequency_penalty` and
    `presence_penalty`, `logit_bias`, then `min_tokens`; what is left is filtered in the order
    temperature, top-k, top-p, min-p. "Output" is what follows `GenerationRequest.prompt_token_ids`,
    so that of a continued answer, too: a continuation is drawn as the uninterrupted answer is."""

    MAX_LOGPROBS: ClassVar[int] = 20
    """The most alternatives that `logprobs` may ask for."""
    MAX_LOGIT_BIASES: ClassVar[int] = 1024
    """The most tokens that `logit_bias` may name."""
    MAX_STOP_TOKEN_IDS: ClassVar[int] = 256
    """The most ids in `stop_token_ids`. A GPU keeps these and the biases in tables of fixed size
    (`engine.kernels.triton.sampling_layout`); requests are the same on every device."""

    temperature: float = 1.0
    """0 (or nearly) is greedy."""
    top_p: float = 1.0
    """Keep the likeliest tokens up to this mass; 1 is off."""
    top_k: int = 0
    """Keep the k likeliest tokens, and those as likely as the k-th; 0 is off, 1 is greedy."""
    min_p: float = 0.0
    """Keep tokens at least so likely, as a part of the likeliest one's probability; 0 is off."""
    seed: int | None = None
    """None: the engine draws one."""
    max_tokens: int | None = None
    """New tokens at most. None: as far as the window reaches."""
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    presence_penalty: float = 0.0
    """Taken from the logit of each token that the output has (OpenAI)."""
    frequency_penalty: float = 0.0
    """Taken from a token's logit once for each time that the output has it (OpenAI)."""
    repetition_penalty: float = 1.0
    """Divides the positive and multiplies the negative logits of tokens that prompt or output
    have (Keskar et al., 2019; as in Hugging Face's generation); 1 is off."""
    min_tokens: int = 0
    """None of the first so many output tokens ends the sequence: EOS (unless `ignore_eos`) and
    `stop_token_ids` cannot be drawn for them, and a stop string that one of them completes is
    ordinary text. Limits (`max_tokens`, the window) still hold."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, bias) pairs, each id once; the bias is added to the logit."""
    logprobs: int | None = None
    """Log probabilities of the sampled tokens, with so many alternatives. None: none at all."""

    def __post_init__(self) -> None:
        _check_range("temperature", self.temperature, 0.0, 2.0)
        _check_range("top_p", self.top_p, 0.0, 1.0)
        _check_range("min_p", self.min_p, 0.0, 1.0)
        _check_range("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _check_range("repetition_penalty", self.repetition_penalty, 0.0, MAX_REPETITION_PENALTY)
        for name in ("top_p", "repetition_penalty"):
            if getattr(self, name) == 0.0:
                raise InvalidRequestError(f"{name} must be greater than 0", param=name)
        if self.top_k < 0:
            raise InvalidRequestError("top_k must be 0 (off) or positive", param="top_k")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidRequestError(
                f"max_tokens must be at least 1, not {self.max_tokens}", param="max_tokens"
            )
        if self.min_tokens < 0:
            raise InvalidRequestError(
                f"min_tokens must be 0 (off) or positive, not {self.min_tokens}",
                param="min_tokens",
            )
        if self.seed is not None and not -(2**63) <= self.seed < 2**64:
            raise InvalidRequestError("seed must fit in 64 bits", param="seed")
        for name, count, most in (
            ("logit_bias", len(self.logit_bias), self.MAX_LOGIT_BIASES),
            ("stop_token_ids", len(self.stop_token_ids), self.MAX_STOP_TOKEN_IDS),
        ):
            if count > most:
                raise InvalidRequestError(
                    f"{name} may name at most {most} tokens, not {count}", param=name
                )
        if any(not text for text in self.stop):
            raise InvalidRequestError("stop must not hold an empty string", param="stop")
        if self.logprobs is not None:
            _check_range("logprobs", self.logprobs, 0, self.MAX_LOGPROBS)
        for token_id, bias in self.logit_bias:
            if not -MAX_LOGIT_BIAS <= bias <= MAX_LOGIT_BIAS:  # also refuses NaN
                raise InvalidRequestError(
                    f"logit_bias of token {token_id} must be between {-MAX_LOGIT_BIAS:g} and "
                    f"{MAX_LOGIT_BIAS:g}, not {bias}",
                    param="logit_bias",
                )
        if len({token_id for token_id, _ in self.logit_bias}) < len(self.logit_bias):
            raise InvalidRequestError("logit_bias names a token twice", param="logit_bias")

    @property
    def has_penalties(self) -> bool:
        """Whether the logits depend on the tokens so far."""
        return (
            self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
            or self.repetition_penalty != 1.0
        )

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raises InvalidRequestError for a token id outside 0 … vocab_size - 1."""
        for name, token_ids in (
            ("logit_bias", [token_id for token_id, _ in self.logit_bias]),
            ("stop_token_ids", self.stop_token_ids),
        ):
            for token_id in token_ids:
                if not 0 <= token_id < vocab_size:
                    raise InvalidRequestError(
                        f"{name} names token {token_id}, which is outside the vocabulary of "
                        f"{vocab_size}",
                        param=name,
                    )


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # also refuses NaN
        raise InvalidRequestError(
            f"{name} must be between {low:g} and {high:g}, not {value}", param=name
        )


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One sequence to generate.

    `prompt_token_ids` is what the template made. `continued_token_ids` are output tokens of an
    earlier, cut generation that this one extends: they are prefilled after the prompt and count
    as prompt tokens in `Usage`. `continued_text` is what was shown of their text (None: all of
    it): this part is not sent again; the rest is, an unfinished character at the end is
    completed, and a stop string may lie across the seam. `cache_salt` roots the prefix cache:
    only equal salts share.
    """

    MAX_FORCED_TOKENS: ClassVar[int] = 1024
    """The most ids in `forced_token_ids`; a GPU keeps them in a table."""

    request_id: RequestId
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    continued_token_ids: tuple[int, ...] = ()
    continued_text: str | None = None
    cache_salt: str = ""
    forced_token_ids: tuple[int, ...] = ()
    """The first tokens of the output, whatever the model would draw there: with
    `SamplingParams.logprobs` they tell how likely the model holds a text after the prompt. One
    that ends sequences ends this one."""
    may_continue: bool = False
    """The caller keeps the tokens, and may continue a cut answer from them. Text that may begin a
    stop string is then kept back at the cut, as an unfinished character is, and comes with the
    continuation where no stop string came of it. Otherwise it belongs to the cut answer's text."""
    user: str = ""
    """Whose work it is: fair shares are kept between users."""
    same_prompt_as: RequestId | None = None
    """A request submitted before, with the same prompt tokens and salt (another choice of one
    `n` > 1): its computed prompt is shared, the last block by copy on write."""
    priority: int = 0
    """Lower runs first among those waiting."""
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the service and the page may say about the served model."""

    name: str
    """The served name, as in `GET /v1/models`."""
    max_model_len: int
    """Prompt and answer together, in tokens."""
    vocab_size: int
    architecture: str
    dtype: str
    device: str
    kv_cache_tokens: int
    kv_cache_bytes: int = 0
    """What the KV cache takes; 0: not known."""
    gpu_bytes: int = 0
    """What the process has of the GPU's memory when the model is ready; 0 without a GPU."""
    sampling_defaults: Mapping[str, float] = field(default_factory=dict)
    """Fields of `SamplingParams` that the model's makers set, for requests that leave them out."""
    is_fallback: bool = False
    """True when the default model could not be had and a smaller one answers."""

    @property
    def window(self) -> int:
        """Tokens that one sequence can have at all: the model's window, or the whole KV cache
        where that is smaller."""
        return min(self.max_model_len, self.kv_cache_tokens)


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot of gauges and counters, made by the engine thread after each step."""

    num_running: int = 0
    num_waiting: int = 0
    free_blocks: int = 0
    cached_blocks: int = 0
    used_blocks: int = 0
    total_blocks: int = 0
    num_steps: int = 0
    num_preemptions: int = 0
    num_finished: int = 0
    num_aborted: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefix_lookup_tokens: int = 0
    """Prompt tokens of requests that were admitted and had to look into the prefix cache."""
    prefix_hit_tokens: int = 0
    """What it had of them."""
    num_forks: int = 0
    """Requests that took the computed prompt of another choice."""
    generated_tokens: int = 0
    drafted_tokens: int = 0
    """Guesses that steps have checked."""
    accepted_tokens: int = 0
    """Generated tokens that were guessed: each came without a step of its own."""
    last_step_s: float = 0.0
