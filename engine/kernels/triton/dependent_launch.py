"""Programmatic dependent launch: a kernel starts while the one in front of it still runs, and waits
for that one's end before it touches memory. What is won is the time that a launch takes, about a
microsecond where kernels of a captured graph are short."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

_MIN_CAPABILITY = (9, 0)


@cache
def launch_options(pdl: bool, device: torch.device) -> dict[str, Any]:
    """Keywords for a kernel with a constant PDL: as a dependent launch where `pdl` asks for it and
    `device` has it (compute capability 9.0), else as any other. Not to be changed."""
    if not pdl or device.type != "cuda":
        return {"PDL": False}
    if torch.cuda.get_device_capability(device) < _MIN_CAPABILITY:
        return {"PDL": False}
    return {"PDL": True, "launch_pdl": True}


@triton.jit
def wait_for_launcher() -> None:
    """Lets the kernel behind start, and waits for the end of the one in front. Every program has to
    come here before it reads or writes anything: the kernel behind relies on that this one ends
    only after the one in front of it."""
    gdc_launch_dependents()
    gdc_wait()
