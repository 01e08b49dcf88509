"""What works on a GPU gave, as a table: beside floors, targets, vLLM and `transformers`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scripts.engine_drive import Run
from scripts.gpu_work import REFERENCE, TARGETS, GpuWork


@dataclass(frozen=True, slots=True)
class Result:
    """What one work gave, in its unit; `decode_ms`: steps in which all sequences decoded."""

    work: GpuWork
    through: str
    figures: list[float]
    runs: list[Run]
    floor: float | None
    decode_ms: float | None
    decode_floor_ms: float | None

    @property
    def median(self) -> float:
        """Of the runs' figures."""
        return statistics.median(self.figures)

    @property
    def share(self) -> float | None:
        """Of the floor; 1 is the limit of the machine."""
        if self.floor is None:
            return None
        return self.median / self.floor if self.work.is_rate else self.floor / self.median


def as_table(
    results: Sequence[Result],
    starts_s: Sequence[float],
    shape: str | None,
    transformers: Mapping[str, float],
) -> str:
    """A Markdown table of the medians."""
    reference, targets = REFERENCE.get(shape or "", {}), TARGETS.get(shape or "", {})
    rows = [
        "| work | through | median | from – to | floor | of it | target | vLLM 0.24.0 | "
        "transformers |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]

    def row(title: str, *cells: str) -> None:
        rows.append("| " + " | ".join((title, *cells)) + " |")

    for result in results:
        work, name = result.work, result.work.name
        low, high = min(result.figures), max(result.figures)
        target, beside = targets.get(name), transformers.get(name)
        cached = sum(run.cached_tokens for run in result.runs) // len(result.runs)
        preempted = sum(run.num_preemptions for run in result.runs)
        notes = f", {cached:,} tokens cached" if cached and work.kind == "shared" else ""
        notes += f", {preempted} preemptions" if preempted else ""
        row(
            work.title + notes,
            result.through,
            work.shown(result.median),
            f"{work.shown(low)} – {work.shown(high)}",
            "" if result.floor is None else work.shown(result.floor),
            "" if result.share is None else f"{result.share:.0%}",
            "" if target is None else _judged(work, result.median, target),
            reference.get(name, ""),
            "" if beside is None else work.shown(beside),
        )
        if result.decode_ms is not None:
            floor = result.decode_floor_ms
            row(
                "… while all decode",
                result.through,
                f"{result.decode_ms:.3f}",
                "",
                "" if floor is None else f"{floor:.3f}",
                "" if floor is None else f"{floor / result.decode_ms:.0%}",
                *("", "", ""),
            )
    for index, start_s in enumerate(starts_s):
        which = "this process" if index == 0 else "a fresh process"
        target = targets.get("start")
        judged = "" if target is None else f"≤ {target:g} {'✓' if start_s <= target else '✗'}"
        row(f"start to ready, {which}: seconds", "", f"{start_s:.1f}", *("", "", ""), judged,
            reference.get("start", ""), "")  # fmt: skip
    return "\n".join(rows)


def _judged(work: GpuWork, value: float, target: float) -> str:
    is_reached = value >= target if work.is_rate else value <= target
    sign = "≥" if work.is_rate else "≤"
    return f"{sign} {target:,g} {'✓' if is_reached else '✗'}"
