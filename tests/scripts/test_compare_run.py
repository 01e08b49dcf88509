from __future__ import annotations

from pathlib import Path

import pytest

from scripts.compare_options import Options, read_options
from scripts.compare_run import Comparison, Entry, kept_entries, lectern_command
from scripts.compare_table import Sample
from scripts.compare_worker import ChildError


async def _unused(_seed: int) -> dict[str, float]:
    raise AssertionError


def options(tmp_path: Path, *argv: str) -> Options:
    return read_options("text", ["--cache-dir", str(tmp_path), *argv])


def test_a_quick_run_has_one_round_whatever_is_asked(tmp_path: Path) -> None:
    assert options(tmp_path, "--quick", "--repeat", "5").repeat == 1
    assert options(tmp_path, "--repeat", "5").repeat == 5


def test_a_setting_that_is_none_of_the_engines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        options(tmp_path, "--set", "no_such_field=1")


def test_settings_of_the_engine_become_options_of_the_server(tmp_path: Path) -> None:
    given = options(tmp_path, "--set", "num_threads=2", "max_num_seqs=24")
    command = lectern_command(Path("m.gguf"), given)
    assert command[-4:] == ["--num-threads", "2", "--max-num-seqs", "24"]
    assert command[command.index("--data-dir") + 1] == str(tmp_path / "lectern-data")


def test_settings_far_behind_their_contenders_best_are_left() -> None:
    entries = [
        Entry("llama.cpp", "slow", _unused),
        Entry("llama.cpp", "near", _unused),
        Entry("llama.cpp", "best", _unused),
        Entry("Lectern", "", _unused),
    ]
    rates = {"slow": 79.0, "near": 81.0, "best": 100.0, "": 5.0}
    samples = [
        Sample("m", "prefill", e.contender, e.setting, 0, {"tokens_per_s": rates[e.setting]})
        for e in entries
    ]
    assert kept_entries(entries, samples, "m", "prefill") == entries[1:]


@pytest.mark.anyio
@pytest.mark.one_loop
async def test_rounds_change_direction_and_outlive_a_contender_that_fails(tmp_path: Path) -> None:
    order: list[str] = []

    def entry(contender: str, *, fails: bool = False) -> Entry:
        async def measure(_seed: int) -> dict[str, float]:
            order.append(contender)
            if fails:
                raise ChildError("it ended")
            return {"tokens_per_s": 1.0}

        return Entry(contender, "", measure)

    comparison = Comparison(options(tmp_path, "--repeat", "3"), None)
    entries = [entry("llama.cpp"), entry("transformers", fails=True), entry("Lectern")]
    await comparison.measure_row("m", "prefill", entries)
    assert order == [
        *("llama.cpp", "transformers", "Lectern"),
        *("Lectern", "llama.cpp"),
        *("llama.cpp", "Lectern"),
    ]
    assert [sample.round for sample in comparison.samples] == [0, 0, 1, 1, 2, 2]
    assert comparison.failures == ["m: prefill: transformers: it ended"]
