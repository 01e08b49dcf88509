"""The page in its states, at both sizes, in both languages and themes: nothing is wider than the
screen or reaches out of it, and where `LECTERN_ARTIFACTS` names a folder, a picture of each is kept
there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.screens import STATES
from tests.e2e.browser.scripted_peer import ScriptedPeer

SIZES: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1280, "height": 800}},
    "phone": {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2},
}
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
LOCALES = {"en": "en-US", "zh": "zh-CN"}
PICTURED = ("empty", "queued", "writing", "finished", "cut", "sources", "panel", "details", "help")

ASKEW = """() => [...document.querySelectorAll('body *')].filter((node) => {
  if (!node.checkVisibility({opacityProperty: true, visibilityProperty: true})) return false;
  if (node.closest('.visually-hidden, .skip, svg, .table-scroll, pre, .sidebar')) return false;
  const {left, right, width} = node.getBoundingClientRect();
  return width > 0 && (left < -1 || right > innerWidth + 1);
}).map((node) => `${node.tagName}.${node.className}`)"""


@pytest.mark.parametrize("language", LOCALES)
@pytest.mark.parametrize("size", SIZES)
def test_every_picture_stays_inside_its_frame(
    open_chat: OpenChat, size: str, language: str
) -> None:
    kept = os.environ.get("TEST_ARTIFACTS")
    # Without a folder for pictures a few states stand for all.
    for state in PICTURED if kept else ("sources", "panel"):
        peer = ScriptedPeer()
        options = {**SIZES[size], "locale": LOCALES[language], "reduced_motion": "reduce"}
        chat = open_chat(before=peer.attach_to, **options)
        STATES[state](chat, peer)
        for theme in THEMES:
            chat.page.emulate_media(color_scheme=theme)
            if kept:
                name = f"{state}-{size}-{language}-{theme}.png"
                chat.page.screenshot(path=Path(kept) / name)
        assert chat.page.evaluate(ASKEW) == []
        assert not chat.is_wider_than_screen()
        chat.page.context.close()
