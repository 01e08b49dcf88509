from __future__ import annotations

import sys

import pytest

from engine.scheduling.scheduler_output import SchedulerOutput
from scripts import bench_host


def test_it_tells_what_a_step_costs_by_part(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interval_s = sys.getswitchinterval()
    arguments = ["--sequences", "2", "--steps", "8", "--device-ms", "0.1", "--prompt", "5"]
    monkeypatch.setattr(sys, "argv", ["bench_host.py", *arguments])
    assert bench_host.main() == 0
    assert sys.getswitchinterval() == interval_s
    core, churn, readers = capsys.readouterr().out.splitlines()
    assert core.startswith("bytes, 2 sequences, core: step ")
    assert [part.split()[0] for part in core.split(": ")[1].split(", ")] == [
        "step",
        "schedule",
        "complete",
        "flatten",
    ]
    assert churn.startswith("bytes, 2 sequences, churn: step ")
    assert readers.startswith("bytes, 2 sequences, readers: step ")


def test_a_timed_device_computes_one_step_after_the_other() -> None:
    runner = bench_host.TimedRunner([97], 0.5)
    first, second = (runner.launch(SchedulerOutput()) for _ in range(2))
    assert second.done_s == pytest.approx(first.done_s + 0.5)
    assert runner.waits_s[1] == 0.0, "the second was there before the first was done"
