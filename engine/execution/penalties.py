"""`LogitAdjuster`: penalties, biases and `min_tokens` on the logits of a batch.

All rows that ask for something are changed by a few operations over one flat list of (row, token)
places; rows that ask for nothing cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.execution.token_history import TokenHistory
from engine.scheduling.scheduler_output import ScheduledSequence
from engine.scheduling.sequence import Sequence as EngineSequence
from engine.types import RequestId, SamplingParams

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float32]


class _Request:
    """What one request wants of its logits."""

    __slots__ = ("bias_ids", "biases", "blocked_ids", "history")

    def __init__(
        self, sequence: EngineSequence, eos_token_ids: frozenset[int], vocab_size: int
    ) -> None:
        params = sequence.request.params
        num_prompt_tokens = len(sequence.request.prompt_token_ids)
        self.history = TokenHistory(num_prompt_tokens) if params.has_penalties else None
        self.bias_ids: _Ints = np.array([one[0] for one in params.logit_bias], dtype=np.int64)
        self.biases: _Floats = np.array([one[1] for one in params.logit_bias], dtype=np.float32)
        ends = frozenset(params.stop_token_ids)
        ends = ends if params.ignore_eos else ends | eos_token_ids
        # A model's files may name ids beyond its logits: such a place is in another request's row.
        known = sorted(token_id for token_id in ends if 0 <= token_id < vocab_size)
        self.blocked_ids: _Ints = np.array(known, dtype=np.int64)


class _Places:
    """A growing list of places in the flat logits, with values for each."""

    def __init__(self, num_values: int) -> None:
        self._places: list[_Ints] = []
        self._values: list[list[_Floats]] = [[] for _ in range(num_values)]

    def add(self, places: _Ints, *values: Any) -> None:
        self._places.append(places)
        for column, value in zip(self._values, values, strict=True):
            column.append(np.broadcast_to(np.asarray(value, dtype=np.float32), places.shape))

    def tensors(self, device: torch.device) -> list[Tensor] | None:
        """Places (int64) and values (float32), [P] each; None where there are none."""
        if not self._places:
            return None
        columns: list[Sequence[npt.NDArray[Any]]] = [self._places, *self._values]
        return [torch.from_numpy(np.concatenate(column)).to(device) for column in columns]


class LogitAdjuster:
    """Keeps token counts of the requests that need them, until `forget`. Owned by the engine
    thread."""

    def __init__(self, eos_token_ids: Iterable[int] = ()) -> None:
        self._eos_token_ids = frozenset(eos_token_ids)
        self._requests: dict[RequestId, _Request] = {}

    def adjust(self, logits: Tensor, items: Sequence[ScheduledSequence]) -> Tensor:
        """`logits` [N, vocab] as `Sampler.sample` gets them, changed in a copy; or the same
        tensor where no row asks for a change.

        The order: repetition penalty, frequency and presence penalty, bias, `min_tokens`."""
        penalized, biased, blocked = _Places(2), _Places(1), _Places(0)
        start, vocab_size = 0, logits.shape[1]
        for item in items:
            params = item.sequence.request.params
            if _asks(params):
                self._collect(item, start, vocab_size, penalized, biased, blocked)
            start += vocab_size * (1 + len(item.draft_token_ids))
        changes = [places.tensors(logits.device) for places in (penalized, biased, blocked)]
        if changes == [None, None, None]:
            return logits
        logits = logits.clone(memory_format=torch.contiguous_format)
        flat = logits.view(-1)
        if changes[0] is not None:
            places, factors, subtrahends = changes[0]
            values = flat[places]
            values = torch.where(values > 0, values / factors, values * factors)
            flat[places] = values - subtrahends
        if changes[1] is not None:
            places, biases = changes[1]
            flat[places] += biases
        if changes[2] is not None:
            flat[changes[2][0]] = -math.inf
        return logits

    def forget(self, request_id: RequestId) -> None:
        """The request has ended."""
        self._requests.pop(request_id, None)

    def _collect(
        self,
        item: ScheduledSequence,
        start: int,
        vocab_size: int,
        penalized: _Places,
        biased: _Places,
        blocked: _Places,
    ) -> None:
        sequence = item.sequence
        params = sequence.request.params
        wants = self._requests.get(sequence.request_id)
        if wants is None:
            wants = _Request(sequence, self._eos_token_ids, vocab_size)
            self._requests[sequence.request_id] = wants
        num_rows = 1 + len(item.draft_token_ids)
        rows = start + vocab_size * np.arange(num_rows, dtype=np.int64)
        if wants.history is not None:
            wants.history.read(sequence.token_ids)
            for row, (token_ids, counts) in zip(
                rows, wants.history.each(item.draft_token_ids), strict=True
            ):
                subtrahends = params.frequency_penalty * counts + params.presence_penalty * (
                    counts > 0
                )
                penalized.add(row + token_ids, params.repetition_penalty, subtrahends)
        if len(wants.bias_ids):
            biased.add(_cross(rows, wants.bias_ids), np.tile(wants.biases, num_rows))
        num_output_tokens = sequence.num_tokens - len(sequence.request.prompt_token_ids)
        num_blocked = min(num_rows, params.min_tokens - num_output_tokens)
        if num_blocked > 0 and len(wants.blocked_ids):
            blocked.add(_cross(rows[:num_blocked], wants.blocked_ids))


def _asks(params: SamplingParams) -> bool:
    return params.has_penalties or bool(params.logit_bias) or params.min_tokens > 0


def _cross(rows: _Ints, token_ids: _Ints) -> _Ints:
    return np.asarray((rows[:, None] + token_ids).ravel())
