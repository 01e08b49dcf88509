"""Every test gives back the GPU memory of the engines that it made."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def freed_engines() -> Iterator[None]:
    """An engine is a web of references, whose graphs and caches would stay until Python looks."""
    yield
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()
