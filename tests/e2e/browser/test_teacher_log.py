"""A teacher's log: filters in the address, words, days, names."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browser.school import Visit, ask, join, make_course, upload

SENTENCE = "A mutex is held by one thread at a time."
MATERIAL = f"# Locks\n\n{SENTENCE}\n\n# 信号量\n\n信号量用来限制同时进入的线程数。\n"
POLL_MS, POLLS = 100, 200


def wait_for_words(teacher: Page, course: dict[str, Any], words: str) -> None:
    """Returns when a record is found by its words: some seconds after the answer's end."""
    for _ in range(POLLS):
        path = f"/api/courses/{course['id']}/records"
        if teacher.request.get(path, params={"text": words}).json()["records"]:
            return
        teacher.wait_for_timeout(POLL_MS)
    raise AssertionError(f"no record is found by {words}")


@pytest.fixture
def course(teacher: Page) -> dict[str, Any]:
    course = make_course(teacher, "Threads")
    upload(teacher, course, "locks.md", MATERIAL.encode())
    return course


def test_filters_are_in_the_address_and_combine(
    visit: Visit, teacher: Page, course: dict[str, Any]
) -> None:
    student = visit("/login")
    join(student, course, "Zoe", f"zoe-{course['slug']}")
    ask(student, "Who holds a mutex?")
    ask(student, "信号量限制什么？")
    teacher.goto(f"/teach/{course['slug']}/log")
    records = teacher.locator(".record")
    expect(records).to_have_count(2)
    expect(records.first).to_contain_text("信号量限制什么？")
    wait_for_words(teacher, course, "信号量")
    teacher.get_by_label("Words").fill("信号量")
    teacher.get_by_role("button", name="Search").click()
    expect(records).to_have_count(1)
    expect(records).to_contain_text("信号量限制什么？")
    expect(teacher).to_have_url(re.compile(r"\?text=%E4%BF%A1"))
    teacher.reload()
    expect(records).to_have_count(1)
    expect(teacher.get_by_label("Words")).to_have_value("信号量")
    teacher.get_by_label("To", exact=True).fill("2020-01-01")
    expect(teacher.locator(".empty")).to_have_text("No question matches these filters.")
    teacher.get_by_label("To", exact=True).fill("")
    expect(records).to_have_count(1)
    records.get_by_text("source").first.click()
    expect(records.locator("mark").first).to_have_text(SENTENCE)


def test_names_are_shown_only_where_the_course_shows_them(
    visit: Visit, teacher: Page, course: dict[str, Any]
) -> None:
    student = visit("/login")
    join(student, course, "Yves Example", f"yves-{course['slug']}")
    ask(student, "Who holds a mutex?")
    path = f"/teach/{course['slug']}/log"
    teacher.goto(path)
    expect(teacher.locator(".record-who")).to_contain_text("Student")
    expect(teacher.get_by_label("Pseudonym")).to_be_visible()
    assert "Yves" not in teacher.locator("main").inner_text()
    shown = teacher.request.patch(f"/api/courses/{course['id']}", data={"shows_names": True})
    assert shown.ok
    teacher.goto(path)
    expect(teacher.locator(".record-who")).to_have_text("Yves Example")
    teacher.get_by_label("Name").fill("Nobody")
    teacher.get_by_label("Name").press("Enter")
    expect(teacher.locator(".record")).to_have_count(0)


def test_a_student_who_opens_the_teachers_page_lands_in_the_chat(
    visit: Visit, course: dict[str, Any]
) -> None:
    student = visit("/login")
    join(student, course, "Xu", f"xu-{course['slug']}")
    student.goto(f"/teach/{course['slug']}/log")
    expect(student.locator("#course-title")).to_have_text("Threads")
    expect(student.locator("#account").get_by_role("link", name="Teach this course")).to_have_count(
        0
    )
