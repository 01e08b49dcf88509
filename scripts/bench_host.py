"""What a step costs in Python: the engine around a model that takes no time at all.

    .venv/bin/python scripts/bench_host.py [--sequences 256] [--steps 200] [--tokenizer FOLDER]

Every sequence decodes, two steps are in flight, and the answers are given tokens. Printed are
microseconds per step, the median of all, in all and by part. `core` is `EngineCore.step` alone;
`churn` the same under load, where answers end all the time and as many requests wait as run.
`readers` is the whole `AsyncEngine` with a reader task for each sequence, on a device whose steps
take `--device-ms`: how long a step is in the end, and how long the device waits for the next one.
What a runner does to launch a step is not in it, but for `flatten`, the layout that the CPU's
runners make of a plan."""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from engine.assembly import Assembly  # noqa: E402
from engine.async_engine import AsyncEngine  # noqa: E402
from engine.config import EngineConfig  # noqa: E402
from engine.core import EngineCore  # noqa: E402
from engine.execution.flat_step import flatten  # noqa: E402
from engine.execution.runner import DoneStep, Sample, StepResult  # noqa: E402
from engine.kv.block_allocator import BlockAllocator  # noqa: E402
from engine.scheduling.scheduler import SchedulerLimits  # noqa: E402
from engine.scheduling.scheduler_output import SchedulerOutput  # noqa: E402
from engine.text.byte_tokenizer import ByteTokenizer  # noqa: E402
from engine.text.protocol import Tokenizer  # noqa: E402
from engine.text.tokenizer import HFTokenizer  # noqa: E402
from engine.types import (  # noqa: E402
    GenerationRequest,
    ModelInfo,
    RequestId,
    SamplingParams,
)

NUM_WARM = 20
"""Steps that are not counted."""
SWITCH_INTERVAL_S = 0.0002  # the server's own


class InstantRunner:
    """Implements `ModelRunner`: has each step's tokens ready before it is launched."""

    depth = 2

    def __init__(self, token_ids: list[int]) -> None:
        self._samples = [Sample((token_id,)) for token_id in token_ids]
        self.last_plan = SchedulerOutput()
        self.num_steps = 0

    def launch(self, plan: SchedulerOutput) -> DoneStep:
        """Any tokens, as many as the plan asks for."""
        self.last_plan = plan
        self.num_steps += 1
        count, start = len(plan.scheduled), self.num_steps % 7
        if len(self._samples) < count + 7:
            self._samples *= 2 + count // len(self._samples)
        samples = self._samples[start : start + count]
        if plan.num_prefill_tokens:
            samples = samples[: sum(item.samples for item in plan.scheduled)]
        return DoneStep(StepResult(samples))

    def forget(self, request_id: RequestId) -> None:
        """Nothing is kept."""

    def idle(self) -> bool:
        """Nothing is put off."""
        return False


@dataclass(frozen=True, slots=True)
class TimedStep:
    """A `LaunchedStep` that is done at a given time."""

    result: StepResult
    done_s: float

    def wait(self) -> StepResult:
        """Sleeps as long as the device would compute, without the interpreter's lock."""
        time.sleep(max(0.0, self.done_s - time.perf_counter()))
        return self.result


class TimedRunner(InstantRunner):
    """An `InstantRunner` of a device that computes one step after the other, `step_s` each."""

    def __init__(self, token_ids: list[int], step_s: float) -> None:
        super().__init__(token_ids)
        self._step_s = step_s
        self._done_s = 0.0
        self.waits_s: list[float] = []
        """For each step that only decodes, how long the device had nothing to do before it."""

    def launch(self, plan: SchedulerOutput) -> TimedStep:  # type: ignore[override]
        """Begins when the step before is done."""
        now_s = time.perf_counter()
        if not plan.num_prefill_tokens:
            self.waits_s.append(max(0.0, now_s - self._done_s))
        self._done_s = max(now_s, self._done_s) + self._step_s
        return TimedStep(super().launch(plan).result, self._done_s)


