"""What nothing was found for, of a question of which a part was found."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.e2e.browser.chat_page import ChatPage
from tests.e2e.browser.scripted_peer import ScriptedPeer, deltas, finish, opening, passage

PARTS = ["what is the <b>password</b>?", "who knows it?"]


def test_each_part_that_was_not_found_is_told(chat: ChatPage, peer: ScriptedPeer) -> None:
    retrieval, *rest = opening(passage(1))
    retrieval = {**retrieval, "not_found_parts": PARTS}
    peer.answer([retrieval, *rest, *deltas("On Friday."), finish()])
    chat.ask("When is it due, and what is the <b>password</b>? who knows it?")
    chat.wait_end()
    notices = chat.answer.locator(".notice-amber")
    expect(notices).to_have_text([f"Nothing in the materials for: “{part}”" for part in PARTS])
    chat.page.get_by_role("button", name="中文").click()
    expect(notices).to_have_text([f"资料中没有找到与此相关的内容：“{part}”" for part in PARTS])
    peer.answer([*opening(passage(1)), *deltas("On Monday."), finish()])
    chat.ask("And the next one?")
    chat.wait_end()
    expect(chat.page.locator(".answer").last.locator(".notice")).to_have_count(0)
