"""`TokenHistory`: which tokens a sequence has, counted as it grows, for the penalties. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt


class TokenHistory:
    """The distinct tokens of one sequence, and how often its output has each. Owned by the engine
    thread.

    It depends on token ids only, so preemption leaves it true. Output begins behind
    `num_prompt_tokens`; tokens of the prompt alone have the count 0."""

    __slots__ = ("_counts", "_num_prompt_tokens", "_num_read", "_places", "_token_ids")

    def __init__(self, num_prompt_tokens: int) -> None:
        self._num_prompt_tokens = num_prompt_tokens
        self._num_read = 0
        self._places: dict[int, int] = {}
        self._token_ids = np.empty(64, dtype=np.int64)
        self._counts = np.zeros(64, dtype=np.int64)

    def read(self, token_ids: Sequence[int]) -> None:
        """Brings the counts up to date with all of the sequence's tokens, which begin with those
        of the call before."""
        if self._num_read == 0:
            prompt = np.unique(np.asarray(token_ids[: self._num_prompt_tokens], dtype=np.int64))
            self._reserve(len(prompt))
            self._token_ids[: len(prompt)] = prompt
            self._places = {token_id: place for place, token_id in enumerate(prompt.tolist())}
            self._num_read = self._num_prompt_tokens
        for index in range(self._num_read, len(token_ids)):
            self._push(token_ids[index])
        self._num_read = len(token_ids)

    def each(
        self, draft_token_ids: Sequence[int]
    ) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Distinct token ids and their output counts, [U] int64 each: as they are, then behind
        each of the drafts. Leaves the history as it was. Exhaust it."""
        yield self._token_ids[: len(self._places)], self._counts[: len(self._places)].copy()
        is_new = []
        for token_id in draft_token_ids:
            is_new.append(token_id not in self._places)
            self._push(token_id)
            yield self._token_ids[: len(self._places)], self._counts[: len(self._places)].copy()
        for token_id, was_new in zip(reversed(draft_token_ids), reversed(is_new), strict=True):
            self._counts[self._places[token_id]] -= 1
            if was_new:
                del self._places[token_id]

    def _push(self, token_id: int) -> None:
        place = self._places.setdefault(token_id, len(self._places))
        if place == len(self._places) - 1:  # new, or the newest once more
            self._reserve(len(self._places))
            self._token_ids[place] = token_id
        self._counts[place] += 1

    def _reserve(self, size: int) -> None:
        if size > len(self._token_ids):
            grown = max(size, 2 * len(self._token_ids)) - len(self._token_ids)
            self._token_ids = np.pad(self._token_ids, (0, grown))
            self._counts = np.pad(self._counts, (0, grown))
