"""Things that carry a number ("Lab 4", "第四次实验", a row of a table about week 6). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import regex

from server.store.concepts import KEY_MARK
from server.store.vocabulary import NUMBER_WORDS, NUMBERED, ORDINAL_WORDS

_HAN_DIGITS = "零一二三四五六七八九"
_MAX_RANGE = 20


def alternatives(words: Sequence[str]) -> str:
    return "|".join(regex.escape(word) for word in sorted(words, key=len, reverse=True))


_KINDS = {name: kind for kind, names in NUMBERED.items() for name in names}
_LATIN_KINDS = alternatives([name for name in _KINDS if name.isascii()])
_HAN_KINDS = alternatives([name for name in _KINDS if not name.isascii()])
# A name of one character before a number is often no name: "讲一下".
_HAN_NAMES = alternatives([name for name in _KINDS if not name.isascii() and len(name) > 1])
_NUMBER = rf"\d{{1,2}}|{alternatives(NUMBER_WORDS)}"
_HAN_NUMBER = rf"\d{{1,2}}|[{_HAN_DIGITS}十]{{1,3}}"
_NUMBERED_PATTERNS = (
    # labs 1, 2 and 3; lab #4; weeks 1 to 6
    regex.compile(
        rf"\b(?P<kind>{_LATIN_KINDS})\s*(?:no\.?|number|\#)?\s*(?P<n>{_NUMBER})\b"
        rf"(?:\s*(?P<join>,\s*and|,|and|or|&|to|-|–)\s*(?P<n>{_NUMBER})\b)*"
    ),
    # the fourth lab, 4th lab
    regex.compile(
        rf"\b(?P<n>\d{{1,2}}(?=st|nd|rd|th)|{alternatives(ORDINAL_WORDS)})(?:st|nd|rd|th)?\s+"
        rf"(?P<kind>{_LATIN_KINDS})\b"
    ),
    # 第四次实验, 第4周, 第 3 讲
    regex.compile(rf"第\s*(?P<n>{_HAN_NUMBER})\s*(?:次|个|份)?\s*(?P<kind>{_HAN_KINDS})"),
    # 实验四, 实验 4, lab 四
    regex.compile(
        rf"(?P<kind>{_HAN_NAMES}|lab)\s*(?P<n>{_HAN_NUMBER})(?![\d{_HAN_DIGITS}十个次步点路张样般])"
    ),
)


def numbered(folded: str) -> Iterator[tuple[str, int, int]]:
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


def table_keys(folded: str) -> list[str]:
    """The numbered things of tables in Markdown: a row with 6 under "Week" is about week 6."""
    keys: list[str] = []
    kinds: list[str | None] | None = None
    for line in folded.split("\n"):
        if "|" not in line:
            kinds = None
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if kinds is None:
            kinds = [_KINDS.get(cell) or _KINDS.get(cell.removesuffix("次")) for cell in cells]
            continue
        for kind, cell in zip(kinds, cells, strict=False):
            if kind is not None and cell.isdecimal() and len(cell) <= 2:
                keys.append(f"{KEY_MARK}{kind}{int(cell)}")
    return keys


def week_key(week: int) -> str:
    """The word of the week with this number."""
    return f"{KEY_MARK}week{week}"


def is_numbered(word: str) -> bool:
    """Whether `word` stands for a numbered thing."""
    return word.startswith(KEY_MARK) and word[-1].isdecimal()
