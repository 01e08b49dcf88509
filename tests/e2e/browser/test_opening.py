"""The way to another conversation: by the history, past a failure, and from course to course."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Locator, Page, Route, ViewportSize, WebSocketRoute, expect

from tests.e2e.browser.chat_page import QUESTION, ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.kept_routes import LONG_QUESTION
from tests.e2e.browser.school import School, Visit, ask, join, make_course

SECOND = "Where is the lab?"
CONVERSATION = "**/api/conversations/*"
DESK: ViewportSize = {"width": 1400, "height": 900}


def titles(page: Page) -> Locator:
    return page.locator(".conversation-title")


class Deaf:
    """A server that, while `is_deaf`, takes no question."""

    def __init__(self) -> None:
        self.is_deaf = False
        self._route: WebSocketRoute | None = None

    def attach_to(self, page: Page) -> None:
        page.route_web_socket("**/ws/v1", self._connect)

    def hears_again(self) -> None:
        """What was not taken is sent again with the next connection."""
        self.is_deaf = False
        assert self._route is not None
        self._route.close(code=1011)

    def _connect(self, route: WebSocketRoute) -> None:
        server = route.connect_to_server()
        self._route = route
        route.on_message(lambda message: None if self._drops(message) else server.send(message))

    def _drops(self, message: str | bytes) -> bool:
        return self.is_deaf and json.loads(message)["type"] == "ask"


def settle(page: Page) -> None:
    """Whatever the page does about a reply takes no longer than another request."""
    page.evaluate("async () => { await (await fetch('/api/me')).json(); }")


@pytest.fixture
def chat(open_chat: OpenChat) -> ChatPage:
    """The second of two conversations is shown, the first one is before it in the history; both
    have been read from the server."""
    made = open_chat()
    paths = []
    for question in (QUESTION, SECOND):
        made.page.locator("a.new-conversation").click()
        made.ask(question)
        made.wait_end()
        paths.append(f"/c/{made.page.url.rpartition('/')[2]}")
    chat = open_chat(paths[0], context=made.page.context, loses_network=True)
    chat.page.set_viewport_size(DESK)
    expect(titles(chat.page)).to_have_text([SECOND, QUESTION])
    chat.page.locator(".conversation", has_text=SECOND).click()
    expect(chat.questions).to_have_text([SECOND])
    return chat


@pytest.mark.parametrize("late", ["shown", "lost"])
def test_the_way_back_is_taken_back(chat: ChatPage, late: str) -> None:
    """Back and Forward, while what is before is on its way."""
    page, address = chat.page, chat.page.url
    held: list[Route] = []
    page.route(CONVERSATION, lambda route: held.append(route))
    with page.expect_request(CONVERSATION):
        page.evaluate("history.back()")
    page.evaluate("history.forward()")
    expect(page).to_have_url(address)
    # The entry is told to the page's own script after its address.
    page.evaluate("new Promise((resolve) => setTimeout(resolve))")
    ended = "requestfinished" if late == "shown" else "requestfailed"
    with page.expect_event(ended, lambda request: "/api/conversations/" in request.url):
        if late == "shown":
            held[0].continue_()
        else:
            held[0].abort()
    settle(page)
    expect(chat.questions).to_have_text([SECOND])
    expect(page.locator("#problem")).to_be_hidden()
    assert page.url == address


def test_what_could_not_be_had_on_the_way_back_is_not_offered_elsewhere(chat: ChatPage) -> None:
    page = chat.page
    page.route(CONVERSATION, lambda route: route.abort())
    page.evaluate("history.back()")
    problem = page.locator("#problem")
    expect(problem.get_by_role("button", name="Retry")).to_be_visible()
    page.evaluate("history.forward()")
    expect(problem).to_be_hidden()
    expect(chat.questions).to_have_text([SECOND])


def test_a_closed_panel_takes_nothing_back_that_was_clicked(chat: ChatPage) -> None:
    page = chat.page
    source = chat.answer.locator(".source").first
    source.locator("summary").click()
    source.get_by_role("button").click()
    panel = page.locator("#source-panel")
    expect(panel).to_be_visible()
    held: list[Route] = []
    page.route(CONVERSATION, lambda route: held.append(route))
    with page.expect_request(CONVERSATION):
        page.locator(".conversation", has_text=QUESTION).click()
    panel.get_by_role("button", name="Close the source").click()
    page.wait_for_function("() => !history.state?.panel")
    held[0].continue_()
    expect(chat.questions).to_have_text([QUESTION])
    href = page.locator(".conversation[aria-current=page]").get_attribute("href")
    expect(page).to_have_url(re.compile(f"{href}$"))


def test_a_first_conversation_that_cannot_be_had_says_nothing_of_courses(chat: ChatPage) -> None:
    page = chat.page
    page.route(CONVERSATION, lambda route: route.abort())
    page.reload()
    again = page.locator("#problem").get_by_role("button", name="Retry")
    expect(again).to_be_visible()
    page.wait_for_selector("html.is-ready")
    expect(page.locator(".welcome-title")).to_have_count(0)
    # The others can be read meanwhile, and the next question be written.
    expect(titles(page)).to_have_text([SECOND, QUESTION])
    chat.question.fill("while nothing is there")
    chat.question.press("Enter")
    page.unroute(CONVERSATION)
    again.click()
    expect(chat.questions).to_have_text([SECOND])
    expect(chat.question).to_have_value("while nothing is there")
    expect(page.locator(".conversation[aria-current=page]")).to_have_text(SECOND)


def test_the_list_is_of_the_course_that_is_shown(school: School, visit: Visit) -> None:
    teacher = visit("/teach", storage_state=school.teacher)
    first, second = make_course(teacher, "Shown one"), make_course(teacher, "Shown two")
    page = visit("/login")
    join(page, first, "Flo", "flo-shown")
    assert page.request.post("/api/join", data={"code": second["join_code"]}).ok
    page.goto(f"/?course={first['slug']}")
    page.wait_for_selector("html.is-ready")
    ask(page, "Asked in the first")
    expect(titles(page)).to_have_text(["Asked in the first"])
    path = page.url
    course, select = page.locator("#course-title"), page.locator(".course-select")
    select.select_option(label="Shown two")
    expect(course).to_have_text("Shown two")
    expect(titles(page)).to_have_count(0)
    page.evaluate("history.back()")
    expect(course).to_have_text("Shown one")
    expect(select.locator("option:checked")).to_have_text("Shown one")
    expect(titles(page)).to_have_text(["Asked in the first"])
    with page.expect_request("**/api/conversations?*q=*") as looked:
        page.locator(".search-input").fill("first")
    assert f"course={first['id']}" in looked.value.url
    # From a failure too, in a browser that was in the other course last.
    page.evaluate("(id) => localStorage.setItem('lectern.course', id)", second["id"])
    page.route(CONVERSATION, lambda route: route.abort())
    page.goto(path)
    again = page.locator("#problem").get_by_role("button", name="Retry")
    expect(again).to_be_visible()
    expect(select.locator("option:checked")).to_have_text("Shown two")
    page.unroute(CONVERSATION)
    again.click()
    expect(course).to_have_text("Shown one")
    expect(titles(page)).to_have_text(["Asked in the first"])


def test_a_question_on_its_way_is_found_in_its_conversation_again(open_chat: OpenChat) -> None:
    made = open_chat()
    for question in (QUESTION, SECOND):
        made.page.locator("a.new-conversation").click()
        made.ask(question)
        made.wait_end()
    server = Deaf()
    chat = open_chat(
        f"/c/{made.page.url.rpartition('/')[2]}",
        context=made.page.context,
        before=server.attach_to,
    )
    chat.page.set_viewport_size(DESK)
    server.is_deaf = True
    chat.ask(LONG_QUESTION)
    chat.page.locator(".conversation", has_text=QUESTION).click()
    expect(chat.questions).to_have_text([QUESTION])
    chat.page.locator(".conversation", has_text=SECOND).click()
    expect(chat.questions).to_have_text([SECOND, LONG_QUESTION])
    expect(chat.answer).to_have_attribute("data-phase", "sending")
    server.hears_again()
    assert chat.wait_end() == LONG_QUESTION
    expect(chat.questions).to_have_text([SECOND, LONG_QUESTION])
    chat.wait_stored("messages.length === 4")
