"""Records over HTTP: what was asked in a course and what became of it, and one's own data.

RECORD is one ended answer with its question:

    {"id", "conversation", "question_id", "asked_at", "answered_at",
     "asked_by": {"label", "role": "student"|"teacher"|"guest"|"former"},
     "question", "answer", "state", "kinds": [KIND], "not_found", "model",
     "finish_reason", "finish_detail", "usage", "timing", "context", "max_tokens", "options",
     "sources": [{"n", "id", "material", "title", "locator", "place", "text", "score", "used",
                  "is_cited", "marks": [[start, end]]}],
     "citations": [{"n", "by": "model"|"match"|"none", "marks": [[start, end]]}],
     "feedback": {"value": "up"|"down", "note", "at"} or null,
     "notices": [{"kind", "en", "zh"}]}

`answer` is what a reader is shown: numbers of sources that it never had are left out. `marks` are
character ranges of the source's `text`: the sentences that support the answer. `label` is the
asker's name where the course shows names, else a pseudonym that is always the same for one person
in one course; nothing else in a record says who asked.

KIND is what a teacher looks for: `cut` (by the length limit or the window), `cancelled` (by its
reader), `interrupted` (connection, server or deadline), `error`, `not_found`, `no_support` (no
sentence of the sources supports the answer), `up`, `down` (feedback). An answer can be of several.

| route | who | reply |
| --- | --- | --- |
| GET /api/courses/{course}/records | its teacher | `{"records": [RECORD], "next": id or null, "counts": {"total", "matching", "kinds": {KIND: n}, "is_cut": bool}, "shows_names": bool}`, newest first |
| GET /api/courses/{course}/records/{answer} | its teacher | RECORD |
| GET /api/courses/{course}/records.jsonl | its teacher | a RECORD a line, newest first, streamed |
| GET /api/courses/{course}/records.csv | its teacher | the same as a table for spreadsheets, UTF-8 with a byte order mark |
| GET /records/{answer} | its asker, or a teacher of the course | the record as a page to print, without script, in the reader's language; a browser without a session is sent to the login |
| GET /api/me/export | session | all that is kept of the caller as JSON lines: `person`, `enrolment`, then `conversation` with its `message` lines (by their `kind`) |

Filters, as query parameters of the first four (all optional, all must hold):

- `kind`: one KIND or several with commas; a record is of any of them
- `from`, `to`: days `2026-09-07` in the course's time zone, both included, or moments with an offset
- `text`: words that question and answer hold together, in English or Chinese
- `material`: id of a material that the answer cites
- `pseudonym`: of one asker, exactly
- `person`: a part of the asker's name; 403 where the course shows no names
- `before`: the `next` of the page before, an empty one counts as absent; `limit`: 1 to 200, else 50 (the list only)

`counts.total` counts what the filters but `kind` leave, `counts.kinds` splits that up, and
`counts.matching` counts with `kind` too. Counts fall when people or conversations are deleted.
`is_cut`: the words of `text` are in more than the newest 2,000 records, and older ones are left
out.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import BaseRoute

from server.app.access import Access, Need, guarded, member_of, person_of
from server.app.api_replies import json_reply
from server.app.own_data import OwnData
from server.app.pages import choose_language
from server.app.record_json import RecordForm, csv_head
from server.app.record_pages import RecordPage
from server.app.record_query import num_listed, record_filter, zone_of
from server.service.errors import NotFoundError
from server.store.records import Record, Records
from server.store.schema import Course


class RecordApi:
    """Owned by the event loop; keeps no state of its own."""

    def __init__(
        self, access: Access, records: Records, own_data: OwnData, page: RecordPage
    ) -> None:
        self._access = access
        self._records = records
        self._own_data = own_data
        self._page = page

    def routes(self) -> list[BaseRoute]:
        """The routes, ready for an application."""
        many = "/api/courses/{course}/records"
        teacher = Need.COURSE_TEACHER
        return [
            guarded(many, self.list_records, ["GET"], teacher),
            guarded(f"{many}.jsonl", self.export_jsonl, ["GET"], teacher),
            guarded(f"{many}.csv", self.export_csv, ["GET"], teacher),
            guarded(f"{many}/{{answer}}", self.record, ["GET"], teacher),
            guarded("/records/{answer}", self.page, ["GET"], Need.KNOWN, is_page=True),
            guarded("/api/me/export", self.export_own, ["GET"], Need.OWNER),
        ]

    async def list_records(self, request: Request) -> Response:
        """A page of records with counts."""
        course, query = member_of(request).course, request.query_params
        filter, limit = record_filter(course, query), num_listed(query)
        before = query.get("before", "").strip() or None
        found = await self._records.page(filter, before=before, limit=limit + 1)
        counts = await self._records.counts(filter)
        records = found[:limit]
        form = _form(course)
        return json_reply(
            {
                "records": [form.to_json(record) for record in records],
                "next": records[-1].answer.id if len(found) > limit else None,
                "counts": {
                    "total": counts.total,
                    "matching": counts.matching,
                    "kinds": counts.kinds,
                    "is_cut": counts.is_cut,
                },
                "shows_names": course.shows_names,
            }
        )

    async def record(self, request: Request) -> Response:
        """One record of the course."""
        course = member_of(request).course
        record, course_id = await self._find(request)
        if course_id != course.id:
            raise NotFoundError("There is no such record.", param="answer")
        return json_reply(_form(course).to_json(record))

    async def export_jsonl(self, request: Request) -> Response:
        """All records that the filters leave, a JSON object a line."""
        course = member_of(request).course
        filter = record_filter(course, request.query_params)
        form = _form(course)

        async def body() -> AsyncIterator[bytes]:
            async for records in self._records.every(filter):
                yield form.lines(records)

        return _download(body(), "application/jsonl", f"{course.slug}-records.jsonl")

    async def export_csv(self, request: Request) -> Response:
        """The same as a table."""
        course = member_of(request).course
        filter = record_filter(course, request.query_params)
        form = _form(course)

        async def body() -> AsyncIterator[bytes]:
            yield csv_head()
            async for records in self._records.every(filter):
                yield form.rows(records)

        return _download(body(), "text/csv; charset=utf-8", f"{course.slug}-records.csv")

    async def page(self, request: Request) -> Response:
        """One record to print, for its asker while in the course, and for the course's teachers."""
        user = person_of(request).user
        record, course_id = await self._find(request)
        member = await self._access.member(user, course_id)
        if record.asker.user_id != user and not member.is_teacher:
            raise NotFoundError("There is no such record.", param="answer")
        language, zone = choose_language(request), zone_of(member.course)
        return HTMLResponse(
            self._page.render(record, member.course, language, zone),
            headers=self._page.headers(request.headers.get("host")),
        )

    async def export_own(self, request: Request) -> Response:
        """All that is kept of the caller."""
        lines = self._own_data.lines(person_of(request).user)
        return _download(lines, "application/jsonl", "my-data.jsonl")

    async def _find(self, request: Request) -> tuple[Record, str]:
        found = await self._records.get(request.path_params["answer"])
        if found is None or found[1] is None:
            raise NotFoundError("There is no such record.", param="answer")
        return found[0], found[1]


def _form(course: Course) -> RecordForm:
    return RecordForm(course.id, course.shows_names)


def _download(body: AsyncIterator[bytes], media_type: str, name: str) -> Response:
    return StreamingResponse(
        body,
        media_type=media_type,
        headers={
            "Cache-Control": "no-store",
            "Content-Disposition": f'attachment; filename="{name}"',
            "X-Content-Type-Options": "nosniff",
        },
    )
