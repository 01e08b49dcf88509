"""Which rows and items of a passage support a sentence together, and which speak against it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from server.app import citations
from server.app.citations import cite, with_numbers

COURSE = Path(citations.__file__).parent / "sample_course"


@dataclass(frozen=True)
class Source:
    n: int
    text: str
    locator: str = ""


def section(name: str, heading: str) -> str:
    text = (COURSE / name).read_text("utf-8")
    return text.partition(f"## {heading}\n")[2].partition("\n## ")[0].strip()


GRADES = {
    "zh": Source(1, section("syllabus.zh.md", "成绩构成"), "成绩构成"),
    "en": Source(1, section("syllabus.en.md", "Grading"), "Grading"),
}
FILES = Source(
    1,
    "Upload the following files by Friday:\n\n- server.py\n- client.html\n- a report of 4 pages\n\n"
    "The lecturer reads them.",
)
QUESTIONS = {"zh": "总成绩由哪些部分组成？", "en": "What is the final grade made of?"}


def marked(source: Source, answer: str, question: str) -> list[str]:
    """What of the source supports the answer."""
    return [source.text[a:b] for one in cite(answer, question, [source]) for a, b in one.marks]


ROWS = {
    "zh": ["四次实验（每次权重相同）", "期中考试", "期末考试", "课堂和论坛参与"],
    "en": [
        *("Four labs, equally weighted", "Midterm exam", "Final exam"),
        "Participation in lectures and on the forum",
    ],
}


@pytest.mark.parametrize(
    ("language", "answer"),
    [
        ("zh", "总成绩由四部分组成，其中实验占40%，期中20%，期末30%，参与10%。"),
        ("zh", "总成绩由实验（40%）、期中考试（20%）、期末考试（30%）和参与（10%）组成。"),
        # Two of them under names of the model's own, with the right numbers.
        ("zh", "总成绩由实验占40%，测验20%，期末30%，项目10%。"),
        (
            "en",
            "The final grade is made of labs (40%), the midterm (20%), the final exam (30%) and "
            "participation (10%).",
        ),
        (
            "en",
            "It consists of four labs, a midterm exam, a final exam, and participation, weighted "
            "40%, 20%, 30% and 10%, respectively.",
        ),
    ],
)
def test_rows_support_a_sentence_together(language: str, answer: str) -> None:
    shares = ["40%", "20%", "30%", "10%"]
    expected = [f"| {row} | {n} |" for row, n in zip(ROWS[language], shares, strict=True)]
    assert marked(GRADES[language], answer, QUESTIONS[language]) == expected


@pytest.mark.parametrize(
    ("language", "answer"),
    [
        ("zh", "总成绩由实验占30%，期中20%，期末40%，参与10%。"),
        ("zh", "总成绩由作业占45%，项目25%，出勤30%组成。"),
        ("zh", "期末考试占总成绩的 45%。"),
        (
            "en",
            "It is made of labs (30%), the midterm (20%), the final exam (40%) and "
            "participation (10%).",
        ),
        ("en", "It is made of homework (45%), projects (25%) and attendance (30%)."),
        ("en", "The midterm exam counts 25%."),
    ],
)
def test_rows_with_other_numbers_support_nothing(language: str, answer: str) -> None:
    assert marked(GRADES[language], answer, QUESTIONS[language]) == []


def test_items_support_a_sentence_with_what_leads_to_them() -> None:
    question = "What do I hand in?"
    answer = "You have to upload server.py and client.html by Friday, and a report of 4 pages."
    assert marked(FILES, answer, question) == [
        *("Upload the following files by Friday:", "- server.py", "- client.html"),
        "- a report of 4 pages",
    ]
    assert marked(FILES, "You have to upload main.c and notes.txt by Sunday.", question) == []


def test_rows_whose_head_stands_in_another_passage_are_marked_one_by_one() -> None:
    rest = Source(1, "| 四次实验 | 40% |\n| 期中考试 | 20% |\n| 期末考试 | 30% |")
    answer = "实验占40%，期中20%，期末30%。"
    assert marked(rest, answer, QUESTIONS["zh"]) == rest.text.split("\n")


def test_one_number_in_common_is_no_support() -> None:
    plan = Source(1, "| Week | Topic |\n| --- | --- |\n| Week 6 | Chunked prefill |")
    question = "How many credits is the course worth?"
    assert marked(plan, "The course is worth 6 credits.", question) == []
    course = Source(1, "The course is worth 6 credits.")
    assert marked(course, "The course is worth 6 credits.", question) == [course.text]


@pytest.mark.parametrize(
    ("lead", "item", "source"),
    [
        (
            "Here is how the paged KV cache stores the blocks of a request:",
            "- Blocks need not be next to each other.",
            "The paged KV cache stores the blocks of a request. Blocks need not be next to each "
            "other in memory.",
        ),
        (
            "**以下是实验报告迟交的规定：**",
            "- 每天扣百分之十。",
            "以下是实验报告迟交的规定。迟交每天扣百分之十。",
        ),
    ],
)
def test_what_leads_to_a_list_has_no_number(lead: str, item: str, source: str) -> None:
    answer = f"{lead}\n\n{item}"
    found = [one.to_json() for one in cite(answer, "?", [Source(1, source)])]
    assert with_numbers(answer, found, {1}) == f"{lead}\n\n{item} [1]"
