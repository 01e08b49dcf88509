"""llama.cpp's programs and weights: built and converted once, then kept in a cache folder.

The programs are built with this machine's own instructions, from the sources that the package
`llama-cpp-python` of the Python index carries: it is downloaded and unpacked, never installed or
imported.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.compare_worker import output_of
from scripts.machine_facts import machine_facts

VERSION = "0.3.36"
PACKAGE = f"llama-cpp-python=={VERSION}"
CMAKE_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DBUILD_SHARED_LIBS=OFF",
)
BENCH, BATCHED_BENCH, SERVER, QUANTIZE = TARGETS = (
    "llama-bench",
    "llama-batched-bench",
    "llama-server",
    "llama-quantize",
)
TIMEOUT_S = 3600.0
FILE_FORM = "file"
"""The weights as they are in the model's file."""


@dataclass(frozen=True, slots=True)
class LlamaSetting:
    """One way to run llama.cpp: a file of weights, and whether attention is fused."""

    model: Path
    form: str
    flash_attention: bool

    def __str__(self) -> str:
        return f"{self.form}, flash attention {'on' if self.flash_attention else 'off'}"

    @property
    def attention(self) -> str:
        """The value of `--flash-attn`."""
        return "on" if self.flash_attention else "off"


async def build(cache: Path, log: Path) -> Path:
    """The folder of the programs, built first where they are not there yet; what is printed
    meanwhile is appended to `log`. Raises ChildError.

    They suit only the CPU that they were built on, so its name and flags are part of the
    folder's."""
    facts = machine_facts([])
    cpu = hashlib.sha256(f"{facts['cpu']} {facts['cpu_flags']}".encode()).hexdigest()[:12]
    folder = cache / f"llama.cpp-{VERSION}-{cpu}"
    programs = folder / "build" / "bin"
    if all((programs / target).exists() for target in TARGETS):
        return programs
    missing = [name for name in ("cmake", "ninja", "c++") if shutil.which(name) is None]
    if missing:
        raise SystemExit(
            f"llama.cpp cannot be built here without {', '.join(missing)} "
            "(Debian: apt-get install cmake ninja-build g++); --llama-bin names a finished build."
        )
    print(f"Building llama.cpp in {folder}: once, for some 10 to 20 minutes.", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download")
    wanted = ("--no-deps", "--no-binary", ":all:", "--dest", str(folder), PACKAGE)
    await output_of([*pip, *wanted], TIMEOUT_S, log)
    source = _unpack(folder)
    target = folder / "build"
    configure = ["cmake", "-G", "Ninja", "-S", str(source), "-B", str(target), *CMAKE_OPTIONS]
    await output_of(configure, TIMEOUT_S, log)
    await output_of(["ninja", "-C", str(target), *TARGETS], TIMEOUT_S, log)
    return programs


async def llama_settings(
    model: Path, forms: Sequence[str], programs: Path, cache: Path, log: Path
) -> list[LlamaSetting]:
    """The ways to run the GGUF file `model`: as it is (`FILE_FORM`) and in further forms, which
    llama-quantize makes of it first, each with and without flash attention. Raises ChildError."""
    files = {}
    for form in forms:
        kept = model if form == FILE_FORM else _kept_form(model, form, cache)
        if not kept.exists():
            with _complete(kept) as part:
                command = (str(programs / QUANTIZE), "--allow-requantize", str(model), str(part))
                await output_of([*command, form], TIMEOUT_S, log)
        files[form] = kept
    pairs = itertools.product(files, (False, True))
    return [LlamaSetting(files[form], form, attention) for form, attention in pairs]


def _kept_form(model: Path, form: str, cache: Path) -> Path:
    """Where the `form` of this very file is kept."""
    known = f"{model.absolute()} {model.stat().st_mtime_ns}"
    digest = hashlib.sha256(known.encode()).hexdigest()[:12]
    return cache / f"{model.stem}-{digest}-{form}.gguf"


def _unpack(folder: Path) -> Path:
    """llama.cpp's sources out of the newest archive in `folder`."""
    archive = max(folder.glob("llama_cpp_python-*.tar.gz"), key=os.path.getmtime)
    with tarfile.open(archive) as archived:
        archived.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz") / "vendor" / "llama.cpp"


@contextmanager
def _complete(path: Path) -> Iterator[Path]:
    """A place beside `path` whose file takes its name when the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        part = Path(folder) / path.name
        yield part
        part.replace(path)
