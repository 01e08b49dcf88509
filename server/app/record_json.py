"""A record as it leaves the server: as JSON, as a line, and as a row of a table for spreadsheets.

Nothing of it says who asked but `asked_by`: the name where the course shows names, else a
pseudonym.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from server.app.citations import UNSOURCED, with_numbers, without_unknown
from server.app.records import notices, source_json, time_json
from server.store.records import Asker, Record

_LETTERS = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How a cell begins that a spreadsheet would compute."""

COLUMNS = (
    "id",
    "asked_at",
    "answered_at",
    "asked_by",
    "role",
    "question",
    "answer",
    "kinds",
    "finish",
    "sources",
    "feedback",
    "feedback_note",
    "model",
    "prompt_tokens",
    "completion_tokens",
    "ttft_ms",
    "total_ms",
    "conversation",
)


@dataclass(frozen=True, slots=True)
class RecordForm:
    """How the records of one course are told. Pure."""

    course_id: str
    shows_names: bool

    def to_json(self, record: Record) -> dict[str, Any]:
        """RECORD, as `api_records` describes it."""
        question, answer, said = record.question, record.answer, record.feedback
        return {
            "id": answer.id,
            "conversation": answer.conversation_id,
            "question_id": question.id,
            "asked_at": time_json(question.created_at),
            "answered_at": time_json(answer.updated_at),
            "asked_by": {"label": self.label(record.asker), "role": role_of(record.asker)},
            "question": question.text,
            "answer": shown_answer(record),
            "state": answer.state,
            "kinds": sorted(record.kinds),
            "not_found": answer.not_found,
            "model": answer.model,
            "finish_reason": answer.finish_reason,
            "finish_detail": answer.finish_detail,
            "usage": answer.usage,
            "timing": answer.timing,
            "context": answer.context,
            "max_tokens": answer.max_tokens,
            "options": answer.options,
            "sources": [source_json(passage) for passage in record.passages],
            "citations": [
                {"n": one["n"], "by": one["by"], "marks": one["marks"]}
                for one in answer.citations or ()
            ],
            "feedback": said
            and {"value": said.value, "note": said.note, "at": time_json(said.created_at)},
            "notices": notices(answer),
        }

    def label(self, asker: Asker) -> str:
        """What an asker is called."""
        if self.shows_names and asker.name:
            return asker.name
        if asker.pseudonym is not None:
            return asker.pseudonym
        # Who is in no course list has no pseudonym: one is made that tells nothing else.
        digest = hashlib.sha256(f"{self.course_id}:{asker.user_id}".encode()).digest()
        letters = "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:4])
        return f"{'Guest' if role_of(asker) == 'guest' else 'Former student'} {letters}"

    def lines(self, records: Sequence[Record]) -> bytes:
        """One JSON object a line."""
        return msgspec.json.Encoder().encode_lines([self.to_json(record) for record in records])

    def rows(self, records: Sequence[Record]) -> bytes:
        """Rows of a table with the columns `COLUMNS`."""
        return _csv([self._row(record) for record in records])

    def _row(self, record: Record) -> list[object]:
        answer, said = record.answer, record.feedback
        usage, timing = answer.usage or {}, answer.timing or {}
        sources = (
            f"[{passage.n}] {passage.title} – {passage.locator}"
            for passage in record.passages
            if passage.is_cited
        )
        return [
            answer.id,
            time_json(record.question.created_at),
            time_json(answer.updated_at),
            self.label(record.asker),
            role_of(record.asker),
            record.question.text,
            shown_answer(record),
            " ".join(sorted(record.kinds)),
            answer.finish_type,
            "\n".join(sources),
            said and said.value,
            said and said.note,
            answer.model,
            usage.get("prompt_tokens"),
            usage.get("completion_tokens"),
            timing.get("ttft_ms"),
            timing.get("total_ms"),
            answer.conversation_id,
        ]


def csv_head() -> bytes:
    """What a table begins with: the byte order mark by which spreadsheets know UTF-8, and the
    names of the columns."""
    return b"\xef\xbb\xbf" + _csv([list(COLUMNS)])


def role_of(asker: Asker) -> str:
    """student, teacher, guest, or former: with an account, but no longer in the course."""
    if asker.course_role is not None:
        return asker.course_role
    return "guest" if asker.account_role == "guest" else "former"


def shown_answer(record: Record, *, with_matches: bool = False) -> str:
    """The answer as its reader sees it; `with_matches`: with the numbers that stand on the page
    behind the sentences that name no source themselves, and `UNSOURCED` behind those that have
    none."""
    known = {passage.n for passage in record.passages if passage.used}
    texts = [record.question.text, *(passage.text for passage in record.passages)]
    text = record.answer.text
    if with_matches:
        text = with_numbers(text, record.answer.citations or (), known, unsourced=UNSOURCED)
    return without_unknown(text, known, texts)


def _csv(rows: Sequence[Sequence[object]]) -> bytes:
    table = io.StringIO()
    csv.writer(table).writerows([[_cell(value) for value in row] for row in rows])
    return table.getvalue().encode("utf-8", "replace")


def _cell(value: object) -> object:
    """A text that no spreadsheet takes for a formula."""
    if isinstance(value, str) and value.lstrip(" \n").startswith(_FORMULA):
        return f"'{value}"
    return value
