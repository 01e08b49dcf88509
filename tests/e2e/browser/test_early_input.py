"""What is written and clicked on a slow network, before the first conversation is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, Route, expect

from tests.e2e.browser.chat_page import QUESTION, ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.ime import Ime
from tests.e2e.browser.school import School, Visit, join, make_course

CONVERSATION = "**/api/conversations/*"
COURSES = "**/api/courses"

KEPT = """(key) => JSON.parse(localStorage.getItem(`lectern.draft.${key}`))?.text ?? null"""


@contextmanager
def held(page: Page, requests: str, path: str) -> Iterator[None]:
    """The page at `path`, whose script runs and waits for `requests` until the block ends."""
    routes: list[Route] = []
    page.route(requests, lambda route: routes.append(route))
    with page.expect_request(requests):
        page.goto(path, wait_until="commit")
    yield
    for route in routes:
        route.continue_()
    page.unroute(requests)
    page.wait_for_selector("html.is-ready")


@pytest.fixture
def chat(open_chat: OpenChat) -> ChatPage:
    """A conversation of one question, whose answer has ended."""
    chat = open_chat()
    chat.ask()
    chat.wait_end()
    return chat


@pytest.mark.parametrize("late", [COURSES, CONVERSATION])
def test_what_is_written_early_stays_behind_the_draft(chat: ChatPage, late: str) -> None:
    page, address = chat.page, chat.page.url
    chat.question.fill("half of the next")
    with held(page, late, address):
        chat.question.click()
        page.keyboard.type("also ths")
        page.keyboard.press("Enter")
        page.keyboard.press("ArrowLeft")
        # There is no conversation to ask in yet.
        expect(chat.question).to_have_value("also ths")
        expect(page.get_by_role("button", name="Send")).to_be_disabled()
        expect(chat.questions).to_have_count(0)
    expect(chat.questions).to_have_text([QUESTION])
    expect(chat.question).to_have_value("half of the next\n\nalso ths")
    # Whoever is writing goes on where they were.
    expect(chat.question).to_be_focused()
    page.keyboard.type("i")
    expect(chat.question).to_have_value("half of the next\n\nalso this")
    page.reload()
    page.wait_for_selector("html.is-ready")
    expect(chat.question).to_have_value("half of the next\n\nalso this")
    assert page.evaluate(KEPT, "new") is None
    chat.question.press("Enter")
    expect(chat.questions).to_have_text([QUESTION, "half of the next\n\nalso this"])
    assert page.url == address


def test_the_draft_written_once_more_stands_there_once(chat: ChatPage) -> None:
    chat.question.fill("the same words")
    with held(chat.page, CONVERSATION, chat.page.url):
        chat.question.fill("the same words")
    expect(chat.questions).to_have_text([QUESTION])
    expect(chat.question).to_have_value("the same words")


def test_a_composition_is_not_broken_when_the_conversation_comes(chat: ChatPage) -> None:
    page = chat.page
    chat.question.fill("half of the next")
    with Ime(page) as ime:
        with held(page, CONVERSATION, page.url):
            chat.question.click()
            ime.compose("ni")
        expect(chat.questions).to_have_text([QUESTION])
        expect(chat.question).to_have_value("ni")
        ime.choose("你", " ")
        expect(chat.question).to_have_value("half of the next\n\n你")
    page.keyboard.type("!")
    expect(chat.question).to_have_value("half of the next\n\n你!")
    chat.question.press("Enter")
    expect(chat.questions).to_have_text([QUESTION, "half of the next\n\n你!"])


def test_a_question_is_asked_in_the_course_of_the_address(school: School, visit: Visit) -> None:
    """Enter was pressed before the courses were known: it asks nothing elsewhere."""
    teacher = visit("/teach", storage_state=school.teacher)
    first, second = make_course(teacher, "Early one"), make_course(teacher, "Early two")
    student = visit("/login")
    join(student, first, "Ed", "ed-early")
    student.request.post("/api/join", data={"code": second["join_code"]})
    question = student.locator("#question")
    with held(student, COURSES, f"/?course={second['slug']}"):
        question.fill("What is early?")
        question.press("Enter")
        expect(question).to_have_value("What is early?")
    expect(student.locator("#course-title")).to_have_text("Early two")
    expect(student.locator(".question-text")).to_have_count(0)
    expect(question).to_have_value("What is early?")
    question.press("Enter")
    student.wait_for_url("**/c/*")
    id = student.url.rpartition("/")[2]
    assert student.request.get(f"/api/conversations/{id}").json()["course"] == second["id"]


def test_a_new_conversation_that_was_wished_early_is_what_is_shown(chat: ChatPage) -> None:
    page, address = chat.page, chat.page.url
    with held(page, COURSES, address):
        page.locator("a.new-conversation").click()
        chat.question.fill("something else")
    expect(page.locator(".conversation")).to_have_count(1)
    expect(chat.questions).to_have_count(0)
    expect(page.locator(".welcome-title")).to_be_visible()
    expect(chat.question).to_have_value("something else")
    assert "/c/" not in page.url
    page.evaluate("history.back()")
    expect(chat.questions).to_have_text([QUESTION])
    assert page.url == address


def test_nobody_is_told_to_be_in_no_course_before_that_is_known(chat: ChatPage) -> None:
    page = chat.page
    with held(page, COURSES, page.url):
        page.locator("#language").click()
        expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
        expect(page.locator(".welcome-title")).to_have_count(0)
        expect(chat.question).to_be_visible()
    expect(chat.questions).to_have_text([QUESTION])
