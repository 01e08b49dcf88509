"""Code and formulas in a Markdown text."""

from __future__ import annotations

import pytest

from server.app.literals import literals


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`a[1]` and ``b`c``.", ["`a[1]`", "``b`c``"]),
        ("a ` b `` c", []),
        ("$x_1$, costs $5\nand $6", ["$x_1$"]),
        (r"\(a[1]\) and \[b\]", [r"\(a[1]\)", r"[block] \[b\]"]),
        ("$$\na[1]\n$$ and $$", ["[block] $$\na[1]\n$$"]),
        ("Code:\n```py\na[1]\n```\nEnd `x`.", ["[block] ```py\na[1]\n```", "`x`"]),
        ("```\nnever closed [1]", ["[block] ```\nnever closed [1]"]),
        ("~~~\n```\n~~~\n`x`", ["[block] ~~~\n```\n~~~", "`x`"]),
        (r"open \( and \[ and $$ and `, then `x`", ["`, then `"]),
        ("1. a\n   ```\n   b\n   ```\n2. c", ["[block]    ```\n   b\n   ```"]),
    ],
)
def test_what_is_taken_as_it_stands(text: str, expected: list[str]) -> None:
    found = [
        f"[block] {text[one.start : one.end]}" if one.is_block else text[one.start : one.end]
        for one in literals(text)
    ]
    assert found == expected


@pytest.mark.parametrize("sign", [r"\(", r"\[", "$$ ", "\n", "` `` ", "$", "\n```x\n~~~"])
@pytest.mark.timeout(20)
def test_opening_marks_without_end_are_read_in_no_time(sign: str) -> None:
    assert len(list(literals(sign * 100_000))) <= 100_000
