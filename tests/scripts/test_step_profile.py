from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from engine.execution.runner import Sample, StepResult
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.scheduler_output import SchedulerOutput
from engine.types import RequestId
from scripts.gpu_work import GpuWork
from scripts.step_profile import (
    GpuTimes,
    KernelTime,
    StepProfiler,
    TimedRunner,
    as_text,
    kernel_times,
    short_name,
)
from tests.support.engines import make_core

LAUNCH_S, WAIT_S = 0.001, 0.002


@dataclass
class SlowStep:
    num_samples: int

    def wait(self) -> StepResult:
        time.sleep(WAIT_S)
        return StepResult([Sample((65,))] * self.num_samples)


class SlowRunner:
    """Implements `ModelRunner`: takes its time in known places."""

    depth = 1
    idle_left = 2

    def launch(self, plan: SchedulerOutput) -> SlowStep:
        time.sleep(LAUNCH_S)
        return SlowStep(sum(item.samples for item in plan.scheduled))

    def forget(self, request_id: RequestId) -> None:
        pass

    def idle(self) -> bool:
        self.idle_left -= 1
        return self.idle_left > 0


def test_the_host_is_timed_where_it_spends_its_time() -> None:
    schedule = Scheduler.schedule
    runner = TimedRunner(SlowRunner())
    core, _ = make_core(runner=runner)
    requests = GpuWork("w", "", "decode", 2, 9, 100).requests(1, 200)
    found = StepProfiler(core, runner).profile(requests, on_gpu=False)
    host = found["host"]
    assert isinstance(host, dict)
    assert host["launch"] >= 1000 * LAUNCH_S
    assert host["wait"] >= 1000 * WAIT_S
    assert 0 < host["schedule"] < 1000 * LAUNCH_S
    assert host["rest"] > 0
    parts = ("schedule", "launch", "wait", "rest")
    assert host["step"] == pytest.approx(sum(host[name] for name in parts))
    assert host["busy"] == pytest.approx(host["step"] - host["wait"])
    assert "step_profile.py" in as_text(found, "t")
    assert "GPU" not in as_text(found, "t")
    assert not core.has_work
    core.check()
    assert Scheduler.schedule is schedule


def test_the_clock_is_not_in_the_runners_way() -> None:
    runner = TimedRunner(SlowRunner())
    assert runner.depth == 1
    assert runner.idle_left == 2
    assert [runner.idle(), runner.idle()] == [True, False]


def test_kernels_are_added_up_and_overlaps_count_once() -> None:
    kernels = [
        ("copy", 25.0, 35.0),  # inside the product's time, and in no order
        ("product", 0.0, 10.0),
        ("product", 20.0, 40.0),
        ("norm", 50.0, 60.0),
        ("norm", 55.0, 80.0),
    ]
    assert kernel_times(kernels, num_steps=2, num_shown=2) == GpuTimes(
        step_ms=0.040,
        busy_share=60 / 80,
        kernels_per_step=2.5,
        kernels=[KernelTime("norm", 1.0, 17.5), KernelTime("product", 1.0, 15.0)],
    )


def test_a_trace_without_kernels_is_an_error() -> None:
    with pytest.raises(ValueError, match="no kernel"):
        kernel_times([], 1)


def test_names_are_cut() -> None:
    assert short_name("void at::native::fill<4>(int)") == "fill<4>(int)"
    assert short_name("k" * 50, width=10) == "k" * 9 + "…"
