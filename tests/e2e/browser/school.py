"""`School`: a server that asks for a login, as a teacher and students meet it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, FilePayload, Page

from tests.e2e.browser.chat_page import HAS_ENDED
from tests.support.server_process import ServerProcess

OPTIONS = "--scripted --scripted-token-s 0.005 --login on"
PASSWORD = "a long enough password"
TIMEOUT_MS = 20_000

Visit = Callable[..., Page]
"""Opens an address as a new person, or as one whose `storage_state` is given."""


class School:
    """One server and what its first teacher needs."""

    def __init__(self, process: ServerProcess) -> None:
        process.wait_for("/start/")
        self.address = process.address
        found = re.search(r"/start/[\w-]+", process.text)
        assert found is not None
        self.first_link = found[0]
        self.teacher: Any = None
        """The browser state of the first teacher, after `enrol_teacher`."""

    def enrol_teacher(self, browser: Browser) -> None:
        """Makes the first teacher's account by the link."""
        context = browser.new_context(base_url=self.address)
        account = {"name": "Dr. Lin", "login": "lin", "password": PASSWORD}
        reply = context.request.post(f"/api/links/{self.first_link.split('/')[-1]}", data=account)
        assert reply.status == 201, reply.text()
        self.teacher = context.storage_state()
        context.close()


@contextmanager
def open_school(folder: Path) -> Iterator[School]:
    """A fresh one, with its data in `folder`."""
    module = "tests.e2e.browser.quoting_server"
    with ServerProcess(folder, *OPTIONS.split(), module=module) as process:
        yield School(process)


@contextmanager
def visits(browser: Browser, address: str) -> Iterator[Visit]:
    """Opens pages that may report no error of their own: a script that fails, or something that
    the policy bars. That a request is refused is no error of the page."""
    contexts: list[BrowserContext] = []
    errors: list[str] = []

    def visit(path: str = "/", *, context: BrowserContext | None = None, **options: Any) -> Page:
        if context is None:
            context = browser.new_context(base_url=address, **options)
            contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console", lambda message: errors.append(message.text) if _is_ours(message) else None
        )
        page.goto(path)
        page.wait_for_selector("html.is-ready")
        return page

    yield visit
    for context in contexts:
        context.close()
    assert errors == []


def _is_ours(message: Any) -> bool:
    return message.type == "error" and not message.text.startswith("Failed to load resource")


def make_course(teacher: Page, title: str, **fields: Any) -> dict[str, Any]:
    """A course of the teacher whose page this is."""
    reply = teacher.request.post("/api/courses", data={"title": title, **fields})
    assert reply.status == 201, reply.text()
    made: dict[str, Any] = reply.json()
    return made


def open_tab(page: Page, course: dict[str, Any], tab: str = "materials") -> None:
    """A part of the teacher's pages of a course."""
    page.goto(f"/teach/{course['slug']}/{tab}")
    page.wait_for_selector("html.is-ready")


def upload(teacher: Page, course: dict[str, Any], name: str, content: bytes) -> dict[str, Any]:
    """A material that is read; the reply."""
    file: FilePayload = {"name": name, "mimeType": "application/octet-stream", "buffer": content}
    reply = teacher.request.post(f"/api/courses/{course['id']}/materials", multipart={"file": file})
    assert reply.ok, reply.text()
    material: dict[str, Any] = reply.json()
    return material


def join(student: Page, course: dict[str, Any], name: str, login: str) -> None:
    """Makes an account by the course's code; the page is the chat afterwards."""
    account = {"code": course["join_code"], "name": name, "login": login, "password": PASSWORD}
    reply = student.request.post("/api/join", data=account)
    assert reply.ok, reply.text()
    student.goto("/")
    student.wait_for_selector("html.is-ready")
    student.wait_for_selector("#question")


def ask(student: Page, text: str) -> str:
    """Asks on the chat page; the text of the ended answer."""
    answers = student.locator(".answer")
    num_answers = answers.count()
    student.locator("#question").fill(text)
    student.locator("#question").press("Enter")
    student.wait_for_function(HAS_ENDED, arg=num_answers)
    return (answers.nth(num_answers).locator(".prose").text_content() or "").strip()
