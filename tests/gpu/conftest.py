"""Every test gives back the GPU memory of the engines that it made."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """What is compared on the CPU is small, and several workers share its cores."""
    torch = pytest.importorskip("torch")
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture(autouse=True)
def freed_engines() -> Iterator[None]:
    """An engine is a web of references, whose graphs and caches would stay until Python looks."""
    yield
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()
