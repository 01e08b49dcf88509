"""A text read in the server's own process comes out as from a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from server.app.materials.document import ParseLimits
from server.app.materials.errors import MaterialError
from server.app.materials.parser_process import ParserProcess
from server.app.materials.plain_parser import PlainParser

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

SAMPLE = Path(__file__).parents[4] / "server" / "app" / "sample_course"


async def count_by_words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


@pytest.mark.parametrize("name", ["syllabus.en.md", "lab4.zh.md"])
async def test_both_ways_give_the_same(name: str) -> None:
    limits = ParseLimits(least_tokens=20, most_tokens=60)
    apart = ParserProcess(limits, count_by_words)
    path = SAMPLE / name
    theirs = await apart.parse(path, name)
    await apart.close()
    ours = await PlainParser(limits, count_by_words).parse(path, name)
    assert ours.passages == theirs.passages
    assert [(w.heading, w.body) for w in ours.words] == [(w.heading, w.body) for w in theirs.words]
    assert (ours.title, ours.text, ours.encoding) == (theirs.title, theirs.text, theirs.encoding)


async def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.md"
    path.write_bytes(b"%PDF-1.7")
    with pytest.raises(MaterialError) as raised:
        await PlainParser(ParseLimits(), count_by_words).parse(path, "x.md")
    assert raised.value.code == "not_this_format"


def test_only_small_texts_are_taken() -> None:
    assert PlainParser.takes("a.md", 1024 * 1024)
    assert not PlainParser.takes("a.md", 1024 * 1024 + 1)
    assert not PlainParser.takes("a.pdf", 10)
    assert not PlainParser.takes("a.docx", 10)
    assert not PlainParser.takes("a.xyz", 10)
