"""`limit_process`: what a parser process may use, set by itself before it reads any file."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1
_NICENESS = 10
_MAX_FILE_BYTES = 128 * 1024 * 1024
_MAX_OPEN_FILES = 64
_CPU_GRACE_S = 2


def limit_process(*, memory_mb: int, cpu_s: int, parent: int) -> None:
    """Memory is address space in MiB; past `cpu_s` of processor time the process gets SIGXCPU.
    On Linux it dies with `parent`, the process that started it; when that is gone already, it
    ends at once. Owned by the process that calls it: limits cannot be raised again."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("The server is gone.")
    os.nice(_NICENESS)
    memory = memory_mb * 1024 * 1024
    for kind, soft, hard in (
        (resource.RLIMIT_AS, memory, memory),
        (resource.RLIMIT_CPU, cpu_s, cpu_s + _CPU_GRACE_S),
        (resource.RLIMIT_FSIZE, _MAX_FILE_BYTES, _MAX_FILE_BYTES),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_NOFILE, _MAX_OPEN_FILES, _MAX_OPEN_FILES),
    ):
        _, allowed = resource.getrlimit(kind)
        if allowed != resource.RLIM_INFINITY:
            soft, hard = min(soft, allowed), min(hard, allowed)
        resource.setrlimit(kind, (soft, hard))
