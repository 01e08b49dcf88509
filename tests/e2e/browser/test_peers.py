"""The same conversation in several tabs and on several devices."""

from __future__ import annotations

import re

from playwright.sync_api import BrowserContext, Page, WebSocketRoute, expect

from tests.e2e.browser.chat_page import QUESTION, WITHOUT_CHIPS, ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import ScriptedPeer, deltas, finish, opening, wait_until

LONG_QUESTION = f"{QUESTION} " + " ".join(f"part{n}" for n in range(28))
NO_CHANNEL = "delete window.BroadcastChannel"


def phone_of(chat: ChatPage) -> dict[str, object]:
    """Options of a context that is the same person on another device: nothing but the server
    tells it anything."""
    return {
        "storage_state": chat.page.context.storage_state(),
        "viewport": {"width": 390, "height": 844},
        "has_touch": True,
        "is_mobile": True,
    }


def api_address(chat: ChatPage) -> str:
    return re.sub(r"/c/", "/api/conversations/", chat.page.url)


def send(context: BrowserContext, method: str, address: str, data: object = None) -> None:
    origin = re.match(r"https?://[^/]+", address)
    assert origin is not None
    reply = context.request.fetch(address, method=method, data=data, headers={"Origin": origin[0]})
    assert reply.ok, reply.text()


def test_a_phone_follows_what_is_asked_edited_and_stopped(open_chat: OpenChat) -> None:
    desk = open_chat()
    desk.ask()
    desk.wait_end()
    phone = open_chat(desk.page.url, **phone_of(desk))
    desk.ask(LONG_QUESTION)
    expect(phone.questions).to_have_text([QUESTION, LONG_QUESTION])
    assert phone.wait_end() == LONG_QUESTION
    assert desk.wait_end() == LONG_QUESTION
    desk.page.locator(".question").last.get_by_role("button", name="Edit the question").click()
    desk.page.locator(".question-input").fill(f"Other: {LONG_QUESTION}")
    desk.page.locator(".question-input").press("Enter")
    whole = f"Other: {LONG_QUESTION}"
    # Either may stop it; and soon, for it takes two seconds.
    phone.page.wait_for_function(
        "(text) => [...document.querySelectorAll('.question-text')].at(-1)?.textContent === text",
        arg=whole,
    )
    phone.page.get_by_role("button", name="Stop the answer").click()
    expect(phone.questions).to_have_text([QUESTION, whole])
    text = desk.wait_end("stopped")
    assert phone.wait_end("stopped") == text
    # And either may go on; the other one sees where that began.
    phone.answer.get_by_role("button", name="Continue", exact=True).click()
    expect(desk.answer.locator(".seam")).to_have_count(1)
    expect(phone.answer.locator(".seam")).to_have_count(1)
    assert whole.startswith(phone.wait_end())
    assert desk.wait_end() == phone.text


def test_a_continuation_that_is_taken_back_goes_everywhere(open_chat: OpenChat) -> None:
    desk = open_chat()
    desk.ask(f"{LONG_QUESTION} {' '.join(f'more{n}' for n in range(25))}")
    cut = desk.wait_end()
    phone = open_chat(desk.page.url, **phone_of(desk))
    desk.answer.get_by_role("button", name="Continue", exact=True).click()
    desk.wait_text(len(cut) + 20)
    whole = desk.wait_end()
    phone.wait_text(len(whole))
    assert phone.wait_end() == whole
    phone.answer.locator(".answer-tail").get_by_role("button", name="Undo").click()
    expect(phone.answer.locator(".seam")).to_have_count(0)
    expect(desk.answer.locator(".seam")).to_have_count(0)
    assert phone.text == desk.text == cut
    # From there it goes on as before, token by token.
    desk.answer.get_by_role("button", name="Continue", exact=True).click()
    desk.wait_text(len(cut) + 20)
    assert desk.wait_end() == whole


def test_a_title_and_an_end_reach_the_other_device(open_chat: OpenChat) -> None:
    desk = open_chat()
    desk.ask()
    desk.wait_end()
    phone = open_chat(desk.page.url, **phone_of(desk))
    send(desk.page.context, "PATCH", api_address(desk), {"title": "Lab hours"})
    expect(phone.page).to_have_title(re.compile("Lab hours"))
    expect(phone.questions).to_have_text([QUESTION])
    send(desk.page.context, "DELETE", api_address(desk))
    for page in (desk, phone):
        expect(page.questions).to_have_count(0)
        expect(page.page.locator("#problem")).to_be_visible()
        expect(page.page).not_to_have_url(re.compile("/c/"))


def test_a_new_conversation_begins_with_a_summary(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(), *deltas("Long."), finish("context_window")])
    chat.ask("First")
    chat.wait_end()
    peer.answer([opening()[-1], *deltas("It was about office hours."), finish()])
    chat.answer.get_by_role("button", name="New conversation with a summary").click()
    expect(chat.page).to_have_url(re.compile("/c/c2$"))
    assert chat.wait_end() == "It was about office hours."
    expect(chat.questions).to_have_count(0)
    assert peer.sent("carry")[0]["message"] == "a1"
    peer.answer([*opening(), *deltas("Yes."), finish()])
    chat.ask("And on Fridays?")
    assert chat.wait_end() == "Yes."
    expect(chat.answers).to_have_count(2)
    asked = peer.sent("ask")[-1]
    assert (asked["conversation"], asked["parent"]) == ("c2", "a2")


def test_a_summary_on_its_way_survives_a_reload(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(), *deltas("Long."), finish("context_window")])
    chat.ask("First")
    chat.wait_end()
    peer.ignore()
    chat.answer.get_by_role("button", name="New conversation with a summary").click()
    expect(chat.page).not_to_have_url(re.compile("/c/"))
    chat.page.reload()
    chat.page.wait_for_selector("html.is-ready")
    expect(chat.answer).to_have_attribute("data-state", "running")
    wait_until(chat.page, lambda: len(peer.sent("carry")) == 2)
    first, again = peer.sent("carry")
    assert first == again
    peer.answer([opening()[-1], *deltas("It was about office hours."), finish()])
    # Whose summary it is has gone with the page, and is read when there is something to read.
    summary = {"id": "a2", "role": "summary", "state": "finished", "finish_detail": {"type": "eos"}}
    stored = {
        **{"id": "c2", "course": None, "title": "First (2)", "active_run": None},
        "messages": [{**summary, "text": "It was about office hours."}],
        "carried_from": {"message": "a1", "conversation": "c1", "title": "First"},
        "carried_to": [],
    }
    chat.page.route("**/api/conversations/c2", lambda route: route.fulfill(json=stored))
    peer.accept(again)
    assert chat.wait_end() == "It was about office hours."
    expect(chat.page).to_have_url(re.compile("/c/c2$"))
    expect(chat.answer.get_by_role("link", name="First", exact=True)).to_be_visible()


def test_a_question_that_was_left_before_its_receipt_is_listed_with_it(
    open_chat: OpenChat,
) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.ignore()
    chat.ask("First")
    chat.page.get_by_role("link", name="New conversation").first.click()
    expect(chat.answers).to_have_count(0)
    peer.answer(opening())
    with chat.page.expect_response("**/api/conversations?**"):
        peer.accept(peer.sent("ask")[0])
    expect(chat.answers).to_have_count(0)
    expect(chat.page).not_to_have_url(re.compile("/c/"))


def test_a_summary_that_was_refused_can_be_asked_for_again(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(), *deltas("Long."), finish("context_window")])
    chat.ask("First")
    chat.wait_end()
    peer.refuse("queue_full", retryable=True)
    chat.answer.get_by_role("button", name="New conversation with a summary").click()
    expect(chat.answer.locator(".notice-red")).to_be_visible()
    peer.answer([opening()[-1], *deltas("It was about office hours."), finish()])
    chat.answer.get_by_role("button", name="Retry").click()
    assert chat.wait_end() == "It was about office hours."
    first, second = peer.sent("carry")
    assert (first["message"], first["id"] != second["id"]) == (second["message"], True)


def test_tabs_follow_each_other_also_without_a_channel(open_chat: OpenChat) -> None:
    def prepare(page: Page) -> None:
        page.add_init_script(NO_CHANNEL)

    first = open_chat(before=prepare)
    first.ask()
    first.wait_end()
    second = open_chat(first.page.url, context=first.page.context, before=prepare)
    first.ask(LONG_QUESTION)
    expect(second.questions).to_have_text([QUESTION, LONG_QUESTION])
    assert second.wait_end() == LONG_QUESTION


def test_a_conversation_is_carried_on_by_the_real_server(open_chat: OpenChat) -> None:
    def connect(route: WebSocketRoute) -> None:
        # A window is too long to be filled here.
        full = ('"type":"eos"', '"type":"context_window"')
        server = route.connect_to_server()
        server.on_message(lambda text: route.send(str(text).replace(*full)))

    chat = open_chat(before=lambda page: page.route_web_socket("**/ws/v1", connect))
    chat.ask()
    chat.wait_end()
    before = chat.page.url
    chat.answer.get_by_role("button", name="New conversation with a summary").click()
    expect(chat.page).not_to_have_url(before)
    expect(chat.page).to_have_url(re.compile("/c/"))
    summary = chat.wait_end()
    assert summary
    chat.ask("And on Fridays?")
    chat.wait_end()
    chat.page.reload()
    expect(chat.questions).to_have_text(["And on Fridays?"])
    expect(chat.answers.first.locator("> .prose[data-settled]")).to_have_count(1)
    assert chat.answers.first.locator(".prose").evaluate(WITHOUT_CHIPS).strip() == summary
    messages = chat.page.context.request.get(api_address(chat)).json()["messages"]
    assert [message["role"] for message in messages] == ["summary", "user", "assistant"]
    assert messages[1]["parent"] == messages[0]["id"]
