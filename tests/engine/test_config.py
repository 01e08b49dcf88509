from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from engine.config import DEVICE_DEFAULTS, DeviceType, EngineConfig, ResolvedConfig
from engine.errors import InvalidRequestError

MODEL = Path("model")


@pytest.mark.parametrize(
    ("device", "expected"),
    [("cpu", (16, 32, 512, 0.25, 1.0, 32)), ("cuda", (64, 256, 8192, 0.05, 0.25, 256))],
)
def test_what_was_left_open_depends_on_the_device(
    device: DeviceType, expected: tuple[float, ...]
) -> None:
    config = EngineConfig(MODEL, served_name="m").resolved_for(device)
    assert tuple(getattr(config, name) for name in DEVICE_DEFAULTS) == expected
    assert (config.served_name, config.model) == ("m", MODEL)
    assert config.max_requests == expected[1] + 256


def test_what_was_given_stays() -> None:
    given = dict.fromkeys(DEVICE_DEFAULTS, 7) | {"max_num_batched_tokens": 8}
    config = EngineConfig(MODEL, **given).resolved_for("cuda")  # type: ignore[arg-type]
    assert {name: getattr(config, name) for name in given} == given
    assert config.resolved_for("cpu") == config


def test_only_what_depends_on_the_device_changes() -> None:
    config = EngineConfig(MODEL, num_threads=3, is_fallback=True, max_queued_requests=0)
    resolved = config.resolved_for("cuda")
    for field in dataclasses.fields(EngineConfig):
        if field.name not in DEVICE_DEFAULTS:
            assert getattr(resolved, field.name) == getattr(config, field.name), field.name


def test_resolved_fields_are_those_left_open_and_in_the_same_order() -> None:
    assert set(ResolvedConfig.__annotations__) == set(DEVICE_DEFAULTS)
    names = [field.name for field in dataclasses.fields(EngineConfig)]
    assert [field.name for field in dataclasses.fields(ResolvedConfig)] == names


@pytest.mark.parametrize(
    ("given", "device"),
    [
        ({"max_num_seqs": 512}, "cpu"),
        ({"max_num_batched_tokens": 32}, "cpu"),
        ({"max_num_batched_tokens": 256}, "cuda"),
    ],
)
def test_a_step_has_a_token_for_each_sequence_and_one_more(
    given: dict[str, Any], device: DeviceType
) -> None:
    config = EngineConfig(MODEL, **given)
    with pytest.raises(InvalidRequestError, match="must be more than max_num_seqs") as error:
        config.resolved_for(device)
    assert error.value.param == "max_num_batched_tokens"
    name, value = next(iter(given.items()))
    fitting = value - 1 if name == "max_num_seqs" else value + 1
    assert getattr(EngineConfig(MODEL, **{name: fitting}).resolved_for(device), name) == fitting


def test_values_that_never_fit_are_refused_without_a_device() -> None:
    with pytest.raises(InvalidRequestError, match=r"\(4\) must be more than max_num_seqs \(4\)"):
        EngineConfig(MODEL, max_num_seqs=4, max_num_batched_tokens=4)


@pytest.mark.parametrize("name", ["quantization", "kv_cache_dtype"])
def test_eight_bit_floats_are_for_a_gpu(name: str) -> None:
    config = EngineConfig(MODEL, **{name: "fp8"})  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match=f"{name} fp8 is for a GPU") as error:
        config.resolved_for("cpu")
    assert error.value.param == name
    assert getattr(config.resolved_for("cuda"), name) == "fp8"
    interpreted = dataclasses.replace(config, execution="triton").resolved_for("cpu")
    assert getattr(interpreted, name) == "fp8"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("block_size", 0),
        ("block_size", 257),
        ("max_num_seqs", 4097),
        ("max_queued_requests", -1),
        ("step_time_target_s", 0.0),
        ("prefill_step_time_target_s", math.nan),
        ("gpu_memory_utilization", 0.0),
        ("gpu_memory_utilization", 1.01),
        ("kv_cache_tokens", 0),
        ("num_threads", 0),
    ],
)
def test_a_value_out_of_its_range_is_named(name: str, value: float) -> None:
    with pytest.raises(InvalidRequestError, match=f"{name} must be from .* not {value}") as error:
        EngineConfig(MODEL, **{name: value})  # type: ignore[arg-type]
    assert error.value.param == name
