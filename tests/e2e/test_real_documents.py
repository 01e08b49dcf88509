"""Documents that others made are read as people would read them, and placed where they print it.

`scripts/real_documents.py` reads all of them; these are small and of every kind. scripts/test
fetches them before the tests, which need no network."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from scripts.real_document_list import DOCUMENTS, SMALL
from scripts.real_document_store import DEFAULT_FOLDER, DocumentStore
from server.app.materials.document import ParseLimits
from server.app.materials.parser_process import ParserProcess
from server.app.passages import estimate

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop, pytest.mark.real_documents]

MAX_SECONDS_PER_100_PAGES = 10.0


async def count(texts: Sequence[str]) -> list[int]:
    return estimate(texts)


@pytest.fixture(scope="module")
def store() -> DocumentStore:
    return DocumentStore(DEFAULT_FOLDER)


@pytest.mark.parametrize("name", SMALL)
async def test_a_document_of_a_package_is_read(name: str, store: DocumentStore) -> None:
    document = next(document for document in DOCUMENTS if document.name == name)
    path = store.kept(document)
    if path is None:
        reason = "not fetched: scripts/real_documents.py --fetch"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    parser = ParserProcess(ParseLimits(), count)
    began = time.perf_counter()
    parsed = await parser.parse(path, name)
    seconds = time.perf_counter() - began
    await parser.close()
    assert document.faults(parsed) == []
    assert parsed.warnings == ()
    assert seconds < MAX_SECONDS_PER_100_PAGES * max(1.0, (parsed.num_pages or 0) / 100)
    sizes = sorted(passage.num_tokens for passage in parsed.passages)
    assert sizes[-1] <= 1.05 * ParseLimits().most_tokens
    if len(sizes) > 20:
        assert sizes[len(sizes) // 10] >= ParseLimits().least_tokens


def test_the_list_names_at_least_fifteen_documents_of_every_kind() -> None:
    kinds = {Path(document.name).suffix for document in DOCUMENTS}
    assert len(DOCUMENTS) >= 15
    assert kinds >= {".pdf", ".html", ".md", ".txt", ".docx", ".pptx"}
    assert all(document.phrases for document in DOCUMENTS)
    assert set(SMALL) <= {document.name for document in DOCUMENTS}
