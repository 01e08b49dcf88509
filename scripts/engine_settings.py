"""Engine configurations from a command line: a model by name or path, fields as `name=value`.

The server's packages are imported only where a catalogue is asked or its data folder.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from engine.api import EngineConfig


def find_model(name: str) -> Path:
    """The file of a catalogue model that was fetched, or the path itself. Leaves with a sentence
    for people when nothing is there."""
    from server.config import ServerConfig
    from server.model_catalogue import CATALOGUE

    if name in CATALOGUE:
        path = ServerConfig().models_dir / f"{name}.gguf"
        if not path.exists():
            raise SystemExit(f"first: scripts/fetch_models.py {name}")
        return path
    if not Path(name).exists():
        raise SystemExit(f"{name} is neither in the catalogue ({', '.join(CATALOGUE)}) nor a path.")
    return Path(name).absolute()


def fetch_models(names: Iterable[str]) -> None:
    """Fetches those of the catalogue's models in `names` that are not there yet. Leaves with a
    sentence for people when one cannot be had."""
    from server.config import ServerConfig
    from server.console import Console
    from server.model_catalogue import CATALOGUE
    from server.model_source import ModelSourceError, fetch_entry

    console = Console(sys.stderr)
    folder = ServerConfig().models_dir
    for name in names:
        if name in CATALOGUE and not (folder / f"{name}.gguf").exists():
            try:
                fetch_entry(CATALOGUE[name], folder, console.say, console.progress)
            except ModelSourceError as error:
                raise SystemExit(str(error)) from error


def parse_settings(texts: Iterable[str]) -> dict[str, Any]:
    """`["num_threads=2", …]` as arguments of EngineConfig. Raises ValueError, naming the text."""
    hints = typing.get_type_hints(EngineConfig)
    known = {field.name: hints[field.name] for field in fields(EngineConfig)}
    settings = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or name not in known:
            raise ValueError(f"{text!r} is not NAME=VALUE with a field of EngineConfig.")
        settings[name] = _parse(text, value, known[name])
    return settings


def engine_config(model: Path, settings: Mapping[str, Any]) -> EngineConfig:
    """The configuration for `model`, with the server's place for converted copies."""
    from server.config import ServerConfig

    cache_dir = ServerConfig().data_path / "converted"
    return EngineConfig(**{"model": model, "cache_dir": cache_dir, **settings})


def _parse(text: str, value: str, wanted: Any) -> Any:
    choices = typing.get_args(wanted) if _is_union(wanted) else (wanted,)
    if value == "none" and type(None) in choices:
        return None
    for kind in choices:
        if typing.get_origin(kind) is typing.Literal:
            if value in typing.get_args(kind):
                return value
        elif kind is bool:
            if value in ("true", "false"):
                return value == "true"
        elif kind in (int, float, str, Path):
            try:
                return kind(value)
            except ValueError:
                continue
    raise ValueError(f"{text!r}: {value!r} does not fit {wanted}.")


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (typing.Union, types.UnionType)
