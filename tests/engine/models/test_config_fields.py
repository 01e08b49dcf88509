"""Typed reads: what is taken, what stands for absent, and that errors name the field."""

from __future__ import annotations

import math
from typing import Any

import pytest

from engine.errors import ModelLoadError
from engine.models.config_fields import ConfigFields

FIELDS = ConfigFields(
    {"n": 3, "x": 0.5, "none": None, "yes": True, "list": [1, 2.5], "texts": ["a"]}
)


def test_reads() -> None:
    assert (FIELDS.size("n"), FIELDS.size("none", 7), FIELDS.size("absent", 8)) == (3, 7, 8)
    assert (FIELDS.number("n"), FIELDS.number("x")) == (3.0, 0.5)
    assert (FIELDS.positive("x"), FIELDS.positive("absent", 2)) == (0.5, 2.0)
    assert (FIELDS.optional_positive("x"), FIELDS.optional_positive("none")) == (0.5, None)
    assert FIELDS.positives("list") == (1.0, 2.5)
    assert (FIELDS.index("n", 4), FIELDS.index("none", 4)) == (3, None)
    assert ConfigFields({"zero": 0}).size("zero", least=0) == 0
    assert ConfigFields({"ids": [0, 2]}).integers("ids") == [0, 2]
    assert (FIELDS.texts("texts"), FIELDS.text("absent", "b")) == (["a"], "b")
    assert FIELDS.mapping("none") == {}
    assert ConfigFields({"map": {"a": 1}}).mapping("map") == {"a": 1}
    assert (FIELDS.flag("yes"), FIELDS.flag("none"), FIELDS.flag("absent")) == (True, False, False)


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (FIELDS.size, "x"),
        (FIELDS.size, "yes"),
        (FIELDS.size, "absent"),
        (FIELDS.number, "yes"),
        (FIELDS.number, "none"),
        (FIELDS.positives, "x"),
        (FIELDS.integers, "list"),
        (FIELDS.text, "n"),
        (FIELDS.texts, "list"),
        (FIELDS.mapping, "list"),
        (ConfigFields({"bad": [1, "2"]}).positives, "bad"),
        (ConfigFields({"bad": [1, 0]}).positives, "bad"),
        (ConfigFields({"bad": [1, -1]}).integers, "bad"),
        (ConfigFields({"bad": 0}).size, "bad"),
        (ConfigFields({"bad": 2**31}).size, "bad"),
    ],
)
def test_errors_name_the_field(read: Any, name: str) -> None:
    with pytest.raises(ModelLoadError, match=name):
        read(name)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, "1", True])
def test_numbers_are_finite(value: object) -> None:
    for read in (ConfigFields({"bad": value}).number, ConfigFields({"bad": value}).positive):
        with pytest.raises(ModelLoadError, match="bad"):
            read("bad")


@pytest.mark.parametrize("value", [0, -1.0])
def test_positive_numbers_are_above_0(value: float) -> None:
    with pytest.raises(ModelLoadError, match=f"bad must be a positive number, not {value}"):
        ConfigFields({"bad": value}).positive("bad")


@pytest.mark.parametrize("value", [-1, 3, 1.0, True, "1"])
def test_an_index_lies_within(value: object) -> None:
    with pytest.raises(ModelLoadError, match="bad must be an integer from 0 on and below 3"):
        ConfigFields({"bad": value}).index("bad", 3)


def test_errors_name_the_source_and_are_short() -> None:
    with pytest.raises(ModelLoadError, match=r"^m\.gguf: n must be a text") as caught:
        ConfigFields({"n": ["token"] * 100_000}, "m.gguf").text("n")
    assert len(str(caught.value)) < 150
