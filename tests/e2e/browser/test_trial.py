"""A teacher tries a question, and is told what the model was asked."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Route, ViewportSize, expect

from tests.e2e.browser.school import School, Visit, make_course, upload

MATERIAL = "# Locks\n\nA mutex is held by one thread.\n\n# Keys\n\nA mutex is a key to a lock.\n"

WORDS = {
    "en": {
        "question": "Question",
        "some": "Found in part: the model would be asked what is found, and the answer would name "
        "the rest.",
        "found": "Found.",
        "missing": "Not found: the answer would say so.",
        "leaning": "Not searched: it leans on the part before it, which is not found.",
    },
    "zh": {
        "question": "问题",
        "some": "只找到一部分：模型只回答找到的部分，其余部分会在答案中说明没有找到。",
        "found": "已找到。",
        "missing": "未找到：答案中会说明。",
        "leaning": "没有检索：这一部分依赖前一部分，而前一部分没有找到。",
    },
}


def test_the_model_s_part_in_the_order_is_shown(visit: Visit, school: School) -> None:
    """A script judges nothing: the reply gets the likelihoods that a model would give."""
    teacher = visit("/teach", storage_state=school.teacher)
    course = make_course(teacher, "Locks")
    upload(teacher, course, "locks.md", MATERIAL.encode())

    def judge(route: Route) -> None:
        found: dict[str, Any] = route.fetch().json()
        [hit] = found["passages"]
        values = (-21.5, -40.25, None)
        found["passages"] = [
            {**hit, "id": str(n), "likelihood": value} for n, value in enumerate(values)
        ]
        route.fulfill(json=found)

    teacher.goto(f"/teach/{course['slug']}/try")
    teacher.route(re.compile("/search$"), judge)
    teacher.get_by_label("Question", exact=True).fill("What is a mutex?")
    teacher.keyboard.press("Enter")
    hits = teacher.locator(".hit")
    expect(hits).to_have_count(3)
    expect(hits.nth(0).locator(".hit-judged")).to_have_text("By the model: 1 of 2")
    expect(hits.nth(1).locator(".hit-judged")).to_have_text("By the model: 2 of 2")
    expect(hits.nth(2).locator(".hit-judged")).to_have_count(0)


def test_nothing_is_said_of_a_model_that_was_not_asked(visit: Visit, school: School) -> None:
    teacher = visit("/teach", storage_state=school.teacher)
    course = make_course(teacher, "Keys")
    upload(teacher, course, "locks.md", MATERIAL.encode())
    teacher.goto(f"/teach/{course['slug']}/try")
    teacher.get_by_label("Question", exact=True).fill("What is a mutex?")
    teacher.keyboard.press("Enter")
    expect(teacher.locator(".hit")).to_have_count(1)
    expect(teacher.locator(".hit-judged")).to_have_count(0)


@pytest.mark.parametrize("locale", ["en", "zh"])
@pytest.mark.parametrize("size", [None, {"width": 320, "height": 640}])
def test_a_question_of_several_parts_is_tried_part_by_part(
    visit: Visit, school: School, locale: str, size: ViewportSize | None
) -> None:
    teacher = visit("/teach", storage_state=school.teacher, locale=locale, viewport=size)
    course = make_course(teacher, f"Parts {locale} {size is None}")
    upload(teacher, course, "locks.md", MATERIAL.encode())
    teacher.goto(f"/teach/{course['slug']}/try")
    words = WORDS[locale]
    teacher.get_by_label(words["question"], exact=True).fill(
        "What is a mutex? What is the Wi-Fi password? Who may change it?"
    )
    teacher.keyboard.press("Enter")
    expect(teacher.locator(".trial > .verdict")).to_have_text(words["some"])
    parts = teacher.locator(".trial-part")
    expect(parts.get_by_role("heading")).to_have_text(
        ["What is a mutex?", "What is the Wi-Fi password?", "Who may change it?"]
    )
    expect(parts.nth(0).locator(".verdict")).to_contain_text(words["found"])
    expect(parts.nth(0).locator(".hit.is-given")).to_have_count(1)
    expect(parts.nth(1).locator(".verdict")).to_contain_text(words["missing"])
    expect(parts.nth(1).locator(".hit.is-given")).to_have_count(0)
    expect(parts.nth(2).locator(".verdict")).to_have_text(words["leaning"])
    expect(parts.nth(2).locator(".hit")).to_have_count(0)
    assert teacher.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
