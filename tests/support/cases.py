"""The cases of tests/cases: faults seen in other servers, as inputs and what must come of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CASES = Path(__file__).parents[1] / "cases"


def case(name: str) -> dict[str, Any]:
    """A case by its id."""
    found: dict[str, Any] = json.loads((CASES / f"{name}.json").read_text("utf-8"))
    return found
