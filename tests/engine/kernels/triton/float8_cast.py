"""A right cast to float8 for Triton's interpreter, whose own one loses the carry of a rounding
(124 becomes 64) and does not round subnormal numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton.language as tl
from triton.runtime import interpreter


@pytest.fixture
def exact_float8_cast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that are interpreted cast float32 to float8_e4m3fn as torch does."""
    original = interpreter._convert_float

    def convert(values: Any, source: Any, target: Any, rounding: Any) -> Any:
        if source != tl.float32 or target != tl.float8e4nv:
            return original(values, source, target, rounding)
        codes = torch.from_numpy(values.copy()).to(torch.float8_e4m3fn)
        return codes.view(torch.uint8).numpy().reshape(values.shape)

    monkeypatch.setattr(interpreter, "_convert_float", convert)
