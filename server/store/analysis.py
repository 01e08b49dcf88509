"""Text analysis for the full-text search: words of a text, and what a question asks for. Pure.

A text is folded (NFKC, case, accents). Words of alphabets are stemmed; runs of Chinese characters
become overlapping pairs, because FTS5 would take a whole sentence as one word, and a word of one
character is found through the pairs that begin with it. Numbered things ("Lab 4", "第四次实验")
and concepts (`server.store.vocabulary`) get words of their own.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import regex
import snowballstemmer

from server.store.vocabulary import (
    CONCEPTS,
    NUMBER_WORDS,
    NUMBERED,
    ORDINAL_WORDS,
    SOFT_CHARACTERS,
    STOP_PHRASES,
    STOP_WORDS,
)

KEY_MARK = "ǂ"
"""First letter of words that stand for a number or a concept; no text begins a word with it."""

_HAN = r"\p{Han}\p{Hiragana}\p{Katakana}"
_RUN = regex.compile(
    rf"(?P<han>[{_HAN}]+)|(?P<word>[[\p{{L}}\p{{N}}\p{{M}}]--[{_HAN}{KEY_MARK}]]+)", regex.V1
)
# After a word in lower case, so that neither a first word nor a title in capitals is a name.
_NAME = regex.compile(r"(?<=\b\p{Ll}+ )\p{Lu}\p{Ll}+(?: \p{Lu}\p{Ll}+)+")
_HAN_DIGITS = "零一二三四五六七八九"
_MAX_RANGE = 20


@dataclass(frozen=True, slots=True)
class QueryUnit:
    """One thing that a question asks for. A text has it when it holds any of `words`.

    `weight`: how much it counts, apart from how rare it is. `prefix`: `words` are beginnings.
    `is_number`: it is a numbered thing, for which no other word could stand.
    `extra` are further words that support the ranking without being asked for."""

    words: tuple[str, ...]
    weight: float = 1.0
    prefix: bool = False
    is_number: bool = False
    extra: tuple[str, ...] = ()


def fold(text: str) -> str:
    """NFKC, lower case, Latin accents dropped: what is compared."""
    text = unicodedata.normalize("NFKC", text).casefold()
    if text.isascii():
        return text
    parts = unicodedata.normalize("NFD", text)
    kept = (c for c in parts if unicodedata.category(c) != "Mn")
    return unicodedata.normalize("NFKC", "".join(kept))


def is_han(text: str) -> bool:
    """True when `text` is, for a reader, Chinese: it holds Han characters to a fair share."""
    han = len(regex.findall(r"\p{Han}", text))
    return han > 0 and han * 8 >= len(regex.findall(r"\p{L}", text))


def index_words(text: str) -> list[str]:
    """The words under which `text` is found, with repeats, in order of kind."""
    folded = fold(text)
    words = list(_plain_words(folded))
    words += [key for key, _, _ in _numbered(folded)]
    words += [key for key, _, _ in _concepts(folded)]
    return words


def query_units(question: str) -> list[QueryUnit]:
    """What `question` asks for, each unit once. Empty when it has no content words."""
    units: dict[tuple[str, ...], QueryUnit] = {}
    for unit in _units(fold(question), _names(question)):
        units.setdefault(unit.words, unit)
    return list(units.values())


def _units(folded: str, names: list[range]) -> Iterator[QueryUnit]:
    # Numbers first: "lab 4" asks for Lab 4, not for labs in general.
    numbered = list(_numbered(folded))
    yield from (QueryUnit((key,), weight=1.5, is_number=True) for key, _, _ in numbered)
    folded = _blank(folded, [(start, end) for _, start, end in numbered])
    concepts = list(_concepts(folded))
    for key, start, end in concepts:
        yield QueryUnit((key,), extra=tuple(_plain_words(folded[start:end])))
    folded = _blank(folded, [(start, end) for _, start, end in concepts])
    named: dict[range, list[str]] = {}
    for match in _RUN.finditer(_STOP_PHRASE.sub(_spaces, folded)):
        if match["han"]:
            yield from _han_units(match["han"])
        elif match["word"] not in STOP_WORDS:
            name = next((span for span in names if match.start() in span), None)
            if name is None:
                yield QueryUnit((_stem(match["word"]),))
            else:
                named.setdefault(name, []).append(_stem(match["word"]))
    yield from (QueryUnit(tuple(words)) for words in named.values())


def _names(question: str) -> list[range]:
    """Where the folded question has a name of several words ("the Kestrel Building"). A name is
    one thing: its words together must not outweigh what is asked about it."""
    written = unicodedata.normalize("NFKC", question)
    if len(fold(question)) != len(written):
        return []  # places differ, as with some ligatures
    return [range(*match.span()) for match in _NAME.finditer(written)]


def _spaces(match: regex.Match[str]) -> str:
    return " " * len(match[0])


def _han_units(run: str) -> Iterator[QueryUnit]:
    """One unit per character: found when a pair around it is. Pairs across the border of two
    words occur nowhere, and must not count against a text that has both words."""
    if len(run) == 1:
        yield QueryUnit((run,), weight=0.1 if run in SOFT_CHARACTERS else 0.3, prefix=True)
        return
    if len(run) == 2:
        weight = 0.2 if SOFT_CHARACTERS.intersection(run) else 1.0
        yield QueryUnit((run,), weight)
        return
    pairs = [run[i : i + 2] for i in range(len(run) - 1)]
    for i, character in enumerate(run):
        around = tuple(pairs[max(0, i - 1) : i + 1])
        yield QueryUnit(around, weight=0.1 if character in SOFT_CHARACTERS else 0.5)


def _plain_words(folded: str) -> Iterator[str]:
    for match in _RUN.finditer(folded):
        if run := match["han"]:
            yield from (run[i : i + 2] for i in range(len(run) - 1))
            # The last character begins no pair: alone, so that a search for it finds it.
            yield run[-1]
        else:
            yield _stem(match["word"])


@lru_cache(maxsize=65536)
def _stem(word: str) -> str:
    return str(snowballstemmer.stemmer("english").stemWord(word)) if word.isascii() else word


def _blank(text: str, spans: list[tuple[int, int]]) -> str:
    for start, end in spans:
        text = text[:start] + " " * (end - start) + text[end:]
    return text


# -- numbered things --------------------------------------------------------------------------


def _alternatives(words: tuple[str, ...] | list[str]) -> str:
    return "|".join(regex.escape(word) for word in sorted(words, key=len, reverse=True))


_KINDS = {name: kind for kind, names in NUMBERED.items() for name in names}
_LATIN_KINDS = _alternatives([name for name in _KINDS if name.isascii()])
_HAN_KINDS = _alternatives([name for name in _KINDS if not name.isascii()])
# A name of one character before a number is often no name: "讲一下".
_HAN_NAMES = _alternatives([name for name in _KINDS if not name.isascii() and len(name) > 1])
_NUMBER = rf"\d{{1,2}}|{_alternatives(NUMBER_WORDS)}"
_HAN_NUMBER = rf"\d{{1,2}}|[{_HAN_DIGITS}十]{{1,3}}"
_NUMBERED_PATTERNS = (
    # labs 1, 2 and 3; lab #4; weeks 1 to 6
    regex.compile(
        rf"\b(?P<kind>{_LATIN_KINDS})\s*(?:no\.?|number|\#)?\s*(?P<n>{_NUMBER})\b"
        rf"(?:\s*(?P<join>,\s*and|,|and|or|&|to|-|–)\s*(?P<n>{_NUMBER})\b)*"
    ),
    # the fourth lab, 4th lab
    regex.compile(
        rf"\b(?P<n>\d{{1,2}}(?=st|nd|rd|th)|{_alternatives(ORDINAL_WORDS)})(?:st|nd|rd|th)?\s+"
        rf"(?P<kind>{_LATIN_KINDS})\b"
    ),
    # 第四次实验, 第4周, 第 3 讲
    regex.compile(rf"第\s*(?P<n>{_HAN_NUMBER})\s*(?:次|个|份)?\s*(?P<kind>{_HAN_KINDS})"),
    # 实验四, 实验 4, lab 四
    regex.compile(
        rf"(?P<kind>{_HAN_NAMES}|lab)\s*(?P<n>{_HAN_NUMBER})(?![\d{_HAN_DIGITS}十个次步点路张样般])"
    ),
)


def _numbered(folded: str) -> Iterator[tuple[str, int, int]]:
    """(key, start, end) of each numbered thing."""
    for pattern in _NUMBERED_PATTERNS:
        for match in pattern.finditer(folded):
            kind = _KINDS[match["kind"]]
            numbers = [_number(text) for text in match.captures("n")]
            joins = match.captures("join") if "join" in pattern.groupindex else []
            for n in _expand(numbers, joins):
                yield f"{KEY_MARK}{kind}{n}", match.start(), match.end()


def _expand(numbers: list[int], joins: list[str]) -> list[int]:
    expanded = numbers[:1]
    for join, n in zip(joins, numbers[1:], strict=True):
        if join in ("to", "-", "–") and expanded[-1] < n <= expanded[-1] + _MAX_RANGE:
            expanded.extend(range(expanded[-1] + 1, n + 1))
        else:
            expanded.append(n)
    return expanded


def _number(text: str) -> int:
    if text.isdigit():
        return int(text)
    if text in NUMBER_WORDS:
        return NUMBER_WORDS.index(text)
    if text in ORDINAL_WORDS:
        return ORDINAL_WORDS.index(text)
    tens, ten, ones = text.rpartition("十")
    value = _HAN_DIGITS.index(ones[-1]) if ones else 0
    return value + 10 * (_HAN_DIGITS.index(tens[-1]) if tens else 1) if ten else value


# -- concepts ---------------------------------------------------------------------------------


def _phrase_pattern(phrase: str) -> str:
    words = r"[\s\-]+".join(regex.escape(word) for word in phrase.split())
    return rf"\b{words}s?\b" if phrase.isascii() and phrase[0].isalpha() else words


_CONCEPT_PATTERNS = tuple(
    (
        KEY_MARK + key,
        regex.compile("|".join(map(_phrase_pattern, sorted(phrases, key=len, reverse=True)))),
    )
    for key, phrases in CONCEPTS.items()
)
_STOP_PHRASE = regex.compile(_alternatives(STOP_PHRASES))


def _concepts(folded: str) -> Iterator[tuple[str, int, int]]:
    """(key, start, end) of each concept. Concepts may overlap: 期末考试 is 期末 and 考试."""
    for key, pattern in _CONCEPT_PATTERNS:
        for match in pattern.finditer(folded):
            yield key, match.start(), match.end()
