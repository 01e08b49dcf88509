"""A teacher tries a question, and is told what the model was asked."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Route, expect

from tests.e2e.browser.school import School, Visit, make_course, upload

MATERIAL = "# Locks\n\nA mutex is held by one thread.\n\n# Keys\n\nA mutex is a key to a lock.\n"


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
