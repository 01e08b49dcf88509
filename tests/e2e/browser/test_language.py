"""The page's language: both for every string, plural forms, days of the calendar; and the theme."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from server.app.pages import LANGUAGES
from tests.e2e.browser.conftest import OpenChat
from tests.server.app.test_pages import PLURAL_FORMS

MODULE = """(name) =>
  import(new URL(`./${name}`, document.querySelector('script[type="module"]').src))"""


def test_the_language_switches_and_stays(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.ask()
    chat.wait_end()
    chat.page.get_by_role("button", name="中文").click()
    expect(chat.page.locator("html")).to_have_attribute("lang", "zh-CN")
    expect(chat.question).to_have_attribute("placeholder", "就这门课提问")
    expect(chat.answer.locator(".finish")).to_have_text("回答完整")
    expect(chat.answer.locator(".sources-title")).to_have_text("来源")
    chat.page.reload()
    expect(chat.page.locator("html")).to_have_attribute("lang", "zh-CN")
    expect(chat.answer.locator(".finish")).to_have_text("回答完整")
    chat.page.get_by_role("button", name="English").click()
    expect(chat.answer.locator(".finish")).to_have_text("Complete")


def test_the_browsers_language_is_taken(open_chat: OpenChat) -> None:
    chat = open_chat(locale="zh-CN")
    expect(chat.page.locator(".welcome-title")).to_have_text("想了解什么？")
    expect(chat.page.locator(".suggestion").first).to_have_text(re.compile(r"[\u4e00-\u9fff]"))


@pytest.mark.parametrize("system", ["light", "dark"])
def test_the_theme_follows_the_system_and_the_choice(open_chat: OpenChat, system: str) -> None:
    """The first press is seen, whatever the system has; the third leads back to that."""
    chat = open_chat(color_scheme=system)
    background = "() => getComputedStyle(document.body).backgroundColor"
    own = chat.page.evaluate(background)
    chat.page.locator("#theme").click()
    other = chat.page.evaluate(background)
    assert other != own
    chat.page.reload()
    assert chat.page.evaluate(background) == other
    chat.page.locator("#theme").click()
    assert chat.page.evaluate(background) == own
    chat.page.emulate_media(color_scheme="light" if system == "dark" else "dark")
    assert chat.page.evaluate(background) == own
    chat.page.locator("#theme").click()
    assert chat.page.evaluate(background) == other


FORMS = f"""async (counts) => {{
  const {{plural, number, percent, setLanguage}} = await ({MODULE})('i18n.js');
  const told = {{}};
  for (const language of ['en', 'zh']) {{
    await setLanguage(language);
    told[language] = [...counts.map((count) => plural('sidebar.found', count)),
      number(1234567.8, 1), percent(0.256)];
  }}
  return told;
}}"""


def test_counted_things_have_the_languages_own_forms(open_chat: OpenChat) -> None:
    told = open_chat().page.evaluate(FORMS, [0, 1, 2, 1000])
    assert told == {
        "en": [
            *("0 conversations found", "1 conversation found", "2 conversations found"),
            *("1,000 conversations found", "1,234,567.8", "26%"),
        ],
        "zh": [
            *("找到 0 个对话", "找到 1 个对话", "找到 2 个对话", "找到 1,000 个对话"),
            *("1,234,567.8", "26%"),
        ],
    }


def test_the_plural_forms_of_the_catalogues_are_those_of_the_languages(open_chat: OpenChat) -> None:
    """`tests/server/app/test_pages.py` holds the catalogues to these."""
    categories = open_chat().page.evaluate(
        "(tags) => tags.map((tag) => new Intl.PluralRules(tag).resolvedOptions().pluralCategories)",
        list(LANGUAGES.values()),
    )
    assert dict(zip(LANGUAGES, map(set, categories), strict=True)) == PLURAL_FORMS


GROUPS = f"""async ([now, dates]) => {{
  const {{dayGroup}} = await ({MODULE})('dates.js');
  return dates.map((date) => dayGroup(new Date(date), new Date(now)));
}}"""


@pytest.mark.parametrize(
    ("now", "dates"),
    [
        # Clocks went forward on the 29th: that day had 23 hours.
        (
            "2026-03-30T00:30",
            {
                "2026-03-30T00:00": "Today",
                "2026-03-29T23:59": "Yesterday",
                "2026-03-29T00:00": "Yesterday",
                "2026-03-28T23:30": "Past week",
                "2026-03-24T00:00": "Past week",
                "2026-03-23T23:59": "March 2026",
            },
        ),
        # Clocks went back on the 25th: that day had 25.
        (
            "2026-10-26T00:30",
            {
                "2026-10-25T00:15": "Yesterday",
                "2026-10-24T23:59": "Past week",
                "2026-10-20T00:15": "Past week",
                "2026-10-19T23:59": "October 2026",
                "2025-12-31T12:00": "December 2025",
                "no date": "Earlier",
            },
        ),
    ],
)
def test_days_are_those_of_the_calendar(
    open_chat: OpenChat, now: str, dates: dict[str, str]
) -> None:
    chat = open_chat(timezone_id="Europe/Berlin")
    groups = chat.page.evaluate(GROUPS, [now, list(dates)])
    assert dict(zip(dates, groups, strict=True)) == dates


@pytest.mark.parametrize("locale", ["en", "zh-CN"])
def test_nothing_on_the_page_is_left_untranslated(open_chat: OpenChat, locale: str) -> None:
    """Everything that the shell says, opened once: no key, and in Chinese no English sentence.
    What stands around an answer may be as its materials are."""
    chat = open_chat(locale=locale)
    page = chat.page
    seen = [page.locator("#welcome").inner_text()]
    chat.ask()
    chat.wait_end()
    for part in (".sidebar", ".topbar", ".dock", ".answer .finish"):
        seen += page.locator(part).all_inner_texts()
        for attribute in ("aria-label", "title", "placeholder"):
            seen += page.locator(f"{part} [{attribute}]").evaluate_all(
                "(nodes, name) => nodes.map((node) => node.getAttribute(name))", attribute
            )
    page.locator(".conversation-more").click()
    seen += [page.get_by_role("menu").inner_text()]
    for index in (0, 3):
        if index:
            page.locator(".conversation-more").click()
        page.get_by_role("menuitem").nth(index).click()
        seen += [page.locator("dialog[open]").inner_text()]
        page.keyboard.press("Escape")
    page.locator("#help").click()
    seen += [page.locator("dialog[open]").inner_text()]
    text = "\n".join(seen)
    assert not re.search(r"\b[a-z]+\.[a-z][A-Za-z]+\b", text)
    if locale == "zh-CN":
        own = re.sub(r"scripted|When are office hours\?", "", text)
        assert not re.search(r"\b(the|of|your|conversation|answer)\b", own)
