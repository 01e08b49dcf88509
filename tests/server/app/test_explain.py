"""What a trial calls the things that a question asks for, in both languages."""

from __future__ import annotations

import pytest

from server.app.explain import _FACTS, label_of
from server.store.analysis import query_units
from server.store.concepts import KEY_MARK
from server.store.dates import FACTS


@pytest.mark.parametrize(
    ("question", "english", "chinese"),
    [
        ("office hours", "office hour", "答疑"),
        ("lab 4", "lab 4", "实验 4"),
        ("paging", "page", "页面"),
    ],
)
def test_labels_are_in_the_readers_language(question: str, english: str, chinese: str) -> None:
    units = [unit for unit in query_units(question) if unit.is_asked]
    assert any(label_of(unit, "en").startswith(english) for unit in units)
    assert any(chinese in label_of(unit, "zh") for unit in units)


def test_every_kind_of_fact_has_a_name_in_both_languages() -> None:
    kinds = {key.removeprefix(f"{KEY_MARK}has") for key, _, _ in FACTS}
    assert kinds <= _FACTS.keys()
    assert all(set(names) == {"en", "zh"} for names in _FACTS.values())
