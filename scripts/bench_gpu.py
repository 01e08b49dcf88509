"""Measures the engine alone on a GPU, each figure beside its floor, vLLM's and `transformers`'.

    python -m scripts.bench_engine shape:qwen3-0.6b [--through core async] [--profile] [--json F]

MODEL is `shape:NAME` (random weights, a tokenizer of bytes) or a folder, then with `--gpu`. Each
work's requests arrive at once; a figure is the median of `--repeat` runs after one that is not
counted. Speculation is off, unless `--set` says otherwise. `--quick` runs anywhere, in small.
Nothing but the engine's own needs is imported, and `transformers` where it is asked for.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.api import EngineConfig, GenerationRequest
from engine.assembly import Assembly, assemble_model
from engine.async_engine import AsyncEngine
from engine.execution.runner import ModelRunner
from engine.models.config import read_model_config
from scripts.engine_drive import AsyncDrive, CoreDrive, Drive, DriveError, Run
from scripts.engine_settings import parse_settings
from scripts.gpu_ceilings import Ceilings, measure_ceilings
from scripts.gpu_children import (
    fresh_start_s,
    num_compiled_kernels,
    process_age_s,
    start_only,
    transformers_figures,
)
from scripts.gpu_floors import Floors, Formats, floor_of
from scripts.gpu_table import Result, as_table
from scripts.gpu_work import GPU_WORKS, GpuWork, chosen_gpu_works
from scripts.machine_facts import machine_facts
from scripts.model_shapes import SHAPES, ModelShape, shape_name, write_shape
from scripts.step_profile import StepProfiler, TimedRunner, as_text

SWITCH_INTERVAL_S = 0.0002  # the server's own


class Bench:
    """One engine, assembled once, and driven in one or both ways. Belongs to the main thread."""

    def __init__(self, config: EngineConfig, floors: Floors | None = None) -> None:
        self._config = config
        self._timed: TimedRunner | None = None
        self.assembly: Assembly = assemble_model(config, None, wrap_runner=self._wrap)
        self.floors = floors

    @property
    def timed(self) -> TimedRunner:
        """The runner, with a clock around it."""
        assert self._timed is not None
        return self._timed

    @property
    def vocab_size(self) -> int:
        """Of the model, whose every token may be in a prompt."""
        return self.assembly.model.vocab_size

    def _wrap(self, runner: ModelRunner) -> ModelRunner:
        self._timed = TimedRunner(runner)
        return self._timed

    def finish_start(self) -> None:
        """What the engine puts off until it is idle."""
        while self.timed.idle():
            pass

    @contextmanager
    def drive(self, through: str) -> Iterator[Drive]:
        """The engine behind one way to drive it: `core` or `async`, which must come last."""
        if through == "core":
            yield CoreDrive(self.assembly.core)
            return
        engine = AsyncEngine(self._config, lambda: self.assembly)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(engine.start())
            try:
                yield AsyncDrive(engine, runner)
            finally:
                runner.run(engine.shutdown(0))

    def measure(
        self, drive: Drive, work: GpuWork, through: str, *, repeat: int, seed: int, end_s: float
    ) -> Result:
        """Runs `work` once in practice and up to `repeat` times, at least once: no further run
        begins after `end_s`. A mix is practised in small. Raises DriveError."""
        model = self.assembly.model
        longest = max(sum(lengths) for lengths in work.lengths())
        if longest > min(model.max_model_len, model.kv_cache_tokens):
            # The core leaves it to its callers to check that.
            raise DriveError(
                f"it needs {longest} tokens; max_model_len is {model.max_model_len}, and the KV "
                f"cache holds {model.kv_cache_tokens}"
            )
        practice = work.shortened() if work.kind == "mix" else work
        drive.run(practice.requests(seed, self.vocab_size))
        runs: list[Run] = []
        for index in range(1, repeat + 1):
            requests = work.requests(seed + 1000 * index, self.vocab_size)
            runs.append(drive.run(requests))
            if time.perf_counter() > end_s:
                break
        steps = [run.decode_step_s for run in runs if run.decode_step_s is not None]
        is_decode = work.kind == "decode"
        floors = self.floors
        return Result(
            work,
            through,
            [work.figure(run.seconds) for run in runs],
            runs,
            None if floors is None else floor_of(floors, work),
            1000 * statistics.median(steps) if is_decode and steps else None,
            1000 * floors.decode_only_s(work) if is_decode and floors is not None else None,
        )

    def profile(self, batch: int, *, on_gpu: bool, quick: bool) -> dict[str, Any]:
        """Decode steps of `batch` sequences in detail, through the core."""
        work = GpuWork(f"profile-{batch}", "", "decode", batch, 16 if quick else 128, 200)
        requests: Sequence[GenerationRequest] = work.requests(7, self.vocab_size)
        profiler = StepProfiler(self.assembly.core, self.timed)
        return dict(profiler.profile(requests, on_gpu=on_gpu))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """The server's kind of loop, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


