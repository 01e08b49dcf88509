"""Materials and imports as JSON; `server.app.api_materials` says what is in it."""

from __future__ import annotations

from typing import Any

from server.app.access import is_visible
from server.app.materials.errors import REASONS, WARNINGS, MaterialError
from server.app.materials.import_jobs import ImportedFile, ImportJob
from server.service.errors import BadRequestError
from server.store.column_types import utc_now
from server.store.materials import MaterialCard, PassagePlace
from server.store.schema import PassageRow


class MaterialRefusedError(BadRequestError):
    """A file that cannot become a material, told in the words of its reason."""

    http_status = 422

    def __init__(self, error: MaterialError) -> None:
        super().__init__(
            error.message, param="file", message_zh=error.message_zh, reason=error.code
        )


def material_json(
    card: MaterialCard, *, for_teacher: bool, progress: tuple[int, int] | None = None
) -> dict[str, Any]:
    """MATERIAL."""
    material = card.material
    fields: dict[str, Any] = {
        "id": material.id,
        "course": material.course_id,
        "name": material.name,
        "title": material.title,
        "kind": material.kind,
        "format": material.format,
        "week": material.week,
        "num_pages": material.num_pages,
        "num_passages": card.num_passages,
        "updated_at": material.updated_at,
    }
    if not for_teacher:
        return fields
    return fields | {
        "state": material.state,
        "is_hidden": material.is_hidden,
        "visible_from": material.visible_from,
        "is_visible": is_visible(material, utc_now()),
        "size_bytes": material.size_bytes,
        "encoding": material.encoding,
        "edited": material.edited,
        "progress": None if progress is None else {"done": progress[0], "total": progress[1]},
        "error": _stored_reason(card),
        "warnings": warnings_json((material.warning or "").split()),
        "created_at": material.created_at,
    }


def passage_json(passage: PassageRow) -> dict[str, Any]:
    """A passage, as teachers see it."""
    return {
        "id": passage.id,
        "position": passage.position,
        "heading": passage.heading,
        "locator": passage.locator,
        "place": passage.place or {},
        "text": passage.text,
        "num_tokens": passage.num_tokens,
        "language": passage.language,
    }


def place_json(place: PassagePlace) -> dict[str, Any]:
    """Where a part of a material stands."""
    return {"heading": place.heading, "locator": place.locator, "place": place.place or {}}


def import_json(job: ImportJob) -> dict[str, Any]:
    """IMPORT."""
    return {
        "import": job.id,
        "course": job.course_id,
        "done": job.num_over,
        "total": len(job.files),
        "files": [_file_json(file) for file in job.files],
    }


def warnings_json(codes: list[str]) -> list[dict[str, str]]:
    """Warnings by code, each with its sentences; codes that nobody knows any more are left out."""
    return [
        {"code": code, "message": WARNINGS[code][0], "message_zh": WARNINGS[code][1]}
        for code in codes
        if code in WARNINGS
    ]


def _file_json(file: ImportedFile) -> dict[str, Any]:
    return {
        "name": file.name,
        "state": file.state,
        "page": file.page,
        "pages": file.pages,
        "material": file.material_id,
        "error": None if file.error is None else _error_json(file.error),
    }


def _stored_reason(card: MaterialCard) -> dict[str, str] | None:
    material = card.material
    if material.error_code is None:
        return None
    code = material.error_code if material.error_code in REASONS else "parser_crashed"
    facts = {**(material.error_facts or {}), "name": material.name}
    return _error_json(MaterialError(code, **facts))


def _error_json(error: MaterialError) -> dict[str, str]:
    return {"code": error.code, "message": error.message, "message_zh": error.message_zh}
