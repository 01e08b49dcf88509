"""Concepts in a text: words of either language that mean about the same. Pure.

`study_concepts` and `technical_concepts` hold them as data. English phrases are compared by the
stems of their words, Chinese ones as they are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

import regex
import snowballstemmer

from server.store.study_concepts import EVERYDAY, STUDY
from server.store.technical_concepts import COMPUTING, ENGINEERING

KEY_MARK = "ǂ"
"""First letter of words that stand for a number, a date or a concept; no text begins a word
with it."""

_TOKEN = regex.compile(r"[\p{Latin}\p{N}\p{M}]+|%")
_HAN = regex.compile(r"[\p{Han}\p{N} ]*\p{Han}[\p{Han}\p{N} ]*")
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


CONCEPTS: Mapping[str, tuple[str, ...]] = _parsed((STUDY, EVERYDAY, COMPUTING, ENGINEERING))
"""The phrases of each concept, by its key."""


def _tables() -> tuple[
    dict[str, list[tuple[tuple[str, ...], str]]], dict[str, list[tuple[str, str]]]
]:
    latin: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    han: dict[str, list[tuple[str, str]]] = {}
    for key, phrases in CONCEPTS.items():
        for phrase in phrases:
            if regex.search(r"\p{Han}", phrase):
                han.setdefault(phrase[0], []).append((phrase, KEY_MARK + key))
            else:
                stems = tuple(stem(match[0]) for match in _TOKEN.finditer(phrase))
                entry = (stems, KEY_MARK + key)
                if entry not in latin.setdefault(stems[0], []):
                    latin[stems[0]].append(entry)
    return latin, han


_LATIN, _HAN_PHRASES = _tables()


def concepts(folded: str) -> Iterator[tuple[str, int, int]]:
    """(key, start, end) of each concept. They may overlap: 期末考试 is 期末 and 考试."""
    tokens = [(stem(match[0]), *match.span()) for match in _TOKEN.finditer(folded)]
    for first, (word, start, _) in enumerate(tokens):
        for stems, key in _LATIN.get(word, ()):
            last = first + len(stems) - 1
            if last >= len(tokens) or any(
                tokens[first + n][0] != wanted for n, wanted in enumerate(stems)
            ):
                continue
            if all(_GAP.match(folded[tokens[n][2] : tokens[n + 1][1]]) for n in range(first, last)):
                yield key, start, tokens[last][2]
    for at, character in enumerate(folded):
        for phrase, key in _HAN_PHRASES.get(character, ()):
            if folded.startswith(phrase, at):
                yield key, at, at + len(phrase)
