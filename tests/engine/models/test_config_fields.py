"""Typed reads: what is taken, what stands for absent, and that errors name the field."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import ModelLoadError
from engine.models.config_fields import ConfigFields

FIELDS = ConfigFields({"n": 3, "x": 0.5, "none": None, "yes": True, "list": [1, 2.5]})


def test_reads() -> None:
    assert (FIELDS.size("n"), FIELDS.size("none", 7), FIELDS.size("absent", 8)) == (3, 7, 8)
    assert (FIELDS.number("n"), FIELDS.number("x")) == (3.0, 0.5)
    assert (FIELDS.optional_number("x"), FIELDS.optional_number("none")) == (0.5, None)
    assert FIELDS.numbers("list") == (1.0, 2.5)
    assert (FIELDS.flag("yes"), FIELDS.flag("none"), FIELDS.flag("absent")) == (True, False, False)


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (FIELDS.size, "x"),
        (FIELDS.size, "yes"),
        (FIELDS.size, "absent"),
        (FIELDS.number, "yes"),
        (FIELDS.number, "none"),
        (FIELDS.numbers, "x"),
        (ConfigFields({"bad": [1, "2"]}).numbers, "bad"),
    ],
)
def test_errors_name_the_field(read: Any, name: str) -> None:
    with pytest.raises(ModelLoadError, match=name):
        read(name)
