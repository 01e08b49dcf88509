#!/usr/bin/env python3
"""Asks the sample course's questions of `eval_questions.json` and grades what comes back.

    scripts/eval_answers.py MODEL.gguf       the whole path: retrieval, prompt, engine, greedy
    scripts/eval_answers.py --retrieval-only ranks and the not-found decision, without a model
    scripts/eval_answers.py --regrade        the kept answers by the facts as they are now

An answer is right when it holds one text of each group in `facts` and none of `wrong`
(compared without spaces, case and width). A question without `source` has no answer in the
course: right is "not found", decided by the retrieval score. The results, answers included, go
to `eval_results.json` beside this file; `eval_threshold.json` has further questions, for the
not-found threshold alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from engine.api import EngineConfig, create_engine  # noqa: E402
from server.app.factory import SAMPLE_COURSE, App, create_app  # noqa: E402
from server.app.materials.importer import MaterialImporter  # noqa: E402
from server.app.passages import estimate_tokens  # noqa: E402
from server.app.retrieval import (  # noqa: E402
    DEFAULT_NOT_FOUND_SCORE,
    Retrieved,
    Retriever,
)
from server.config import ServerConfig  # noqa: E402
from server.lifespan import lifespan  # noqa: E402
from server.service.auth import UserId  # noqa: E402
from server.service.generation import GenerationOptions  # noqa: E402
from server.service.messages import Ask  # noqa: E402
from server.store.database import Database, sqlite_url  # noqa: E402

QUESTIONS = ROOT / "scripts" / "eval_questions.json"
THRESHOLD_QUESTIONS = ROOT / "scripts" / "eval_threshold.json"
RESULTS = ROOT / "scripts" / "eval_results.json"
MAX_TOKENS = 160
NUM_TOGETHER = 4


class Question(msgspec.Struct, frozen=True):
    """One question. `source`: file and heading of the passage that answers it, None where none
    does; `facts`: groups of texts, one of each group must be in the answer."""

    id: str
    language: str
    question: str
    source: tuple[str, str] | None
    facts: list[list[str]]
    wrong: list[str]


class ThresholdQuestion(msgspec.Struct, frozen=True):
    """A question that is only searched for. `held_out`: written after the threshold and the
    vocabulary were chosen, so that it tells how they do on questions they were not made for."""

    language: str
    question: str
    answerable: bool
    held_out: bool


@dataclass(frozen=True, slots=True)
class Result:
    """What was answered to one question, and whether that is right."""

    id: str
    question: str
    is_right: bool
    not_found: bool
    score: float
    sources: list[str]
    answer: str
    finish: str
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Report:
    """What is kept of a run."""

    model: str
    right: dict[str, str]
    mean_prompt_tokens: int
    results: list[Result]


def folded(text: str) -> str:
    """`text` as answers are compared."""
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


def is_right(question: Question, answer: str, *, not_found: bool) -> bool:
    """Whether `answer` is what the course says."""
    if question.source is None or not_found:
        return question.source is None and not_found
    given = folded(answer)
    return all(any(folded(text) in given for text in group) for group in question.facts) and not (
        any(folded(text) in given for text in question.wrong)
    )


async def ask(app: App, question: Question) -> Result:
    """Asks as a student would, in a new conversation."""
    message = Ask(
        id=f"eval-{question.id}",
        text=question.question,
        options=GenerationOptions(temperature=0.0, max_tokens=MAX_TOKENS),
    )
    run = await app.chat.ask(UserId("eval-000001"), message)
    answer = ""
    found: dict[str, Any] = {"not_found": False, "passages": []}
    end: dict[str, Any] = {}
    async for event in run.events():
        data = json.loads(event.data)
        if event.type == "retrieval":
            found = data
        elif event.type == "delta":
            answer += data["text"]
        elif event.type in ("finish", "error"):
            end = data
    passages = found["passages"]
    return Result(
        question.id,
        question.question,
        is_right(question, answer, not_found=found["not_found"]),
        found["not_found"],
        max((passage["score"] for passage in passages[:3]), default=0.0),
        [f"{p['title']} – {p['locator']}" for p in passages if p["used"]],
        answer,
        end.get("finish_detail", {}).get("type", end.get("code", "")),
        end.get("usage", {}).get("prompt_tokens", 0),
        end.get("usage", {}).get("completion_tokens", 0),
    )


async def answer_all(
    model: Path, questions: Sequence[Question], cache_dir: Path, num_passages: int | None
) -> tuple[list[Result], float]:
    """The results in order, and the seconds that all answers took."""
    engine = create_engine(
        EngineConfig(
            model=model, served_name=model.stem, cache_dir=cache_dir, kv_cache_tokens=16_384
        ),
        lambda sentence, _fraction: print(sentence, file=sys.stderr),
    )
    turns = asyncio.Semaphore(NUM_TOGETHER)
    with tempfile.TemporaryDirectory() as folder:
        chosen: dict[str, Any] = {} if num_passages is None else {"num_passages": num_passages}
        app = create_app(ServerConfig(data_dir=Path(folder), **chosen), engine)

        async def one(question: Question) -> Result:
            async with turns:
                result = await ask(app, question)
            mark = "right" if result.is_right else "WRONG"
            print(f"{mark} {question.id} {question.question} → {result.answer!r}", flush=True)
            return result

        async with lifespan(app):
            began = time.monotonic()
            results = await asyncio.gather(*(one(question) for question in questions))
            return list(results), time.monotonic() - began


async def search_all(questions: Sequence[str]) -> list[Retrieved]:
    """What retrieval finds for each question in the sample course."""

    async def count(texts: Sequence[str]) -> list[int]:
        return [estimate_tokens(text) for text in texts]

    with tempfile.TemporaryDirectory() as folder:
        database = Database(sqlite_url(Path(folder) / "eval.db"))
        await database.open()
        course = await MaterialImporter(database, count).import_course(SAMPLE_COURSE)
        retriever = Retriever(database)
        found = [await retriever.retrieve(course.id, question) for question in questions]
        await database.close()
    return found


def report_retrieval(questions: Sequence[Question], further: Sequence[ThresholdQuestion]) -> None:
    """Prints recall, and both kinds of mistakes of the not-found decision by threshold."""
    asked = [q.question for q in questions] + [q.question for q in further]
    answerable = [q.source is not None for q in questions] + [q.answerable for q in further]
    found = asyncio.run(search_all(asked))
    ranks = [_rank(q, r) for q, r in zip(questions, found, strict=False) if q.source]
    for k in (1, 3, 5):
        num = sum(rank is not None and rank <= k for rank in ranks)
        print(f"recall@{k}: {num} of {len(ranks)}")
    scores = [max((p.score for p in r.passages[:3]), default=0.0) for r in found]
    held_out = [False] * len(questions) + [q.held_out for q in further]
    for name, wanted in (("chosen with", False), ("held out", True)):
        pairs = [
            (score, has_answer)
            for score, has_answer, out in zip(scores, answerable, held_out, strict=True)
            if out == wanted
        ]
        num = sum(has_answer for _, has_answer in pairs)
        print(f"{name}: threshold, answerable called not found (of {num}), "
              f"others called found (of {len(pairs) - num})")  # fmt: skip
        for threshold in (0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6):
            false_alarms = sum(a and s < threshold for s, a in pairs)
            missed = sum(not a and s >= threshold for s, a in pairs)
            mark = " ← default" if threshold == DEFAULT_NOT_FOUND_SCORE else ""
            print(f"  {threshold}: {false_alarms}, {missed}{mark}")
    for text, retrieved, has_answer in zip(asked, found, answerable, strict=True):
        if retrieved.is_found != has_answer:
            print("wrong decision:", text)


def _rank(question: Question, retrieved: Retrieved) -> int | None:
    assert question.source is not None
    file, heading = question.source
    title = (SAMPLE_COURSE / file).read_text("utf-8").partition("\n")[0].removeprefix("# ")
    for rank, passage in enumerate(retrieved.passages, start=1):
        if passage.title == title and heading in passage.locator.split(", "):
            return rank
    return None


def regraded(question: Question, result: Result) -> Result:
    """`result` by the facts as they are now."""
    right = is_right(question, result.answer, not_found=result.not_found)
    return replace(result, is_right=right)


def write_report(
    path: Path, model: str, questions: Sequence[Question], results: Sequence[Result]
) -> None:
    """Keeps what was answered, and prints the counts."""
    sizes = [result.prompt_tokens for result in results if result.prompt_tokens]
    report = Report(
        model,
        report_answers(questions, results),
        round(sum(sizes) / len(sizes)) if sizes else 0,
        list(results),
    )
    text = json.dumps(msgspec.to_builtins(report), ensure_ascii=False, indent=1)
    path.write_text(text + "\n", "utf-8")


def report_answers(questions: Sequence[Question], results: Sequence[Result]) -> dict[str, str]:
    """Counts of right answers, also printed."""
    counts = {}
    for name, has_answer in (("answerable", True), ("without an answer", False)):
        for language in ("en", "zh"):
            graded = [
                r.is_right
                for q, r in zip(questions, results, strict=True)
                if (q.source is not None) == has_answer and q.language == language
            ]
            counts[f"{name}, {language}"] = f"{sum(graded)} of {len(graded)}"
    for name, count in counts.items():
        print(f"{name}: {count} right")
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path, nargs="?", help="GGUF file or model folder")
    parser.add_argument("--retrieval-only", action="store_true", help="ask no model")
    parser.add_argument("--regrade", action="store_true", help="grade the kept answers again")
    parser.add_argument("--only", default="", help="ask only questions whose id begins so")
    parser.add_argument("--cache-dir", type=Path, default=Path.home() / ".cache" / "lectern-eval")
    parser.add_argument("--num-passages", type=int, help="passages looked up (default: server's)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the answers go")
    given = parser.parse_args()
    questions = msgspec.json.decode(QUESTIONS.read_bytes(), type=list[Question])
    if given.retrieval_only:
        further = msgspec.json.decode(
            THRESHOLD_QUESTIONS.read_bytes(), type=list[ThresholdQuestion]
        )
        report_retrieval(questions, further)
        return
    if given.regrade:
        kept = msgspec.json.decode(given.results.read_bytes(), type=Report)
        results = [regraded(q, r) for q, r in zip(questions, kept.results, strict=True)]
        write_report(given.results, kept.model, questions, results)
        return
    if given.model is None:
        parser.error("a model is needed, or --retrieval-only, or --regrade")
    questions = [q for q in questions if q.id.startswith(given.only)]
    results, seconds = asyncio.run(
        answer_all(given.model, questions, given.cache_dir, given.num_passages)
    )
    print(f"{len(results)} questions in {seconds:.0f} s")
    if given.only:
        return  # a part is for looking, not for keeping
    write_report(given.results, given.model.stem, questions, results)


if __name__ == "__main__":
    main()
