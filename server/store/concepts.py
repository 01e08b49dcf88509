"""Concepts in a text: words of either language that mean about the same. Pure.

`study_concepts` and `technical_concepts` hold them as data. English phrases are compared by the
stems of their words, Chinese ones as they are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import regex
import snowballstemmer

from server.store.study_concepts import EVERYDAY, STUDY
from server.store.technical_concepts import COMPUTING, ENGINEERING

KEY_MARK = "ǂ"
"""First letter of words that stand for a number, a date or a concept; no text begins a word
with it."""

_TOKEN = regex.compile(r"[\p{Latin}\p{N}\p{M}]+|%")
_PHRASE_WORD = regex.compile(r"(?P<side>[<>]?)(?P<word>[\p{Latin}\p{N}\p{M}]+|%)")
_GAP = regex.compile(r"[\s\-’']{0,2}\Z")


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """`word` (folded) without its English ending; other words as they are."""
    return str(snowballstemmer.stemmer("english").stemWord(word)) if word.isascii() else word


def _parsed(blocks: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    concepts: dict[str, tuple[str, ...]] = {}
    for line in regex.sub(r"\n +", " ", "".join(blocks)).splitlines():
        if line:
            key, phrases = line.split(":", 1)
            every = (phrase.strip() for phrase in regex.split(r"[,|]", phrases))
            concepts[key] = concepts.get(key, ()) + tuple(filter(None, every))
    return concepts


_WRITTEN = _parsed((STUDY, EVERYDAY, COMPUTING, ENGINEERING))
_NEIGHBOUR = regex.compile(r" [<>]\p{Latin}+")
CONCEPTS: Mapping[str, tuple[str, ...]] = {
    key: tuple(_NEIGHBOUR.sub("", phrase) for phrase in phrases)
    for key, phrases in _WRITTEN.items()
}
"""The phrases of each concept, by its key, for people to read."""


@dataclass(frozen=True, slots=True)
class _Phrase:
    """Stems of the words of a phrase, the concept that it stands for, and the stems of which none
    may stand right before it or right after it."""

    stems: tuple[str, ...]
    key: str
    not_after: frozenset[str]
    not_before: frozenset[str]

    @classmethod
    def parse(cls, phrase: str, key: str) -> _Phrase:
        """`made up <grade >of` is "made up", but neither in "grade made up" nor "made up of"."""
        parts: dict[str, list[str]] = {"": [], "<": [], ">": []}
        for match in _PHRASE_WORD.finditer(phrase):
            parts[match["side"]].append(stem(match["word"]))
        return cls(tuple(parts[""]), key, frozenset(parts["<"]), frozenset(parts[">"]))


def _tables() -> tuple[dict[str, list[_Phrase]], dict[str, list[tuple[str, str]]]]:
    latin: dict[str, list[_Phrase]] = {}
    han: dict[str, list[tuple[str, str]]] = {}
    for key, phrases in _WRITTEN.items():
        for phrase in phrases:
            if regex.search(r"\p{Han}", phrase):
                han.setdefault(phrase[0], []).append((phrase, KEY_MARK + key))
            else:
                entry = _Phrase.parse(phrase, KEY_MARK + key)
                if entry not in latin.setdefault(entry.stems[0], []):
                    latin[entry.stems[0]].append(entry)
    return latin, han


_LATIN, _HAN_PHRASES = _tables()


def concepts(folded: str) -> Iterator[tuple[str, int, int]]:
    """(key, start, end) of each concept. They may overlap: 期末考试 is 期末 and 考试."""
    tokens = [(stem(match[0]), *match.span()) for match in _TOKEN.finditer(folded)]

    def is_joined(n: int) -> bool:
        """Nothing but a blank or a hyphen stands between a token and the next one."""
        return _GAP.match(folded[tokens[n][2] : tokens[n + 1][1]]) is not None

    def has(n: int, stems: frozenset[str], which: int) -> bool:
        """Of two joined tokens, the first or second is one of `stems`."""
        return is_joined(n) and tokens[n + which][0] in stems

    for first, (word, start, _) in enumerate(tokens):
        for phrase in _LATIN.get(word, ()):
            last = first + len(phrase.stems) - 1
            if last >= len(tokens) or any(
                tokens[first + n][0] != wanted for n, wanted in enumerate(phrase.stems)
            ):
                continue
            if phrase.not_after and first and has(first - 1, phrase.not_after, 0):
                continue
            if phrase.not_before and last + 1 < len(tokens) and has(last, phrase.not_before, 1):
                continue
            if all(is_joined(n) for n in range(first, last)):
                yield phrase.key, start, tokens[last][2]
    for at, character in enumerate(folded):
        for text, key in _HAN_PHRASES.get(character, ()):
            if folded.startswith(text, at):
                yield key, at, at + len(text)
