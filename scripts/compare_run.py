"""Measures llama.cpp, `transformers` and Lectern against each other, in one run on one machine.

    scripts/compare                                     the whole table, both catalogue models
    scripts/compare --models smollm2-135m-instruct --only prefill served
    scripts/compare --quick                             small, to see that everything runs

Each row of the table is measured in rounds, and in each round every contender does the same work,
one after the other, in changing order: what else the machine does meets all of them. llama.cpp
runs in several settings (weights as the file has them and as further forms, with and without
flash attention); those far behind its best one are given up after the first round. The plain
decode rows are measured with Lectern's speculation off, everything else as it is served. All
traffic is on loopback, and every process that is started here ends here.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from scripts.bench_work import Work, chosen_works
from scripts.compare_llama import SPECULATIONS, Llama
from scripts.compare_llama_build import LlamaSetting, build, llama_settings
from scripts.compare_options import Options, read_options
from scripts.compare_served import CLASS_LOAD, SMALL_CLASS_LOAD, Adapt, Load, run_load, server
from scripts.compare_table import (
    LECTERN,
    LLAMA,
    SERVED,
    TRANSFORMERS,
    Sample,
    comparison_table,
    machine_line,
    medians_by_setting,
    settings_table,
)
from scripts.compare_transformers import can_serve, serve_body, serve_command
from scripts.compare_worker import ChildError, Worker, worker
from scripts.engine_settings import fetch_models, find_model
from scripts.machine_facts import machine_facts
from server.config import option_name

QUOTE = "quote"
"""The work that Lectern does with speculation, in a worker of its own."""
KEPT_SHARE = 0.8
"""After the first round, settings with less than this part of the best one's speed are left."""
SMALL_MODEL_BYTES = 256 << 20
"""Larger files get the smaller class of requests."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One contender with one setting, ready to be measured. `measure` takes a seed."""

    contender: str
    setting: str
    measure: Callable[[int], Awaitable[dict[str, float]]]


class Comparison:
    """Collects the samples of all rows. Belongs to the loop that runs it."""

    def __init__(self, options: Options, llama: Llama | None) -> None:
        self.samples: list[Sample] = []
        self.failures: list[str] = []
        self.machine = machine_facts(["torch", "transformers", "accelerate", "gguf"])
        self._facts: dict[str, Any] = {}
        self._options = options
        self._llama = llama
        self._log = options.log

    async def run(self, name: str) -> None:
        """Measures every row for the model `name`."""
        options = self._options
        model = find_model(name)
        name = model.stem
        settings: list[LlamaSetting] = []
        if self._llama is not None:
            forms = options.forms[:1] if options.quick else options.forms
            settings = await llama_settings(
                model, forms, self._llama.folder, options.cache, self._log
            )
        works = [name for name in options.rows if name != SERVED]
        async with AsyncExitStack() as stack:
            workers = await self._start_workers(stack, model)
            for work in chosen_works(works, short=options.quick) if works else []:
                entries = self._work_entries(work, settings, workers)
                await self.measure_row(name, work.name, entries)
            if SERVED in options.rows:
                entries = self._load_entries(model, settings, workers.get(TRANSFORMERS))
                await self.measure_row(name, SERVED, entries)

    async def _start_workers(self, stack: AsyncExitStack, model: Path) -> dict[str, Worker]:
        """A process for `transformers` and two for Lectern, without and with speculation."""
        options = self._options
        converted = options.cache / "lectern-data" / "converted"
        lectern = ["scripts.bench_engine", "--worker", str(model)]
        lectern += ["--set", f"cache_dir={converted}"]
        commands: dict[str, list[str]] = {}
        if set(options.rows) - {QUOTE, SERVED}:
            commands[LECTERN] = [*lectern, "speculation=off", *options.settings]
        if QUOTE in options.rows:
            commands[QUOTE] = [*lectern, *options.settings]
        if set(options.rows) - {QUOTE}:
            command = ["scripts.compare_transformers", str(model)]
            command += ["--threads", str(options.threads), "--converted", str(converted)]
            commands[TRANSFORMERS] = command
        workers = {}
        for name, command in commands.items():
            if (LECTERN if name == QUOTE else name) not in options.contenders:
                continue
            started = worker(name, command, options.timeout_s, self._log)
            try:
                workers[name] = await stack.enter_async_context(started)
            except ChildError as error:
                self._fail(f"{model.stem}: {error}")
                continue
            self._facts[f"{model.stem}: {name}"] = workers[name].facts
        return workers

    def _work_entries(
        self, work: Work, settings: Sequence[LlamaSetting], workers: dict[str, Worker]
    ) -> list[Entry]:
        entries = []
        if self._llama is not None and work.kind == "quote":
            for setting, guesses in itertools.product(settings, SPECULATIONS):
                measure = partial(self._llama.measure_quote, setting, guesses, work)
                entries.append(Entry(LLAMA, f"{setting}, {guesses}", measure))
        elif self._llama is not None:
            for setting in settings:
                measure = partial(self._llama.measure, setting, work)
                entries.append(Entry(LLAMA, str(setting), measure))
        names = {LECTERN: QUOTE if work.kind == "quote" else LECTERN}
        if work.kind != "quote":
            names[TRANSFORMERS] = TRANSFORMERS
        entries += [
            Entry(contender, "", partial(workers[name].measure, work))
            for contender, name in names.items()
            if name in workers
        ]
        return entries

    def _load_entries(
        self, model: Path, settings: Sequence[LlamaSetting], offline: Worker | None
    ) -> list[Entry]:
        options = self._options
        load = SMALL_CLASS_LOAD if model.stat().st_size > SMALL_MODEL_BYTES else CLASS_LOAD
        load = load.shortened() if options.quick else load
        entries = []
        if self._llama is not None:
            for setting in settings:
                command = self._llama.server_command(
                    setting, num_slots=load.num_together, tokens_per_slot=load.tokens_per_slot
                )
                measure = partial(self._serve, command, "/health", load, dict)
                entries.append(Entry(LLAMA, str(setting), measure))
        if offline is not None:
            work = Work(SERVED, "offline", load.num_requests, load.max_prompt, load.num_tokens)
            entries.append(Entry(TRANSFORMERS, "offline batch", partial(offline.measure, work)))
            if can_serve():
                command = serve_command(offline.facts, load)
                adapt = partial(serve_body, offline.facts)
                measure = partial(self._serve, command, "/health", load, adapt)
                entries.append(Entry(TRANSFORMERS, "serve", measure))
            else:
                self._say("transformers serve is left out: it needs transformers[serving]")
        if LECTERN in options.contenders:
            measure = partial(self._serve, lectern_command(model, options), "/ready", load, dict)
            entries.append(Entry(LECTERN, "", measure))
        return entries

    async def _serve(
        self, command: Sequence[str], ready_path: str, load: Load, adapt: Adapt, seed: int
    ) -> dict[str, float]:
        timeout_s = self._options.timeout_s
        async with server(command, ready_path, timeout_s, self._log) as address:
            return await run_load(address, load, seed, timeout_s, adapt)

    async def measure_row(self, model: str, row: str, entries: Sequence[Entry]) -> None:
        """Runs every entry once a round; drops what fails, and settings that are far behind."""
        entries = list(entries)
        for index in range(self._options.repeat):
            # Every second round goes backwards: nobody always comes first on a warm machine.
            for entry in entries if index % 2 == 0 else entries[::-1]:
                try:
                    figures = await entry.measure(1000 * index + len(row))
                except ChildError as error:
                    told = f"{entry.contender} {entry.setting}".rstrip()
                    self._fail(f"{model}: {row}: {told}: {error}")
                    entries = [other for other in entries if other is not entry]
                    continue
                sample = Sample(model, row, entry.contender, entry.setting, index, figures)
                self.samples.append(sample)
                told = f"{entry.contender} {entry.setting}".rstrip()
                self._say(f"{model}: {row}: {told}: {figures['tokens_per_s']:.1f} tok/s")
            entries = kept_entries(entries, self.samples, model, row)
        self.keep()

    def keep(self) -> None:
        """Writes what there is to the file that was asked for, if one was."""
        if self._options.json is None:
            return
        found = {
            "machine": self.machine,
            "threads": self._options.threads,
            "settings": self._options.settings,
            "contenders": self._facts,
            "failures": self.failures,
            "samples": [asdict(sample) for sample in self.samples],
        }
        self._options.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")

    def _fail(self, sentence: str) -> None:
        self.failures.append(sentence)
        self._say(f"failed: {sentence}")

    def _say(self, sentence: str) -> None:
        print(sentence, file=sys.stderr, flush=True)


