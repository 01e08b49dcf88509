"""`PreparationGate`: how many requests are on their way from their body to the engine at once.

Many requests that arrive in one moment are all ready to run in one turn of the event loop. Were
they all parsed first and tokenized next, the first would reach the engine when the last had been
parsed, while the engine had nothing to do. Behind the gate they go through one after the other.
"""

from __future__ import annotations

import asyncio

_PLACES_PER_THREAD = 4
"""So that the tokenizer's threads always find work: what the loop does for a request takes less
time than its tokenizing."""
_LARGE_BYTES = 64 * 1024
"""Requests of this size have a gate of their own: they take long, and their tokens are counted by
another thread (`PromptBuilder.in_pool`)."""
_LARGE_PLACES = 2


class PreparationGate:
    """Owned by the event loop's thread."""

    def __init__(self, num_threads: int) -> None:
        """`num_threads`: that tokenize."""
        self._small = asyncio.Semaphore(_PLACES_PER_THREAD * num_threads)
        self._large = asyncio.Semaphore(_LARGE_PLACES)

    def place(self, num_bytes: int) -> asyncio.Semaphore:
        """For `async with` around all that is done for a request of this size before the engine
        gets it. First come, first served."""
        return self._large if num_bytes >= _LARGE_BYTES else self._small
