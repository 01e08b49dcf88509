from __future__ import annotations

import sys

import pytest

from engine.kv.block_allocator import BlockAllocator
from engine.scheduling.sequence import Sequence
from scripts import fuzz_engine


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["fuzz_engine.py", *arguments])
    return fuzz_engine.main()


def test_a_sound_engine_gives_a_summary(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--examples", "12", "--seed", "7") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("seeds 7…18")
    counts = dict(line.split()[:2] for line in lines[1:])
    assert counts["examples"] == "12"
    assert counts["failures"] == "0"
    for name in ("preemptions", "forks", "accepted", "cached_tokens", "aborts"):
        assert int(counts[name].replace(",", "")) > 0, name


def test_a_broken_engine_is_found_and_its_seed_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here a sequence that ends keeps its blocks."""

    def forget(self: BlockAllocator, sequence: Sequence) -> None:
        sequence.table.clear()
        sequence.num_computed_tokens = 0

    monkeypatch.setattr(BlockAllocator, "free", forget)
    assert run(monkeypatch, "--examples", "2", "--seed", "3") == 1
    assert "failures 2 [3, 4]" in capsys.readouterr().out
