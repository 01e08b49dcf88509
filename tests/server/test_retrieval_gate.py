"""What retrieval by words alone reaches on the evaluation courses, and that both databases agree.

The bounds are what is reached, so that nothing is lost unnoticed; `scripts/eval_retrieval.py` asks
the model, too, and holds both against what is to be reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from scripts.eval_retrieval import run_default
from scripts.retrieval_courses import COURSES, FOLDER, Question, load_questions, store_course
from scripts.retrieval_scores import Outcome, decision, recall
from server.app.retrieval import Retriever
from server.store.database import Database, sqlite_url

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

LEAST = {"en": (0.76, 0.93), "zh": (0.79, 0.97)}
"""Recall at 1 and at 5."""


async def outcomes_on(url: str, questions: Sequence[Question]) -> list[Outcome]:
    database = Database(url)
    await database.open()
    courses = {name: await store_course(database, FOLDER / name) for name in COURSES}
    outcomes = await run_default(Retriever(database), courses, questions)
    await database.close()
    return outcomes


async def test_words_find_as_much_as_they_did(tmp_path: Path) -> None:
    outcomes = await outcomes_on(sqlite_url(tmp_path / "gate.db"), load_questions())
    for language, (at_1, at_5) in LEAST.items():
        reached = recall([o for o in outcomes if o.question.language == language])
        assert reached.num_questions > 100
        assert reached.at_1 >= at_1, (language, reached)
        assert reached.at_5 >= at_5, (language, reached)
    decided = decision(outcomes)
    assert decided.alarm_share <= 0.1, decided
    assert decided.flagged_share >= 0.35, decided


@pytest.mark.postgres
async def test_both_databases_find_the_same(tmp_path: Path, postgresql_url: str) -> None:
    questions = load_questions()[::5]
    here = await outcomes_on(sqlite_url(tmp_path / "gate.db"), questions)
    there = await outcomes_on(postgresql_url, questions)
    assert [(o.question.id, o.score, o.is_found) for o in there] == [
        (o.question.id, o.score, o.is_found) for o in here
    ]
    # Equal ranks may stand in either order.
    same = sum(a.rank == b.rank for a, b in zip(here, there, strict=True))
    assert same >= len(questions) - 2
