#!/usr/bin/env python3
"""Measures how well questions find the passage that answers them.

    scripts/eval_retrieval.py                 the default, bm25s, FTS5 as it comes, MiniLM
    scripts/eval_retrieval.py --no-embeddings without fetching the 83 MB of MiniLM
    scripts/eval_retrieval.py --model NAME    another model as the judge; `none`: words alone
    scripts/eval_retrieval.py --misses        names the dev questions that miss the first place
    scripts/eval_retrieval.py --sizes 20:260 150:400

Three courses that were written for this (`eval_courses`): one English, one Chinese, one mixed,
with questions of whose answers the place is known, and some without an answer. The default asks
the default model about passages that are near each other by words; "words alone" does not. The
dev half may be looked at and anything chosen with it; the test half only judges. A language is
the question's. Exits 1 when the default retrieval misses what it is to reach over all questions.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from engine.api import create_engine  # noqa: E402
from scripts.retrieval_courses import (  # noqa: E402
    COURSES,
    FOLDER,
    Question,
    StoredCourse,
    StoredPassage,
    load_questions,
    store_course,
)
from scripts.retrieval_scores import (  # noqa: E402
    Outcome,
    decision,
    flagged_at_best,
    missed,
    recall,
)
from server.app.judging import PassageJudge  # noqa: E402
from server.app.materials.document import PassageLimits  # noqa: E402
from server.app.retrieval import Previous, Retriever  # noqa: E402
from server.config import ServerConfig  # noqa: E402
from server.model_source import resolve_model  # noqa: E402
from server.service.admission import Admission  # noqa: E402
from server.service.likelihood import Likelihood  # noqa: E402
from server.service.limits import ServiceLimits  # noqa: E402
from server.service.prompt import PromptBuilder  # noqa: E402
from server.store.database import Database, sqlite_url  # noqa: E402

CACHE = Path.home() / ".cache" / "lectern-eval"
NUM_RANKED = 50
FUSED = "words + MiniLM"
WORDS = "words alone"
_LONGEST_S = 60.0
"""What judging may take here: how good the order is does not hang on this machine's speed."""


@dataclass
class TimedJudge:
    """The served model as a judge, and how long it took for each question. Owned by the event
    loop's thread."""

    judge: PassageJudge
    seconds: list[float] = field(default_factory=list)
    num_texts: int = 0

    async def likelihoods(
        self, question: str, texts: Sequence[str], *, user: str, course_id: str, since: float
    ) -> Sequence[float] | None:
        """See `Judge`."""
        start = time.perf_counter()
        found = await self.judge.likelihoods(
            question, texts, user=user, course_id=course_id, since=since
        )
        if found is None:
            raise RuntimeError(f"The model did not judge within {_LONGEST_S:g} s.")
        self.seconds.append(time.perf_counter() - start)
        self.num_texts += len(texts)
        return found

    def summary(self, num_questions: int) -> str:
        """How often it was asked, and how long that took."""
        seconds, limit_s = self.seconds, ServerConfig().judge_time_s
        over = sum(one > limit_s for one in seconds)
        return (
            f"The model judged {self.num_texts} passages of {len(seconds)} of {num_questions} "
            f"questions, in {statistics.median(seconds):.2f} s (median), "
            f"{max(seconds):.2f} s (longest); {over} took longer than the {limit_s:g} s that a "
            "server gives it."
        )


@asynccontextmanager
async def judging(name: str) -> AsyncIterator[TimedJudge]:
    """The catalogue's model `name`, or a file or folder, as the server runs it."""
    config = ServerConfig(model=name)
    resolved = await asyncio.to_thread(
        resolve_model, name, config.models_dir, print, lambda *_: None
    )
    engine = create_engine(config.engine_config(resolved.path))
    await engine.start()
    prompts = PromptBuilder(engine, 1)
    try:
        likelihood = Likelihood(engine, prompts, Admission(engine, ServiceLimits()))
        yield TimedJudge(
            PassageJudge(likelihood, max_tokens=config.judge_tokens, time_s=_LONGEST_S)
        )
    finally:
        prompts.close()
        await engine.shutdown(0.0)


async def ask(retriever: Retriever, course: StoredCourse, question: Question) -> Outcome:
    """One question as the application asks it, after its history."""
    previous = None
    if question.history:
        before = await retriever.retrieve(
            course.id, question.history[-1], viewer=question.viewer, limit=3
        )
        materials = dict.fromkeys(passage.material_id for passage in before.passages)
        previous = Previous(question.history[-1], tuple(materials))
    explained = await retriever.explain(
        course.id, question.question, previous=previous, viewer=question.viewer, limit=NUM_RANKED
    )
    ids = [found.passage.id for found in explained.passages]
    return Outcome(question, course.rank(question, ids), explained.score, explained.is_found)


async def run_default(
    retriever: Retriever, courses: dict[str, StoredCourse], questions: Sequence[Question]
) -> list[Outcome]:
    """Every question, one after the other."""
    return [await ask(retriever, courses[question.course], question) for question in questions]


async def run_fused(
    database: Database, courses: dict[str, StoredCourse], questions: Sequence[Question]
) -> list[Outcome] | None:
    """Words with MiniLM beside them, as `--embedding-model` has it; None without the model or the
    extra."""
    from scripts import retrieval_systems as systems
    from server.app.embeddings import PassageVectors, SentenceEmbedder

    try:
        embedder = SentenceEmbedder(systems.fetch_minilm(CACHE))
    except (OSError, ImportError, subprocess.SubprocessError) as error:
        print(f"{FUSED} is left out: {error}.")
        return None
    vectors = PassageVectors(database, embedder, weight=ServerConfig().embedding_weight)
    while await vectors.make_some():
        pass
    return await run_default(Retriever(database, semantic=vectors), courses, questions)


