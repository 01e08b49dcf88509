"""Materials: whole texts for the source view. Importing them is the application's work."""

from __future__ import annotations

from sqlalchemy.orm import undefer

from server.store.database import Database
from server.store.schema import Material


class Materials:
    """Repository of materials. Rows that it returns are detached: read them, never change them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, material_id: str) -> Material | None:
        """One material with its text."""
        async with self._database.session() as session:
            return await session.get(Material, material_id, options=[undefer(Material.text)])
