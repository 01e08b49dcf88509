"""`MaterialText`: a material's text as a reader gets it, whole or the part around a passage."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from server.app.material_place import Place, around, find, part
from server.service.auth import UserId
from server.service.errors import BadRequestError
from server.store.materials import Materials
from server.store.schema import Material
from server.store.shown_passages import ShownPassages

LEAST_CHARS, USUAL_CHARS, MOST_CHARS = 1_000, 24_000, 200_000
_MOST_KEPT = 1_000
"""Places that are remembered: readers of one answer open the same ones."""

_Range = tuple[int, int] | None
_Key = tuple[str, datetime | None, str, UserId | None]


class MaterialText:
    """Owned by the event loop. Remembers where passages stand, for as long as their material is
    as it was."""

    def __init__(self, materials: Materials, shown: ShownPassages) -> None:
        self._materials = materials
        self._shown = shown
        self._ranges: OrderedDict[_Key, _Range] = OrderedDict()

    async def shown(
        self, user: UserId, material: Material, query: Mapping[str, str]
    ) -> dict[str, Any]:
        """`text`, and where it stands if it is a part. Raises BadRequestError."""
        passage_id = query.get("around", "").strip()
        offset, num_chars = _number(query, "offset"), _num_chars(query)
        if passage_id and offset is not None:
            raise BadRequestError("Give around or offset, not both.", param="offset")
        if passage_id:
            place = await self._around(user, material, passage_id, num_chars)
        elif offset is not None:
            place = await asyncio.to_thread(part, material.text, offset, num_chars)
        else:
            return {"text": material.text}
        return {
            "text": place.text,
            "offset": place.offset,
            "total": len(material.text),
            "range": place.range,
        }

    async def _around(
        self, user: UserId, material: Material, passage_id: str, num_chars: int
    ) -> Place:
        text, near, owner = await self._passage(user, material, passage_id)
        key = (material.id, material.updated_at, passage_id, owner)
        if key in self._ranges:
            self._ranges.move_to_end(key)
        else:
            self._ranges[key] = await asyncio.to_thread(find, material.text, text, near=near)
            if len(self._ranges) > _MOST_KEPT:
                self._ranges.popitem(last=False)
        return await asyncio.to_thread(
            around, material.text, self._ranges[key], num_chars=num_chars
        )

    async def _passage(
        self, user: UserId, material: Material, passage_id: str
    ) -> tuple[str, float, UserId | None]:
        """The passage's text, "" where there is none, about where it stands, from 0 to 1, and
        who alone knows it; None: whoever may read the material."""
        row = await self._materials.passage(material.id, passage_id)
        if row is not None:
            card = await self._materials.card(material.id)
            return row.text, row.position / max(1, card.num_passages if card else 1), None
        # The material was read anew since: its passages have other ids.
        shown = await self._shown.find(user, material.id, passage_id)
        return (shown.text if shown is not None else ""), 0.0, user


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise BadRequestError(f"{name} must be a number from 0.", param=name)
    return int(text)


def _num_chars(query: Mapping[str, str]) -> int:
    number = _number(query, "chars")
    if number is None:
        return USUAL_CHARS
    if not LEAST_CHARS <= number <= MOST_CHARS:
        raise BadRequestError(f"chars must be from {LEAST_CHARS} to {MOST_CHARS}.", param="chars")
    return number
