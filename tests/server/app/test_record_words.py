"""What records, notices and exports say: in every language, for every end, from one catalogue."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.api import FinishType
from server.app.pages import LANGUAGES, load_catalogue
from server.app.record_words import (
    asker_words,
    finish_words,
    in_all_languages,
    locator_words,
    place_words,
    word,
)
from server.store.schema import Message, MessagePassage

APP = Path(__file__).parents[3] / "server" / "app"
TEMPLATE = Path(__file__).parents[3] / "web" / "templates" / "record.html"


def test_the_catalogues_have_the_same_strings() -> None:
    english, chinese = (load_catalogue(language, part="record") for language in LANGUAGES)
    forms = {key for key in english if key.endswith(".one")}
    assert english.keys() - forms == chinese.keys(), "Chinese has no form of its own for one"
    for key, text in chinese.items():
        assert text.strip()
        assert set(re.findall(r"\{\w+\}", text)) == set(re.findall(r"\{\w+\}", english[key])), key
    assert {key.removesuffix(".one") for key in forms} <= english.keys()


def test_every_string_is_used() -> None:
    keys = {key.removesuffix(".one") for key in load_catalogue("en", part="record")}
    sources = "\n".join(path.read_text("utf-8") for path in APP.glob("*.py"))
    sources += TEMPLATE.read_text("utf-8")
    for key in keys:
        group, _, name = key.partition(".")
        if group in ("finish", "place"):  # by the name of what it is about
            continue
        by_name = group == "notice" and f'"{name}"' in sources
        by_value = key in ("record.up", "record.down")
        assert f'"{key}"' in sources or f"'{key}'" in sources or by_name or by_value, key


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("type", [*FinishType, "not_found", "interrupted", "extract"])
def test_every_end_has_words(language: str, type: str) -> None:
    detail = {"type": str(type), "matched": "END", "code": "queue_full"}
    said = finish_words(language, Message(finish_detail=detail, max_tokens=7, state="finished"))
    assert said != str(type), "in words, not by its name"
    assert "{" not in said
    assert ("7" in said) == (type == "max_tokens")
    assert ("END" in said) == (type == "stop_string")


def test_an_end_that_nobody_knows_is_named() -> None:
    message = Message(finish_detail={"type": "moon_phase"}, state="finished")
    assert finish_words("zh", message) == "moon_phase"


def test_thinking_that_used_the_limit_is_told_apart() -> None:
    thinking = Message(finish_detail={"type": "max_tokens", "in": "reasoning"}, max_tokens=9)
    assert "thinking" in finish_words("en", thinking)
    assert "思考" in finish_words("zh", thinking)


def test_places_are_told_in_the_readers_language() -> None:
    passage = MessagePassage(locator="page 3 › Labs › Lab 2", place={"page": 3})
    assert locator_words("zh", passage) == "第 3 页 › Labs › Lab 2"
    assert locator_words("en", passage) == "page 3 › Labs › Lab 2"
    assert place_words("en", {"slide": 7, "to_slide": 8}) == "slides 7–8"
    assert place_words("zh", {"row": 12, "to_row": 12}) == "第 12 行"
    assert place_words("en", {}) is None
    assert locator_words("zh", MessagePassage(locator="Labs › Lab 2")) == "Labs › Lab 2"


def test_one_is_counted_as_one() -> None:
    assert "oldest turn of" in word("en", "notice.historyCut", n=1)
    assert "oldest 2 turns of" in word("en", "notice.historyCut", n=2)
    assert in_all_languages("notice.historyCut", n=1)["zh"] == (
        "模型没有看到本次对话中最早的 1 轮。"
    )


def test_pseudonyms_are_words_and_names_are_not() -> None:
    assert asker_words("zh", "Student 7F2K") == "学生 7F2K"
    assert asker_words("zh", "Former student AB2C") == "以前的学生 AB2C"
    assert asker_words("en", "Guest AB2C") == "Guest AB2C"
    assert asker_words("zh", "Student Union Office") == "Student Union Office"
    assert asker_words("zh", "Ana Guest") == "Ana Guest"
