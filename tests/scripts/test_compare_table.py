from __future__ import annotations

from scripts.compare_table import Sample, best_setting, comparison_table, settings_table


def sample(
    contender: str, setting: str, rate: float, row: str = "prefill", **more: float
) -> Sample:
    return Sample("m", row, contender, setting, 0, {"tokens_per_s": rate, **more})


def test_the_best_setting_is_that_of_the_highest_median_not_of_the_luckiest_run() -> None:
    samples = [sample("llama.cpp", "a", rate) for rate in (10, 11, 99)]
    samples += [sample("llama.cpp", "b", rate) for rate in (20, 21, 22)]
    assert best_setting(samples) == "b"
    assert best_setting([]) is None


def test_a_row_shows_each_contender_at_its_best_and_the_ratio() -> None:
    samples = [sample("llama.cpp", "off", rate) for rate in (50.0, 40.0, 60.0)]
    samples += [sample("llama.cpp", "on", 45.0), sample("Lectern", "", 1250.0)]
    (row,) = comparison_table(samples).splitlines()[2:]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:] == ["50.0 (40.0–60.0)", "–", "1,250", "25.00"]


def test_less_time_counts_as_better() -> None:
    samples = [
        sample("llama.cpp", "off", 90.0, "served", ttft_p50_s=3.0),
        sample("Lectern", "", 180.0, "served", ttft_p50_s=1.5),
        sample("transformers", "offline batch", 86.0, "served"),
        sample("transformers", "serve", 40.0, "served", ttft_p50_s=3.5),
    ]
    rate, ttft = (line.split("|")[2:6] for line in comparison_table(samples).splitlines()[2:])
    assert [cell.strip() for cell in rate] == ["90.0", "86.0", "180", "2.00"]
    assert [cell.strip() for cell in ttft] == ["3.0", "3.5", "1.5", "2.00"]


def test_each_model_has_its_own_table() -> None:
    samples = [Sample(m, "prefill", "Lectern", "", 0, {"tokens_per_s": 1.0}) for m in ("x", "y")]
    first, second = comparison_table(samples).split("\n\n")
    assert first.startswith("| x |")
    assert second.startswith("| y |")


def test_all_settings_are_listed_with_their_medians() -> None:
    samples = [sample("llama.cpp", "off", rate) for rate in (1.0, 2.0, 9.0)]
    samples.append(sample("llama.cpp", "on", 4.0))
    assert settings_table(samples).splitlines()[2:] == [
        "| m | prefill | llama.cpp | off | 2.0 |",
        "| m | prefill | llama.cpp | on | 4.0 |",
    ]
