"""The parts of a question that asks for several things. Pure.

"When is Lab 4 due, and what is the password?" asks two things, of which a course may know one. A
part is a sentence with a question mark, or a clause behind a connective that asks on its own.
What stands in quotes, brackets or code is never taken apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import regex

from server.store.analysis import query_units

MOST_PARTS = 4
_MOST_CHARS = 2000
_MOST_JOINTS = 16
"""A text that is longer, or could be taken apart in more places, is not a question of a few
parts."""

_LITERAL = regex.compile(
    r"```.*?(?:```|\Z)|`[^`\n]+`|\$[^$\n]+\$|\"[^\"\n]*\"|“[^”\n]*”|‘[^’\n]*’|「[^」\n]*」"
    r"|『[^』\n]*』|《[^》\n]*》|\([^()\n]*\)|（[^（）\n]*）|\[[^\[\]\n]*\]|(?<!\w)'[^'\n]*'(?!\w)",
    regex.DOTALL,
)
_HIDDEN = "\N{OBJECT REPLACEMENT CHARACTER}"
_WORD = (
    r"(?i:(?:(?:in|on|at|by|for|to|from|of|with|until|under)\s+)?"
    r"(?:what|when|where|who|whom|whose|which|why|how)\b)"
)
_AUXILIARY = (
    r"(?i:(?:is|are|was|were|do|does|did|can|could|will|would|shall|should|may|must|has|have|had)"
    r"\b)"
)
_SUBJECT = (
    r"\s+(?:(?:we|you|he|she|it|they|there|this|that|these|those|the|an?|my|our|your|any|some)\b"
    r"|[A-Z])"
)
_BARE_CLAUSE = (
    rf"(?!(?i:do|does|did|have|has|had)\b){_AUXILIARY}{_SUBJECT}"
    r"|(?i:do|does|did|have|has|had)\s+(?:I|we|you|he|she|it|they)\b"
)
_BLANKS = r"\s{0,20}"
# Blanks are bounded, so that a long run of them is not scanned anew from each of its places.
_JOINT = regex.compile(
    rf"(?P<mark>[?？][?？!！]{{0,20}})(?:\s+|(?=\p{{Han}})|(?<=？))"
    rf"|{_BLANKS}[,;]{_BLANKS}(?i:and|also|plus)\s+(?i:also\s+)?(?={_WORD}|{_AUXILIARY})"
    # "and have a laptop" asks nothing: behind a bare "and", an auxiliary needs a subject.
    rf"|\s{_BLANKS}(?i:and|plus)\s+(?i:also\s+)?(?={_WORD}|{_BARE_CLAUSE})"
    rf"|{_BLANKS};{_BLANKS}(?={_WORD}|{_AUXILIARY})"
    rf"|(?P<chinese>{_BLANKS}[，,；;]{_BLANKS})"
)
_CHINESE_ASKS = regex.compile(
    r"什么|多少|多久|多长|多大|多远|多晚|多早|几(?!乎)|谁|哪|怎|为何|何时|何地|如何|是否|吗|呢"
    r"|([能会是有可要该])[不没]\1"
)
_ALSO = "(?:另外|还有|以及|此外|同时|并且|顺便(?:问一下|问问|问)?|再问一下)"
_CONNECTIVE = regex.compile(
    rf"[\s,，;；]*(?:(?:(?i:and|also|plus|besides)\b|{_ALSO})[\s,，:：]*)*",
)
# Possessive, and tried once for a run of blanks: linear.
_LEFT_OVER = regex.compile(rf"(?<![\s,，;；、])[\s,，;；、]++(?:{_ALSO}[\s,，;；、]*+)?$")
_ENDS_ASKING = regex.compile(rf"\b{_WORD}\s*$")


def question_parts(question: str) -> tuple[str, ...]:
    """The parts of `question`, two to `MOST_PARTS`, in its own words without what joins them;
    none where it asks one thing. What says too little alone stays with the part before it."""
    if len(question) > _MOST_CHARS:
        return ()
    shown = _LITERAL.sub(lambda match: _HIDDEN * len(match[0]), question)
    parts: list[str] = []
    start = 0
    joints = list(islice(_joints(shown), _MOST_JOINTS + 1))
    if len(joints) > _MOST_JOINTS:
        return ()
    for place, (end, behind) in enumerate(joints):
        if len(parts) == MOST_PARTS - 1:
            break
        following = joints[place + 1][0] if place + 1 < len(joints) else len(question)
        if _says_something(question[start:end]) and _says_something(question[behind:following]):
            parts.append(_trimmed(question[start:end]))
            start = behind
    return (*parts, _trimmed(question[start:])) if parts else ()


def as_question(parts: Sequence[str]) -> str:
    """Parts as one question."""
    return " ".join(part if part[-1] in "?？.。!！" else part + _mark_of(part) for part in parts)


def _joints(shown: str) -> Iterator[tuple[int, int]]:
    """Where a part may end, and where the next one begins."""
    for match in _JOINT.finditer(shown):
        if match["mark"]:
            yield match.end("mark"), match.end()
        elif match["chinese"] is None:
            if not _ENDS_ASKING.search(shown, 0, match.start()):  # "when and where"
                yield match.span()
        elif _asks_in_chinese(shown, match.start(), match.end()):
            yield match.span()


def _asks_in_chinese(shown: str, end: int, start: int) -> bool:
    """Whether the clauses on both sides of a comma ask: the question word may stand anywhere."""
    left = regex.split(r"[。？?！!]", shown[:end])[-1]
    right = regex.split(r"[，,；;。？?！!]", _CONNECTIVE.sub("", shown[start:], count=1))[0]
    return all(_CHINESE_ASKS.search(clause) for clause in (left, right))


def _says_something(part: str) -> bool:
    return any(unit.is_asked for unit in query_units(part))


def _trimmed(part: str) -> str:
    opening = _CONNECTIVE.match(part)
    return str(_LEFT_OVER.sub("", part[opening.end() if opening else 0 :])).strip()


def _mark_of(part: str) -> str:
    return "？" if _CHINESE_ASKS.search(part) else "?"
