"""`PlainParser`: reads small texts in a thread of this process, for files that are trusted.

A course folder is the operator's own, and a process for each of its small files would make every
start seconds longer. What somebody uploads never comes here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from server.app.materials.document import ParseLimits
from server.app.materials.parser import MaterialSource, format_of, no_progress, parser_for
from server.app.materials.parser_process import CountTokens, OnProgress, ParsedMaterial
from server.app.passages import split
from server.store.analysis import index_words
from server.store.passage_index import IndexedWords
from server.store.passage_items import body_words

_MAX_BYTES = 1024 * 1024


class PlainParser:
    """Implements `parse` as `ParserProcess` does. Owned by the event loop."""

    def __init__(self, limits: ParseLimits, count_tokens: CountTokens) -> None:
        self._limits = limits
        self._count_tokens = count_tokens

    @staticmethod
    def takes(name: str, size: int) -> bool:
        """Whether a file is a text, and small enough."""
        known = format_of(name)
        return known is not None and known.is_text and size <= _MAX_BYTES

    async def parse(
        self,
        path: Path,
        name: str,
        *,
        encoding: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> ParsedMaterial:
        """The document in the file at `path`. Raises MaterialError."""
        loop = asyncio.get_running_loop()
        return await asyncio.to_thread(self._parse, loop, path, name, encoding)

    def _parse(
        self, loop: asyncio.AbstractEventLoop, path: Path, name: str, encoding: str | None
    ) -> ParsedMaterial:
        def measure(texts: Sequence[str]) -> list[int]:
            return asyncio.run_coroutine_threadsafe(self._count(texts), loop).result()

        data = path.read_bytes()
        source = MaterialSource(name, data, encoding)
        document = parser_for(name, data[:1024]).parse(source, self._limits, no_progress)
        passages = tuple(split(document, self._limits.passages, measure))
        title = " ".join(index_words(f"{document.title} {name}"))
        return ParsedMaterial(
            title=document.title,
            text=document.text,
            format=document.format,
            encoding=document.encoding,
            num_pages=document.num_pages,
            warnings=document.warnings,
            passages=passages,
            words=tuple(
                IndexedWords(
                    title,
                    " ".join(index_words(" ".join(passage.headings[1:]))),
                    " ".join(body_words(passage.text)),
                )
                for passage in passages
            ),
        )

    async def _count(self, texts: Sequence[str]) -> list[int]:
        return await self._count_tokens(texts)
