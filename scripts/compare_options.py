"""The command line of `scripts/compare`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.bench_work import WORKS
from scripts.compare_llama_build import FILE_FORM
from scripts.compare_table import CONTENDERS, SERVED
from scripts.engine_settings import parse_settings
from scripts.machine_facts import machine_facts
from server.model_catalogue import CATALOGUE


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says. `rows`: names of works, and `SERVED`; `settings`:
    `FIELD=VALUE` for Lectern."""

    models: tuple[str, ...]
    rows: tuple[str, ...]
    contenders: tuple[str, ...]
    repeat: int
    quick: bool
    threads: int
    timeout_s: float
    forms: tuple[str, ...]
    settings: tuple[str, ...]
    cache: Path
    llama_bin: Path | None
    log: Path
    json: Path | None


def read_options(description: str, argv: Sequence[str] | None = None) -> Options:
    """The command line `argv`, without the program's name; None: this process's own."""
    parser = argparse.ArgumentParser(prog="scripts/compare", description=description)
    rows = (*WORKS, SERVED)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lectern-compare"
    add = parser.add_argument
    add(
        "--models",
        nargs="+",
        default=sorted(CATALOGUE, reverse=True),
        help="catalogue names or .gguf files",
    )
    add("--only", nargs="+", choices=rows, default=rows, help="rows of the table")
    add("--contenders", nargs="+", choices=CONTENDERS, default=CONTENDERS)
    add("--repeat", type=int, default=3, help="rounds")
    add("--quick", action="store_true", help="one round in small, to see that it runs")
    add(
        "--threads",
        type=int,
        default=machine_facts([])["physical_cores"],
        help="for llama.cpp and transformers; default: the physical cores",
    )
    add("--llama-bin", type=Path, help="a folder with llama.cpp's programs, already built")
    add(
        "--llama-forms",
        nargs="+",
        default=[FILE_FORM, "Q8_0"],
        help="weights for llama.cpp: as the file has them, and what llama-quantize makes of it",
    )
    add(
        "--set",
        nargs="+",
        default=[],
        metavar="FIELD=VALUE",
        dest="settings",
        help="options of Lectern that both its engine and its server know",
    )
    add("--timeout", type=float, default=900.0, help="seconds for one run of one contender")
    add("--cache-dir", type=Path, default=cache, help="for what is built and converted")
    add("--json", type=Path, help="also write everything that was measured here")
    add("--log", type=Path, help="what the child processes print; default: in the cache folder")
    given = parser.parse_args(argv)
    try:
        parse_settings(given.settings)
    except ValueError as error:
        parser.error(str(error))
    where: Path = given.cache_dir.absolute()
    return Options(
        models=tuple(given.models),
        rows=tuple(given.only),
        contenders=tuple(given.contenders),
        repeat=1 if given.quick else given.repeat,
        quick=given.quick,
        threads=given.threads,
        timeout_s=given.timeout,
        forms=tuple(given.llama_forms),
        settings=tuple(given.settings),
        cache=where,
        llama_bin=given.llama_bin,
        log=given.log or where / "compare.log",
        json=given.json,
    )
