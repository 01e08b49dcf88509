"""`KeptBytes`: the bytes on disk and the rows that name them, changed together."""

from __future__ import annotations

import asyncio

import anyio.to_thread

from server.app.materials.files import MaterialFiles, StagedFile
from server.store.materials import Materials


class KeptBytes:
    """Owned by the event loop. Hold `lock` from before bytes are kept until their row is
    committed, and from before a row loses them until `remove_unneeded` has run."""

    def __init__(self, files: MaterialFiles, materials: Materials) -> None:
        self.lock = asyncio.Lock()
        self._files = files
        self._materials = materials

    async def keep(self, staged: StagedFile, course_id: str) -> None:
        """Moves a staged file to where it stays. Raises StorageFullError."""
        await anyio.to_thread.run_sync(self._files.keep, staged, course_id)

    async def remove_orphans(self) -> None:
        """Removes bytes that no row names: of what was deleted, or given up, as they came in."""
        for course_id, sha256 in await anyio.to_thread.run_sync(self._files.kept_long):
            async with self.lock:
                await self.remove_unneeded(course_id, sha256)

    async def remove_unneeded(self, course_id: str, sha256: str) -> None:
        """Removes the bytes unless a material of the course has them, or is to have them."""
        if not await self._materials.needs_content(course_id, sha256):
            await anyio.to_thread.run_sync(self._files.remove, course_id, sha256)
