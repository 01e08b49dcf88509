"""`Support`: which sentence of a passage stands behind a sentence of an answer.

A sentence is supported to the share of its words that a sentence of a passage holds, words
weighted by how rare they are in what was found. Words of the question count less, and those that
no passage holds nothing: an answer repeats them, whatever it says. Words are those of the
full-text search, so that forms of a word and numbered things are the same in both.

What no single sentence says, rows of a table or items of a list may say together, with what leads
to them: then each clause is compared by itself, and a row with another number speaks against it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from server.app.clauses import FACT_KEYS, Clause, clauses, figures
from server.app.sentences import Sentence, sentences
from server.store.analysis import index_words, is_han
from server.store.concepts import KEY_MARK
from server.store.vocabulary import STOP_WORDS

LEAST_SHARE = 0.5
"""From this share on a sentence counts as supported."""
_LEAST_NAMED_SHARE = 0.3
"""The same where the answer itself names the passage."""
_LEAST_MORE = 0.25
"""What a further sentence of the same passage must add to be marked as well."""
_MOST_MARKS = 3
_MOST_ROWS = 16
"""Marks where rows support a sentence together."""
_OF_QUESTION = 0.3
_LEADS = re.compile(r"(?i)[:：][*_ ]*$|\b(?:following|below|table|list)\b|如下|以下|下[表列面]")
"""What leads to a list or a table that begins right behind it."""
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
    figures: frozenset[str]

    def contradicts(self, said: frozenset[str]) -> bool:
        """Whether it is a row, or an item, that has figures, and none of those that are `said`.
        Prose may have them too, in another sentence, or what they are worked out from."""
        has_both = bool(self.sentence.listed and said and self.figures)
        return has_both and said.isdisjoint(self.figures)


@dataclass(frozen=True, slots=True)
class _Listing:
    """A list or a table, with the sentence that leads to it."""

    rows: Sequence[_Candidate]
    lead: _Candidate | None

    @property
    def shared_words(self) -> frozenset[str]:
        """Words of every row, as names of columns: they tell no row from another."""
        first, *others = (row.words for row in self.rows)
        return first.intersection(*others) if others else frozenset()

    @property
    def lead_words(self) -> frozenset[str]:
        return self.lead.words if self.lead else frozenset()


class Support:
    """Compares one answer with the passages that it was made from. Pure."""

    def __init__(self, question: str, passages: Sequence[SourceText]) -> None:
        self._question = frozenset(index_words(question))
        self._asked_figures = figures(question)
        self._candidates: list[_Candidate] = []
        self._listings: list[_Listing] = []
        held: Counter[str] = Counter()
        for passage in passages:
            heading = frozenset(index_words(passage.locator))
            found = []
            for sentence in sentences(passage.text):
                words = frozenset(index_words(sentence.words))
                held.update(words)
                numbers = figures(sentence.words) if sentence.listed else frozenset()
                found.append(_Candidate(passage.n, sentence, words | heading, numbers))
            self._candidates += found
            self._listings += _listings(found)
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
        said_figures = figures(sentence.words) - self._asked_figures
        scored = [
            (sum(weights[word] for word in weights.keys() & one.words), -place, one)
            for place, one in enumerate(self._candidates)
            if (named is None or one.n == named) and not one.contradicts(said_figures)
        ]
        if not scored:
            return None
        best_score, _, best = max(scored, key=lambda pair: pair[:2])
        own = {word for word in weights.keys() - self._question if not _is_lone(word)}
        shared = weights.keys() & best.words
        least = LEAST_SHARE if named is None else _LEAST_NAMED_SHARE
        # The question as a statement proves nothing while the answer's own words are not there,
        # nor does a single word of several.
        is_proof = not (own and own.isdisjoint(shared)) and _tells(said, shared)
        if best_score < least * total or not is_proof:
            return self._together(sentence, named, least)
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

    def _together(self, sentence: Sentence, named: int | None, least: float) -> Supported | None:
        """What a list or a table supports that none of its rows supports alone."""
        said = clauses(sentence.words)
        weights = {word: self._weight(word) for clause in said for word in clause.words}
        for word in weights:
            if word.startswith(KEY_MARK) and not self._held[word]:
                weights[word] = 0.0  # what it stands for counts by itself
        total = sum(weights[word] for clause in said for word in clause.words)
        best: Supported | None = None
        for listing in self._listings:
            if named is not None and listing.rows[0].n != named:
                continue
            share, marked = self._by_rows(said, weights, listing, total)
            if len(marked) > 1 and share >= max(least, best.share if best else 0):
                marks = sorted((one.sentence.start, one.sentence.end) for one in marked)
                n = listing.rows[0].n
                best = Supported(sentence, n, round(share, 4), tuple(marks[:_MOST_ROWS]))
        return best

    def _by_rows(
        self,
        said: Sequence[Clause],
        weights: dict[str, float],
        listing: _Listing,
        total: float,
    ) -> tuple[float, list[_Candidate]]:
        """The share of all clauses that one row each supports, with what leads to them; and all
        that supports them. Nothing where a row that has a clause's words has other numbers."""
        supported, marked, is_anchored = 0.0, dict[int, _Candidate](), False
        lead = listing.lead_words
        for clause in said:
            whole = sum(weights[word] for word in clause.words)
            own = clause.words - self._question - listing.shared_words
            if not own or not whole:
                continue
            named = own - clause.numbers
            holds = [row for row in listing.rows if clause.numbers <= row.words | lead]
            scored = [
                (sum(weights[word] for word in clause.words & (row.words | lead)), -place, row)
                for place, row in enumerate(holds)
                if not (own - lead).isdisjoint(row.words)
                and not (named and named.isdisjoint(row.words | lead))
            ]
            score, _, row = max(scored, key=lambda one: one[:2], default=(0.0, 0, None))
            if row is not None and score >= LEAST_SHARE * whole:
                supported += score
                is_anchored = True
                marked[row.sentence.start] = row
                if listing.lead and not (own & lead).issubset(row.words):
                    marked[listing.lead.sentence.start] = listing.lead
            elif holds and clause.numbers and not any(self._held[word] for word in named):
                # A number under a name of the model's own: it counts where other names are right.
                supported += sum(weights[word] for word in clause.numbers)
                marked[holds[0].sentence.start] = holds[0]
            elif clause.numbers and any(
                2 * sum(weights[word] for word in named & row.words)
                > sum(weights[word] for word in named)
                for row in listing.rows
            ):
                return 0.0, []
        return (supported / total if is_anchored else 0.0), list(marked.values())

    def _weight(self, word: str) -> float:
        num = len(self._candidates)
        # A word that no sentence holds is no rarer than one that a single sentence holds: small
        # models put things in words of their own.
        held = max(self._held[word], 1)
        rarity = math.log(1 + (num - held + 0.5) / (held + 0.5))
        if word in self._question:
            return rarity * _OF_QUESTION if self._held[word] else 0.0
        return rarity


def _is_lone(word: str) -> bool:
    """Whether it is one character of Chinese, the end of some word."""
    return len(word) == 1 and is_han(word)


def _tells(said: AbstractSet[str], shared: AbstractSet[str]) -> bool:
    """Whether what a sentence shares with a passage is more than a number, and more than one word,
    where it has more."""
    words = {word for word in said if not (word in FACT_KEYS or _is_lone(word))}
    common = shared & words
    has_word = not all(map(str.isdecimal, common)) or all(map(str.isdecimal, words))
    return has_word and len(common) >= min(2, len(words))


def _listings(found: Sequence[_Candidate]) -> list[_Listing]:
    """The lists and tables among the sentences of one passage."""
    rows: dict[int, list[_Candidate]] = {}
    leads: dict[int, _Candidate] = {}
    for before, one in zip((None, *found), found, strict=False):
        listed = one.sentence.listed
        if not listed:
            continue
        if listed not in rows and before is not None and _LEADS.search(before.sentence.words):
            leads[listed] = before
        rows.setdefault(listed, []).append(one)
    return [_Listing(rows[listed], leads.get(listed)) for listed in rows]
