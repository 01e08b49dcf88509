"""`read_sampling_defaults`: how a model's makers want it to be sampled, unless a request says
otherwise. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.errors import InvalidRequestError, ModelLoadError
from engine.models.config import read_json
from engine.models.config_fields import is_finite_number
from engine.types import SamplingParams

_FIELDS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def read_folder_defaults(folder: Path) -> dict[str, float]:
    """`read_sampling_defaults` of a folder's generation_config.json, if it has one."""
    path = folder / "generation_config.json"
    return read_sampling_defaults(read_json(path)) if path.exists() else {}


def read_sampling_defaults(generation_config: Mapping[str, Any]) -> dict[str, float]:
    """Those fields of `SamplingParams` that generation_config.json sets, by name.

    Null counts as absent. `do_sample` false asks for the likeliest tokens, whatever stands
    beside it. Raises ModelLoadError, naming the field, for values that no request may have."""
    if generation_config.get("do_sample") is False:
        return {"temperature": 0.0}
    found = {
        name: generation_config[name] for name in _FIELDS if generation_config.get(name) is not None
    }
    for name, value in found.items():
        if not is_finite_number(value):
            raise ModelLoadError(f"generation_config.json: {name} cannot be {value!r}.")
    if "top_k" in found:
        found["top_k"] = int(found["top_k"])
    try:
        SamplingParams(**found)
    except InvalidRequestError as error:
        raise ModelLoadError(f"generation_config.json: {error}.") from error
    return found