def run_others(
    courses: dict[str, StoredCourse], questions: Sequence[Question], *, with_embeddings: bool
) -> dict[str, list[Outcome]]:
    """The systems to compare with, by name. Where they would say "not found" is not known: every
    one of their outcomes counts as found, and only `flagged_at_best` says something."""
    from scripts import retrieval_systems as systems

    makers: dict[str, Callable[[Sequence[StoredPassage]], systems.Search]] = {
        "bm25s": systems.bm25s_search,
        "FTS5, its tokenizer": systems.fts5_search,
    }
    if with_embeddings:
        try:
            encode = systems.minilm_encoder(systems.fetch_minilm(CACHE))
            makers["MiniLM alone"] = lambda ps: systems.embedding_search(ps, encode)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"MiniLM is left out: it could not be fetched ({error}).")
    outcomes: dict[str, list[Outcome]] = {}
    for name, make in makers.items():
        searches = {course: make(list(courses[course].passages.values())) for course in courses}
        outcomes[name] = []
        for question in questions:
            ids, score = searches[question.course](question)
            rank = courses[question.course].rank(question, ids)
            outcomes[name].append(Outcome(question, rank, score, is_found=True))
    return outcomes


def table(outcomes: dict[str, list[Outcome]]) -> str:
    """One row a system, language and half."""
    lines = [
        "| system | language | half | questions | @1 | @3 | @5 | MRR | not found | false alarms |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, of_system in outcomes.items():
        for language in ("en", "zh", "both"):
            for half in ("dev", "test", "all"):
                chosen = [
                    o
                    for o in of_system
                    if language in (o.question.language, "both")
                    and half in (o.question.split, "all")
                ]
                reached, decided = recall(chosen), decision(chosen)
                if all(o.is_found for o in chosen):  # has no threshold of its own
                    cells = [f"{flagged_at_best(chosen)}/{decided.num_unanswerable}", "0.10"]
                else:
                    cells = [
                        f"{decided.flagged}/{decided.num_unanswerable}",
                        f"{decided.alarm_share:.2f}",
                    ]
                numbers = (reached.at_1, reached.at_3, reached.at_5, reached.mrr)
                row = [name, language, half, str(reached.num_questions)]
                row += [f"{number:.3f}" for number in numbers]
                lines.append(f"| {' | '.join([*row, *cells])} |")
    return "\n".join(lines)


def kinds_table(outcomes: Sequence[Outcome]) -> str:
    """One row a kind of question."""
    lines = ["| kind | questions | @1 | @3 | @5 |", "| --- | --- | --- | --- | --- |"]
    for kind in sorted({o.question.kind for o in outcomes if o.question.places}):
        r = recall([o for o in outcomes if o.question.kind == kind])
        lines.append(f"| {kind} | {r.num_questions} | {r.at_1:.3f} | {r.at_3:.3f} | {r.at_5:.3f} |")
    return "\n".join(lines)


async def evaluate(limits: PassageLimits, arguments: argparse.Namespace) -> list[str]:
    """Prints all of one passage size; returns where the default falls short."""
    questions = load_questions()
    with tempfile.TemporaryDirectory() as folder:
        database = Database(sqlite_url(Path(folder) / "eval.db"))
        await database.open()
        courses = {name: await store_course(database, FOLDER / name, limits) for name in COURSES}
        sizes = ", ".join(f"{name} {len(course.passages)}" for name, course in courses.items())
        print(f"\nPassages of {limits.least} to {limits.most} tokens: {sizes}.")
        start = time.perf_counter()
        words = await run_default(Retriever(database), courses, questions)
        print(
            f"{(time.perf_counter() - start) / len(questions) * 1000:.1f} ms a question by words."
        )
        default = words
        if arguments.model != "none":
            async with judging(arguments.model) as judge:
                default = await run_default(Retriever(database, judge=judge), courses, questions)
            print(judge.summary(len(questions)))
        print()
        fused = None
        if arguments.embeddings:
            fused = await run_fused(database, courses, questions)
        await database.close()
    others = run_others(courses, questions, with_embeddings=arguments.embeddings)
    beside = {} if default is words else {WORDS: words}
    print(table({"default": default, **beside, **({FUSED: fused} if fused else {}), **others}))
    print(
        "\nThe default decides by its threshold; for the others the row says how many of the "
        "unanswerable would be flagged by the threshold that is best at one false alarm in ten.\n"
    )
    print(kinds_table(default))
    if arguments.misses:
        for o in default:
            if o.question.split == "dev" and o.question.places and o.rank != 1:
                print(
                    f"{o.question.id}: place {o.rank}, score {o.score:.2f}: {o.question.question}"
                )
    return missed(default)


async def main(arguments: argparse.Namespace) -> int:
    short: list[str] = []
    for size in arguments.sizes:
        least, most = (int(part) for part in size.split(":"))
        short = await evaluate(PassageLimits(least, most), arguments)
        print("\n" + ("\n".join(short) or "The default reaches what it is to reach."))
    return 1 if short else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-embeddings", dest="embeddings", action="store_false")
    parser.add_argument("--model", default=ServerConfig().model)
    parser.add_argument("--misses", action="store_true")
    usual = PassageLimits()
    parser.add_argument("--sizes", nargs="+", default=[f"{usual.least}:{usual.most}"])
    sys.exit(asyncio.run(main(parser.parse_args())))
