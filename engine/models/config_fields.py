"""`ConfigFields`: typed reads of the JSON object in config.json. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from engine.errors import ModelLoadError


@dataclass(frozen=True, slots=True)
class ConfigFields:
    """Every read names the field when it raises ModelLoadError; null counts as absent."""

    values: Mapping[str, Any]

    def size(self, name: str, default: int | None = None) -> int:
        """A positive integer."""
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelLoadError(f"config.json: {name} must be a positive integer, not {value!r}.")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Any number."""
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ModelLoadError(f"config.json: {name} must be a number, not {value!r}.")
        return float(value)

    def optional_number(self, name: str) -> float | None:
        """A number, or None where the field is absent."""
        return None if self.values.get(name) is None else self.number(name)

    def numbers(self, name: str) -> tuple[float, ...]:
        """A list of numbers."""
        value = self._get(name, None)
        if not isinstance(value, list) or not all(
            isinstance(item, int | float) and not isinstance(item, bool) for item in value
        ):
            raise ModelLoadError(f"config.json: {name} must be a list of numbers, not {value!r}.")
        return tuple(float(item) for item in value)

    def flag(self, name: str) -> bool:
        """A truth value; absent is false."""
        return bool(self._get(name, False))

    def _get(self, name: str, default: object) -> object:
        value = self.values.get(name)
        if value is None:
            value = default
        if value is None:
            raise ModelLoadError(f"config.json lacks {name}.")
        return cast(object, value)
