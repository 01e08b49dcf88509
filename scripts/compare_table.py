"""What was measured, and how it is shown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scripts.bench_work import TITLES

LLAMA, TRANSFORMERS, LECTERN = CONTENDERS = ("llama.cpp", "transformers", "Lectern")
SERVED = "served"
LINES = (
    *((row, title, "tokens_per_s") for row, title in TITLES.items()),
    (SERVED, "chat requests of a class: output tok/s", "tokens_per_s"),
    (SERVED, "… time to first token, median, s", "ttft_p50_s"),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of a row of the table by one contender with one of its settings. Every row's
    `figures` hold `tokens_per_s`, and more of it is better."""

    model: str
    row: str
    contender: str
    setting: str
    round: int
    figures: Mapping[str, float]


def best_setting(samples: Sequence[Sample]) -> str | None:
    """The setting whose median of tokens per second is highest; None without samples."""
    medians = medians_by_setting(samples)
    return max(medians, key=lambda setting: medians[setting]) if medians else None


def medians_by_setting(samples: Sequence[Sample]) -> dict[str, float]:
    """Median tokens per second of each setting."""
    rates: dict[str, list[float]] = {}
    for sample in samples:
        rates.setdefault(sample.setting, []).append(sample.figures["tokens_per_s"])
    return {setting: statistics.median(values) for setting, values in rates.items()}


def comparison_table(samples: Sequence[Sample]) -> str:
    """A Markdown table for each model: medians of each contender at its best setting, with the
    lowest and highest run, and how many times as good Lectern is as llama.cpp."""
    models = list(dict.fromkeys(sample.model for sample in samples))
    return "\n\n".join(
        _model_table(model, [s for s in samples if s.model == model]) for model in models
    )


def settings_table(samples: Sequence[Sample]) -> str:
    """A Markdown table of all settings' medians: what "at its best" was chosen from."""
    lines = ["| model | work | contender | setting | tok/s |", "| --- | --- | --- | --- | --- |"]
    groups: dict[tuple[str, str, str], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.model, sample.row, sample.contender), []).append(sample)
    for names, group in groups.items():
        lines += [
            f"| {' | '.join((*names, setting))} | {_number(median)} |"
            for setting, median in medians_by_setting(group).items()
        ]
    return "\n".join(lines)


def machine_line(facts: Mapping[str, Any]) -> str:
    """One sentence about the machine and the programs."""
    programs = ", ".join(f"{name} {facts[name]}" for name in ("llama.cpp", "transformers", "torch"))
    return (
        f"{facts['cpu']}, {facts['physical_cores']} cores ({' '.join(facts['cpu_flags'])}), "
        f"{facts['memory_gib']} GiB; {programs}; Lectern {facts['commit']}; {facts['date'][:10]}."
    )


def _model_table(model: str, samples: Sequence[Sample]) -> str:
    lines = [
        f"| {model} | {LLAMA}, at its best | {TRANSFORMERS} | {LECTERN} | {LECTERN} : {LLAMA} |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row, title, figure in LINES:
        values = {
            name: _best_values([s for s in samples if (s.row, s.contender) == (row, name)], figure)
            for name in CONTENDERS
        }
        if any(values.values()):
            cells = [_cell(values[name]) for name in CONTENDERS]
            ratio = _ratio(values[LECTERN], values[LLAMA], is_time=figure == "ttft_p50_s")
            lines.append(f"| {title} | {' | '.join(cells)} | {ratio} |")
    return "\n".join(lines)


def _best_values(samples: Sequence[Sample], figure: str) -> list[float]:
    told = [sample for sample in samples if figure in sample.figures]
    best = best_setting(told)
    return [sample.figures[figure] for sample in told if sample.setting == best]


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "–"
    median = _number(statistics.median(values))
    if len(values) == 1:
        return median
    return f"{median} ({_number(min(values))}–{_number(max(values))})"


def _ratio(ours: Sequence[float], theirs: Sequence[float], *, is_time: bool) -> str:
    if not ours or not theirs:
        return "–"
    ratio = statistics.median(ours) / statistics.median(theirs)
    return f"{1 / ratio if is_time else ratio:.2f}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
