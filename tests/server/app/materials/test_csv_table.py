"""CSV: one table whose passages know their rows."""

from __future__ import annotations

import pytest

from server.app.materials.csv_table import CsvParser
from server.app.materials.document import Document, ParseLimits, PassageLimits
from server.app.materials.errors import MaterialError
from server.app.materials.parser import MaterialSource, no_progress
from server.app.passages import split


def parse(data: bytes, name: str = "plan.csv") -> Document:
    return CsvParser().parse(MaterialSource(name, data), ParseLimits(), no_progress)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found_out(delimiter: str) -> None:
    rows = [["week", "topic"], ["1", "tokens, bytes"], ["2", "attention"]]
    lines = [delimiter.join(f'"{cell}"' for cell in row) for row in rows]
    (part,) = parse("\r\n".join(lines).encode()).parts
    assert part.blocks[0].whole == (
        "| week | topic |\n| --- | --- |\n| 1 | tokens, bytes |\n| 2 | attention |"
    )


def test_chinese_in_gbk_with_lines_in_cells() -> None:
    document = parse('周次,主题\n1,"词元\n与解码"\n'.encode("gbk"))
    assert document.encoding == "gb18030"
    assert document.parts[0].blocks[0].text == "| 1 | 词元 与解码 |"


def test_numbers_in_the_first_row_are_no_head() -> None:
    (block,) = parse(b"1,2\n3,4\n").parts[0].blocks
    assert block.whole == "|  |  |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |"
    assert block.place.fields() == {"row": 1, "to_row": 2}


def test_each_passage_has_the_head_and_says_its_rows() -> None:
    lines = "\n".join(f"{n},student {n}" for n in range(2, 102))
    passages = split(parse(f"id,name\n{lines}\n".encode()), PassageLimits(50, 100))
    assert len(passages) > 3
    for passage in passages:
        rows = passage.text.split("\n")
        assert rows[0] == "| id | name |"
        assert passage.place.row == int(rows[2].split()[1])
        assert passage.place.to_row == int(rows[-1].split()[1])


def test_an_endless_cell_is_refused() -> None:
    with pytest.raises(MaterialError) as refused:
        parse(b'a,b\n"' + b"x" * 200_000)
    assert refused.value.code == "not_this_format"