@contextmanager
def as_served() -> Iterator[None]:
    """The interpreter as the server sets it once it is up."""
    interval_s = sys.getswitchinterval()
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(interval_s)


def gpu_memory() -> dict[str, float]:
    """GiB of the GPU: in all, taken by all programs, and what this one reserved at most."""
    import torch

    if not torch.cuda.is_available():
        return {}
    free, total = torch.cuda.mem_get_info()
    reserved = torch.cuda.max_memory_reserved()
    gib = {"total": total, "taken": total - free, "reserved_by_torch": reserved}
    return {name: round(value / 2**30, 2) for name, value in gib.items()}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="shape:NAME (" + ", ".join(SHAPES) + ") or a folder")
    parser.add_argument("--gpu", action="store_true", help="these works, for a folder too")
    parser.add_argument("--only", nargs="+", choices=GPU_WORKS, default=[], help="which work")
    parser.add_argument("--through", nargs="+", choices=("core", "async"), default=["async"],
                        help="the core alone, or the engine as a server has it")  # fmt: skip
    parser.add_argument("--repeat", type=int, default=3, help="runs of each that count")
    parser.add_argument("--seed", type=int, default=1, help="of the prompts")
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    parser.add_argument("--set", nargs="+", default=[], metavar="FIELD=VALUE", dest="settings",
                        help="fields of EngineConfig")  # fmt: skip
    parser.add_argument("--profile", nargs="*", type=int, metavar="BATCH",
                        help="decode steps in detail; without a number: 256")  # fmt: skip
    parser.add_argument("--starts", type=int, default=0, help="fresh processes to time, too")
    parser.add_argument("--with-transformers", action="store_true", help="measure it, too")
    parser.add_argument("--time-limit", type=float, default=140.0, metavar="S",
                        help="after so long no further repeats begin")  # fmt: skip
    parser.add_argument("--json", type=Path, help="also write everything here")
    parser.add_argument("--start-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        options.parsed = parse_settings(options.settings)
    except ValueError as error:
        parser.error(str(error))
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(sys.argv[1:] if arguments is None else arguments)
    shape = shape_name(options.model)
    with tempfile.TemporaryDirectory() as temporary:
        if shape is None:
            folder, given = Path(options.model).absolute(), {"speculation": "off"}
        else:
            folder = write_shape(SHAPES[shape], Path(temporary))
            given = {"speculation": "off", "load_format": "dummy"}
        settings = {**given, **options.parsed}
        if options.start_only:
            start_only(EngineConfig(folder, **settings))
        else:
            _measure(options, folder, shape, settings)


def _measure(
    options: argparse.Namespace, folder: Path, shape: str | None, settings: dict[str, Any]
) -> None:
    content, results, ceilings = _measure_engine(options, folder, settings)
    _free_memory()
    again = [options.model, *(["--set", *options.settings] if options.settings else [])]
    starts_s = [content["start_s"], *(fresh_start_s(again) for _ in range(options.starts))]
    beside = transformers_figures(folder, quick=options.quick) if options.with_transformers else {}
    if options.json:
        content |= {
            "settings": settings,
            "machine": machine_facts(["torch", "triton", "transformers"]),
            "starts_s": starts_s,
            "transformers": beside,
            "results": [
                {**asdict(result), "median": result.median, "share": result.share}
                for result in results
            ],
        }
        options.json.write_text(json.dumps(content, indent=1, default=str) + "\n", "utf-8")
    info = content["model"]
    print(
        f"\n{options.model} {settings}, {info['dtype']}, KV cache of "
        f"{info['kv_cache_tokens']:,} tokens, {ceilings.device}: "
        f"{ceilings.bytes_per_s / 1e12:.2f} TB/s, {ceilings.flops_per_s / 1e12:.0f} TFLOP/s\n"
    )
    print(as_table(results, starts_s, None if options.quick else shape, beside))


def _measure_engine(
    options: argparse.Namespace, folder: Path, settings: dict[str, Any]
) -> tuple[dict[str, Any], list[Result], Ceilings]:
    """Starts an engine in this process and asks it for everything; it is gone afterwards."""
    import torch

    beginning_s = time.perf_counter()
    age_s = process_age_s() or 0.0
    num_compiled = num_compiled_kernels()
    bench = Bench(EngineConfig(folder, **settings))
    ready_s = time.perf_counter()
    model = bench.assembly.model
    start_s = age_s + ready_s - beginning_s
    print(
        f"ready after {start_s:.1f} s, with {num_compiled} kernels compiled before; {model}",
        flush=True,
    )
    bench.finish_start()
    put_off_s = time.perf_counter() - ready_s
    device = torch.device(model.device)
    is_cuda = device.type == "cuda"
    ceilings = measure_ceilings(device, quick=not is_cuda)
    bench.floors = _floors(folder, settings, model.dtype, ceilings)
    memory = gpu_memory()
    print(f"what was put off took {put_off_s:.1f} s; GPU memory, GiB: {memory}", flush=True)
    profiles: dict[int, dict[str, Any]] = {}
    if options.profile is not None:
        for batch in options.profile or [4 if options.quick else 256]:
            number = min(batch, bench.assembly.config.max_num_seqs)
            found = bench.profile(number, on_gpu=is_cuda, quick=options.quick)
            profiles[number] = found
            print(as_text(found, f"decode steps of {number} sequences"), flush=True)
    content = {
        "model": asdict(model),
        "start_s": start_s,
        "put_off_s": put_off_s,
        "num_compiled_before": num_compiled,
        "ceilings": asdict(ceilings),
        "memory_gib": memory,
        "profiles": profiles,
    }
    results: list[Result] = []
    end_s = beginning_s + options.time_limit
    works = chosen_gpu_works(options.only, short=options.quick)
    with as_served():
        # The core belongs to this thread, and so comes first. Both have prompts of their own: the
        # prefix cache still has the others'.
        for index, through in enumerate(sorted(set(options.through), reverse=True)):
            seed = options.seed + 100_000 * index
            results += _results(bench, through, works, options.repeat, seed, end_s)
    return content | {"memory_at_end_gib": gpu_memory()}, results, ceilings


def _results(
    bench: Bench, through: str, works: Sequence[GpuWork], repeat: int, seed: int, end_s: float
) -> Iterator[Result]:
    """Of all works that can be measured: what was measured before a failure is worth having."""
    with bench.drive(through) as drive:
        for work in works:
            try:
                result = bench.measure(drive, work, through, repeat=repeat, seed=seed, end_s=end_s)
            except DriveError as error:
                print(f"{work.name} through {through} failed: {error}", flush=True)
            except RuntimeError:  # the device's: it will do nothing more
                print(f"{work.name} through {through} failed:", flush=True)
                traceback.print_exc()
                return
            else:
                shown = work.shown(result.median)
                print(f"{work.name} through {through}: {shown} {work.unit}", flush=True)
                yield result


def _floors(
    folder: Path, settings: dict[str, Any], dtype: str, ceilings: Ceilings
) -> Floors | None:
    path = folder / "config.json"
    if not path.exists():
        return None
    shape = ModelShape.of(read_model_config(json.loads(path.read_text("utf-8"))))
    return None if shape is None else Floors(shape, ceilings, Formats.of(settings, dtype))


def _free_memory() -> None:
    """Gives the memory of an engine that is gone back, for processes that are measured next."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        print(f"GPU memory without the engine, GiB: {gpu_memory()}", flush=True)


if __name__ == "__main__":
    main()
