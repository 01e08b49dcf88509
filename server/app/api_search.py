"""Trying a question on a course's materials, without an answer.

- POST /api/courses/{course}/search (its teacher) `{question, previous?, limit? (1–50, 20)}` →
  `{is_found, score, threshold, is_follow_up, units: [UNIT], passages: [FOUND], parts: [{question,
  found}]}`, best first. A question that is not found as a whole, while some of its parts are, has
  the same reply for each part as `found`; null where a part was not searched, since it leans on
  one for which nothing is found

UNIT is one thing that the question asks for: `{label, label_zh, weight, rarity, num_passages,
is_asked, from_previous}`; with `is_asked` false it only helps the ranking. FOUND is `{id,
material_id, title, heading, locator, place, text, num_tokens, is_hidden, is_given, score, rank,
coverage, lexical_place, semantic_place, likelihood, matches: [{unit, columns:
[title|heading|text], frequency}], missing: [number of a unit]}`; `unit` counts from 0, `is_given`
says that an answer would be made from it, `likelihood` is that of the question after the passage,
in nats, where the model was asked. A teacher's trial finds hidden materials too and marks them;
students are given none.
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from server.app.access import Need, guarded, member_of, person_of
from server.app.api_replies import json_reply
from server.app.api_requests import json_body
from server.app.explain import Explained, ExplainedPassage
from server.app.follow_ups import Previous
from server.app.retrieval import Retriever, Viewer
from server.service.errors import BadRequestError

MAX_QUESTION_CHARS = 10_000
MAX_PASSAGES = 50
_PREVIOUS_PASSAGES = 3


class Trial(msgspec.Struct, frozen=True):
    """A question to try; `previous`: the one before it in a conversation."""

    question: str = ""
    previous: str | None = None
    limit: int = 20


class SearchApi:
    """Owned by the event loop; keeps no state of its own."""

    def __init__(self, retriever: Retriever, *, num_given: int) -> None:
        """`num_given`: passages that an answer is made from, at most."""
        self._retriever = retriever
        self._num_given = num_given

    def routes(self) -> list[BaseRoute]:
        """The routes, ready for an application."""
        path = "/api/courses/{course}/search"
        return [guarded(path, self.search, ["POST"], Need.COURSE_TEACHER)]

    async def search(self, request: Request) -> Response:
        """What would be found, and why."""
        trial = await json_body(request, Trial)
        _check(trial)
        course_id = member_of(request).course_id
        viewer = Viewer(person_of(request).user, sees_hidden=True)
        previous = None
        if trial.previous:
            before = await self._retriever.retrieve(
                course_id, trial.previous, viewer=viewer, limit=_PREVIOUS_PASSAGES
            )
            previous = Previous(trial.previous, tuple(p.material_id for p in before.passages))
        explained = await self._retriever.explain(
            course_id,
            trial.question,
            previous=previous,
            viewer=viewer,
            limit=trial.limit,
            num_given=self._num_given,
        )
        return json_reply(explained_json(explained))


def _check(trial: Trial) -> None:
    if not trial.question.strip():
        raise BadRequestError("The question is empty.", param="question")
    for name, text in (("question", trial.question), ("previous", trial.previous or "")):
        if len(text) > MAX_QUESTION_CHARS:
            raise BadRequestError(
                f"The {name} has {len(text)} characters; at most {MAX_QUESTION_CHARS} are allowed.",
                param=name,
            )
    if not 1 <= trial.limit <= MAX_PASSAGES:
        raise BadRequestError(f"limit must be from 1 to {MAX_PASSAGES}.", param="limit")


def explained_json(explained: Explained) -> dict[str, Any]:
    """What the trial replies."""
    return {
        "is_found": explained.is_found,
        "score": explained.score,
        "threshold": explained.threshold,
        "is_follow_up": explained.is_follow_up,
        "units": [
            {
                "label": unit.label,
                "label_zh": unit.label_zh,
                "weight": unit.weight,
                "rarity": unit.rarity,
                "num_passages": unit.num_passages,
                "is_asked": unit.is_asked,
                "from_previous": unit.from_previous,
            }
            for unit in explained.units
        ],
        "passages": [_found_json(explained, found) for found in explained.passages],
        "parts": [
            {
                "question": part.question,
                "found": explained_json(part.explained) if part.explained else None,
            }
            for part in explained.parts
        ],
    }


def _found_json(explained: Explained, found: ExplainedPassage) -> dict[str, Any]:
    passage = found.passage
    held = {match.unit for match in found.matches}
    return {
        "id": passage.id,
        "material_id": passage.material_id,
        "title": passage.title,
        "heading": passage.heading,
        "locator": passage.locator,
        "place": passage.place.fields() or None,
        "text": passage.text,
        "num_tokens": passage.num_tokens,
        "is_hidden": found.is_hidden,
        "is_given": found.is_given,
        "score": passage.score,
        "rank": found.rank,
        "coverage": found.coverage,
        "lexical_place": found.lexical_place,
        "semantic_place": found.semantic_place,
        "likelihood": None if found.likelihood is None else round(found.likelihood, 2),
        "matches": [
            {"unit": match.unit, "columns": match.columns, "frequency": match.frequency}
            for match in found.matches
        ],
        "missing": [
            n
            for n, unit in enumerate(explained.units)
            if unit.is_asked and not unit.from_previous and n not in held
        ],
    }
