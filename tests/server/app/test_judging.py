"""The model as a judge: whom it moves, what it is asked, and that retrieval does without it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from server.app.api_search import explained_json
from server.app.candidates import judged
from server.app.explain import Explained
from server.app.judging import PassageJudge
from server.app.retrieval import Previous, Retriever, Viewer
from server.config import ServerConfig
from server.service.errors import QueueFullError
from server.service.likelihood import LikelihoodQuestion
from server.store.analysis import index_words
from server.store.database import Database, sqlite_url
from server.store.passage_index import IndexedWords, passage_index
from server.store.schema import Course, Material, PassageRow
from tests.server.app.site import ALICE, events_of, open_site

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

TEXTS = {
    "twice": "The lab report is due on Friday. The lab report counts twice.",
    "once": "A lab report is a text about a lab.",
    "late": "Whoever brings the lab report late loses a point.",
    "far": "The cafeteria has a report of its menu.",
    "table": "Lab report sizes:\n\n| Part | Pages |\n| --- | --- |\n| Lab report | 4 |",
}


@dataclass
class Favourite:
    """A judge who likes texts with a certain word, by so many nats."""

    word: str
    nats: float = 500.0
    asked: list[tuple[str, tuple[str, ...], str, str]] = field(default_factory=list)
    since: list[float] = field(default_factory=list)

    async def likelihoods(
        self, question: str, texts: Sequence[str], *, user: str, course_id: str, since: float
    ) -> Sequence[float] | None:
        self.asked.append((question, tuple(texts), user, course_id))
        self.since.append(since)
        return [-10.0 if self.word in text else -10.0 - self.nats for text in texts]


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(sqlite_url(tmp_path / "s.db"))
    await database.open()
    async with database.transaction() as session:
        session.add(Course(id="c1", slug="c1", title="C"))
        await session.flush()
        session.add(Material(id="m1", course_id="c1", name="m.md", title="Rules"))
        await session.flush()
        session.add_all(
            PassageRow(
                id=id,
                material_id="m1",
                course_id="c1",
                position=n,
                text=text,
                heading="Reports" if n else "",
                num_tokens=9,
            )
            for n, (id, text) in enumerate(TEXTS.items())
        )
        await session.flush()
        rows = [(id, IndexedWords("", "", " ".join(index_words(t)))) for id, t in TEXTS.items()]
        await passage_index(database).add(session, "c1", "m1", rows)
    yield database
    await database.close()


async def explained(database: Database, question: str, **options: object) -> Explained:
    retriever = Retriever(database, **options)  # type: ignore[arg-type]
    return await retriever.explain("c1", question, viewer=Viewer("ada"))


def order(found: Explained) -> list[str]:
    return [one.passage.id for one in found.passages]


async def test_the_likeliest_of_those_that_are_near_comes_first(database: Database) -> None:
    words = await explained(database, "lab report")
    judge = Favourite("loses")
    found = await explained(database, "lab report", judge=judge)
    assert order(words)[0] != "late"
    assert order(found)[0] == "late"
    assert set(order(found)) == set(order(words))
    # Places keep their ranks, so that as many passages as before are near the best.
    assert [one.rank for one in found.passages] == [one.rank for one in words.passages]
    assert found.passages[0].likelihood == -10.0
    assert found.passages[0].lexical_place == order(words).index("late") + 1


async def test_a_trial_tells_what_the_model_was_asked(database: Database) -> None:
    found = await explained(database, "lab report", judge=Favourite("loses", nats=0.123))
    told = {one["id"]: one["likelihood"] for one in explained_json(found)["passages"]}
    assert told["late"] == -10.0
    assert told["twice"] == -10.12
    assert told["far"] is None


async def test_who_is_far_is_not_judged(database: Database) -> None:
    judge = Favourite("cafeteria")
    found = await explained(database, "lab report", judge=judge)
    assert order(found)[-1] == "far"
    assert found.passages[-1].likelihood is None
    [(_, texts, _, _)] = judge.asked
    assert not any("cafeteria" in text for text in texts)


async def test_what_words_decide_is_not_asked(database: Database) -> None:
    judge = Favourite("lab")
    await explained(database, "cafeteria menu", judge=judge)
    await explained(database, "nothing of this", judge=judge)
    assert judge.asked == []


async def test_what_words_have_found_stays_found(database: Database) -> None:
    """Whatever the model puts first: its part is the order."""
    words = await explained(database, "lab report friday", not_found_score=0.9)
    assert words.is_found
    found = await explained(
        database, "lab report friday", judge=Favourite("pages", nats=900.0), not_found_score=0.9
    )
    assert found.is_found
    assert found.score >= words.score


async def test_what_is_not_found_stays_so_and_the_nearest_are_judged(database: Database) -> None:
    judge = Favourite("loses")
    found = await explained(database, "lab report", judge=judge, not_found_score=1.01)
    assert not found.is_found
    assert order(found)[0] == "late"


async def test_who_cancels_does_not_wait_for_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()
    retrieve = Retriever.retrieve

    async def thinking(self: Retriever, *args: Any, asks_judge: bool = True, **options: Any) -> Any:
        if asks_judge:
            asked.set()
            await asyncio.Event().wait()
        return await retrieve(self, *args, asks_judge=asks_judge, **options)

    monkeypatch.setattr(Retriever, "retrieve", thinking)
    async with open_site(tmp_path) as site:
        run = await site.app.chat.ask(ALICE, site.ask())
        await asked.wait()
        run.cancel()
        events = await events_of(run)
    assert events["finish"][0]["finish_detail"] == {"type": "cancelled"}
    assert events["retrieval"][0]["passages"], "the sources of a question are kept all the same"
    assert events["text"] == [{"text": ""}]


async def test_a_little_likelihood_moves_little(database: Database) -> None:
    words = await explained(database, "lab report friday")
    found = await explained(database, "lab report friday", judge=Favourite("loses", nats=0.5))
    assert order(found) == order(words)


async def test_no_more_than_so_many_are_judged(database: Database) -> None:
    judge = Favourite("lab")
    await explained(database, "lab report", judge=judge, num_judged=2)
    assert [len(texts) for _, texts, _, _ in judge.asked] == [2]


async def test_the_judge_reads_what_the_answering_model_reads(database: Database) -> None:
    judge = Favourite("lab")
    await explained(database, "lab report", judge=judge)
    [(question, texts, user, course_id)] = judge.asked
    assert (question, user, course_id) == ("lab report", "ada", "c1")
    assert "Rules\n" + TEXTS["twice"] in texts
    assert "Rules › Reports\nLab report sizes:\n\n- Part: Lab report; Pages: 4" in texts


async def test_a_follow_up_is_judged_with_the_question_before(database: Database) -> None:
    judge = Favourite("lab")
    retriever = Retriever(database, judge=judge)
    before, after = "What is a lab report?", "And the report?"
    found = await retriever.explain(
        "c1", after, previous=Previous(before, ("m1",)), viewer=Viewer("ada")
    )
    assert found.is_follow_up
    assert [asked[0] for asked in judge.asked] == [f"{before} {after}"]


async def test_nothing_to_judge() -> None:
    assert await judged([], "?", Favourite("x"), limit=8, user="u", course_id="c", since=0) == []


async def test_the_parts_of_a_question_share_its_time(database: Database) -> None:
    judge = Favourite("late")
    retriever = Retriever(database, judge=judge, not_found_score=0.9)
    question = "What is a lab report? What is that lab report? Who cooks in Paris?"
    before = time.monotonic()
    retrieved = await retriever.retrieve("c1", question)
    assert retrieved.missing_parts == ("Who cooks in Paris?",)
    assert len(judge.since) > 1
    assert set(judge.since) == {min(judge.since)}
    assert before <= judge.since[0] <= time.monotonic()


async def test_a_judge_is_given_what_is_left_of_the_time_and_is_not_asked_after_it() -> None:
    likelihood = Silent()
    judge, terms = judge_over(likelihood), {"user": "ada", "course_id": "c1"}
    assert await judge.likelihoods("When?", ["a"], since=time.monotonic() - 1.0, **terms)
    assert 0.0 < likelihood.terms["time_s"] <= 0.5
    assert await judge.likelihoods("When?", ["a"], since=time.monotonic() - 1.5, **terms) is None
    assert len(likelihood.asked) == 1


class Silent:
    """Stands for `Likelihood`."""

    def __init__(self, error: Exception | None = None, *, is_free: bool = True) -> None:
        self.is_free = is_free
        self.error = error
        self.asked: list[LikelihoodQuestion] = []
        self.terms: dict[str, Any] = {}

    async def ask(self, asked: LikelihoodQuestion, **terms: Any) -> list[float]:
        self.asked.append(asked)
        self.terms = terms
        if self.error is not None:
            raise self.error
        return [-1.0 * len(context) for context in asked.contexts]


def judge_over(likelihood: Silent) -> PassageJudge:
    return PassageJudge(likelihood, max_tokens=77, time_s=1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "likelihood",
    [Silent(TimeoutError()), Silent(QueueFullError("full")), Silent(is_free=False)],
    ids=["late", "refused", "busy"],
)
async def test_without_the_model_words_decide(database: Database, likelihood: Silent) -> None:
    words = await explained(database, "lab report")
    found = await explained(database, "lab report", judge=judge_over(likelihood))
    assert order(found) == order(words)
    assert all(one.likelihood is None for one in found.passages)


async def test_both_languages_have_their_lead() -> None:
    likelihood = Silent()
    judge = judge_over(likelihood)
    for question in ("When?", "什么时候？"):
        since = time.monotonic()
        found = await judge.likelihoods(
            question, ["a", "bb"], user="ada", course_id="c1", since=since
        )
        assert found is not None
        assert found[0] > found[1]
    english, chinese = likelihood.asked
    assert english.text == " When?"
    assert english.lead.endswith("this material answers:")
    assert chinese.text == "什么时候？"
    assert chinese.lead.endswith("提出的问题：")
    assert english.contexts == chinese.contexts == ("Course material:\na", "Course material:\nbb")
    assert english.max_context_tokens == 77
    assert 0.0 < likelihood.terms.pop("time_s") <= 1.5
    assert likelihood.terms == {"user": "ada", "salt": "course:c1"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, True),
        ({"scripted": True}, False),
        ({"scripted": True, "judge": "on"}, True),
        ({"reranker_model": Path("r")}, False),
        ({"load_format": "dummy"}, False),
        ({"judge": "off"}, False),
    ],
)
def test_when_a_server_asks_its_model(options: dict[str, object], expected: bool) -> None:
    assert ServerConfig(**options).asks_judge is expected
