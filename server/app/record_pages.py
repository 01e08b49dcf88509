"""`RecordPage`: one record as a page to print: no script, nothing to load, nothing to click."""

from __future__ import annotations

import base64
import hashlib
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from server.app.citations import UNSOURCED
from server.app.pages import LANGUAGES, WEB_ROOT, security_headers
from server.app.paper_markdown import PaperMarkdown
from server.app.record_json import RecordForm, shown_answer
from server.app.record_words import asker_words, finish_words, locator_words, word
from server.app.records import notices
from server.store.records import Record
from server.store.schema import Course, MessagePassage

_PARTS = (
    ("record.context", "record.contextValue", ("system", "passages", "history", "question")),
    ("record.passages", "record.passagesValue", ("passages_used", "passages_dropped")),
    ("record.turns", "record.turnsValue", ("turns_kept", "turns_dropped")),
)
"""What is told of the window: a row's name, its words, and what they name of the report."""


class RecordPage:
    """The template and its style, read once. Pure."""

    def __init__(self, root: Path = WEB_ROOT) -> None:
        environment = Environment(
            loader=FileSystemLoader(root / "templates"),
            autoescape=select_autoescape(("html",)),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._template = environment.get_template("record.html")
        self._style = (root / "templates" / "record.css").read_text("utf-8")
        digest = base64.b64encode(hashlib.sha256(self._style.encode()).digest()).decode()
        # The style stands in the page, so that a saved page prints the same.
        self._policy = (
            f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; "
            "form-action 'none'; frame-ancestors 'none'; sandbox allow-modals"
        )
        self._answer = PaperMarkdown()
        self._source = PaperMarkdown(keeps_lines=True)

    def headers(self, host: str | None) -> dict[str, str]:
        """The page's headers."""
        return {
            **security_headers(host),
            "Content-Security-Policy": self._policy,
            "Cache-Control": "no-store",
        }

    def render(self, record: Record, course: Course, language: str, zone: ZoneInfo) -> str:
        """The page, in the reader's language, with times of the course's zone."""
        answer = record.answer
        say = partial(word, language)
        title = course.title_zh if language == "zh" and course.title_zh else course.title
        shown = shown_answer(record, with_matches=True)
        form = RecordForm(course.id, course.shows_names)
        return self._template.render(
            lang=LANGUAGES[language],
            s=say,
            style=Markup(self._style),
            course=title,
            asked_by=asker_words(language, form.label(record.asker)),
            asked_at=_time(record.question.created_at, zone),
            question=record.question.text,
            answer=self._answer.render(shown),
            has_unsourced=shown.count(UNSOURCED) > answer.text.count(UNSOURCED),
            has_answer=bool(answer.text.strip()),
            notices=[notice[language] for notice in notices(answer)],
            sources=[
                {
                    **_source(passage, answer.not_found, language),
                    "text": self._source.render(passage.text, passage.marks or ()),
                }
                for passage in record.passages
            ],
            has_marks=any(passage.marks for passage in record.passages),
            feedback=record.feedback,
            facts=_facts(record, language),
        )


def _time(moment: datetime, zone: ZoneInfo) -> str:
    return moment.astimezone(zone).strftime("%Y-%m-%d %H:%M %Z")


def _source(passage: MessagePassage, not_found: bool, language: str) -> dict[str, Any]:
    key = "record.cited" if passage.is_cited else None
    if not passage.used:
        key = "record.nearest" if not_found else "record.leftOut"
    return {
        "n": passage.n,
        "title": passage.title,
        "locator": locator_words(language, passage),
        "note": word(language, key) if key else "",
    }


def _facts(record: Record, language: str) -> list[tuple[str, str]]:
    say = partial(word, language)
    answer = record.answer
    usage, timing, context = answer.usage or {}, answer.timing or {}, answer.context or {}
    facts = [(say("record.id"), answer.id), (say("record.model"), answer.model or "–")]
    facts.append((say("record.finish"), finish_words(language, answer)))
    if usage:
        tokens = {"prompt": usage.get("prompt_tokens"), "answer": usage.get("completion_tokens")}
        facts.append((say("record.tokens"), say("record.tokensValue", **tokens)))
    if timing.get("total_ms") is not None:
        seconds = say("record.seconds", n=f"{timing['total_ms'] / 1000:,.1f}")
        facts.append((say("record.time"), seconds))
    if context:
        facts.append((say("record.window"), say("record.windowValue", n=context.get("window"))))
        for name, words, fields in _PARTS:
            facts.append((say(name), say(words, **{field: context.get(field) for field in fields})))
        if skipped := context.get("turns_skipped"):
            facts.append((say("record.skipped"), say("record.skippedValue", n=skipped)))
    return facts
