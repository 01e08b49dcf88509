"""Measures the engine alone, in this process: prefill, decode alone and decode of many together.

    .venv/bin/python -m scripts.bench_engine smollm2-135m-instruct [--set num_threads=2] [--json F]

MODEL is a catalogue name (fetched before), a .gguf file or a folder. Prompts are random tokens
from a fixed seed, a new one each time, greedy, EOS ignored. Where decoding is measured, the
prompts are read before and come from the prefix cache, so that all begin at the same length.
Speculation is off, unless `--set` says otherwise, but for the answer that quotes its prompt. Each
figure is the median of `--repeat` runs after one that is not counted.

`shape:NAME` as MODEL, or `--gpu`, asks for the works of a GPU instead: see scripts/bench_gpu.py,
and `python -m scripts.bench_gpu --help` for its options.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.api import (
    Engine,
    EngineConfig,
    GenerationRequest,
    RequestId,
    SamplingParams,
    create_engine,
)
from scripts.bench_work import (
    TITLES,
    WORKS,
    Work,
    chosen_works,
    expected_quote,
    quote_prompt,
    quoted_share,
    random_prompts,
)
from scripts.compare_worker import serve
from scripts.engine_settings import engine_config, find_model, parse_settings
from scripts.machine_facts import machine_facts
from scripts.model_shapes import PREFIX

SPARE_TOKENS = 64
"""How many tokens the first sequence may be ahead of the last before it ends too early."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Tokens of one sequence that one engine step brought, and when they were read."""

    sequence: int
    step: int
    read_s: float
    num_tokens: int


@dataclass(frozen=True, slots=True)
class DecodeWindow:
    """The part of a run in which all sequences decode."""

    num_tokens: int
    num_steps: int
    seconds: float


def decode_window(deliveries: Sequence[Delivery], num_sequences: int) -> DecodeWindow:
    """What came after the step in which the last sequence got its first token, up to the last
    step that was read whole. Raises ValueError when a sequence never began, or when there are too
    few steps."""
    first_step: dict[int, int] = {}
    read_s: dict[int, float] = {}
    for delivery in deliveries:
        first_step.setdefault(delivery.sequence, delivery.step)
        read_s.setdefault(delivery.step, delivery.read_s)
    if len(first_step) < num_sequences:
        raise ValueError(f"only {len(first_step)} of {num_sequences} sequences began")
    start = max(first_step.values())
    steps = sorted(step for step in read_s if step >= start)
    if len(steps) < 3:
        raise ValueError("there are too few steps in which all sequences decode")
    end = steps[-2]  # of the last step perhaps not every reader was heard
    num_tokens = sum(d.num_tokens for d in deliveries if start < d.step <= end)
    return DecodeWindow(num_tokens, end - start, read_s[end] - read_s[start])


class EngineBench:
    """Asks one engine for work. Belongs to the loop that runs it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ids = itertools.count()

    async def measure(self, work: Work, seed: int) -> dict[str, float]:
        """`tokens_per_s` of one run; for `quote` also `tokens_per_step`, and `quoted`: the share
        of the answer that is the passage's own."""
        if work.kind == "quote":
            prompt = self._engine.tokenizer.encode(quote_prompt(), parse_special=True)
            prompts = [tuple(prompt)]
        else:
            prompts = self._random_prompts(work, seed)
        rate = await self._prefill(prompts)
        if work.kind == "prefill":
            return {"tokens_per_s": rate}
        window, text = await self._decode(prompts, work.num_tokens)
        figures = {"tokens_per_s": window.num_tokens / window.seconds}
        if work.kind == "quote":
            figures["tokens_per_step"] = window.num_tokens / window.num_steps
            figures["quoted"] = quoted_share(text, expected_quote())
        return figures

    def _random_prompts(self, work: Work, seed: int) -> list[tuple[int, ...]]:
        model, tokenizer = self._engine.model, self._engine.tokenizer
        barred = {*tokenizer.special_tokens.values(), *tokenizer.eos_token_ids}
        size = min(model.vocab_size, tokenizer.vocab_size)
        return random_prompts(seed, work.num_sequences, work.context, size, barred)

    async def _prefill(self, prompts: Sequence[tuple[int, ...]]) -> float:
        """Reads the prompts one after the other; their tokens per second, those that the prefix
        cache supplied left out."""
        num_tokens, began_s = 0, time.perf_counter()
        for prompt in prompts:
            async with self._engine.generate(self._request(prompt, 1)) as stream:
                async for output in stream:
                    if output.finish is not None:
                        usage = output.finish.usage
                        num_tokens += usage.prompt_tokens - usage.cached_tokens
        return num_tokens / (time.perf_counter() - began_s)

    async def _decode(
        self, prompts: Sequence[tuple[int, ...]], num_tokens: int
    ) -> tuple[DecodeWindow, str]:
        """Continues all prompts at once until the window holds `num_tokens` a sequence; the
        window, and the text of the first."""
        deliveries: list[Delivery] = []
        texts = [""] * len(prompts)
        begun: set[int] = set()
        num_counted = 0
        is_enough = asyncio.Event()

        async def read(index: int, prompt: tuple[int, ...]) -> None:
            nonlocal num_counted
            request = self._request(prompt, num_tokens + SPARE_TOKENS)
            async with self._engine.generate(request) as stream:
                async for output in stream:
                    step, count = self._engine.stats.num_steps, len(output.token_ids)
                    texts[index] += output.text
                    if count:
                        deliveries.append(Delivery(index, step, time.perf_counter(), count))
                        begun.add(index)
                    if len(begun) == len(prompts):
                        num_counted += count
                    # One step more than is counted begins the window, and one ends it.
                    if num_counted >= len(prompts) * (num_tokens + 2) or output.finish:
                        is_enough.set()

        async with asyncio.TaskGroup() as group:
            readers = [group.create_task(read(*pair)) for pair in enumerate(prompts)]
            await is_enough.wait()
            for reader in readers:
                reader.cancel()
        return decode_window(deliveries, len(prompts)), texts[0]

    def _request(self, prompt: tuple[int, ...], max_tokens: int) -> GenerationRequest:
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        return GenerationRequest(RequestId(f"bench-{next(self._ids)}"), prompt, params)


