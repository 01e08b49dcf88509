"""`StartFigures`: what the start took, for the metrics."""

from __future__ import annotations

import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

_STATM = Path("/proc/self/statm")


@dataclass(frozen=True, slots=True)
class StartFigures:
    """Seconds and bytes."""

    load_s: float
    """How long the engine took to load the model and to be ready."""
    resident_bytes: int
    """What the process has in memory afterwards."""


def resident_bytes() -> int:
    """The process's resident memory; where the system does not tell, the most that it was."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
