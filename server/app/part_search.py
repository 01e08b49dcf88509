"""What of a question is found where it is not found as a whole: each of its parts for itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from server.app.candidates import Passage
from server.app.follow_ups import Previous, leans, refers_back
from server.app.question_parts import as_question, question_parts


@dataclass(frozen=True, slots=True)
class PartFound:
    """What was found for one part, as for a question."""

    passages: tuple[Passage, ...]
    is_found: bool
    score: float


SearchPart = Callable[[str, Previous | None], Awaitable[PartFound]]


@dataclass(frozen=True, slots=True)
class FoundParts:
    """`asked`: the found parts as one question, None where all are found; `missing`: those for
    which nothing is; `parts`: each in order with what its search found, None where it was not
    searched."""

    passages: tuple[Passage, ...]
    asked: str | None
    missing: tuple[str, ...]
    score: float
    parts: tuple[tuple[str, PartFound | None], ...]


async def search_parts(
    question: str, previous: Previous | None, search: SearchPart, *, limit: int
) -> FoundParts | None:
    """What is found for the parts of `question`; None where it has none, or none is found. A part
    that leans on the one before it is searched with its help, and not found where that was not."""
    parts: list[tuple[str, PartFound | None]] = []
    helping, is_known = previous, True
    for place, part in enumerate(question_parts(question)):
        if place and refers_back(part) and not is_known:
            parts.append((part, None))
            continue
        helps = place == 0 or (is_known and leans(part))
        result = await search(part, helping if helps else None)
        parts.append((part, result))
        is_known = result.is_found
        if is_known:
            materials = dict.fromkeys(passage.material_id for passage in result.passages)
            before = f"{helping.question}\n{part}" if helping and helps and place else part
            helping = Previous(before, tuple(materials))
    found = [(part, result) for part, result in parts if result and result.is_found]
    if not found:
        return None
    missing = tuple(part for part, result in parts if result is None or not result.is_found)
    passages = _in_turn([result.passages for _, result in found])[:limit]
    asked = as_question([part for part, _ in found]) if missing else None
    score = max(result.score for _, result in found)
    return FoundParts(passages, asked, missing, score, tuple(parts))


def _in_turn(lists: Sequence[Sequence[Passage]]) -> tuple[Passage, ...]:
    """The best of each part, then the second best: no part takes the room of another."""
    rows = zip_longest(*lists)
    by_id = {passage.id: passage for row in rows for passage in row if passage is not None}
    return tuple(by_id.values())
