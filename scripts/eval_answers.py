#!/usr/bin/env python3
"""Asks questions about the sample course and grades what comes back.

    scripts/eval_answers.py MODEL.gguf       the whole path: retrieval, prompt, engine, greedy
    scripts/eval_answers.py MODEL.gguf --compare 20:260:3 150:400:2
                                             passage sizes and counts against each other
    scripts/eval_answers.py --retrieval-only ranks and the not-found decision, without a model
    scripts/eval_answers.py --regrade        the kept answers by the facts as they are now

`eval_questions.json` has the questions that the prompt was made with, `eval_heldout.json` others
that were written before any answer to them was seen; `--questions` chooses. An answer is right
when it holds one text of each group in `facts` and none of `wrong` (compared without spaces,
case and width). A question without `source` has no answer in the course: right is "not found",
decided by the retrieval score. The results, answers included, go to `eval_results.json` beside
this file, each file of questions under its own heading; `eval_threshold.json` has further
questions, for the not-found threshold alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from engine.api import EngineConfig, create_engine  # noqa: E402
from server.app.factory import SAMPLE_COURSE, App, create_app  # noqa: E402
from server.app.library_setup import folder_importer  # noqa: E402
from server.app.materials.document import ParseLimits, PassageLimits  # noqa: E402
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

SCRIPTS = ROOT / "scripts"
HELD_OUT = SCRIPTS / "eval_heldout.json"
QUESTION_FILES = (SCRIPTS / "eval_questions.json", HELD_OUT)
THRESHOLD_QUESTIONS = SCRIPTS / "eval_threshold.json"
RESULTS = SCRIPTS / "eval_results.json"
MAX_TOKENS = 160
NUM_TOGETHER = 8


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
class Setting:
    """How passages are made and how many a question gets at most. Written `least:most:number`."""

    least: int = PassageLimits().least
    most: int = PassageLimits().most
    num_passages: int = ServerConfig().num_passages

    def __str__(self) -> str:
        return f"{self.least}:{self.most}:{self.num_passages}"

    @classmethod
    def parse(cls, text: str) -> Setting:
        """Raises ValueError."""
        least, most, num_passages = (int(part) for part in text.split(":"))
        return cls(least, most, num_passages)


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
class Answers:
    """What is kept of one file of questions."""

    model: str
    setting: str
    right: dict[str, str]
    mean_prompt_tokens: int
    results: list[Result]


@dataclass(frozen=True, slots=True)
class Compared:
    """One line of the comparison: of the answerable questions of each file, how many right."""

    model: str
    setting: str
    right: dict[str, str]
    mean_prompt_tokens: int
    wrong: list[str]


@dataclass(frozen=True, slots=True)
class Report:
    """What is kept. `answers` is by the name of the file of questions."""

    answers: dict[str, Answers] = field(default_factory=dict)
    comparison: list[Compared] = field(default_factory=list)


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
    model: Path, questions: Sequence[Question], cache_dir: Path, setting: Setting
) -> list[Result]:
    """The results, in order."""
    engine = create_engine(
        EngineConfig(
            model=model, served_name=model.stem, cache_dir=cache_dir, kv_cache_tokens=16_384
        ),
        lambda *_progress: None,
    )
    turns = asyncio.Semaphore(NUM_TOGETHER)
    with tempfile.TemporaryDirectory() as folder:
        config = ServerConfig(data_dir=Path(folder), num_passages=setting.num_passages)
        app = create_app(config, engine, course_folders=())

        async def one(question: Question) -> Result:
            async with turns:
                result = await ask(app, question)
            mark = "right" if result.is_right else "WRONG"
            print(f"{mark} {question.id} {question.question} → {result.answer!r}", flush=True)
            return result

        async with lifespan(app):
            limits = ParseLimits(least_tokens=setting.least, most_tokens=setting.most)
            count_tokens = app.service.generation.count_tokens
            importer = folder_importer(app.database, count_tokens, Path(folder), limits)
            await importer.import_course(SAMPLE_COURSE)
            began = time.monotonic()
            results = await asyncio.gather(*(one(question) for question in questions))
            print(f"{len(results)} questions in {time.monotonic() - began:.0f} s")
            return list(results)


def mean_prompt_tokens(results: Sequence[Result]) -> int:
    """Over the questions for which the model was asked."""
    sizes = [result.prompt_tokens for result in results if result.prompt_tokens]
    return round(sum(sizes) / len(sizes)) if sizes else 0


def compare(
    model: Path, files: Mapping[str, Sequence[Question]], cache_dir: Path, setting: Setting
) -> Compared:
    """The answerable questions of all files with one setting."""
    asked = [(name, q) for name, questions in files.items() for q in questions if q.source]
    results = asyncio.run(answer_all(model, [q for _, q in asked], cache_dir, setting))
    right = {}
    for name in files:
        graded = [r.is_right for (n, _), r in zip(asked, results, strict=True) if n == name]
        right[name] = f"{sum(graded)} of {len(graded)}"
    wrong = [result.id for result in results if not result.is_right]
    line = Compared(model.stem, str(setting), right, mean_prompt_tokens(results), wrong)
    print(line, flush=True)
    return line


async def search_all(questions: Sequence[str]) -> list[Retrieved]:
    """What retrieval finds for each question in the sample course."""

    async def count(texts: Sequence[str]) -> list[int]:
        return [estimate_tokens(text) for text in texts]

    with tempfile.TemporaryDirectory() as folder:
        database = Database(sqlite_url(Path(folder) / "eval.db"))
        await database.open()
        course = await folder_importer(database, count, Path(folder)).import_course(SAMPLE_COURSE)
        retriever = Retriever(database)
        found = [await retriever.retrieve(course.id, question) for question in questions]
        await database.close()
    return found


def report_retrieval(
    files: Mapping[str, Sequence[Question]], further: Sequence[ThresholdQuestion]
) -> None:
    """Prints recall, and both kinds of mistakes of the not-found decision by threshold."""
    questions = [q for file in files.values() for q in file]
    asked = [q.question for q in questions] + [q.question for q in further]
    answerable = [q.source is not None for q in questions] + [q.answerable for q in further]
    found = asyncio.run(search_all(asked))
    by_id = {q.id: _rank(q, r) for q, r in zip(questions, found, strict=False) if q.source}
    for name, file in files.items():
        ranks = [by_id[q.id] for q in file if q.source]
        for k in (1, 2, 3):
            num = sum(rank is not None and rank <= k for rank in ranks)
            print(f"{name}: recall@{k}: {num} of {len(ranks)}")
    scores = [retrieved.score for retrieved in found]
    held_out = [path == HELD_OUT.stem for path, file in files.items() for _ in file]
    held_out += [q.held_out for q in further]
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


def count_right(questions: Sequence[Question], results: Sequence[Result]) -> dict[str, str]:
    """Counts of right answers, by kind of question and language."""
    counts = {}
    for name, has_answer in (("answerable", True), ("without an answer", False)):
        for language in ("en", "zh"):
            graded = [
                r.is_right
                for q, r in zip(questions, results, strict=True)
                if (q.source is not None) == has_answer and q.language == language
            ]
            if graded:
                counts[f"{name}, {language}"] = f"{sum(graded)} of {len(graded)}"
    return counts


def regraded(questions: Sequence[Question], kept: Answers) -> Answers:
    """`kept` by the facts as they are now."""
    results = [
        replace(r, is_right=is_right(q, r.answer, not_found=r.not_found))
        for q, r in zip(questions, kept.results, strict=True)
    ]
    return replace(kept, right=count_right(questions, results), results=results)


def with_line(report: Report, line: Compared) -> Report:
    """`report` with `line` in place of an earlier one for the same model and setting."""
    others = [old for old in report.comparison if _line_key(old) != _line_key(line)]
    return replace(report, comparison=sorted([*others, line], key=_line_key))


def _line_key(line: Compared) -> tuple[str, list[int]]:
    return line.model, [int(part) for part in line.setting.split(":")]


def read_report(path: Path) -> Report:
    """What was kept before; nothing where there is no file."""
    return msgspec.json.decode(path.read_bytes(), type=Report) if path.exists() else Report()


def write_report(path: Path, report: Report) -> None:
    """Keeps `report`, and prints its counts."""
    text = json.dumps(msgspec.to_builtins(report), ensure_ascii=False, indent=1)
    path.write_text(text + "\n", "utf-8")
    for name, answers in report.answers.items():
        print(name, answers.setting, answers.right, answers.mean_prompt_tokens)
    for line in report.comparison:
        print(line.setting, line.right, line.mean_prompt_tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path, nargs="?", help="GGUF file or model folder")
    parser.add_argument("--questions", type=Path, nargs="+", default=QUESTION_FILES, help="files")
    parser.add_argument("--compare", type=Setting.parse, nargs="+", metavar="LEAST:MOST:NUMBER")
    parser.add_argument("--retrieval-only", action="store_true", help="ask no model")
    parser.add_argument("--regrade", action="store_true", help="grade the kept answers again")
    parser.add_argument("--only", default="", help="ask only questions whose id begins so")
    parser.add_argument("--cache-dir", type=Path, default=Path.home() / ".cache" / "lectern-eval")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the answers go")
    given = parser.parse_args()
    files: dict[str, list[Question]] = {}
    for path in given.questions:
        questions = msgspec.json.decode(path.read_bytes(), type=list[Question])
        files[path.stem] = [q for q in questions if q.id.startswith(given.only)]
    every = [q for questions in files.values() for q in questions]
    if given.retrieval_only:
        kind = list[ThresholdQuestion]
        report_retrieval(files, msgspec.json.decode(THRESHOLD_QUESTIONS.read_bytes(), type=kind))
        return
    if given.regrade:
        report = read_report(given.results)
        again = {n: regraded(files[n], a) for n, a in report.answers.items() if n in files}
        kept = {**report.answers, **again}
        write_report(given.results, replace(report, answers=kept))
        return
    if given.model is None:
        parser.error("a model is needed, or --retrieval-only, or --regrade")
    if given.compare:
        for setting in given.compare:
            line = compare(given.model, files, given.cache_dir, setting)
            report = read_report(given.results)  # others may have written meanwhile
            write_report(given.results, with_line(report, line))
        return
    results = asyncio.run(answer_all(given.model, every, given.cache_dir, Setting()))
    if given.only:
        return  # a part is for looking, not for keeping
    report = read_report(given.results)
    kept = dict(report.answers)
    for name, questions in files.items():
        part = [r for q, r in zip(every, results, strict=True) if q in questions]
        kept[name] = Answers(
            given.model.stem,
            str(Setting()),
            count_right(questions, part),
            mean_prompt_tokens(part),
            part,
        )
    write_report(given.results, replace(report, answers=kept))


if __name__ == "__main__":
    main()
