"""Where the items of a passage begin, as the index keeps it."""

from __future__ import annotations

from itertools import groupby

import pytest

from server.store.analysis import index_words
from server.store.passage_items import HEADING_MARK, ITEM_MARK, MARKS, SHARED_MARK, body_words

LIST = "You may bring:\n\n- a zebra\n- a walrus\n  of any size\n\nNothing else."
TABLE = "| Week | Animal |\n| --- | --- |\n| 6 | zebra |\n| 7 | walrus |"


def parts(text: str) -> list[tuple[str, list[str]]]:
    """(mark, words behind it) of each part."""
    found: list[tuple[str, list[str]]] = []
    for is_mark, words in groupby(body_words(text), key=MARKS.__contains__):
        if is_mark:
            found += [(mark, []) for mark in words]
        else:
            found[-1][1].extend(words)
    return found


def plain(text: str) -> list[tuple[str, str]]:
    return [(mark, " ".join(w for w in words if w.isascii())) for mark, words in parts(text)]


def test_paragraphs_are_items_and_bold_lines_their_headings() -> None:
    assert plain("A zebra\nroams.\n\n**The walrus**\n\nIt swims.\n\n**bold** talk") == [
        (ITEM_MARK, "a zebra roam"),
        (HEADING_MARK, "the walrus"),
        (ITEM_MARK, "it swim"),
        (ITEM_MARK, "bold talk"),
    ]


def test_entries_of_a_list_share_its_lead_in() -> None:
    assert plain(LIST) == [
        (SHARED_MARK, "you may bring"),
        (ITEM_MARK, "a zebra"),
        (ITEM_MARK, "a walrus of ani size"),
        (SHARED_MARK, ""),
        (ITEM_MARK, "noth els"),
    ]
    assert plain("Bring:\n1. zebras\n2) walruses") == [
        (SHARED_MARK, "bring"),
        (ITEM_MARK, "1 zebra"),
        (ITEM_MARK, "2 walrus"),
    ]


def test_rows_of_a_table_share_its_header_and_know_their_number() -> None:
    shared, six, seven = parts(TABLE)
    assert (shared[0], six[0], seven[0]) == (SHARED_MARK, ITEM_MARK, ITEM_MARK)
    assert "anim" in shared[1]
    assert "ǂweek6" in six[1]
    assert "ǂweek7" not in six[1]
    assert "ǂweek7" in seven[1]


def test_a_line_that_ends_in_a_colon_leads_only_into_a_list() -> None:
    assert plain("Remember:\n\nzebras roam") == [(ITEM_MARK, "rememb"), (ITEM_MARK, "zebra roam")]
    assert plain("Remember:") == [(ITEM_MARK, "rememb")]


@pytest.mark.parametrize("text", [LIST, TABLE, "斑马在跑。\n\n- 海象\n- zebra", "", "\n \n"])
def test_no_word_is_lost(text: str) -> None:
    words = [word for word in body_words(text) if word not in MARKS]
    assert set(index_words(text)) <= set(words)


def test_no_text_makes_a_mark() -> None:
    for text in ("ǂnewitem", "newitem newhead newtop", "| ǂnewtop |"):
        assert not MARKS & set(index_words(text))
