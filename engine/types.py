"""Values that cross the engine's border: requests in, outputs out. Frozen, free of torch.

Times ending in `_s` are seconds. `deadline_s`, `arrival_s` are on the `time.monotonic()` clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NewType

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
    `cached_tokens` is the part of the prompt that the prefix cache really supplied."""

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


@dataclass(frozen=True, slots=True)
class RequestOutput:
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


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen and when a sequence ends.

    temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 are off. `max_tokens` None: as far as
    the window reaches. `seed` None: the engine draws one. Raises `InvalidRequestError`, which
    names the field and its range."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        _check_range("temperature", self.temperature, 0.0, 2.0)
        _check_range("top_p", self.top_p, 0.0, 1.0)
        _check_range("min_p", self.min_p, 0.0, 1.0)
        if self.top_p == 0.0:
            raise InvalidRequestError("top_p must be greater than 0", param="top_p")
        if self.top_k < 0:
            raise InvalidRequestError("top_k must be 0 (off) or positive", param="top_k")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidRequestError(
                f"max_tokens must be at least 1, not {self.max_tokens}", param="max_tokens"
            )
        if self.seed is not None and not -(2**63) <= self.seed < 2**64:
            raise InvalidRequestError("seed must fit in 64 bits", param="seed")
        if any(not text for text in self.stop):
            raise InvalidRequestError("stop must not hold an empty string", param="stop")


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

    request_id: RequestId
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    continued_token_ids: tuple[int, ...] = ()
    continued_text: str | None = None
    cache_salt: str = ""
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
    generated_tokens: int = 0
    last_step_s: float = 0.0