@dataclass
class Parts:
    """Seconds of each step by part: a part is a method that is timed while `watch` lasts."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @contextmanager
    def watch(self, name: str, owner: Any, method: str) -> Iterator[None]:
        plain: Callable[..., Any] = getattr(owner, method)

        def timed(*args: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return plain(*args, **options)
            finally:
                self.seconds[name].append(time.perf_counter() - start)

        setattr(owner, method, timed)
        try:
            yield
        finally:
            delattr(owner, method)

    def median_us(self, name: str) -> float:
        return 1e6 * statistics.median(self.seconds[name])


def make_core(
    runner: InstantRunner, tokenizer: Tokenizer, num_sequences: int, num_steps: int
) -> EngineCore:
    """A core in which `num_sequences` of 128 + `num_steps` tokens fit."""
    block_size = 64
    return EngineCore(
        runner,
        tokenizer,
        BlockAllocator((num_sequences + 1) * (3 + num_steps // block_size), block_size),
        SchedulerLimits(max_num_seqs=num_sequences, max_num_batched_tokens=8192),
        max_model_len=8192,
        clock=time.monotonic,
    )


def make_request(index: int, num_prompt: int, num_tokens: int) -> GenerationRequest:
    """Greedy, with nothing that could end it early."""
    prompt = tuple((index * 31 + position) % 97 for position in range(num_prompt))
    params = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=num_tokens)
    return GenerationRequest(RequestId(f"request-{index}"), prompt, params)


def bench_core(
    tokenizer: Tokenizer, token_ids: list[int], num_sequences: int, num_steps: int, num_prompt: int
) -> dict[str, float]:
    """`EngineCore.step` alone, in all and by part."""
    runner = InstantRunner(token_ids)
    core = make_core(runner, tokenizer, num_sequences, num_steps + 2 * NUM_WARM)
    for index in range(num_sequences):
        core.add(make_request(index, num_prompt, num_steps + 3 * NUM_WARM))
    while core._scheduler.num_waiting or core.stats().generated_tokens < num_sequences * NUM_WARM:
        core.step()
    parts = Parts()
    gc.collect()
    gc.freeze()
    for _ in range(num_steps // 2):
        start = time.perf_counter()
        core.step()
        parts.seconds["step"].append(time.perf_counter() - start)
    with (
        parts.watch("schedule", core._scheduler, "schedule"),
        parts.watch("complete", core, "_complete"),
    ):
        for _ in range(num_steps // 2):
            core.step()
    for _ in range(20):
        start = time.perf_counter()
        flatten(runner.last_plan, 64)
        parts.seconds["flatten"].append(time.perf_counter() - start)
    gc.unfreeze()
    assert len(runner.last_plan.scheduled) == num_sequences
    return {name: parts.median_us(name) for name in parts.seconds}


def bench_churn(
    tokenizer: Tokenizer, token_ids: list[int], num_sequences: int, num_steps: int, num_prompt: int
) -> dict[str, float]:
    """`EngineCore.step` where all seats are taken, each answer that ends is followed by a new
    request, and users have several each."""
    random = Random(0)
    core = make_core(InstantRunner(token_ids), tokenizer, num_sequences, 256)
    num_sent = 0

    def send() -> None:
        nonlocal num_sent
        num_sent += 1
        prompt = [random.randrange(97) for _ in range(random.randrange(1, 2 * num_prompt))]
        num_tokens = random.randrange(20, 200)
        params = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=num_tokens)
        core.add(
            GenerationRequest(
                RequestId(f"r{num_sent}"), tuple(prompt), params, user=f"u{num_sent % 40}"
            )
        )

    for _ in range(2 * num_sequences):
        send()
    parts = Parts()
    gc.collect()
    gc.freeze()
    with (
        parts.watch("schedule", core._scheduler, "schedule"),
        parts.watch("complete", core, "_complete"),
    ):
        for _ in range(num_steps):
            start = time.perf_counter()
            outputs = core.step()
            parts.seconds["step"].append(time.perf_counter() - start)
            for _ in range(sum(output.finish is not None for output in outputs)):
                send()
    gc.unfreeze()
    return {name: parts.median_us(name) for name in ("step", "schedule", "complete")}


async def bench_readers(
    tokenizer: Tokenizer,
    token_ids: list[int],
    num_sequences: int,
    num_steps: int,
    num_prompt: int,
    step_s: float,
) -> dict[str, float]:
    """The whole engine with a reader for each sequence; microseconds of a step, of the loop's
    call that delivers what it brought, and of the device's waiting for the next step."""
    runner = TimedRunner(token_ids, step_s)
    core = make_core(runner, tokenizer, num_sequences, num_steps)
    config = EngineConfig(model=Path("none"), max_num_seqs=num_sequences).resolved_for("cuda")
    model = ModelInfo("none", 8192, 1 << 20, "none", "none", "none", 1 << 20)
    engine = AsyncEngine(config, lambda: Assembly(core, tokenizer, model, config))
    parts = Parts()
    num_read = 0

    async def read(index: int) -> None:
        nonlocal num_read
        async with engine.generate(make_request(index, num_prompt, num_steps)) as stream:
            async for _ in stream:
                num_read += 1

    # The engine's thread takes what delivers when it starts.
    with parts.watch("deliver", engine, "_deliver"):
        await engine.start()
        gc.collect()
        gc.freeze()
        start = time.perf_counter()
        await asyncio.gather(*(read(index) for index in range(num_sequences)))
        seconds = time.perf_counter() - start
    await engine.shutdown(1.0)
    gc.unfreeze()
    return {
        "step": 1e6 * seconds / runner.num_steps,
        "deliver": parts.median_us("deliver"),
        "device waits": 1e6 * statistics.mean(runner.waits_s),
        "at most": 1e6 * max(runner.waits_s[1:]),
        "deltas read, of 100": 100 * num_read / (num_sequences * num_steps),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 256])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--prompt", type=int, default=128, help="tokens of each prompt")
    parser.add_argument("--tokenizer", type=Path, help="a folder with a tokenizer.json")
    parser.add_argument("--device-ms", type=float, default=4.0, help="what a step takes there")
    parser.add_argument("--switch-interval", type=float, default=SWITCH_INTERVAL_S)
    args = parser.parse_args()
    tokenizers: dict[str, tuple[Tokenizer, list[int]]] = {
        "bytes": (ByteTokenizer(), list(b"The scheduler gives each step a budget of tokens. "))
    }
    if args.tokenizer is not None:
        own = HFTokenizer.from_folder(args.tokenizer)
        text = "The scheduler gives each step a budget of tokens; 调度器给每一步一个预算。"
        tokenizers["folder"] = (own, own.encode(text))
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(args.switch_interval)
    try:
        bench(tokenizers, args)
    finally:
        sys.setswitchinterval(interval_s)
    return 0


def bench(tokenizers: dict[str, tuple[Tokenizer, list[int]]], args: argparse.Namespace) -> None:
    """All that is asked for, a line for each."""
    for name, (tokenizer, token_ids) in tokenizers.items():
        for count in args.sequences:
            sizes = (count, args.steps, args.prompt)
            found = bench_core(tokenizer, token_ids, *sizes)
            print(f"{name}, {count} sequences, core:", _as_text(found))
            found = bench_churn(tokenizer, token_ids, *sizes)
            print(f"{name}, {count} sequences, churn:", _as_text(found))
            found = asyncio.run(
                bench_readers(tokenizer, token_ids, *sizes, step_s=args.device_ms / 1000)
            )
            print(f"{name}, {count} sequences, readers:", _as_text(found))


def _as_text(microseconds: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:,.0f}" for name, value in microseconds.items())


if __name__ == "__main__":
    sys.exit(main())