def kept_entries(
    entries: Sequence[Entry], samples: Sequence[Sample], model: str, row: str
) -> list[Entry]:
    """The entries that are worth another round: those near the best of their contender."""
    kept = []
    for entry in entries:
        wanted = (model, row, entry.contender)
        own = [s for s in samples if (s.model, s.row, s.contender) == wanted]
        medians = medians_by_setting(own)
        if medians[entry.setting] >= KEPT_SHARE * max(medians.values()):
            kept.append(entry)
    return kept


def lectern_command(model: Path, options: Options) -> list[str]:
    """The command that starts Lectern's server, without its port."""
    command = [sys.executable, "-m", "server", "--model", str(model)]
    command += ["--data-dir", str(options.cache / "lectern-data")]
    for setting in options.settings:
        name, _, value = setting.partition("=")
        command += [option_name(name), value]
    return command


async def compare(options: Options) -> Comparison:
    """Measures everything that was asked for. Raises ChildError where llama.cpp cannot be built
    or its weights not made."""
    llama = None
    if LLAMA in options.contenders:
        folder = options.llama_bin or await build(options.cache, options.log)
        llama = Llama(folder, threads=options.threads, timeout_s=options.timeout_s, log=options.log)
    comparison = Comparison(options, llama)
    comparison.machine["llama.cpp"] = await llama.version() if llama else None
    for name in options.models:
        await comparison.run(name)
    return comparison


def main() -> None:
    options = read_options(__doc__.splitlines()[0])
    # Ended either way, it ends its children.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options.cache.mkdir(parents=True, exist_ok=True)
    fetch_models(options.models)
    try:
        comparison = asyncio.run(compare(options))
    except ChildError as error:
        raise SystemExit(f"{error} (see {options.log})") from error
    print(machine_line(comparison.machine), end="\n\n")
    if options.quick:
        print("A quick run, everything in small: the numbers mean nothing.", end="\n\n")
    print(comparison_table(comparison.samples), end="\n\n")
    print(settings_table(comparison.samples))
    if comparison.failures:
        failed = "\n".join(comparison.failures)
        raise SystemExit(f"\nFailed (see also {options.log}):\n{failed}")


if __name__ == "__main__":
    main()
