"""Builds the native kernels for this machine's processor: `python -m engine.kernels.native.build`.

The result lies beside the sources, named after a digest of them and of the processor's features:
what was built from other sources or for another processor is never loaded."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SOURCE_DIR = Path(__file__).parent
BUILT_DIR = SOURCE_DIR / "built"
FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fPIC",
    "-shared",
    "-pthread",
    # GCC warns of registers that its own intrinsics leave undefined on purpose.
    "-Wno-maybe-uninitialized",
)
_COMPILERS = ("g++", "c++")


def library_path() -> Path:
    """Where the library for these sources and this processor lies, if it was built."""
    digest = hashlib.sha256()
    for path in sorted([*SOURCE_DIR.glob("*.cpp"), *SOURCE_DIR.glob("*.h")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    digest.update("\0".join((*FLAGS, platform.machine(), _processor_features())).encode())
    return BUILT_DIR / f"liblectern-{digest.hexdigest()[:16]}.so"


def find_compiler() -> str | None:
    """`CXX`, or the first C++ compiler that is installed; perhaps with options behind it."""
    names = (os.environ["CXX"],) if os.environ.get("CXX") else _COMPILERS
    return next((name for name in names if shutil.which(shlex.split(name)[0])), None)


def is_sound(path: Path) -> bool:
    """Whether the library can be loaded. Asked in a process of its own: a damaged file can end
    the one that maps it."""
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).lectern_open"
    found = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True)
    return found.returncode == 0


def compile_library(compiler: str, target: Path, flags: Sequence[str] = FLAGS) -> None:
    """Compiles the sources to `target`. Raises CalledProcessError, with the compiler's words on
    stderr."""
    sources = [str(path) for path in sorted(SOURCE_DIR.glob("*.cpp"))]
    subprocess.run([*shlex.split(compiler), *flags, *sources, "-o", str(target)], check=True)


def build(compiler: str) -> Path:
    """Compiles the library for this processor unless it is there. Raises CalledProcessError."""
    target = library_path()
    if target.exists() and is_sound(target):
        return target
    BUILT_DIR.mkdir(exist_ok=True)
    for left in BUILT_DIR.glob("tmp*.so"):  # of a build that was killed
        left.unlink(missing_ok=True)
    with tempfile.NamedTemporaryFile(dir=BUILT_DIR, suffix=".so", delete=False) as made:
        made_path = Path(made.name)
    try:
        compile_library(compiler, made_path)
        if not is_sound(made_path):
            raise OSError(f"{compiler} made a library that cannot be loaded")
        made_path.chmod(0o644)
        made_path.replace(target)
    finally:
        made_path.unlink(missing_ok=True)
    for old in BUILT_DIR.glob("liblectern-*.so"):
        if old != target:
            old.unlink()
    return target


def _processor_features() -> str:
    """What `-march=native` depends on, as far as Linux tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def main() -> int:
    """Returns the exit status: 0 also where nothing can be built, since nothing needs it."""
    compiler = find_compiler()
    if compiler is None:
        sys.stderr.write(
            "No C++ compiler was found: models run on torch alone, several times slower on a CPU.\n"
        )
        return 0
    try:
        build(compiler)
    except (subprocess.CalledProcessError, OSError) as error:
        sys.stderr.write(
            f"The native kernels could not be built ({error}): models run on torch alone.\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
