"""`Retriever`, `Found`, `FoundPassage`: what answering asks of retrieval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from server.app.materials.document import Place
from server.app.prompts import PassageText
from server.app.retrieval import Previous, Viewer


class FoundPassage(PassageText, Protocol):
    """A passage as retrieval gives it; `score` is higher for better."""

    @property
    def id(self) -> str: ...
    @property
    def material_id(self) -> str: ...
    @property
    def score(self) -> float: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def place(self) -> Place: ...


class Found(Protocol):
    """What retrieval found, best first. `is_found` False: nothing near enough to answer from.
    `missing_parts`: the parts of a question for which nothing is found; the model is then asked
    `found_question`, the others. None: all of it."""

    @property
    def passages(self) -> Sequence[FoundPassage]: ...
    @property
    def is_found(self) -> bool: ...
    @property
    def missing_parts(self) -> Sequence[str]: ...
    @property
    def found_question(self) -> str | None: ...


class Retriever(Protocol):
    """Finds passages of a course."""

    async def retrieve(
        self,
        course_id: str,
        question: str,
        *,
        previous: Previous | None = None,
        viewer: Viewer | None = None,
        limit: int = 8,
        asks_judge: bool = True,
    ) -> Found: ...
