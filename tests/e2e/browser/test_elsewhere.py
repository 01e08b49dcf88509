"""A conversation that is changed while another one is shown, and reads that overtake each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.e2e.browser.chat_page import QUESTION, ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import (
    FRAME,
    ScriptedPeer,
    deltas,
    finish,
    opening,
    passage,
    wait_until,
)
from tests.e2e.browser.test_conversations import rename
from tests.support.server_process import ServerProcess


@pytest.fixture
def slow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Its answers go on until they are stopped."""
    options = "--scripted --scripted-token-s 0.1 --default-max-tokens 2000 --not-found-score 0.01"
    folder = tmp_path_factory.mktemp("elsewhere")
    module = "tests.e2e.browser.repeating_server"
    with ServerProcess(folder, *options.split(), module=module) as process:
        yield process


def test_an_answer_goes_on_in_a_conversation_that_was_renamed_unseen(
    open_chat: OpenChat, browser: Browser, slow_server: ServerProcess
) -> None:
    whole = f"{QUESTION} " + " ".join(f"w{n}" for n in range(800))
    context = browser.new_context(base_url=slow_server.address)
    chat = open_chat(context=context)
    page = chat.page
    chat.ask(whole)
    chat.wait_text(10)
    title = page.locator(".conversation-title").first.text_content() or ""
    page.locator("a.new-conversation").click()
    expect(chat.answers).to_have_count(0)
    rename(page, title, "Words")
    page.locator(".conversation", has_text="Words").click()
    expect(chat.answer).to_have_attribute("data-state", "running")
    num_chars = len(chat.wait_text(20))
    chat.wait_text(num_chars + 30)
    page.get_by_role("button", name="Stop the answer").click()
    assert whole.startswith(chat.wait_end("stopped"))
    context.close()


class HeldReads:
    """The reads of a conversation, each answered when the test says so, in any order."""

    def __init__(self, chat: ChatPage) -> None:
        self._page = chat.page
        self._routes: list[Route] = []
        chat.page.route("**/api/conversations/c1*", lambda route: self._routes.append(route))

    def wait(self, count: int) -> None:
        wait_until(self._page, lambda: len(self._routes) >= count)

    def answer(self, n: int, *texts: str, title: str = "A title", is_running: bool = False) -> None:
        """The `n`th read finds these answers, the last of them running as `r9`."""
        messages: list[dict[str, Any]] = []
        for k, text in enumerate(texts, 1):
            parent = messages[-1]["id"] if messages else None
            question = {"id": f"q{k}", "parent": parent, "role": "user", "text": f"Question {k}"}
            end = {"state": "finished", "finish_detail": {"type": "eos"}}
            if is_running and k == len(texts):
                end = {"state": "running"}
            answer = {"id": f"a{k}", "parent": f"q{k}", "role": "assistant", "text": text}
            messages += [question, {**answer, **end}]
        stored = {"id": "c1", "course": None, "title": title, "messages": messages}
        with self._page.expect_response("**/api/conversations/c1*"):
            self._routes[n].fulfill(json={**stored, "active_run": "r9" if is_running else None})
        # The page has taken what came before the next frame.
        for _ in range(2):
            self._page.evaluate(FRAME)


@pytest.fixture
def answered(chat: ChatPage, peer: ScriptedPeer) -> ChatPage:
    """The conversation c1, of one question, called "A title"."""
    peer.answer([*opening(), *deltas("One"), finish()])
    chat.ask("Question 1")
    chat.wait_end()
    return chat


def changed(title: str) -> dict[str, Any]:
    return {"type": "changed", "conversation": "c1", "title": title}


def test_an_older_read_that_comes_last_takes_nothing_back(
    answered: ChatPage, peer: ScriptedPeer
) -> None:
    chat = answered
    reads = HeldReads(chat)
    peer.tell(changed("A title"))
    reads.wait(1)
    peer.tell(
        {"type": "opened", "run": "r9", "conversation": "c1", "message": "a2", "title": "A title"}
    )
    reads.wait(2)
    reads.answer(1, "One", "", is_running=True)
    expect(chat.questions).to_have_text(["Question 1", "Question 2"])
    reads.answer(0, "One")
    expect(chat.questions).to_have_text(["Question 1", "Question 2"])
    expect(chat.answer).to_have_attribute("data-state", "running")
    accepted = {"type": "accepted", "id": "x", "conversation": "c1", "message": "a2"}
    events = [accepted, *opening(), *deltas("Two"), finish()]
    for seq, event in enumerate(events, 1):
        peer.tell({**event, "run": "r9", "seq": seq})
    assert chat.wait_end() == "Two"


def test_a_title_that_comes_during_a_read_is_not_taken_back_by_it(
    answered: ChatPage, peer: ScriptedPeer
) -> None:
    chat = answered
    reads = HeldReads(chat)
    peer.tell(changed("A title"))
    reads.wait(1)
    reads.answer(0, "One")
    peer.tell(changed("A title"))
    reads.wait(2)
    peer.tell(changed("Another title"))
    reads.wait(3)
    reads.answer(1, "One")
    reads.answer(2, "One", title="Another title")
    expect(chat.page).to_have_title(re.compile("^Another title"))


def test_what_was_on_its_way_before_a_run_is_told_again_hides_nothing(
    answered: ChatPage, peer: ScriptedPeer
) -> None:
    """An event of the run, from before the page asked for all of it."""
    chat = answered
    reads = HeldReads(chat)
    peer.tell(changed("A title"))
    reads.wait(1)
    reads.answer(0, "One", "", is_running=True)
    wait_until(chat.page, lambda: peer.sent("attach") != [])
    assert peer.sent("attach") == [{"type": "attach", "run": "r9", "after_seq": 0}]
    peer.tell({"type": "progress", "run": "r9", "seq": 5, "prefilled": 1, "total": 2})
    accepted = {"type": "accepted", "id": "x", "conversation": "c1", "message": "a2"}
    for seq, event in enumerate([accepted, *opening(passage(1)), *deltas("Two"), finish()], 1):
        peer.tell({**event, "run": "r9", "seq": seq})
    assert chat.wait_end() == "Two"
    expect(chat.answer).to_contain_text("Material 1")
