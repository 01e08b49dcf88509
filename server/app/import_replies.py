"""`ImportReplies`: what is answered to who has sent a file: the end, or where to watch for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from server.app.api_replies import json_reply
from server.app.material_json import MaterialRefusedError, import_json, material_json
from server.app.materials.import_jobs import ImportedFile, ImportJob, ImportJobs
from server.app.materials.library import Library
from server.service.errors import NotFoundError

_WAIT_S = 60.0
"""How long a reply waits for a file to be read."""


class ImportReplies:
    """Owned by the event loop."""

    def __init__(self, library: Library, jobs: ImportJobs, *, wait_s: float = _WAIT_S) -> None:
        self._library = library
        self._jobs = jobs
        self._wait_s = wait_s

    async def one(
        self,
        request: Request,
        course_id: str,
        file: ImportedFile,
        *,
        status: int = 200,
        is_duplicate: bool = False,
    ) -> Response:
        """The material once the file is read, with `status`; the import, if that takes too long
        or the client does not want to wait. Raises MaterialRefusedError."""
        if not _wants_no_wait(request):
            try:
                async with asyncio.timeout(self._wait_s):
                    await file.over.wait()
            except TimeoutError:
                pass
        if not file.over.is_set():
            return self.many(course_id, [file])
        if file.error is not None:
            raise MaterialRefusedError(file.error)
        found = await self.material(file.material_id or "")
        if is_duplicate:
            return json_reply({**found, "duplicate": True})
        return json_reply(found, status)

    def many(self, course_id: str, files: Sequence[ImportedFile]) -> Response:
        """202 and the import to be watched."""
        return json_reply(import_json(self._jobs.open(course_id, files)), 202)

    def job(self, job_id: str) -> ImportJob:
        """An import. Raises NotFoundError."""
        job = self._jobs.get(job_id)
        if job is None:
            raise NotFoundError("There is no such import, or it ended long ago.", param="import")
        return job

    async def material(self, material_id: str) -> dict[str, object]:
        """MATERIAL for teachers. Raises NotFoundError."""
        card = await self._library.materials.card(material_id)
        if card is None:
            raise NotFoundError("There is no such material.", param="material")
        return material_json(card, for_teacher=True, progress=self._library.progress(material_id))


def _wants_no_wait(request: Request) -> bool:
    return "respond-async" in request.headers.get("prefer", "").lower()
