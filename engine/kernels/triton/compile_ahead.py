"""`compile_ahead`: the kernels of a step, compiled side by side instead of one after the other."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import triton

logger = logging.getLogger(__name__)

_FAILURES = (RuntimeError, TypeError, ValueError, KeyError, AttributeError)


def compile_ahead(dry_run: Callable[[], None]) -> int:
    """Compiles the kernels that `dry_run` launches and that were not compiled yet, several at a
    time; returns how many.

    In the dry run these are not launched, so what they would have written must not be used as
    indices. A kernel that cannot be compiled this way is compiled when it is first launched."""
    wanted: dict[str, tuple[Any, str]] = {}

    def note(*, fn: Any, compile: dict[str, Any], **_rest: Any) -> bool:
        data = compile["specialization_data"]
        wanted[data] = (fn.jit_function, data)
        return True  # do not compile it, and so do not launch it

    hook = triton.knobs.runtime.jit_cache_hook
    triton.knobs.runtime.jit_cache_hook = note
    try:
        dry_run()
    finally:
        triton.knobs.runtime.jit_cache_hook = hook
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return sum(pool.map(_compile, wanted.values()))


def _compile(kernel: tuple[Any, str]) -> bool:
    function, data = kernel
    try:
        function.preload(data)
    except _FAILURES as error:
        logger.debug("%s was not compiled ahead: %r", function, error)
        return False
    return True
