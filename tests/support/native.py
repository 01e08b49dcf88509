"""The native library for tests, which scripts/setup has built where there is a compiler."""

from __future__ import annotations

import ctypes
import os

import pytest

from engine.kernels.native.build import find_compiler
from engine.kernels.native.library import load_library


def require_library() -> ctypes.CDLL:
    """The library; skips the test where there cannot be one."""
    found = load_library()
    if found is None:
        # With a compiler there is no excuse: a broken build must not pass as a skipped test.
        assert find_compiler() is None, "run scripts/setup: the native kernels are not built"
        assert not os.environ.get("CI"), "install g++: nothing may be skipped here"
        pytest.skip("no C++ compiler, no native kernels")
    return found
