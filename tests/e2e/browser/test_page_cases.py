"""Cases of `tests/cases` that are about what a person sees: markup that is no markup (SEC-01), an
answer that was stopped, reloaded or killed (PER-01), files that cannot be read (UPL-05, UPL-07)."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.browser.chat_page import ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.school import School, Visit, ask, join, make_course
from tests.e2e.browser.scripted_peer import ScriptedPeer, deltas, finish, opening
from tests.support.cases import CASES, case
from tests.support.server_process import ServerProcess

QUESTION = "When are office hours?"
FROM_CONTENT = """() => ({pwn: window.__pwn ?? null, elements:
  [...document.querySelectorAll('.prose, .question-text, .sidebar, #source-panel')]
    .flatMap((root) => [...root.querySelectorAll('*')])
    .filter((node) => /^(script|img|iframe)$/i.test(node.tagName)
      || (/^svg$/i.test(node.tagName) && !node.matches('.icon, .brand-mark'))
      || [...node.attributes].some(({name}) => /^on/i.test(name)))
    .map((node) => node.outerHTML)})"""
NOTHING: dict[str, Any] = {"pwn": None, "elements": []}


@pytest.mark.parametrize("text", case("SEC-01")["input"]["texts"])
def test_sec_01_markup_is_shown_as_text(open_chat: OpenChat, text: str) -> None:
    """In an answer that comes in pieces of three characters, in the question and its title in the
    list, and in the history."""
    assert case("SEC-01")["expect"]["window.__pwn"] is None
    peer = ScriptedPeer()
    streamed = open_chat(before=peer.attach_to)
    peer.answer([*opening(), *deltas(text, 3), finish()])
    streamed.ask(text)
    visible = text.replace("**", "")
    assert streamed.wait_end() == visible
    expect(streamed.questions).to_have_text([text])
    assert streamed.page.evaluate(FROM_CONTENT) == NOTHING

    stored = open_chat()
    stored.ask(f"{QUESTION} {text}")
    stored.wait_end()
    stored.page.reload()
    assert visible in stored.wait_end()
    expect(stored.questions).to_have_text([f"{QUESTION} {text}"])
    expect(stored.page.locator(".conversation").first).to_be_visible()
    assert stored.page.evaluate(FROM_CONTENT) == NOTHING
    reply = stored.page.request.get("/")
    assert "; script-src 'self'; " in reply.headers["content-security-policy"]


def follow(page: Page, address: str) -> ChatPage:
    page.goto(address)
    page.wait_for_selector("html.is-ready")
    return ChatPage(page)


def test_per_01_what_was_streamed_is_kept(browser: Browser, tmp_path: Path) -> None:
    """Stop, a reload, and SIGKILL, each after 10 tokens; then the next question."""
    script = case("PER-01")["input"]["script"]
    assert ["Stop" in script[1], "reload" in script[3], "SIGKILL" in script[4]] == [True] * 3
    module = "tests.e2e.steady_server"
    ten = "".join(f"word{n} " for n in range(10))
    whole = "".join(f"word{n} " for n in range(40)).strip()
    options = ("--not-found-score", "0.01")
    with ServerProcess(tmp_path, *options, module=module) as server:
        port = server.address.rpartition(":")[2]
        context = browser.new_context(base_url=server.address)
        chat = follow(context.new_page(), "/")
        chat.ask(QUESTION)
        chat.wait_text(len(ten))
        chat.page.get_by_role("button", name="Stop").click()
        stopped = chat.wait_end("stopped")
        assert whole.startswith(stopped)
        assert len(stopped) >= len(ten.strip())
        chat.page.reload()
        chat.wait_text(1)
        assert chat.wait_end("stopped") == stopped
        expect(chat.questions).to_have_text([QUESTION])
        expect(chat.answer).to_contain_text("You stopped")

        chat.page.get_by_role("link", name="New conversation").first.click()
        chat.ask(f"{QUESTION} Second?")
        chat.wait_text(len(ten))
        chat.page.reload()
        assert chat.wait_end() == whole
        expect(chat.answers).to_have_count(1)

        chat.page.get_by_role("link", name="New conversation").first.click()
        chat.ask(f"{QUESTION} Third?")
        chat.wait_text(len(ten))
        address = chat.page.url.removeprefix(server.address)
        chat.wait_stored()
        server.send_signal(signal.SIGKILL)
        server.wait()
        chat.page.close()

    with ServerProcess(tmp_path, *options, "--port", port, module=module) as server:
        chat = follow(context.new_page(), address)
        chat.wait_text(1)
        kept = chat.wait_end("interrupted")
        assert whole.startswith(kept)
        expect(chat.questions).to_have_text([f"{QUESTION} Third?"])
        expect(chat.answers).to_have_count(1)
        expect(chat.answer.locator(".notice")).to_contain_text("interrupted")
        chat.ask(f"{QUESTION} Fourth?")
        assert chat.wait_end() == whole
        chat.page.reload()
        expect(chat.questions).to_have_text([f"{QUESTION} Third?", f"{QUESTION} Fourth?"])
        assert chat.wait_end() == whole
        expect(chat.answers).to_have_count(2)
        context.close()


@pytest.mark.parametrize(
    ("name", "english", "chinese"),
    [("UPL-05", r"password", r"密码"), ("UPL-07", r"no text|scan", r"没有文字|扫描")],
)
def test_upl_05_and_07_a_file_that_cannot_be_read_is_told(
    visit: Visit, school: School, name: str, english: str, chinese: str
) -> None:
    (file,) = case(name)["files"]
    teacher = visit("/teach", storage_state=school.teacher)
    course = make_course(teacher, f"Case {name}")
    teacher.goto(f"/teach/{course['slug']}/materials")
    teacher.wait_for_selector("html.is-ready")
    teacher.set_input_files("#files", [CASES / file, CASES / "notes_utf8_bom_crlf.txt"])
    failed = teacher.locator(".upload[data-state=failed]")
    expect(failed).to_contain_text(re.compile(english, re.IGNORECASE))
    expect(teacher.locator(".material[data-state=failed] .material-error")).to_contain_text(
        re.compile(english, re.IGNORECASE)
    )
    # The other file is there, and nothing of this one is found.
    expect(teacher.locator(".material[data-state=ready]")).to_have_count(1)
    teacher.get_by_role("button", name="中文").click()
    expect(failed).to_contain_text(re.compile(chinese))
    student = visit("/login")
    join(student, course, "Kim", f"kim-{name.lower()}")
    ask(student, "What does the scanned, locked file say about the secret?")
    expect(student.locator(".answer")).not_to_contain_text(file)
