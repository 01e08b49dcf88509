"""`ConfigFields`: typed and range-checked reads of a model's configuration, which may hold
anything. Free of torch."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

from engine.errors import ModelLoadError

MAX_SIZE = 2**31 - 1
MAX_LAYERS = 10_000


@dataclass(frozen=True, slots=True)
class ConfigFields:
    """Every read names the field when it raises ModelLoadError; null counts as absent."""

    values: Mapping[str, Any]
    source: str = "config.json"
    """What errors call the place that the fields are from."""

    def size(
        self, name: str, default: int | None = None, *, least: int = 1, most: int = MAX_SIZE
    ) -> int:
        """An integer from `least` to `most`."""
        value = self._get(name, default)
        if not is_integer(value) or value < least:
            kind = "a positive integer" if least == 1 else f"an integer from {least} on"
            raise self._error(name, kind, value)
        if value > most:
            raise ModelLoadError(f"{self.source}: {name} can be {most} at most, not {value}.")
        return value

    def index(self, name: str, end: int) -> int | None:
        """An integer from 0 on and below `end`; None where the field is absent."""
        value = self.values.get(name)
        if value is None:
            return None
        if not is_integer(value) or not 0 <= value < end:
            raise self._error(name, f"an integer from 0 on and below {end}", value)
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Any finite number."""
        value = self._get(name, default)
        if not is_finite_number(value):
            raise self._error(name, "a finite number", value)
        return float(value)

    def positive(self, name: str, default: float | None = None) -> float:
        """A finite number above 0."""
        value = self._get(name, default)
        if not is_finite_number(value) or value <= 0:
            raise self._error(name, "a positive number", value)
        return float(value)

    def optional_positive(self, name: str) -> float | None:
        """A finite number above 0, or None where the field is absent."""
        return None if self.values.get(name) is None else self.positive(name)

    def positives(self, name: str) -> tuple[float, ...]:
        """A list of finite numbers above 0."""
        value = self._get(name, None)
        if not isinstance(value, list) or not all(
            is_finite_number(item) and item > 0 for item in value
        ):
            raise self._error(name, "a list of positive numbers", value)
        return tuple(float(item) for item in value)

    def integers(self, name: str) -> list[int]:
        """A list of integers from 0 on."""
        value = self._get(name, None)
        if not isinstance(value, list) or not all(is_integer(item) and item >= 0 for item in value):
            raise self._error(name, "a list of integers from 0 on", value)
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A string."""
        value = self._get(name, default)
        if not isinstance(value, str):
            raise self._error(name, "a text", value)
        return value

    def texts(self, name: str) -> list[str]:
        """A list of strings."""
        value = self._get(name, None)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._error(name, "a list of texts", value)
        return value

    def mapping(self, name: str) -> Mapping[str, Any]:
        """An object; absent is an empty one."""
        value = self._get(name, {})
        if not isinstance(value, Mapping):
            raise self._error(name, "an object", value)
        return value

    def flag(self, name: str) -> bool:
        """A truth value; absent is false."""
        return bool(self._get(name, False))

    def _get(self, name: str, default: object) -> object:
        value = self.values.get(name)
        if value is None:
            value = default
        if value is None:
            raise ModelLoadError(f"{self.source} lacks {name}.")
        return cast(object, value)

    def _error(self, name: str, wanted: str, value: object) -> ModelLoadError:
        shown = reprlib.repr(value)  # a list may be that of a whole vocabulary
        return ModelLoadError(f"{self.source}: {name} must be {wanted}, not {shown}.")


def is_integer(value: object) -> TypeGuard[int]:
    """Whether it is an integer; truth values are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_finite_number(value: object) -> TypeGuard[int | float]:
    """Whether it is a number that a float can be; truth values are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max  # false for a NaN
