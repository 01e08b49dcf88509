"""A remembered text is told as one that was encoded just now."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.service import text_json as module
from server.service.events import to_json
from server.service.text_json import MAX_CHARS, text_json


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=2 * MAX_CHARS)))
def test_it_is_what_to_json_says_the_first_time_and_again(texts: list[str]) -> None:
    for text in texts * 2:
        assert text_json(text) == to_json(text)


def test_separators_and_quotes_are_escaped() -> None:
    text = 'a"\\\n\u2028\u2029\x85'
    assert text_json(text).decode().splitlines() == [text_json(text).decode()]
    assert json.loads(text_json(text)) == text


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, bytes] = {}
    monkeypatch.setattr(module, "_known", known)
    monkeypatch.setattr(module, "MAX_TEXTS", 10)
    for number in range(25):
        text_json(f"{number}")
        assert len(known) <= 10
    assert "24" in known
    text_json("x" * (MAX_CHARS + 1))
    assert "x" * (MAX_CHARS + 1) not in known
