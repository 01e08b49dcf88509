"""`OutputLengths`: how long answers get, learned from those that ended, and `growth_reserve`: the
blocks that running sequences will still need."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from itertools import accumulate

PRIOR_TOKENS = 128
"""An answer's length before any answer has ended."""
NUM_REMEMBERED = 64


class OutputLengths:
    """The last answers' lengths in tokens. Owned by the engine thread."""

    def __init__(self) -> None:
        self._recent: deque[int] = deque(maxlen=NUM_REMEMBERED)
        self._ordered: list[int] = []
        self._sums: list[int] = []
        """Of the i + 1 longest."""
        self.observe(PRIOR_TOKENS)

    def observe(self, num_tokens: int) -> None:
        """An answer has ended after `num_tokens` tokens."""
        self._recent.append(num_tokens)
        self._ordered = sorted(self._recent)
        self._sums = list(accumulate(reversed(self._ordered)))

    @property
    def longest(self) -> int:
        """Of the answers that are remembered."""
        return self._ordered[-1]

    def expected_more(self, num_tokens: int) -> int:
        """How many tokens an answer that has `num_tokens` will get yet: the mean over remembered
        answers that were longer. One that is longer than all of them gets half as many again."""
        num_longer = len(self._ordered) - bisect_right(self._ordered, num_tokens)
        if num_longer == 0:
            return max(1, num_tokens // 2)
        return max(1, self._sums[num_longer - 1] // num_longer - num_tokens)


def growth_reserve(sequences: Iterable[tuple[int, int]], block_size: int) -> int:
    """Blocks that must be free now, so that all `sequences`, each (blocks it will give back,
    tokens it will get yet), can run to their ends: those who end first make room for the others.
    So it is the most that is needed at any of the ends, as in Gong et al., "Past-Future Scheduler
    for LLM Serving under SLA Guarantees" (ASPLOS 2025)."""
    peak = held = 0
    # Longest last: at the end of the i-th longest, it and the i-1 longer ones are there.
    ordered = sorted(sequences, key=lambda item: -item[1])
    for num_running, (num_blocks, num_tokens) in enumerate(ordered, 1):
        held += num_blocks
        peak = max(peak, held + num_running * -(-num_tokens // block_size))
    return max(0, peak - held)
