"""One pass with the default model: a question about the sample course, on a desktop and on a
phone, whose answer names its source."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from server.config import DEFAULT_MODEL, ServerConfig
from tests.e2e.browser.chat_page import ChatPage
from tests.support.server_process import ServerProcess

pytestmark = [pytest.mark.real_model, pytest.mark.timeout(900)]

ANSWER_MS = 400_000
SIZES: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1280, "height": 800}, "locale": "en-US"},
    "phone": {
        "viewport": {"width": 390, "height": 844},
        "locale": "zh-CN",
        "has_touch": True,
        "is_mobile": True,
    },
}
QUESTIONS = {"desktop": "When are office hours?", "phone": "答疑时间是什么时候？"}


@pytest.fixture(scope="module")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    path = ServerConfig().models_dir / f"{DEFAULT_MODEL}.gguf"
    if not path.exists():
        pytest.skip(f"{path.name} is not fetched (scripts/fetch_models.py {DEFAULT_MODEL})")
    folder = tmp_path_factory.mktemp("real")
    # The model loads behind the page: a question asked meanwhile would be refused.
    with ServerProcess(folder, "--model", DEFAULT_MODEL) as server:
        yield server


@pytest.mark.parametrize("size", SIZES)
def test_a_question_is_answered_with_its_source(
    browser: Browser, real_server: ServerProcess, size: str
) -> None:
    context = browser.new_context(base_url=real_server.address, **SIZES[size])
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto("/")
    page.wait_for_selector("html.is-ready")
    chat = ChatPage(page)
    expect(page.locator("#model-note")).to_contain_text(
        DEFAULT_MODEL.partition("-")[0], ignore_case=True, timeout=ANSWER_MS
    )
    chat.question.fill(QUESTIONS[size])
    page.locator(".send").click()
    chat.answers.first.wait_for()
    expect(chat.answer).to_have_attribute("data-state", "finished", timeout=ANSWER_MS)
    expect(chat.answer.locator(".prose")).not_to_be_empty()
    expect(chat.answer.locator(".source").first).to_be_visible()
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    if (folder := os.environ.get("TEST_ARTIFACTS")) is not None:
        page.screenshot(path=Path(folder) / f"model-{size}.png")
    chip = chat.answer.locator(".cite").first
    (chip if chip.count() else chat.answer.locator(".source summary").first).click()
    if not page.locator("#source-panel").is_visible():
        # A first tap previews; a card is opened, and leads on.
        page.locator(".preview .link-button, .source[open] .link-button").first.click()
    panel = page.locator("#source-panel")
    expect(panel.locator(".passage-mark").first).to_be_in_viewport()
    if folder is not None:
        page.screenshot(path=Path(folder) / f"model-{size}-source.png")
    assert errors == []
    context.close()
