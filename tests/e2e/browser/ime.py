"""`Ime`: an input method as Chromium knows it, by the DevTools protocol: its events are trusted,
and the browser's own editing answers them."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from playwright.sync_api import Page

_COMPOSES = 229
"""The key code of every key that an input method has taken."""


class Ime:
    """Writes into what has the focus: `with Ime(page) as ime:`. The same calls in the same order
    as a desktop's input method: each key is told with its composition."""

    def __init__(self, page: Page) -> None:
        self._session = page.context.new_cdp_session(page)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._session.detach()

    def compose(self, text: str) -> None:
        """Letters that are not words yet: the composition grows by one after the other."""
        for end in range(1, len(text) + 1):
            self.key(text[end - 1])
            self._set(text[:end])

    def choose(self, text: str, key: str) -> None:
        """`key` (a blank, a digit, Enter) takes a candidate: `text` stands for the composition."""
        self.key(key)
        self._session.send("Input.insertText", {"text": text})
        self.release(key)

    def cancel(self) -> None:
        """Escape: the composition goes, and nothing comes for it."""
        self.key("Escape")
        self._set("")
        self.release("Escape")

    def key(self, key: str) -> None:
        """A key that the input method takes."""
        self._press("rawKeyDown", key, _COMPOSES)

    def release(self, key: str) -> None:
        """The key goes up; which key it is, the page is told as always."""
        self._press("keyUp", key, ord(key[0]))

    def _press(self, kind: str, key: str, code: int) -> None:
        self._session.send(
            "Input.dispatchKeyEvent", {"type": kind, "key": key, "windowsVirtualKeyCode": code}
        )

    def _set(self, text: str) -> None:
        self._session.send(
            "Input.imeSetComposition",
            {"text": text, "selectionStart": len(text), "selectionEnd": len(text)},
        )
