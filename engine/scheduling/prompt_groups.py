"""`PromptGroups`: running sequences that have the same prompt by their makers' word."""

from __future__ import annotations

from collections.abc import Iterator

from engine.scheduling.sequence import Sequence
from engine.types import RequestId


class PromptGroups:
    """The choices of one request (`GenerationRequest.same_prompt_as`). One of a group computes the
    prompt, whoever is admitted first; the others wait, and then share it. Owned by the engine
    thread."""

    def __init__(self) -> None:
        self._running: dict[RequestId, list[Sequence]] = {}

    def enter(self, sequence: Sequence) -> None:
        """The sequence was given blocks."""
        self._running.setdefault(_group(sequence), []).append(sequence)

    def leave(self, sequence: Sequence) -> None:
        """The sequence has given its blocks back."""
        members = self._running[_group(sequence)]
        members.remove(sequence)
        if not members:
            del self._running[_group(sequence)]

    def source(self, sequence: Sequence) -> Sequence | None:
        """A running sequence that has computed the prompt of `sequence`."""
        for member in self._members(sequence):
            if member.num_computed_tokens >= sequence.num_prompt_tokens:
                return member
        return None

    def computing(self, sequence: Sequence) -> Sequence | None:
        """A running sequence that has yet to compute the prompt of `sequence`."""
        return next(self._members(sequence), None)

    def _members(self, sequence: Sequence) -> Iterator[Sequence]:
        """A caller's word is checked: a wrong one costs nothing but the sharing."""
        count = sequence.num_prompt_tokens
        for member in self._running.get(_group(sequence), ()):
            if (
                member.num_prompt_tokens == count
                and member.request.cache_salt == sequence.request.cache_salt
                and member.token_ids[:count] == sequence.token_ids[:count]
            ):
                yield member


def _group(sequence: Sequence) -> RequestId:
    return sequence.request.same_prompt_as or sequence.request_id
