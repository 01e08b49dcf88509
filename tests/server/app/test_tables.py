"""Tables are spelled out row by row; everything else stays."""

from __future__ import annotations

import pytest

from server.app.materials.tables import spell_out_tables

FENCED = "```\n| a | b |\n| --- | --- |\n| 1 | 2 |\n```"


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        (
            "Parts:\n\n| Part | Weight |\n| --- | ---: |\n| Labs | 40% |\n| Exam | 60% |\n\nPass.",
            "Parts:\n\n- Part: Labs; Weight: 40%\n- Part: Exam; Weight: 60%\n\nPass.",
        ),
        ("a | b\n:-: | ---\n1 | 2\nafter", "- a: 1; b: 2\nafter"),
        ("| a |\n| - |\n| 1 |", "- a: 1"),
        ("| a | |\n| - | - |\n| | 2 |", "- 2"),
        ("| a | b |\n| - | - |\n| x \\| y | 2 |", "- a: x | y; b: 2"),
        ("| 部分 | 比例 |\n| --- | --- |\n| 期中考试 | 20% |", "- 部分: 期中考试; 比例: 20%"),
    ],
)
def test_each_row_names_its_columns(text: str, spelled: str) -> None:
    assert spell_out_tables(text) == spelled


@pytest.mark.parametrize(
    "text",
    ["", "no table", "a | b is not a table", "a | b\n--- | --- | ---\n1 | 2", "x\n---\ny", FENCED],
)
def test_what_is_no_table_stays(text: str) -> None:
    assert spell_out_tables(text) == text
