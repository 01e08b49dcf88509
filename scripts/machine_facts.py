"""What a measurement says about the machine and the programs it was made with."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FAST_FLAGS = (
    "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16",
    "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "asimd", "asimddp", "i8mm", "bf16", "sve",
)  # fmt: skip
"""Of the flags in /proc/cpuinfo, those that decide which products are fast."""


def machine_facts(packages: Iterable[str] = ("torch", "transformers")) -> dict[str, Any]:
    """CPU, memory, load, versions and date, ready for JSON."""
    cpu = read_cpuinfo(_read("/proc/cpuinfo"))
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": cpu["model"] or platform.processor() or platform.machine(),
        "cpu_flags": [flag for flag in FAST_FLAGS if flag in cpu["flags"]],
        "logical_cpus": os.cpu_count(),
        "physical_cores": cpu["physical_cores"] or os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_average": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "commit": _commit(),
        **{name: _version(name) for name in packages},
    }


def read_cpuinfo(text: str) -> dict[str, Any]:
    """`model`, `flags` (a set) and `physical_cores` (0: not told) from the text of
    /proc/cpuinfo."""
    model, flags, cores = "", set[str](), set[tuple[str, str]]()
    for block in text.split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines())
        values = {name.strip(): value.strip() for name, _, value in pairs}
        model = model or values.get("model name", "")
        flags |= set((values.get("flags") or values.get("Features") or "").split())
        if "core id" in values:
            cores.add((values.get("physical id", "0"), values["core id"]))
    return {"model": model, "flags": flags, "physical_cores": len(cores)}


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError:
        return ""


def _commit() -> str | None:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
