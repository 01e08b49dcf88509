"""Where the time of a decode step goes: kernels on the GPU, and Python on the host."""

from __future__ import annotations

import cProfile
import io
import pstats
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.core import EngineCore
from engine.execution.runner import LaunchedStep, ModelRunner, StepResult
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.scheduler_output import SchedulerOutput
from engine.types import FinishType, GenerationRequest, RequestId

NUM_HOST_STEPS = 40
NUM_TRACED_STEPS = 30
NUM_GPU_STEPS = 12
NUM_SHOWN = 25


class TimedRunner:
    """Implements `ModelRunner` around another one, and adds up what its calls take, in seconds.
    Owned by whoever owns that one."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self.launch_s = 0.0
        self.wait_s = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    @property
    def depth(self) -> int:
        """See `ModelRunner.depth`."""
        return self._runner.depth

    def launch(self, plan: SchedulerOutput) -> LaunchedStep:
        """See `ModelRunner.launch`."""
        began_s = time.perf_counter()
        step = self._runner.launch(plan)
        self.launch_s += time.perf_counter() - began_s
        return _TimedStep(self, step)

    def forget(self, request_id: RequestId) -> None:
        """See `ModelRunner.forget`."""
        self._runner.forget(request_id)

    def idle(self) -> bool:
        """See `ModelRunner.idle`."""
        return self._runner.idle()


@dataclass(frozen=True, slots=True)
class _TimedStep:
    owner: TimedRunner
    step: LaunchedStep

    def wait(self) -> StepResult:
        began_s = time.perf_counter()
        result = self.step.wait()
        self.owner.wait_s += time.perf_counter() - began_s
        return result


@dataclass(frozen=True, slots=True)
class HostTimes:
    """Milliseconds a step of the thread that runs the engine. `rest` is what commits tokens:
    text, stops, outputs. `busy` is all but waiting for the GPU."""

    step: float
    schedule: float
    launch: float
    wait: float
    rest: float
    busy: float


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One kernel's share of a step."""

    name: str
    calls_per_step: float
    us_per_step: float


@dataclass(frozen=True, slots=True)
class GpuTimes:
    """`busy_share`: of the time between the first kernel's start and the last one's end, how much
    some kernel ran in. `step_ms`: that time, divided by the steps."""

    step_ms: float
    busy_share: float
    kernels_per_step: float
    kernels: list[KernelTime] = field(default_factory=list)


def kernel_times(
    kernels: Iterable[tuple[str, float, float]], num_steps: int, num_shown: int = NUM_SHOWN
) -> GpuTimes:
    """From (name, start, end) of each, in microseconds, in any order. Raises ValueError when
    there are none."""
    ordered = sorted(kernels, key=lambda kernel: kernel[1])
    if not ordered:
        raise ValueError("the profiler saw no kernel")
    sums: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    busy_us, covered_us = 0.0, ordered[0][1]
    for name, start, end in ordered:
        sums[name][0] += 1
        sums[name][1] += end - start
        busy_us += max(0.0, end - max(start, covered_us))
        covered_us = max(covered_us, end)
    span_us = covered_us - ordered[0][1]
    longest = sorted(sums.items(), key=lambda item: -item[1][1])[:num_shown]
    return GpuTimes(
        step_ms=span_us / num_steps / 1000,
        busy_share=busy_us / span_us if span_us else 0.0,
        kernels_per_step=len(ordered) / num_steps,
        kernels=[
            KernelTime(name, count / num_steps, total / num_steps)
            for name, (count, total) in longest
        ],
    )


def short_name(name: str, width: int = 96) -> str:
    """A kernel's name without what all have in common, cut to `width`."""
    name = re.sub(r"^void |at::native::|\(anonymous namespace\)::|<unnamed>::|cutlass::", "", name)
    return name if len(name) <= width else name[: width - 1] + "…"


