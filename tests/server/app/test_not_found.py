"""When the best passages are no answer."""

from __future__ import annotations

import pytest

from server.app.not_found import found_score
from server.store.analysis import query_units
from server.store.passage_index import Hit, WordCounts


def score(question: str, *held: str) -> float:
    asked = query_units(question)
    words = {word for unit in asked for word in unit.words}
    counts = WordCounts(10, dict.fromkeys(words, 1))
    return found_score(asked, Hit("p", dict.fromkeys(held, 1.0), 9), 0.8, counts)


@pytest.mark.parametrize(
    ("question", "irreplaceable"),
    [
        ("zebra of lab 7", "ǂlab7"),
        ("phone number of zebra", "ǂphonenumber"),
        ("zebra 的邮箱地址", "ǂemailaddress"),
        ("average of zebra", "ǂaverage"),
    ],
)
def test_a_passage_without_what_nothing_replaces_is_no_answer(
    question: str, irreplaceable: str
) -> None:
    assert score(question, "zebra", irreplaceable) == pytest.approx(0.9)
    assert score(question, "zebra") == pytest.approx(0.65)


def test_other_words_may_be_missing() -> None:
    assert score("zebra walrus", "zebra") == score("zebra walrus", "zebra", "walrus")
