"""How tests talk with parser processes, and with Python in processes of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from server.app.materials.document import ParseLimits
from server.app.materials.errors import REASONS, MaterialError
from server.app.materials.parser_process import WORKER, ParserProcess

REPOSITORY = Path(__file__).parents[4]
GUIDE = b"# Guide\n\n## Deadline\n\nLab 3 is due on Friday.\n"


async def count_by_words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


@asynccontextmanager
async def parser(
    limits: ParseLimits | None = None, *, worker: Sequence[str] = WORKER, wall_s: float = 60.0
) -> AsyncIterator[ParserProcess]:
    """A parser that counts words for tokens."""
    process = ParserProcess(limits or ParseLimits(), count_by_words, wall_s=wall_s, worker=worker)
    try:
        yield process
    finally:
        await process.close()


async def refusal(process: ParserProcess, path: Path, name: str) -> MaterialError:
    with pytest.raises(MaterialError) as refused:
        await process.parse(path, name)
    assert refused.value.message_zh
    assert refused.value.code in REASONS
    return refused.value


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout
