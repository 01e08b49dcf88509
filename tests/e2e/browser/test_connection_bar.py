"""The bar that tells of a lost connection: what a reader's own attempt looks and sounds like."""

from __future__ import annotations

from playwright.sync_api import Page, WebSocketRoute, expect

from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import ScriptedPeer, wait_until

LOST = "Connection lost."
TRYING = "Trying to connect…"
# What the live region says, each time that it says something else.
LISTEN = """() => {
  const words = document.querySelector('#connection span');
  window.heard = [];
  new MutationObserver(() => window.heard.push(words.textContent))
    .observe(words, { childList: true, characterData: true, subtree: true });
}"""


class Outage(ScriptedPeer):
    """A server that can be gone for a while."""

    is_gone = False
    num_refused = 0

    def __init__(self) -> None:
        super().__init__()
        self.holds = False
        """Whether an attempt is left without an answer."""
        self.held: list[WebSocketRoute] = []

    def refuse_held(self) -> None:
        self.holds = False
        for route in self.held:
            route.close(code=1001)

    def _connect(self, route: WebSocketRoute) -> None:
        if not self.is_gone:
            super()._connect(route)
            return
        self.num_refused += 1
        if self.holds:
            self.held.append(route)
        else:
            route.close(code=1001)


def test_try_now_says_that_it_tries_and_what_came_of_it(open_chat: OpenChat) -> None:
    peer = Outage()
    chat = open_chat(before=peer.attach_to)
    page: Page = chat.page
    expect(page.locator("#model-note")).to_contain_text("peer")
    bar = page.locator("#connection")
    button = bar.get_by_role("button", name="Try now")
    peer.is_gone = True
    peer.close(1001)
    expect(bar).to_contain_text(LOST)
    page.evaluate(LISTEN)
    before = peer.num_refused
    peer.holds = True
    button.focus()
    button.press("Enter")
    expect(bar).to_contain_text(TRYING)
    expect(bar).to_have_attribute("data-trying", "true")
    expect(button).to_have_attribute("aria-disabled", "true")
    expect(button).to_be_focused()
    button.press("Enter")
    wait_until(page, lambda: peer.held != [])
    peer.refuse_held()
    expect(bar).to_contain_text(LOST)
    expect(button).to_have_attribute("aria-disabled", "false")
    expect(button).to_be_focused()
    assert peer.num_refused > before
    assert page.evaluate("() => window.heard") == [TRYING, LOST]
    peer.is_gone = False
    # Where it has not come back by itself before that.
    button.evaluate("(button) => button.closest('#connection').hidden || button.click()")
    expect(bar).to_be_hidden()


def test_attempts_that_nobody_asked_for_are_not_told(open_chat: OpenChat) -> None:
    peer = Outage()
    chat = open_chat(before=peer.attach_to)
    expect(chat.page.locator("#model-note")).to_contain_text("peer")
    peer.is_gone = True
    peer.close(1001)
    expect(chat.page.locator("#connection")).to_contain_text(LOST)
    chat.page.evaluate(LISTEN)
    before = peer.num_refused
    while peer.num_refused < before + 2:
        chat.page.evaluate("() => new Promise(requestAnimationFrame)")
    assert chat.page.evaluate("() => window.heard") == []
