"""Tiny models, written once a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.tiny_models import build_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`tiny_model(name)` is the folder of that model: not to be changed."""
    root = tmp_path_factory.mktemp("tiny-models")

    def get(name: str) -> Path:
        folder = root / name
        return folder if folder.exists() else build_tiny_model(folder, name)

    return get