class StepProfiler:
    """Profiles decode steps of a core that is driven in this thread."""

    def __init__(self, core: EngineCore, runner: TimedRunner) -> None:
        self._core = core
        self._runner = runner

    def profile(
        self, requests: Sequence[GenerationRequest], *, on_gpu: bool
    ) -> dict[str, dict[str, Any] | str]:
        """`host`, `functions` and, with `on_gpu`, `gpu`, of steps in which all `requests` decode;
        their answers must be long enough. Ends them."""
        begun: set[RequestId] = set()
        for request in requests:
            self._core.add(request)
        while len(begun) < len(requests):
            begun |= {output.request_id for output in self._core.step() if output.token_ids}
        self._steps(8)
        found: dict[str, dict[str, Any] | str] = {"host": asdict(self._host_times())}
        if on_gpu:
            try:
                found["gpu"] = asdict(self._gpu_times())
            except (RuntimeError, ValueError) as error:  # a driver that lets nobody trace
                found["gpu_error"] = str(error)
        found["functions"] = self._functions()
        self._core.abort_all(FinishType.CANCELLED)
        while self._core.has_work:
            self._core.step()
        return found

    def _steps(self, count: int) -> None:
        for _ in range(count):
            self._core.step()

    def _host_times(self, num_steps: int = NUM_HOST_STEPS) -> HostTimes:
        runner = self._runner
        launch_s, wait_s, began_s = runner.launch_s, runner.wait_s, time.perf_counter()
        with _timed_method(Scheduler, "schedule") as schedule_s:
            self._steps(num_steps)
        step = time.perf_counter() - began_s
        launch, wait = runner.launch_s - launch_s, runner.wait_s - wait_s
        schedule = sum(schedule_s)
        rest = step - schedule - launch - wait
        times = (step, schedule, launch, wait, rest, step - wait)
        return HostTimes(*(1000 * value / num_steps for value in times))

    def _functions(self, num_steps: int = NUM_TRACED_STEPS, num_shown: int = 20) -> str:
        """The functions that take the most time of their own; tracing makes all of them slower."""
        tracer = cProfile.Profile()
        tracer.enable()
        self._steps(num_steps)
        tracer.disable()
        text = io.StringIO()
        stats = pstats.Stats(tracer, stream=text).strip_dirs().sort_stats("tottime")
        stats.print_stats(num_shown)
        lines = [line.rstrip() for line in text.getvalue().splitlines() if line.strip()]
        start = next(index for index, line in enumerate(lines) if "ncalls" in line)
        return "\n".join(lines[start:])

    def _gpu_times(self, num_steps: int = NUM_GPU_STEPS) -> GpuTimes:
        import torch
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]):
            self._steps(2)  # starting to trace takes its time, and is not what is asked for
            torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            self._steps(num_steps)
            torch.cuda.synchronize()
        return kernel_times(
            (
                (event.name, event.time_range.start, event.time_range.end)
                for event in profiler.events() or ()
                if event.device_type.name == "CUDA"
            ),
            num_steps,
        )


@contextmanager
def _timed_method(owner: type, name: str) -> Iterator[list[float]]:
    """The seconds of each call of a class's method inside the block."""
    original: Callable[..., Any] = getattr(owner, name)
    seconds: list[float] = []

    def timed(*args: Any, **options: Any) -> Any:
        began_s = time.perf_counter()
        try:
            return original(*args, **options)
        finally:
            seconds.append(time.perf_counter() - began_s)

    setattr(owner, name, timed)
    try:
        yield seconds
    finally:
        setattr(owner, name, original)


def as_text(found: dict[str, Any], title: str) -> str:
    """What `StepProfiler.profile` found, compactly."""
    host = found["host"]
    lines = [
        f"### {title}",
        "host, ms per step: " + ", ".join(f"{name} {host[name]:.3f}" for name in host),
    ]
    if "gpu" in found:
        gpu = found["gpu"]
        lines += [
            f"GPU: {gpu['step_ms']:.3f} ms per step, busy {gpu['busy_share']:.1%}, "
            f"{gpu['kernels_per_step']:.1f} kernels and copies a step",
            "    µs/step   calls/step  kernel",
        ]
        lines += [
            f"{kernel['us_per_step']:11.1f} {kernel['calls_per_step']:12.2f}  "
            f"{short_name(kernel['name'])}"
            for kernel in gpu["kernels"]
        ]
    if "gpu_error" in found:
        lines.append(f"GPU: {found['gpu_error']}")
    lines += [f"{NUM_TRACED_STEPS} steps under cProfile, which slows them:", found["functions"]]
    return "\n".join(lines)
