"""`Support`: which sentence of a passage stands behind a sentence of an answer.

A sentence is supported to the share of its words that a sentence of a passage holds, words
weighted by how rare they are in what was found. Words of the question count less, and those that
no passage holds nothing: an answer repeats them, whatever it says. Words are those of the
full-text search, so that forms of a word and numbered things are the same in both.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from server.app.sentences import Sentence, sentences
from server.store.analysis import index_words
from server.store.vocabulary import STOP_WORDS

LEAST_SHARE = 0.5
"""From this share on a sentence counts as supported."""
_LEAST_NAMED_SHARE = 0.3
"""The same where the answer itself names the passage."""
_LEAST_MORE = 0.25
"""What a further sentence of the same passage must add to be marked as well."""
_MOST_MARKS = 3
_OF_QUESTION = 0.3
_MOST_ANSWER_SENTENCES = 400
"""Sentences of one answer that are looked at: a bound for the work, far beyond real answers."""


class SourceText(Protocol):
    """What is compared of a passage."""

    @property
    def n(self) -> int: ...
    @property
    def locator(self) -> str: ...
    @property
    def text(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Supported:
    """A sentence of an answer with the passage behind it: `share` from 0 to 1, `marks` are
    character ranges of the passage's text, in order."""

    sentence: Sentence
    n: int
    share: float
    marks: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Candidate:
    n: int
    sentence: Sentence
    words: frozenset[str]


class Support:
    """Compares one answer with the passages that it was made from. Pure."""

    def __init__(self, question: str, passages: Sequence[SourceText]) -> None:
        self._question = frozenset(index_words(question))
        self._candidates: list[_Candidate] = []
        held: Counter[str] = Counter()
        for passage in passages:
            heading = frozenset(index_words(passage.locator))
            for sentence in sentences(passage.text):
                words = frozenset(index_words(sentence.words))
                held.update(words)
                self._candidates.append(_Candidate(passage.n, sentence, words | heading))
        self._held = held

    def of_answer(self, answer: str) -> list[Supported | None]:
        """For each sentence of `sentences(answer)` the passage that supports it best, None where
        none does."""
        return [self.of_sentence(one) for one in sentences(answer)[:_MOST_ANSWER_SENTENCES]]

    def of_sentence(self, sentence: Sentence, *, named: int | None = None) -> Supported | None:
        """The best support of one sentence, in the passage `named` if the answer names one."""
        said = set(index_words(sentence.words)) - STOP_WORDS
        weights = {word: self._weight(word) for word in said}
        total = sum(weights.values())
        if not total:
            return None
        scored = [
            (sum(weights[word] for word in weights.keys() & one.words), -place, one)
            for place, one in enumerate(self._candidates)
            if named is None or one.n == named
        ]
        if not scored:
            return None
        best_score, _, best = max(scored, key=lambda pair: pair[:2])
        least = LEAST_SHARE if named is None else _LEAST_NAMED_SHARE
        own = weights.keys() - self._question
        # The question as a statement proves nothing while the answer's own words are not there.
        if best_score < least * total or (own and own.isdisjoint(best.words)):
            return None
        marked, covered = [best], set(best.words)
        others = [one for _, _, one in scored if one.n == best.n and one is not best]
        while others and len(marked) < _MOST_MARKS:
            gains = [
                sum(weights[word] for word in (weights.keys() & one.words) - covered)
                for one in others
            ]
            gain = max(gains)
            if gain < _LEAST_MORE * total:
                break
            more = others.pop(gains.index(gain))
            marked.append(more)
            covered |= more.words
        marks = sorted((one.sentence.start, one.sentence.end) for one in marked)
        return Supported(sentence, best.n, round(best_score / total, 4), tuple(marks))

    def _weight(self, word: str) -> float:
        num = len(self._candidates)
        # A word that no sentence holds is no rarer than one that a single sentence holds: small
        # models put things in words of their own.
        held = max(self._held[word], 1)
        rarity = math.log(1 + (num - held + 0.5) / (held + 0.5))
        if word in self._question:
            return rarity * _OF_QUESTION if self._held[word] else 0.0
        return rarity
