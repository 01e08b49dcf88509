"""Text analysis for the full-text search: words of a text, and what a question asks for. Pure.

A text is folded (NFKC, case, accents). Words of alphabets are stemmed; runs of Chinese characters
become overlapping pairs, because FTS5 would take a whole sentence as one word, and a word of one
character is found through the pairs that begin with it. Numbered things ("Lab 4", "第四次实验")
and concepts (`server.store.concepts`) get words of their own.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

import regex

from server.store.concepts import CONCEPTS, KEY_MARK, concepts, stem
from server.store.dates import FACTS, dates
from server.store.light_words import LIGHT_WORDS
from server.store.numbered_things import alternatives, is_numbered, numbered, table_keys, week_key
from server.store.vocabulary import SOFT_CHARACTERS, STOP_PHRASES, STOP_WORDS

_HAN = r"\p{Han}\p{Hiragana}\p{Katakana}"
_RUN = regex.compile(
    rf"(?P<han>[{_HAN}]+)|(?P<word>[[\p{{L}}\p{{N}}\p{{M}}]--[{_HAN}{KEY_MARK}]]+)", regex.V1
)
# After a word in lower case, so that neither a first word nor a title in capitals is a name.
_NAME = regex.compile(r"(?<=\b\p{Ll}+ )\p{Lu}\p{Ll}+(?: \p{Lu}\p{Ll}+)+")
_LIGHT = 0.4
_NUMBERED_IN_TITLE = 3
_FACT_WEIGHT = 2.0
# In "What does X mean?" it is no mean value.
_MEAN = regex.compile(r"\b(?:do|does|did|would)\b[^.?!]{0,60}\b(?P<verb>mean)\b")
_CONTRACTED = regex.compile(r"(?<=\p{L})['’](?:d|ll|m|re|s|t|ve)\b")
_STOP_PHRASE = regex.compile(alternatives(STOP_PHRASES))


@dataclass(frozen=True, slots=True)
class QueryUnit:
    """One thing that a question asks for. A text has it when it holds any of `words`.

    `weight`: how much it counts, apart from how rare it is. `prefix`: `words` are beginnings.
    `is_number`: it is a numbered thing or a date, for which no other word could stand.
    `extra` are further words that find passages as well. `is_asked` False: it helps the ranking,
    and a passage without it lacks nothing."""

    words: tuple[str, ...]
    weight: float = 1.0
    prefix: bool = False
    is_number: bool = False
    extra: tuple[str, ...] = ()
    is_asked: bool = True


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
    words += [key for key, _, _ in numbered(folded)]
    words += [key for key, _, _ in concepts(folded)]
    words += [key for key, _, _ in dates(folded)]
    words += table_keys(folded)
    words += [key for key, held, _ in FACTS if held.search(folded)]
    return words


def title_words(title: str, name: str, *, kind: str | None = None, week: int | None = None) -> str:
    """The words of a material's title column, joined by blanks: of its title, of its file name,
    and of what is known about it. `kind` is one of lecture, lab, exam, admin, other."""
    words = index_words(f"{title} {name}")
    words += [week_key(week)] if week is not None else []
    # What a whole material is about says more than a mention in a text.
    things = {word for word in words if is_numbered(word)}
    words = [word for word in words if word not in things]
    words += sorted(things) * _NUMBERED_IN_TITLE
    words += [KEY_MARK + kind] if kind is not None and kind in CONCEPTS else []
    return " ".join(words)


def query_units(question: str) -> list[QueryUnit]:
    """What `question` asks for, each unit once. Empty when it has no content words."""
    units: dict[tuple[str, ...], QueryUnit] = {}
    for unit in _units(fold(question), _names(question)):
        units.setdefault(unit.words, unit)
    return list(units.values())


def asked_units(text: str) -> list[QueryUnit]:
    """What must be in a text that somebody looks for by `text`: as in a question, or, when that
    is nothing but stop words, each word."""
    asked = [unit for unit in query_units(text) if unit.is_asked]
    return asked or [QueryUnit((word,)) for word in dict.fromkeys(index_words(text))]


def search_units(typed: str) -> list[QueryUnit]:
    """`asked_units` of somebody who is still typing: the last word may be a beginning."""
    units = asked_units(typed)
    last = regex.search(r"[\p{L}\p{N}\p{M}]+$", fold(typed))
    if last is None:
        return units
    # Its stem too: "policies" begins no word of the index, which holds "polici".
    stemmed = stem(last[0])
    beginning = tuple(dict.fromkeys((stemmed, last[0])))
    return [
        replace(unit, words=beginning, prefix=True) if unit.words == (stemmed,) else unit
        for unit in units
    ]


def _units(folded: str, names: list[range]) -> Iterator[QueryUnit]:
    # Numbers first: "lab 4" asks for Lab 4, not for labs in general.
    things = [*numbered(folded), *dates(folded)]
    yield from (QueryUnit((key,), weight=1.5, is_number=True) for key, _, _ in things)
    folded = _blank(folded, [(start, end) for _, start, end in things])
    folded = _CONTRACTED.sub(_spaces, folded)
    folded = _blank(folded, [match.span("verb") for match in _MEAN.finditer(folded)])
    for key, _, asked in FACTS:
        if asked.search(folded):
            yield QueryUnit((key,), weight=_FACT_WEIGHT, is_asked=False)
    named_by = _longest(concepts(_blank(folded, [(n.start, n.stop) for n in names])))
    starts = sorted(start for _, start, _ in named_by)
    ends = sorted(end for _, _, end in named_by)
    for key, start, end in named_by:
        around = bisect_left(starts, end) - bisect_right(ends, start)
        # Of words that mean several things none must outweigh another word.
        yield QueryUnit((key,), around**-0.5, extra=tuple(_plain_words(folded[start:end])))
    folded = _blank(folded, [(start, end) for _, start, end in named_by])
    named: dict[range, list[str]] = {}
    for match in _RUN.finditer(_STOP_PHRASE.sub(_spaces, folded)):
        if match["han"]:
            yield from _han_units(match["han"])
        elif match["word"] not in STOP_WORDS:
            name = next((span for span in names if match.start() in span), None)
            if name is None:
                word = stem(match["word"])
                yield QueryUnit((word,), weight=_LIGHT if word in LIGHT_WORDS else 1.0)
            else:
                named.setdefault(name, []).append(stem(match["word"]))
    yield from (QueryUnit(tuple(words)) for words in named.values())


def _longest(found: Iterator[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Those that lie in no longer one: "office hours" asks for no hours."""
    every = list(found)
    ends: dict[int, int] = {}
    for _, start, end in every:
        ends[start] = max(end, ends.get(start, end))
    kept: set[tuple[int, int]] = set()
    reach = -1  # of what begins further ahead
    for start in sorted(ends):
        if ends[start] > reach:
            kept.add((start, ends[start]))
            reach = ends[start]
    return [one for one in every if one[1:] in kept]


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
            yield stem(match["word"])


def _blank(text: str, spans: list[tuple[int, int]]) -> str:
    characters = list(text)
    for start, end in spans:
        characters[start:end] = " " * (end - start)
    return "".join(characters)


def numbered_kind(unit: QueryUnit) -> str | None:
    """The kind of thing (lab, week …) of a unit that asks for one by number; else None."""
    return unit.words[0].rstrip("0123456789") if is_numbered(unit.words[0]) else None
