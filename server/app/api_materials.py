"""Materials over HTTP: uploaded, watched, looked at, edited, hidden, replaced, deleted.

MATERIAL is `{id, course, name, title, kind: lecture|lab|exam|admin|other, format: markdown|text|
html|csv|pdf|docx|pptx, week: 6 or null, num_pages: 12 or null, num_passages, updated_at}`; for the
course's teachers also `{state: waiting|parsing|ready|failed, is_hidden, visible_from: a moment or
null, is_visible: whether students see it now, size_bytes, encoding, edited: [title, kind, week:
what was set by hand, which no import changes], progress: {done, total} in pages while it is read or
null, error: REASON or null, warnings: [REASON], created_at}`.
REASON is `{code, message, message_zh}`; the codes are those of `server.app.materials.errors`.
IMPORT is `{import: its id, course, done, total, files: [{name, state: waiting|parsing|ready|failed|
duplicate, page: 3 or null, pages: 12 or null, material: id or null, error: REASON or null}]}`; it
is over when done equals total. duplicate: the course has these bytes already, as `material`.

- GET /api/courses/{course}/materials (member) → `{materials: [MATERIAL]}` by week and name;
  students get those that they may see
- POST /api/courses/{course}/materials (its teacher) multipart: `file` once or more, and for all of
  them `week`?, `kind`?, `is_hidden`? ("true"), `visible_from`? → for one file 201 MATERIAL, 200
  `{…MATERIAL, duplicate: true}` or 422; for several or a zip, with `Prefer: respond-async`, or
  after a minute without an end 202 IMPORT
- GET /api/imports/{import} (a teacher of its course) → IMPORT; kept until an hour after its end, or
  a restart
- GET /api/materials/{material} (member who may see it) → MATERIAL with `{locator, text, places:
  [{heading, locator, place: {page?, to_page?, slide?, to_slide?, row?, to_row?}}], has_original:
  whether its file can be had}`. A part of a large text, cut between blocks:
  `?around=PASSAGE&chars=N` (the id of a passage of the material, of now or of one of the caller's
  answers) or `?offset=N&chars=N`, with N from 1,000 to 200,000, else 24,000: `text` is then about
  `chars` characters, and with it come `{offset: where it begins, total: characters of the whole,
  range: [start, end] of the passage or null}`, all in code points of the whole text. null: the
  material has changed since, and no longer holds the passage. Has an `ETag`: with `If-None-Match`
  304 where nothing changed.
- GET /api/materials/{material}/original (the same) → the file as it came, as a download; 404 where
  it is not kept
- GET /api/materials/{material}/passages (its teacher) → `{passages: [{id, position, heading,
  locator, place, text, num_tokens, language}]}`
- GET /api/materials/{material}/preview?encoding= (its teacher) → `{text: its beginning, is_whole,
  format, encoding, candidates: [{encoding, text}], warnings: [REASON]}` or 422; `candidates` are
  encodings that fit the bytes, none for formats that leave no choice
- PATCH /api/materials/{material} (its teacher) any of `{title, kind, week: 1–60 or null,
  visible_from: a moment, a date or null, is_hidden, encoding: a name or null}` → MATERIAL; a date
  is midnight where the course is; `encoding` reads the file anew (null: find it out): 422 changes
  nothing of its text, 202 IMPORT after a minute
- PUT /api/materials/{material}/file (its teacher) multipart: one `file` that is no zip → MATERIAL,
  which keeps its id, what was set by hand, week and visibility; 422 changes nothing, 409 where
  another material has these bytes or this one is being read, 202 IMPORT after a minute
- POST /api/materials/{material}/retry (its teacher) → as the POST of one file, for one that failed
- DELETE /api/materials/{material} (its teacher) → 204; stored answers keep their snapshots

Errors are as everywhere, `{error: {message, message_zh, type, param, code}}`; a 422 has the file's
REASON, and `param` "file". Too much: 413; not multipart: 415; no room on the disk: 507. A file that
failed stays listed, for its teachers, until it is retried, replaced or deleted.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute

from server.app.access import Need, guarded, is_visible, material_of, member_of, person_of
from server.app.api_replies import etag_reply, json_reply
from server.app.api_requests import json_body
from server.app.import_replies import ImportReplies
from server.app.material_fields import (
    read_encoding,
    read_kind,
    read_title,
    read_visible_from,
    read_week,
)
from server.app.material_json import (
    MaterialRefusedError,
    material_json,
    passage_json,
    place_json,
    warnings_json,
)
from server.app.material_text import MaterialText
from server.app.materials.errors import MaterialError
from server.app.materials.library import Library
from server.app.materials.parser_process import ParserClosedError
from server.service.errors import BadRequestError, NotFoundError, ShuttingDownError
from server.store.column_types import utc_now
from server.store.materials import MaterialCard
from server.store.schema import Material


class _Changes(msgspec.Struct, forbid_unknown_fields=True):
    title: str | msgspec.UnsetType = msgspec.UNSET
    kind: str | msgspec.UnsetType = msgspec.UNSET
    week: int | msgspec.UnsetType | None = msgspec.UNSET
    visible_from: str | msgspec.UnsetType | None = msgspec.UNSET
    is_hidden: bool | msgspec.UnsetType = msgspec.UNSET
    encoding: str | msgspec.UnsetType | None = msgspec.UNSET


class MaterialApi:
    """Owned by the event loop; keeps no state of its own."""

    def __init__(self, library: Library, replies: ImportReplies, text: MaterialText) -> None:
        self._library = library
        self._replies = replies
        self._text = text

    def routes(self) -> list[BaseRoute]:
        """The routes, ready for an application."""
        teacher, one = Need.COURSE_TEACHER, "/api/materials/{material}"
        return [
            guarded("/api/courses/{course}/materials", self.list_all, ["GET"], Need.MEMBER),
            guarded(one, self.material, ["GET"], Need.MEMBER),
            guarded(f"{one}/original", self.original, ["GET"], Need.MEMBER),
            guarded(f"{one}/passages", self.passages, ["GET"], teacher),
            guarded(f"{one}/preview", self.preview, ["GET"], teacher),
            guarded(one, self.change, ["PATCH"], teacher),
            guarded(one, self.delete, ["DELETE"], teacher),
        ]

    async def list_all(self, request: Request) -> Response:
        """The materials of a course."""
        member = member_of(request)
        cards = await self._library.materials.of_course(member.course_id)
        now = utc_now()
        return json_reply(
            {
                "materials": [
                    self._json(card, for_teacher=member.is_teacher)
                    for card in cards
                    if member.is_teacher or is_visible(card.material, now)
                ]
            }
        )

    async def material(self, request: Request) -> Response:
        """One material, whole."""
        material = material_of(request)
        text = await self._text.shown(person_of(request).user, material, request.query_params)
        places = await self._library.materials.places(material.id)
        card = MaterialCard(material, len(places))
        fields = {
            **self._json(card, for_teacher=member_of(request).is_teacher),
            "locator": material.name,
            **text,
        }
        has_original = self._original(material) is not None

        def reply() -> Response:
            shown = [place_json(place) for place in places]
            return etag_reply(request, {**fields, "places": shown, "has_original": has_original})

        # A material may be large, and everybody's streams wait for the loop.
        return await asyncio.to_thread(reply)

    async def original(self, request: Request) -> Response:
        """The file as it came. Whatever it holds, no browser opens it as a page of this site."""
        material = material_of(request)
        path = self._original(material)
        if path is None or not await asyncio.to_thread(path.is_file):
            raise NotFoundError("The file of this material is not kept.", param="material")
        return FileResponse(
            path,
            media_type="application/octet-stream",
            filename=material.name.rpartition("/")[2],
            headers={
                "Cache-Control": "no-store",
                "X-Content-Type-Options": "nosniff",
                "Content-Security-Policy": "default-src 'none'; sandbox",
            },
        )

    async def passages(self, request: Request) -> Response:
        """What a material was cut into."""
        passages = await self._library.materials.passages(material_of(request).id)

        def reply() -> Response:
            return json_reply({"passages": [passage_json(passage) for passage in passages]})

        # A book has thousands, and everybody's streams wait for the loop.
        return await asyncio.to_thread(reply)

    async def preview(self, request: Request) -> Response:
        """How the text of a file begins, in an encoding of choice."""
        material = material_of(request)
        if material.content_sha256 is None:
            raise NotFoundError("The file of this material is not kept.", param="material")
        given = request.query_params.get("encoding")
        try:
            found = await self._library.parser.preview(
                self._library.files.path(material.course_id, material.content_sha256),
                material.name,
                read_encoding(given) if given else None,
            )
        except MaterialError as error:
            raise MaterialRefusedError(error) from None
        except ParserClosedError:
            raise ShuttingDownError() from None
        return json_reply(
            {
                "text": found.text,
                "is_whole": found.is_whole,
                "format": found.format,
                "encoding": found.encoding,
                "candidates": [
                    {"encoding": encoding, "text": text} for encoding, text in found.candidates
                ],
                "warnings": warnings_json(list(found.warnings)),
            }
        )

    async def change(self, request: Request) -> Response:
        """Fields of a material, and how its text is read."""
        changes = await json_body(request, _Changes)
        material = material_of(request)
        fields = _fields(changes, member_of(request).course.timezone)
        encoding = changes.encoding
        if encoding is not msgspec.UNSET:
            _check_readable(material)
            chosen = None if encoding is None else read_encoding(encoding)
            self._library.check_idle(material)
        if fields:
            await self._library.edit(material, fields)
        if encoding is msgspec.UNSET:
            return json_reply(await self._replies.material(material.id))
        file = await self._library.decode(material, chosen)
        return await self._replies.one(request, material.course_id, file)

    async def delete(self, request: Request) -> Response:
        """Out of the course, for good."""
        await self._library.delete(material_of(request).id)
        return Response(status_code=204, headers={"Cache-Control": "no-store"})

    def _original(self, material: Material) -> Path | None:
        """Where its bytes are kept; None: nowhere."""
        if material.content_sha256 is None:
            return None
        return self._library.files.path(material.course_id, material.content_sha256)

    def _json(self, card: MaterialCard, *, for_teacher: bool) -> dict[str, Any]:
        progress = self._library.progress(card.material.id) if for_teacher else None
        return material_json(card, for_teacher=for_teacher, progress=progress)


def _check_readable(material: Material) -> None:
    if material.content_sha256 is None:
        raise BadRequestError("The file of this material is not kept.", param="encoding")


def _fields(changes: _Changes, timezone: str | None) -> dict[str, Any]:
    """Columns and their new values. Raises BadRequestError."""
    fields: dict[str, Any] = {}
    if changes.title is not msgspec.UNSET:
        fields["title"] = read_title(changes.title)
    if changes.kind is not msgspec.UNSET:
        fields["kind"] = read_kind(changes.kind)
    if changes.week is not msgspec.UNSET:
        fields["week"] = None if changes.week is None else read_week(changes.week)
    if changes.visible_from is not msgspec.UNSET:
        moment = changes.visible_from
        fields["visible_from"] = None if moment is None else read_visible_from(moment, timezone)
    if changes.is_hidden is not msgspec.UNSET:
        fields["is_hidden"] = changes.is_hidden
    return fields