def serve_parent(engine: Engine, runner: asyncio.Runner) -> None:
    """Measures what another process asks for, until it asks no more."""
    bench = EngineBench(engine)
    facts = {"model": asdict(engine.model)}
    serve(facts, lambda work, seed: runner.run(bench.measure(work, seed)))


def measure_all(
    engine: Engine, runner: asyncio.Runner, works: Sequence[Work], repeat: int, seed: int
) -> dict[str, dict[str, Any]]:
    """Medians and single values of each work's figures, by its name."""
    bench = EngineBench(engine)
    results = {}
    for work in works:
        runs = [runner.run(bench.measure(work, seed + index)) for index in range(repeat + 1)][1:]
        results[work.name] = {
            name: {
                "median": statistics.median(run[name] for run in runs),
                "runs": [run[name] for run in runs],
            }
            for name in runs[0]
        }
    return results


@contextmanager
def started(config: EngineConfig) -> Iterator[tuple[Engine, asyncio.Runner]]:
    """An engine that can answer, and the loop that it belongs to."""
    engine = create_engine(config)
    with asyncio.Runner() as runner:
        runner.run(engine.start())
        try:
            yield engine, runner
        finally:
            runner.run(engine.shutdown(0))


def as_table(results: dict[str, dict[str, Any]]) -> str:
    """A Markdown table of the medians."""
    rows = ["| work | tok/s | from | to |", "| --- | --- | --- | --- |"]
    for name, figures in results.items():
        rate = figures["tokens_per_s"]
        shown = [rate["median"], min(rate["runs"]), max(rate["runs"])]
        rows.append(f"| {TITLES[name]} | " + " | ".join(f"{value:.1f}" for value in shown) + " |")
    return "\n".join(rows)


def is_for_gpu(arguments: Sequence[str]) -> bool:
    """Whether a command line asks for the works of a GPU."""
    return "--gpu" in arguments or any(text.startswith(PREFIX) for text in arguments)


def main() -> None:
    if is_for_gpu(sys.argv[1:]):
        from scripts.bench_gpu import main as measure_gpu

        measure_gpu(sys.argv[1:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="catalogue name, .gguf file or folder")
    parser.add_argument("--only", nargs="+", choices=WORKS, default=[], help="which work")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each that count")
    parser.add_argument("--seed", type=int, default=1, help="of the random prompts")
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    parser.add_argument("--set", nargs="+", default=[], metavar="FIELD=VALUE", dest="settings",
                        help="fields of EngineConfig")  # fmt: skip
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        settings = parse_settings(options.settings)
    except ValueError as error:
        parser.error(str(error))
    model = find_model(options.model)
    if options.worker:
        with started(engine_config(model, settings)) as (engine, runner):
            serve_parent(engine, runner)
        return
    works = chosen_works(options.only, short=options.quick)
    results: dict[str, dict[str, Any]] = {}
    for is_quote, group in itertools.groupby(works, lambda work: work.kind == "quote"):
        # Random tokens have nothing to guess, and greedy answers to them run in circles.
        given = settings if is_quote else {"speculation": "off", **settings}
        with started(engine_config(model, given)) as (engine, runner):
            results |= measure_all(engine, runner, list(group), options.repeat, options.seed)
    print(as_table(results))
    if options.json:
        figures = {
            "model": asdict(engine.model),
            "settings": options.settings,
            "machine": machine_facts(["torch"]),
            "works": [asdict(work) for work in works],
            "results": results,
        }
        options.json.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
