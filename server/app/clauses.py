"""`clauses`: the parts of a sentence that enumerates, each with its words and numbers; `figures`:
the numbers that a row of a table can contradict."""

from __future__ import annotations

import re
from dataclasses import dataclass

from server.store.analysis import fold, index_words, is_han
from server.store.dates import FACTS
from server.store.numbered_things import is_numbered
from server.store.vocabulary import STOP_WORDS

_BETWEEN = re.compile(r"(?i),(?!\d)|[，、；;]|\b(?:and|or)\b|和|以及")
# Characters between two words of Chinese: a pair with one of them is often neither word.
_LINKING = frozenset("占为是由的各约有共计含括在于")
_FIGURE = re.compile(r"\d+(?:\.\d+)?(?=\s*%)|\d{2,}(?:\.\d+)?|\d+\.\d+")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
FACT_KEYS = frozenset(key for key, _, _ in FACTS)
"""Words that say only that a text has a date, a share, and so on."""


@dataclass(frozen=True, slots=True)
class Clause:
    """`words` as they are found, `numbers` those of them that are written in digits."""

    words: frozenset[str]
    numbers: frozenset[str]


def clauses(sentence: str) -> list[Clause]:
    """The clauses of a sentence that say something."""
    found = []
    for part in _BETWEEN.split(sentence):
        words = frozenset(
            word
            for word in index_words(part)
            # "Quiz 20%" speaks of no twentieth quiz, and that there is a share says no share.
            if not (word in STOP_WORDS or word in FACT_KEYS or is_numbered(word) or _joins(word))
        )
        if words:
            found.append(Clause(words, frozenset(filter(str.isdecimal, words))))
    return found


def figures(sentence: str) -> frozenset[str]:
    """The numbers of a sentence that say how much or when: not a lone digit without a percent
    sign, which mostly counts steps or names things ("Lab 2")."""
    return frozenset(_FIGURE.findall(_THOUSANDS.sub("", fold(sentence))))


def _joins(word: str) -> bool:
    """Whether it may be no word of Chinese, but what stands where two meet."""
    return is_han(word) and (len(word) == 1 or not _LINKING.isdisjoint(word))
