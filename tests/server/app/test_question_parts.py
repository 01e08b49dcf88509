"""What a question is taken apart into, and what it is not."""

from __future__ import annotations

import pytest

from server.app.question_parts import MOST_PARTS, as_question, question_parts


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        ("When is Lab 4 due, and what is it worth?", ("When is Lab 4 due", "what is it worth?")),
        ("When is Lab 4 due and who grades it?", ("When is Lab 4 due", "who grades it?")),
        ("When is Lab 4 due and in which room?", ("When is Lab 4 due", "in which room?")),
        ("Is Lab 4 hard and is Lab 3 easy?", ("Is Lab 4 hard", "is Lab 3 easy?")),
        ("When is Lab 4 due? Also, who grades Lab 3?", ("When is Lab 4 due?", "who grades Lab 3?")),
        ("实验四什么时候交？谁批改实验三？", ("实验四什么时候交？", "谁批改实验三？")),
        ("实验四什么时候交，另外谁批改？", ("实验四什么时候交", "谁批改？")),
        ("实验四什么时候交，还有，谁批改？", ("实验四什么时候交", "谁批改？")),
        ("实验四什么时候交，以及答疑在哪里？", ("实验四什么时候交", "答疑在哪里？")),
    ],
)
def test_parts(question: str, parts: tuple[str, ...]) -> None:
    assert question_parts(question) == parts


@pytest.mark.parametrize(
    "question",
    [
        "",
        "？？",
        "What are labs and exams worth?",
        "实验和考试各占多少？",
        "实验和考试，以及作业各占多少？",
        "如果迟交两天，会扣多少分？",
        "When and where is the final exam?",
        "Explain how and why the cache is paged.",
        "Must I attend and have a laptop?",
        "When is Lab 4 due? Why?",
        "I missed Lab 4. What now?",
        'What does "When is it, and what is it?" mean in Lab 4?',
        "“什么是块？什么是页？”这句话在哪一讲？",
        "What does `lab ? paging : and is preemption` do?",
        "Which lab (the third? Lab 4?) has paging?",
        "When is Lab 4 due? " * 200,
    ],
)
def test_one_thing_is_not_taken_apart(question: str) -> None:
    assert question_parts(question) == ()


def test_the_last_part_has_what_is_too_much() -> None:
    question = " ".join(f"When is Lab {n} due?" for n in range(1, 7))
    parts = question_parts(question)
    assert len(parts) == MOST_PARTS
    assert " ".join(parts) == question


def test_parts_become_one_question_again() -> None:
    assert (
        as_question(["When is Lab 4 due", "who grades it?"]) == "When is Lab 4 due? who grades it?"
    )
    assert as_question(["实验四什么时候交"]) == "实验四什么时候交？"
