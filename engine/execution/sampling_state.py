"""What a request wants of the GPU's sampling kernels, as numbers to be uploaded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.execution.keyed_noise import mixed_seed
from engine.execution.sampler import is_greedy
from engine.kernels.triton import sampling_layout as layout
from engine.scheduling.sequence import Sequence as EngineSequence
from engine.types import SamplingParams

_Ints = npt.NDArray[np.int64]

_NEVER = 1 << 62
"""A position that no sequence has: `min_tokens` is of any size."""


@dataclass(frozen=True, slots=True)
class SlotState:
    """`words`: the parameters, int64 [NUM_PARAM_WORDS]. `biases`: (token id, bias) pairs, and
    `blocked_ids`: what `min_tokens` holds back. `forced_ids`: the output's first tokens.
    `counts`: token ids with the numbers of `sampling_layout.MAX_COUNT`, for requests with
    penalties."""

    words: _Ints
    biases: tuple[tuple[int, float], ...] = ()
    blocked_ids: tuple[int, ...] = ()
    forced_ids: tuple[int, ...] = ()
    counts: tuple[_Ints, _Ints] | None = None


def slot_state(
    sequence: EngineSequence, eos_token_ids: frozenset[int], vocab_size: int
) -> SlotState:
    """What `sequence` wants, all of whose tokens are known."""
    params = sequence.request.params
    num_prompt_tokens = len(sequence.request.prompt_token_ids)
    blocked = blocked_ids(params, eos_token_ids, vocab_size)
    flags = layout.IS_GREEDY.value if is_greedy(params) else 0
    counts = None
    if params.has_penalties:
        flags |= layout.IS_PENALIZED.value | layout.IS_ADJUSTED.value
        counts = token_counts(sequence.token_ids, num_prompt_tokens)
    if params.logit_bias or blocked:
        flags |= layout.IS_ADJUSTED.value
    if params.logprobs is not None:
        flags |= layout.WANTS_LOGPROBS.value
    forced = sequence.request.forced_token_ids
    if forced:
        flags |= layout.IS_FORCED.value
    words = np.zeros(layout.NUM_PARAM_WORDS, dtype=np.int64)
    words[layout.SEED.value] = mixed_seed(sequence.seed)
    words[layout.FLAGS.value] = flags
    words[layout.TOP_K.value] = min(params.top_k, vocab_size)
    words[layout.MIN_END.value] = min(num_prompt_tokens + params.min_tokens, _NEVER)
    words[layout.NUM_BIASES.value] = len(params.logit_bias)
    words[layout.NUM_BLOCKED.value] = len(blocked)
    words[layout.FORCED_FROM.value] = sequence.num_prompt_tokens
    words[layout.NUM_FORCED.value] = len(forced)
    numbers = words.view(np.float64)
    numbers[layout.TEMPERATURE.value] = np.float32(params.temperature)
    numbers[layout.TOP_P.value] = params.top_p
    numbers[layout.LOG_MIN_P.value] = math.log(params.min_p) if params.min_p > 0.0 else -math.inf
    numbers[layout.REPETITION.value] = params.repetition_penalty
    numbers[layout.FREQUENCY.value] = params.frequency_penalty
    numbers[layout.PRESENCE.value] = params.presence_penalty
    return SlotState(words, params.logit_bias, blocked, forced, counts)


def blocked_ids(
    params: SamplingParams, eos_token_ids: Iterable[int], vocab_size: int
) -> tuple[int, ...]:
    """What cannot be drawn before `min_tokens`."""
    if params.min_tokens == 0:
        return ()
    ends = frozenset(params.stop_token_ids)
    ends = ends if params.ignore_eos else ends | frozenset(eos_token_ids)
    return tuple(sorted(token_id for token_id in ends if 0 <= token_id < vocab_size))


def token_counts(token_ids: Sequence[int], num_prompt_tokens: int) -> tuple[_Ints, _Ints]:
    """The distinct tokens of a sequence, and 1 + how often its output has each."""
    distinct, places = np.unique(np.asarray(token_ids, dtype=np.int64), return_inverse=True)
    counts = 1 + np.bincount(places[num_prompt_tokens:], minlength=len(distinct))
    return distinct, np.minimum(counts, layout.MAX_COUNT)
