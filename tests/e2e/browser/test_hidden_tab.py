"""A tab that is not looked at: its timers run once a minute, and its connection is a live one."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.e2e.browser.chat_page import ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import FRAME, ScriptedPeer, wait_until


def open_timed(open_chat: OpenChat, peer: ScriptedPeer) -> ChatPage:
    """The page, connected, with a clock that the test can put forward."""

    def prepare(page: Page) -> None:
        page.clock.install()
        peer.attach_to(page)

    chat = open_chat(before=prepare)
    expect(chat.page.locator("#model-note")).to_contain_text("peer")
    return chat


def wait_sent(page: Page, peer: ScriptedPeer, kind: str, count: int) -> None:
    """Until the page has sent so many, and has the replies."""
    wait_until(page, lambda: len(peer.sent(kind)) >= count)
    page.evaluate(FRAME)


def test_a_hidden_tab_keeps_its_healthy_connection(open_chat: OpenChat, peer: ScriptedPeer) -> None:
    page = open_timed(open_chat, peer).page
    for minute in range(1, 8):
        # Each timer that is due fires once, however late.
        page.clock.fast_forward(60_000)
        wait_sent(page, peer, "ping", minute)
        expect(page.locator("#connection")).to_be_hidden()
    assert len(peer.sent("hello")) == 1


def test_a_dead_connection_is_noticed_within_about_a_minute(
    open_chat: OpenChat, peer: ScriptedPeer
) -> None:
    page = open_timed(open_chat, peer).page
    page.clock.run_for(25_000)
    wait_sent(page, peer, "ping", 1)
    peer.is_deaf = True
    page.clock.run_for(65_000)
    wait_sent(page, peer, "hello", 2)
    # What it lost is not missed for good.
    peer.is_deaf = False
    peer.close(1011)
    expect(page.locator("#connection")).to_be_hidden()


def test_a_connection_that_died_in_sleep_is_left_soon_after(
    open_chat: OpenChat, peer: ScriptedPeer
) -> None:
    """Where nothing tells the page that it has slept, but its timers."""
    page = open_timed(open_chat, peer).page
    peer.is_deaf = True
    page.clock.fast_forward(3_600_000)
    wait_sent(page, peer, "ping", 1)
    page.clock.run_for(4000)
    wait_sent(page, peer, "hello", 2)
