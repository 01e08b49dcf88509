from __future__ import annotations

import pytest

from scripts.engine_drive import Run
from scripts.gpu_table import Result, as_table
from scripts.gpu_work import GPU_WORKS

RUN = Run(1.0, 10, 20, 6, 5, 2, 0.001)


def result(name: str, figures: list[float], floor: float | None = None) -> Result:
    return Result(GPU_WORKS[name], "async", figures, [RUN] * len(figures), floor, None, None)


def test_the_share_of_the_floor_is_less_than_one_for_times_and_for_rates() -> None:
    assert result("decode-1", [4.0, 1.0, 2.0], 0.5).share == 0.25
    assert result("mix", [4.0, 1.0, 2.0], 8.0).share == 0.25
    assert result("mix", [4.0]).share is None


@pytest.mark.parametrize(
    ("name", "figure", "judged"),
    [
        ("decode-1", 1.2, "≤ 1.2 ✓"),
        ("decode-1", 1.21, "≤ 1.2 ✗"),
        ("mix", 28_000.0, "≥ 28,000 ✓"),
        ("mix", 27_999.0, "≥ 28,000 ✗"),
    ],
)
def test_targets_are_judged_in_the_right_direction(name: str, figure: float, judged: str) -> None:
    table = as_table([result(name, [figure])], [], "qwen3-0.6b", {})
    assert f"| {judged} |" in table


def test_a_row_has_everything_beside_it() -> None:
    decode = Result(GPU_WORKS["decode-32"], "core", [3.0, 1.5, 2.0], [RUN] * 3, 1.0, 1.6, 0.8)
    table = as_table([decode], [14.0, 16.04], "qwen3-0.6b", {"decode-32": 39.0}).splitlines()
    assert len({row.count("|") for row in table}) == 1
    assert table[2] == (
        "| decode, batch 32, 128 → 256 tokens: ms per step, 6 preemptions | core | 2.000 | "
        "1.500 – 3.000 | 1.000 | 50% | ≤ 1.8 ✗ | 3.4 | 39.000 |"
    )
    assert table[3].startswith("| … while all decode | core | 1.600 |  | 0.800 | 50% |")
    assert "this process: seconds |  | 14.0 |" in table[4]
    assert "≤ 15 ✓" in table[4]
    assert "a fresh process: seconds |  | 16.0 |" in table[5]
    assert "≤ 15 ✗" in table[5]


def test_cached_tokens_are_told_of_the_work_that_is_about_them() -> None:
    rows = as_table([result("shared", [1.0]), result("mix", [1.0])], [], None, {}).splitlines()
    assert "6 tokens cached" in rows[2]
    assert "cached" not in rows[3]
