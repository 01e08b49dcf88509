"""`RecordPage`: one record as a page to print: no script, nothing to load, nothing to click."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from server.app.pages import LANGUAGES, WEB_ROOT, security_headers
from server.app.record_json import RecordForm, role_of, shown_answer
from server.app.records import notices
from server.store.records import Record
from server.store.schema import Course, MessagePassage

_STRINGS: dict[str, dict[str, str]] = {
    "en": {
        "record": "Record of a question",
        "course": "Course",
        "asked_by": "Asked by",
        "asked_at": "Asked",
        "question": "Question",
        "answer": "Answer",
        "no_answer": "No text.",
        "sources": "Sources",
        "cited": "cited",
        "nearest": "nearest, not used",
        "left_out": "left out, no room",
        "marked": "What supports the answer is marked.",
        "feedback": "Feedback",
        "up": "helpful",
        "down": "not helpful",
        "report": "How it was made",
        "model": "Model",
        "finish": "Ended by",
        "tokens": "Tokens (prompt, answer)",
        "time": "Time",
        "window": "Window",
        "context": "In the prompt: system, passages, history, question",
        "kept": "Passages used, left out; turns kept, left out",
        "id": "Record",
    },
    "zh": {
        "record": "提问记录",
        "course": "课程",
        "asked_by": "提问者",
        "asked_at": "提问时间",
        "question": "问题",
        "answer": "回答",
        "no_answer": "没有文字。",
        "sources": "来源",
        "cited": "已引用",
        "nearest": "最接近，未使用",
        "left_out": "空间不足，未使用",
        "marked": "支持回答的句子已标出。",
        "feedback": "反馈",
        "up": "有帮助",
        "down": "没有帮助",
        "report": "回答的生成过程",
        "model": "模型",
        "finish": "结束方式",
        "tokens": "词元（提示、回答）",
        "time": "用时",
        "window": "上下文窗口",
        "context": "提示中的系统说明、段落、历史、问题",
        "kept": "使用与舍弃的段落；保留与舍弃的轮次",
        "id": "记录",
    },
}


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
        # Links and images stay as they are written: paper follows none, and nothing is loaded.
        self._markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
        self._markdown.disable(["link", "image", "autolink", "html_block", "html_inline"])

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
        strings = _STRINGS[language]
        title = course.title_zh if language == "zh" and course.title_zh else course.title
        form = RecordForm(course.id, course.shows_names)
        return self._template.render(
            lang=LANGUAGES[language],
            s=strings,
            style=Markup(self._style),
            course=title,
            asked_by=form.label(record.asker),
            role=role_of(record.asker),
            asked_at=_time(record.question.created_at, zone),
            question=record.question.text,
            answer=Markup(self._markdown.render(shown_answer(record))),
            has_answer=bool(answer.text.strip()),
            notices=[notice[language] for notice in notices(answer)],
            sources=[_source(passage, answer.not_found, strings) for passage in record.passages],
            has_marks=any(passage.marks for passage in record.passages),
            feedback=record.feedback,
            facts=_facts(record, strings),
        )


def _time(moment: datetime, zone: ZoneInfo) -> str:
    return moment.astimezone(zone).strftime("%Y-%m-%d %H:%M %Z")


def _source(passage: MessagePassage, not_found: bool, strings: dict[str, str]) -> dict[str, Any]:
    note = strings["cited"] if passage.is_cited else ""
    if not passage.used:
        note = strings["nearest"] if not_found else strings["left_out"]
    return {
        "n": passage.n,
        "title": passage.title,
        "locator": passage.locator,
        "note": note,
        "text": marked(passage.text, passage.marks or ()),
    }


def marked(text: str, marks: Sequence[Sequence[int]]) -> Markup:
    """`text` as HTML with these ranges marked."""
    parts, end = [], 0
    for start, stop in sorted((start, stop) for start, stop in marks):
        start = max(start, end)
        if start < stop:
            parts += [escape(text[end:start]), Markup("<mark>{}</mark>").format(text[start:stop])]
            end = stop
    return Markup("").join([*parts, escape(text[end:])])


def _facts(record: Record, strings: dict[str, str]) -> list[tuple[str, str]]:
    answer = record.answer
    usage, timing, context = answer.usage or {}, answer.timing or {}, answer.context or {}
    facts = [(strings["id"], answer.id), (strings["model"], answer.model or "–")]
    facts.append((strings["finish"], answer.finish_type or answer.state))
    if usage:
        tokens = f"{usage.get('prompt_tokens')}, {usage.get('completion_tokens')}"
        facts.append((strings["tokens"], tokens))
    if timing.get("total_ms") is not None:
        facts.append((strings["time"], f"{timing['total_ms'] / 1000:.1f} s"))
    if context:
        parts = ("system", "passages", "history", "question")
        counts = ("passages_used", "passages_dropped", "turns_kept", "turns_dropped")
        facts.append((strings["window"], str(context.get("window"))))
        facts.append((strings["context"], ", ".join(str(context.get(name)) for name in parts)))
        facts.append((strings["kept"], ", ".join(str(context.get(name)) for name in counts)))
    return facts
