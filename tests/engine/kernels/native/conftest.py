"""The native library and threads for it."""

from __future__ import annotations

import ctypes

import pytest

from engine.kernels.native.library import NativeEngine
from tests.support.native import require_library


@pytest.fixture(scope="session")
def library() -> ctypes.CDLL:
    return require_library()


@pytest.fixture(scope="session")
def engine(library: ctypes.CDLL) -> NativeEngine:
    return NativeEngine(library, num_threads=2)
