"""`compile_ahead`: the kernels of a step, compiled side by side instead of one after the other."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import triton
from triton.runtime.jit import JITFunction

logger = logging.getLogger(__name__)

_FAILURES = (RuntimeError, TypeError, ValueError, KeyError, AttributeError)


def compile_ahead(dry_run: Callable[[], None]) -> int:
    """Compiles the kernels that `dry_run` launches and that were not compiled yet, several at a
    time; returns how many.

    No kernel is launched in the dry run, so what one would have written must not be used as an
    index by anything else. A kernel that cannot be compiled this way is compiled when it is first
    launched."""
    wanted: dict[str, tuple[Any, str]] = {}

    def note(*, fn: Any, compile: dict[str, Any], **_rest: Any) -> bool:
        data = compile["specialization_data"]
        wanted[data] = (fn.jit_function, data)
        return True  # do not compile it, and so do not launch it

    with _launching_nothing(note):
        dry_run()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return sum(pool.map(_compile, wanted.values()))


@contextmanager
def _launching_nothing(note: Callable[..., bool]) -> Iterator[None]:
    """Kernels that were compiled are left out, of others `note` is told."""
    hook, run = triton.knobs.runtime.jit_cache_hook, JITFunction.run

    def look(self: Any, *args: Any, warmup: bool, **options: Any) -> Any:
        return run(self, *args, warmup=True, **options)

    triton.knobs.runtime.jit_cache_hook = note
    JITFunction.run = look
    try:
        yield
    finally:
        JITFunction.run = run
        triton.knobs.runtime.jit_cache_hook = hook


def _compile(kernel: tuple[Any, str]) -> bool:
    function, data = kernel
    try:
        function.preload(data)
    except _FAILURES as error:
        logger.debug("%s was not compiled ahead: %r", function, error)
        return False
    return True
