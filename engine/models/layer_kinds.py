"""Which layers of a model attend in a window, and which rotate: as config.json of each family says
it. Free of torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.errors import ModelLoadError, UnsupportedModelError
from engine.models.config_fields import ConfigFields

Windows = tuple[int | None, ...]
"""Per layer: how many tokens a token attends to, itself included; None is all before it."""
Config = Mapping[str, Any]
SLIDING, FULL = "sliding_attention", "full_attention"


def no_window(config: Config, num_layers: int) -> Windows:
    """Every layer sees everything."""
    return (None,) * num_layers


def every_layer(config: Config, num_layers: int) -> Windows:
    """The same window in every layer, or none."""
    return (_window(config),) * num_layers


def qwen2_windows(config: Config, num_layers: int) -> Windows:
    """Off unless `use_sliding_window`; then `layer_types`, or all layers from
    `max_window_layers` up."""
    first = ConfigFields(config).size("max_window_layers", least=0)
    return _switchable(config, num_layers, lambda layer: layer >= first)


def qwen2_moe_windows(config: Config, num_layers: int) -> Windows:
    """Off unless `use_sliding_window`; then `layer_types`, or every other layer below
    `max_window_layers`."""
    end = ConfigFields(config).size("max_window_layers", least=0)
    return _switchable(config, num_layers, lambda layer: layer % 2 == 0 and layer < end)


def qwen3_moe_windows(config: Config, num_layers: int) -> Windows:
    """Off unless `use_sliding_window`; then in every layer."""
    return _switchable({**config, "layer_types": None}, num_layers, lambda layer: True)


def smollm3_windows(config: Config, num_layers: int) -> Windows:
    """Off unless `use_sliding_window`; then `layer_types`, or the layers without rope."""
    turns = rotating_layers(config, num_layers)
    return _switchable(config, num_layers, lambda layer: not turns[layer])


def gemma_windows(config: Config, num_layers: int) -> Windows:
    """A window in the layers of sliding attention."""
    window = _window(config)
    return tuple(window if kind == SLIDING else None for kind in layer_types(config, num_layers))


def _switchable(config: Config, num_layers: int, slides: Callable[[int], bool]) -> Windows:
    window = _window(config)
    if not config["use_sliding_window"] or window is None:
        return (None,) * num_layers
    if config.get("layer_types") is not None:
        types = ConfigFields(config).texts("layer_types")
        return tuple(window if kind == SLIDING else None for kind in types)
    return tuple(window if slides(layer) else None for layer in range(num_layers))


def _window(config: Config) -> int | None:
    window = config["sliding_window"]
    if window is None:
        return None
    if isinstance(window, bool) or not isinstance(window, int) or window < 0:
        raise ModelLoadError(f"config.json: sliding_window cannot be {window!r}.")
    return window or None  # 0 is how Qwen2-MoE writes that there is none


def layer_types(config: Config, num_layers: int) -> tuple[str, ...]:
    """The kind of attention of each layer, for families that mix them: as listed, or full
    attention in every so-maniest layer (`sliding_window_pattern`)."""
    if config.get("layer_types") is None:
        every = ConfigFields(config).size("sliding_window_pattern")
        return tuple(SLIDING if (layer + 1) % every else FULL for layer in range(num_layers))
    types = ConfigFields(config).texts("layer_types")
    for kind in types:
        if kind not in (SLIDING, FULL):
            raise UnsupportedModelError(f"The layer type {kind!r} is not supported.")
    return tuple(types)


def rotating_layers(config: Config, num_layers: int) -> tuple[bool, ...]:
    """Which layers rotate queries and keys: all, but for those of `no_rope_layers` (where, in
    spite of the name, 1 says that the layer rotates)."""
    if "no_rope_layer_interval" not in config:
        return (True,) * num_layers
    if config.get("no_rope_layers") is None:
        every = ConfigFields(config).size("no_rope_layer_interval")
        return tuple((layer + 1) % every != 0 for layer in range(num_layers))
    listed = ConfigFields(config).integers("no_rope_layers")
    if len(listed) < num_layers:
        raise ModelLoadError("config.json: no_rope_layers does not have one entry a layer.")
    return tuple(bool(turns) for turns in listed[:num_layers])
