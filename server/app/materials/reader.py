"""`MaterialReader`: one material, from its bytes to passages in the store."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Protocol

from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from server.app.materials.document import ParseLimits
from server.app.materials.errors import MaterialError
from server.app.materials.files import MaterialFiles, StagedFile
from server.app.materials.import_queue import Reading, Renewal
from server.app.materials.kept_bytes import KeptBytes
from server.app.materials.parser_process import OnProgress, ParsedMaterial, ParserClosedError
from server.app.materials.settling import chosen_encoding, new_passages, settled_reading
from server.store.materials import Materials
from server.store.schema import Material

log = logging.getLogger(__name__)


class Parses(Protocol):
    """Makes a document with passages of a file: `ParserProcess` does, and `PlainParser`."""

    async def parse(
        self,
        path: Path,
        name: str,
        *,
        encoding: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> ParsedMaterial:
        """Raises MaterialError, ParserClosedError."""
        ...


class MaterialReader:
    """Owned by the event loop; keeps no state of its own."""

    def __init__(
        self, materials: Materials, files: MaterialFiles, kept: KeptBytes, limits: ParseLimits
    ) -> None:
        self._materials = materials
        self._files = files
        self._bytes = kept
        self._limits = limits

    async def read(self, reading: Reading, parser: Parses) -> None:
        """Reads it and tells its file the end, whatever that is. Raises SQLAlchemyError only
        where not even the failure can be stored."""
        try:
            error = await self._try(reading, parser)
        except ParserClosedError:
            if reading.renewal is None:
                await self._materials.put_back(reading.material_id)
            else:
                await self._count(reading, -1)
            reading.file.put_off()
            return
        if error is None:
            reading.file.end("ready")
        else:
            reading.file.fail(error)

    async def _try(self, reading: Reading, parser: Parses) -> MaterialError | None:
        renewal = reading.renewal
        if renewal is None:
            material = await self._materials.begin(reading.material_id)
        else:
            await self._count(reading, 1)
            material = await self._materials.get(reading.material_id)
        if material is None or reading.is_dropped:
            return _deleted(reading)
        reading.file.state = "parsing"
        try:
            parsed = await self._parse(reading, material, parser)
            if parsed is not None and await self._write(reading, material, parsed):
                return None
            return _deleted(reading)
        except MaterialError as error:
            return await self._fail(reading, error)
        except IntegrityError:
            # Only other bytes for a row can meet the same bytes of another one here.
            return await self._fail(reading, MaterialError("in_course", name=reading.file.name))
        except (SQLAlchemyError, OSError):
            log.exception("a material could not be stored")
            return await self._fail(reading, _lost(reading))
        finally:
            if renewal is not None and renewal.staged is not None:
                await self._tidy(material, renewal.staged)

    async def _parse(
        self, reading: Reading, material: Material, parser: Parses
    ) -> ParsedMaterial | None:
        """None when it was dropped meanwhile."""
        renewal = reading.renewal or Renewal()
        staged = renewal.staged
        sha256 = staged.sha256 if staged else material.content_sha256
        assert sha256 is not None
        encoding = renewal.encoding if renewal.sets_encoding else chosen_encoding(material)
        parsing = asyncio.create_task(
            parser.parse(
                self._files.path(material.course_id, sha256),
                reading.file.name,
                encoding=None if staged else encoding,
                on_progress=reading.file.progress,
            )
        )
        reading.parsing = parsing
        await asyncio.wait({parsing})
        return None if parsing.cancelled() else parsing.result()

    async def _write(self, reading: Reading, material: Material, parsed: ParsedMaterial) -> bool:
        renewal = reading.renewal
        settle = settled_reading(parsed, reading.file.name, reading.given, renewal, self._limits)
        words = settle(material).title_words or ""
        passages = new_passages(parsed, words)
        if renewal is None:
            return await self._materials.finish(material.id, passages, settle)
        return await self._materials.replace(material.id, passages, settle)

    async def _fail(self, reading: Reading, error: MaterialError) -> MaterialError:
        """A material that was to be renewed stays as it is."""
        if reading.renewal is None:
            await self._materials.fail(reading.material_id, error.code, error.facts)
        elif reading.renewal.is_promised:
            await self._materials.set_renewal(reading.material_id, None)
        return error

    async def _count(self, reading: Reading, by: int) -> None:
        """How often a renewal was begun: a file that ends the server each time is given up."""
        if reading.renewal is None or not reading.renewal.is_promised:
            return
        now = await self._materials.get(reading.material_id)
        if now is not None and now.renewal is not None:
            counted = {**now.renewal, "attempts": now.renewal["attempts"] + by}
            await self._materials.set_renewal(now.id, counted)

    async def _tidy(self, before: Material, staged: StagedFile) -> None:
        """Removes the bytes that a replaced material has no more, or has not got."""
        async with self._bytes.lock:
            for sha256 in {before.content_sha256, staged.sha256} - {None}:
                await self._bytes.remove_unneeded(before.course_id, str(sha256))


def _deleted(reading: Reading) -> MaterialError:
    return MaterialError("deleted", name=reading.file.name)


def _lost(reading: Reading) -> MaterialError:
    return MaterialError("not_stored", name=reading.file.name)
