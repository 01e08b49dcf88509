"""Citations: which passage each sentence of an answer rests on, whether the model said so or not.

A model may name its sources as [1], 【2】 or [1, 3]; small models name none, and answer nothing
else once they are told to. So each sentence is also compared with the passages, and what supports
it is cited for it. Numbers that no passage has are not shown to anybody; the stored text keeps
them, since a cut answer is continued exactly as the model left it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any
from typing import Literal as OneOf

from server.app.literals import Literal, literals
from server.app.sentences import Sentence, is_heading, sentences
from server.app.support import SourceText, Support
from server.store.analysis import index_words
from server.store.vocabulary import STOP_WORDS

MARKER = re.compile(r"[\[【](\d{1,2}(?:\s*[,，、]\s*\d{1,2})*)[\]】]")
"""How a source is named; the page has the same expression (citations.js)."""

_SEPARATOR = re.compile(r"\s*[,，、]\s*")
_BEHIND_WORD = re.compile(r"[A-Za-z0-9_)\]]")
# A line that stops being what it is when something is appended: what opens or closes a block, also
# the bare number or sign of an item. The page has the same rule (citations.js).
_FRAGILE_LINE = re.compile(
    # Each repetition takes one sign, and blanks in one way: linear in the line.
    r"\s*(?:```|~~~|\$\$|\\\])|[-=|:\s]+$|\s*(?:(?:\d{1,9}[.)]|[-+*>#])\s*)+$"
)
UNSOURCED = "[?]"
"""What stands on paper and in exports behind a sentence that no source supports."""
_MOST_CITATIONS = 200
_TYPE = "*_ \n"
_LEADING = (":", "：", "?", "？")
_ENDING = (".", "。", "!", "！", ";", "；", "|", ")", "）", '"', "”")
_PLEASANTRY = re.compile(
    r"(?i)(?:i )?hope (?:this|that)|let me know|feel free|if you (?:have|need)|"
    r"希望(?:这|以上|能|对)|如果[你您](?:有|需)|如有|如需|请随时"
)
_ENOUGH_CLAIMS, _ENOUGH_CHARS = 2, 60
_LEAST_WORDS = 3
"""A sentence with fewer words that say something claims too little to be told of."""


@dataclass(frozen=True, slots=True)
class Citation:
    """Passage `n` stands behind characters `start` to `end` of the answer: behind the marker that
    names it (`by` model), or behind a sentence that names nothing (`by` match). `marks` are the
    character ranges of the passage's text that support it; a marker may have none. With `by` none,
    no passage stands behind that sentence, though one does behind others: `n` is 0."""

    n: int
    start: int
    end: int
    marks: tuple[tuple[int, int], ...]
    by: OneOf["model", "match", "none"]

    def to_json(self) -> dict[str, Any]:
        """As it is stored."""
        return {
            "n": self.n,
            "start": self.start,
            "end": self.end,
            "marks": [list(mark) for mark in self.marks],
            "by": self.by,
        }


def compared(
    answer: str, question: str, passages: Sequence[SourceText], is_whole: bool
) -> list[Citation] | None:
    """The citations of an answer that has ended, `is_whole`: by itself. None where nothing can be
    said of its support: too little of it is complete, or it claims nothing."""
    found = (cite if is_whole else cite_cut)(answer, question, passages)
    return found if found or claims_something(answer) else None


def cite(answer: str, question: str, passages: Sequence[SourceText]) -> list[Citation]:
    """The citations of an answer to `question`, in order; `passages` are those that the model was
    given. About 2 ms for a usual answer, in pure Python: give a long one to a thread."""
    found = _cite(answer, question, passages)
    if not any(one.marks for one in found):
        # That is said of the whole answer.
        found = [one for one in found if one.by != "none"]
    return found[:_MOST_CITATIONS]


def cite_cut(answer: str, question: str, passages: Sequence[SourceText]) -> list[Citation] | None:
    """As `cite`, of an answer that did not end by itself. None where nothing of it is supported,
    and too little is complete to say so: an answer may begin in words of its own. Two sentences
    that claim something are enough, or as many characters as a long one has."""
    found = _cite(answer, question, passages)
    if any(one.marks for one in found):
        return found[:_MOST_CITATIONS]
    # With no passage at all, nothing could support any of them.
    blocks = _blocks_of(answer)
    claims = [one for one in _claims(answer) if _could_be_proved(answer, one, blocks)]
    num_chars = sum(claim.end - claim.start for claim in claims)
    if len(claims) < _ENOUGH_CLAIMS and num_chars < _ENOUGH_CHARS:
        return None
    return [one for one in found if one.by != "none"][:_MOST_CITATIONS]


def claims_something(answer: str) -> bool:
    """Whether a source could support anything of an answer. Not where it only asks back, leads to
    code, or is a bare number."""
    blocks = _blocks_of(answer)
    return not all(_leads(one) or _is_within(one, blocks) for one in _claims(answer))


def _cite(answer: str, question: str, passages: Sequence[SourceText]) -> list[Citation]:
    if not passages or not answer.strip():
        return []
    known = {passage.n for passage in passages}
    support = Support(question, passages)
    markers = list(_markers(answer, known))
    blocks = _blocks_of(answer)
    found: list[Citation] = []
    for sentence in sentences(answer):
        if len(found) >= _MOST_CITATIONS:
            break
        named = [
            (n, match)
            for match, numbers in markers
            if sentence.start <= match.start() < sentence.end
            for n in numbers
        ]
        said = _without_markers(sentence)
        for n, match in named:
            supported = support.of_sentence(said, named=n)
            marks = supported.marks if supported else ()
            found.append(Citation(n, match.start(), match.end(), marks, "model"))
        if named or _claims_nothing(sentence) or _leads(sentence):
            continue
        place = (sentence.start, sentence.end)
        if (supported := support.of_sentence(said)) is not None:
            found.append(Citation(supported.n, *place, supported.marks, "match"))
        elif _could_be_proved(answer, sentence, blocks):
            found.append(Citation(0, *place, (), "none"))
    return found


def _claims(answer: str) -> list[Sentence]:
    return [
        _without_markers(one)
        for one in sentences(answer)[:_MOST_CITATIONS]
        if not _claims_nothing(one)
    ]


def _could_be_proved(answer: str, sentence: Sentence, blocks: Sequence[Literal]) -> bool:
    """Whether it is told of a sentence that no passage supports it. Not of code, of what leads to
    something else or asks it, of a few words such as "I hope this helps.", and of what was cut."""
    words = sentence.words.rstrip(_TYPE)
    if _PLEASANTRY.match(words) or _leads(sentence):
        return False
    if sentence.end == len(answer) and not words.endswith(_ENDING):
        return False
    if _is_within(sentence, blocks):
        return False
    return len(set(index_words(sentence.words)) - STOP_WORDS) >= _LEAST_WORDS


def _blocks_of(answer: str) -> list[Literal]:
    """Code and formulas that stand alone."""
    return [literal for literal in literals(answer) if literal.is_block]


def _is_within(sentence: Sentence, blocks: Iterable[Literal]) -> bool:
    return any(one.start < sentence.end and sentence.start < one.end for one in blocks)


def _leads(sentence: Sentence) -> bool:
    """Whether it only leads to what follows, or asks something: what it speaks of stands in some
    passage, and proves nothing."""
    return sentence.words.rstrip(_TYPE).endswith(_LEADING)


def _claims_nothing(sentence: Sentence) -> bool:
    """A heading, or the number of an item: nothing that a source could support."""
    return is_heading(sentence.words) or not any(c.isalpha() for c in sentence.words)


def marks_of(citations: Sequence[Citation]) -> dict[int, list[list[int]]]:
    """Every cited passage by its number, with all that is marked in it, in order, each once."""
    marks: dict[int, set[tuple[int, int]]] = {}
    for citation in citations:
        if citation.by != "none":
            marks.setdefault(citation.n, set()).update(citation.marks)
    return {n: [list(mark) for mark in sorted(ranges)] for n, ranges in sorted(marks.items())}


def with_numbers(
    answer: str,
    citations: Sequence[Mapping[str, Any]],
    known: Collection[int],
    *,
    unsourced: str = "",
) -> str:
    """`answer` with the numbers of what the server has matched, as "[1]" behind the sentences;
    those that the model wrote stand there. `citations` as they are stored. Neighbouring sentences
    that rest on the same source have one number, behind the last; code, and lines that would no
    longer be what they are, have none. `unsourced` stands behind each sentence that no source
    supports."""
    literal = list(literals(answer))
    parts, at = [], 0
    for one, following in zip_longest(citations, citations[1:]):
        is_matched = one["by"] == "match" and one["n"] in known
        mark = f"[{one['n']}]" if is_matched else unsourced if one["by"] == "none" else ""
        if not mark or _goes_on(answer, one, following):
            continue
        end = int(one["end"])
        while end > at and (answer[end - 1].isspace() or answer[end - 1] == "|"):
            end -= 1
        line = answer[answer.rfind("\n", 0, end) + 1 : end]
        is_literal = any(one.start < end < one.end for one in literal)
        if end <= at or is_literal or _FRAGILE_LINE.match(line):
            continue
        parts += [answer[at:end], f" {mark}"]
        at = end
    return "".join([*parts, answer[at:]])


def _goes_on(answer: str, one: Mapping[str, Any], following: Mapping[str, Any] | None) -> bool:
    """Whether the next sentence rests on the same source."""
    if following is None or (following["by"], following["n"]) != ("match", one["n"]):
        return False
    between = answer[one["end"] : following["start"]]
    return not between.strip() and "\n" not in between


def without_unknown(answer: str, known: Collection[int], quoted: Sequence[str] = ()) -> str:
    """`answer` as it is shown: without markers, and numbers in them, that name no `known` passage.
    What only looks like a marker stays: in code and formulas, behind a word or a bracket as in
    `a[3]`, with a zero as in [0, 1], and what stands so in one of the texts in `quoted`."""
    parts, end = [], 0
    for match in _candidates(answer):
        numbers = _numbers(match)
        kept = [n for n in numbers if n in known]
        if len(kept) == len(numbers) or any(match[0] in text for text in quoted):
            continue
        before = answer[end : match.start()]
        if kept:
            parts += [before, match[0][0], ", ".join(map(str, kept)), match[0][-1]]
        else:
            parts.append(before.rstrip(" "))
        end = match.end()
    return "".join([*parts, answer[end:]]) if end else answer


def _markers(text: str, known: Collection[int]) -> Iterator[tuple[re.Match[str], list[int]]]:
    """Markers that name known passages, with the numbers of these."""
    for match in _candidates(text):
        if numbers := [n for n in dict.fromkeys(_numbers(match)) if n in known]:
            yield match, numbers


def _candidates(text: str) -> Iterator[re.Match[str]]:
    """What looks like a marker and may be one."""
    literal = list(literals(text))
    for match in MARKER.finditer(text):
        start, end = match.span()
        before = text[start - 1 : start]
        if (
            0 in _numbers(match)
            # "[1][2]" are two markers, "a[1]" and "f(x)[1]" are none.
            or (
                text[start] == "["
                and _BEHIND_WORD.match(before)
                and not _ends_with_marker(text, start)
            )
            or text.startswith("(", end)
            or any(one.start < end and start < one.end for one in literal)
        ):
            continue
        yield match


def _ends_with_marker(text: str, end: int) -> bool:
    return re.search(rf"{MARKER.pattern}$", text[max(0, end - 40) : end]) is not None


def _numbers(match: re.Match[str]) -> list[int]:
    return [int(n) for n in _SEPARATOR.split(match[1])]


def _without_markers(sentence: Sentence) -> Sentence:
    return Sentence(sentence.start, sentence.end, MARKER.sub(" ", sentence.words))
