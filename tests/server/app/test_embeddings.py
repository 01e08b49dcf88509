"""Vectors of passages: made once, kept, compared, used where the model knows the language."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import numpy as np
import pytest
from sqlalchemy import delete, select

from server.app.candidates import reranked
from server.app.embedding_probes import PROBES
from server.app.embeddings import PassageVectors, Vectors
from server.app.fusion import fuse
from server.app.retrieval import Retriever, Viewer
from server.app.retrieval_setup import RetrievalModelError, make_vectors
from server.config import ServerConfig
from server.store.analysis import index_words
from server.store.database import Database, sqlite_url
from server.store.passage_index import IndexedWords, passage_index
from server.store.schema import Course, Material, PassageRow, PassageVector

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

TEXTS = {
    "cats": "Cats purr when they are content.",
    "dogs": "Dogs bark at strangers.",
    "cars": "Cars need fuel.",
}
MEANINGS = ("cat kitten purr feline", "dog puppy bark", "car vehicle fuel engine")


class FakeEmbedder:
    """Knows English by a list of meanings, and takes all else for the same."""

    name = "fake"

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def encode(self, texts: Sequence[str]) -> Vectors:
        self.encoded += texts
        rows = [self._vector(text) for text in texts]
        return np.array([row / np.linalg.norm(row) for row in rows], dtype=np.float32)

    def _vector(self, text: str) -> Vectors:
        row = np.full(len(MEANINGS) + 26, 0.001, dtype=np.float32)
        for word in text.lower().replace(".", " ").replace("?", " ").split():
            for n, meaning in enumerate(MEANINGS):
                if word.rstrip("s") in meaning.split():
                    row[n] += 10
        return row


class ProbedEmbedder(FakeEmbedder):
    """As above, and passes the English probes: each question has its answer's vector."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        if texts[0] in PROBES["en"][0]:
            return np.eye(len(texts), dtype=np.float32)
        return super().encode(texts)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    await database.open()
    async with database.transaction() as session:
        session.add(Course(id="c1", slug="c1", title="C"))
        await session.flush()
        session.add(Material(id="m1", course_id="c1", name="m.md", title="M"))
        await session.flush()
        session.add_all(
            PassageRow(id=id, material_id="m1", course_id="c1", position=n, text=text, num_tokens=9)
            for n, (id, text) in enumerate(TEXTS.items())
        )
        await session.flush()
        rows = [(id, IndexedWords("", "", " ".join(index_words(t)))) for id, t in TEXTS.items()]
        await passage_index(database).add(session, "c1", "m1", rows)
    yield database
    await database.close()


async def made(database: Database, embedder: FakeEmbedder) -> PassageVectors:
    vectors = PassageVectors(database, embedder, weight=0.35)
    while await vectors.make_some():
        pass
    return vectors


async def test_each_passage_gets_its_vector_once(database: Database) -> None:
    embedder = FakeEmbedder()
    await made(database, embedder)
    assert len(embedder.encoded) == len(TEXTS)
    await made(database, embedder)
    assert len(embedder.encoded) == len(TEXTS)
    async with database.session() as session:
        rows = list(await session.scalars(select(PassageVector)))
    assert {row.passage_id for row in rows} == set(TEXTS)
    for row in rows:
        vector = np.frombuffer(row.vector, dtype="<f2").astype(np.float32)
        assert np.linalg.norm(vector) == pytest.approx(1, abs=0.01)


async def test_vectors_are_made_in_the_background(database: Database) -> None:
    embedder = FakeEmbedder()
    vectors = PassageVectors(database, embedder, weight=0.35)
    vectors.start()
    with anyio.fail_after(10):
        while not await vectors_of(database):
            await anyio.lowlevel.checkpoint()
    await vectors.stop()
    await vectors.stop()
    assert await vectors_of(database) == set(TEXTS)


async def vectors_of(database: Database) -> set[str]:
    async with database.session() as session:
        return set(await session.scalars(select(PassageVector.passage_id)))


async def test_meaning_finds_what_shares_no_word(database: Database) -> None:
    vectors = await made(database, ProbedEmbedder())
    nearest = await vectors.nearest("c1", "Where are kittens?", limit=2)
    assert nearest[0][0] == "cats"
    assert len(nearest) == 2
    assert nearest[0][1] > nearest[1][1]
    by_words = await Retriever(database).explain("c1", "feline kittens", viewer=Viewer("u"))
    assert by_words.passages == ()
    both = await Retriever(database, semantic=vectors).explain(
        "c1", "feline kittens", viewer=Viewer("u")
    )
    assert both.passages[0].passage.id == "cats"
    assert (both.passages[0].lexical_place, both.passages[0].semantic_place) == (None, 1)


async def test_a_language_that_the_model_does_not_know_is_left_to_the_words(
    database: Database,
) -> None:
    vectors = await made(database, ProbedEmbedder())
    assert await vectors.nearest("c1", "小猫在哪里", limit=2) == []
    unknown = await made(database, FakeEmbedder())
    assert await unknown.nearest("c1", "Where are kittens?", limit=2) == []


async def test_deleted_passages_are_found_no_more_and_hidden_ones_not_given(
    database: Database,
) -> None:
    vectors = await made(database, ProbedEmbedder())
    retriever = Retriever(database, semantic=vectors, not_found_score=1.1)
    assert len((await retriever.retrieve("c1", "kittens")).passages) == 3
    async with database.transaction() as session:
        await session.execute(delete(PassageRow).where(PassageRow.id == "cats"))
    assert "cats" not in dict(await vectors.nearest("c1", "kittens", limit=9))
    async with database.transaction() as session:
        material = await session.get_one(Material, "m1")
        material.is_hidden = True
    assert (await retriever.retrieve("c1", "kittens")).passages == ()


def test_fusion_gives_the_second_order_its_weight_only() -> None:
    lexical, semantic = ["a", "b", "c"], ["c", "b", "d"]
    weak, strong = fuse(lexical, semantic, 0.01), fuse(lexical, semantic, 5.0)
    assert max(weak, key=lambda id: weak[id]) == "a"
    assert max(strong, key=lambda id: strong[id]) == "c"
    assert set(weak) == {"a", "b", "c", "d"}
    assert fuse(["a"], [], 0.35) == {"a": pytest.approx(1 / 11)}


class Longest:
    """A reranker that likes long texts."""

    async def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        return [float(len(text)) for text in texts]


async def test_a_reranker_orders_the_best_anew(database: Database) -> None:
    question = "cats dogs cars"
    retriever = Retriever(database, reranker=Longest())
    explained = await retriever.explain("c1", question, viewer=Viewer("u"))
    lengths = [len(found.passage.text) for found in explained.passages]
    assert lengths == sorted(lengths, reverse=True)
    ranks = [found.rank for found in explained.passages]
    assert ranks == sorted(ranks, reverse=True)
    assert await reranked([], question, Longest()) == []


def test_a_model_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    database = Database(sqlite_url(tmp_path / "s.db"))
    missing = ServerConfig(data_dir=tmp_path, embedding_model=tmp_path / "nothing")
    with pytest.raises(RetrievalModelError, match=r"--embedding-model: .* is not a folder"):
        make_vectors(missing, database)
    assert make_vectors(ServerConfig(data_dir=tmp_path), database) is None
