"""Tensors of a Hugging Face model folder: one safetensors file, or shards with an index."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from torch import Tensor

from engine.errors import ModelLoadError
from engine.models.config import read_json
from engine.models.safetensors_file import SafetensorsFile

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


class SafetensorsFolder:
    """A `TensorSource` over mapped files: a tensor's data is read when it is first touched."""

    def __init__(self, folder: Path) -> None:
        """Maps every file of the model. Raises ModelLoadError when there is none, when a shard
        is missing or damaged, or when the index names a tensor that its shard does not hold."""
        self._files: dict[str, SafetensorsFile] = {}  # by tensor name
        if (folder / INDEX_FILE).exists():
            self._map_shards(folder, read_json(folder / INDEX_FILE))
        elif (folder / SINGLE_FILE).exists():
            file = SafetensorsFile(folder / SINGLE_FILE)
            self._files = dict.fromkeys(file.entries, file)
        else:
            raise ModelLoadError(f"{folder} holds neither {SINGLE_FILE} nor {INDEX_FILE}.")

    @property
    def names(self) -> Collection[str]:
        return self._files.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._files[name].entries[name].shape

    def origin(self, name: str) -> str:
        return self._files[name].path.name

    def tensor(self, name: str) -> Tensor:
        return self._files[name].tensor(name)

    def _map_shards(self, folder: Path, index: dict[str, Any]) -> None:
        weight_map = index.get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise ModelLoadError(f"{folder / INDEX_FILE} has no weight_map.")
        shards = {}
        for file_name in sorted(set(weight_map.values())):
            # Only plain names: an index must not lead out of its folder.
            if Path(file_name).name != file_name:
                raise ModelLoadError(f"{INDEX_FILE} names a file elsewhere: {file_name!r}.")
            if not (folder / file_name).exists():
                raise ModelLoadError(f"The weight file {file_name} is missing in {folder}.")
            shards[file_name] = SafetensorsFile(folder / file_name)
        for name, file_name in weight_map.items():
            if name not in shards[file_name].entries:
                raise ModelLoadError(
                    f"{INDEX_FILE} says that {file_name} holds the tensor {name!r}; it does not."
                )
            self._files[name] = shards[file_name]
