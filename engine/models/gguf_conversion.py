"""The converted copy of a GGUF file: a Hugging Face folder that the next start can map at once.

A copy lies in `cache_dir/<sha256 of the file>-<dtype>/` and is complete when it is there: it is
built beside that place and renamed. Parts of merged weights lie next to one another in it, so
they need not be copied at load."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

from engine.models.config import read_json, read_model_config
from engine.models.gguf_config import gguf_config, gguf_generation_config
from engine.models.gguf_file import GGUFFile
from engine.models.gguf_model import GGUFTensors
from engine.models.gguf_tokenizer import tokenizer_config, tokenizer_json
from engine.models.loader import SINGLE_FILE
from engine.models.model_files import ModelFiles, open_folder
from engine.models.safetensors_file import SafetensorsWriter
from engine.models.sampling_defaults import read_sampling_defaults
from engine.text.tokenizer import HFTokenizer
from engine.types import LoadProgress

_FORMAT = 1
"""Raised when a copy made by older code must be made again."""
_RECORD = "conversion.json"
_DIGESTS = "digests.json"
_STALE_S = 3600.0
_MERGED_ORDER = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
"""Projections of one input, in the order in which they are merged."""


def open_gguf(
    path: Path, cache_dir: Path | None, dtype: torch.dtype, on_progress: LoadProgress
) -> ModelFiles:
    """The model in a GGUF file: from its converted copy, which is made first where it can be.
    When the cache cannot be written the model is read from the file itself, and
    `on_progress` says so. Raises ModelLoadError."""
    if cache_dir is None:
        return open_gguf_directly(path, on_progress)
    try:
        folder = _find_or_convert(path, cache_dir, dtype, on_progress)
    except OSError as error:
        on_progress(
            f"No converted copy can be kept in {cache_dir} ({error.strerror}); "
            f"{path.name} is read anew at each start",
            None,
        )
        return open_gguf_directly(path, on_progress)
    return open_folder(folder)


def open_gguf_directly(path: Path, on_progress: LoadProgress) -> ModelFiles:
    """The model in a GGUF file, without a copy. Raises ModelLoadError."""
    on_progress(f"Reading {path.name}", None)
    file = GGUFFile(path)
    config_json = gguf_config(file)
    generation_config = gguf_generation_config(file)
    config = read_model_config(config_json, generation_config)
    tokenizer = HFTokenizer(
        json.dumps(tokenizer_json(file.metadata)),
        tokenizer_config(file.metadata),
        eos_token_ids=config.eos_token_ids,
    )
    return ModelFiles(
        config,
        tokenizer,
        GGUFTensors(file, config_json),
        read_sampling_defaults(generation_config),
    )


def _find_or_convert(
    path: Path, cache_dir: Path, dtype: torch.dtype, on_progress: LoadProgress
) -> Path:
    cache_dir.mkdir(parents=True, exist_ok=True)
    digest = file_digest(path, cache_dir, on_progress)
    name = f"{digest}-{str(dtype).removeprefix('torch.')}"
    target = cache_dir / name
    if (target / _RECORD).exists():
        if read_json(target / _RECORD).get("format") == _FORMAT:
            return target
        shutil.rmtree(target)
    _remove_stale(cache_dir)
    building = Path(tempfile.mkdtemp(prefix=f".building-{digest[:12]}-", dir=cache_dir))
    try:
        _convert(path, building, dtype, on_progress)
        try:
            building.rename(target)
        except OSError:
            if not (target / _RECORD).exists():  # else another process was faster
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return target


def file_digest(path: Path, cache_dir: Path, on_progress: LoadProgress) -> str:
    """The file's sha256, kept in `cache_dir` for as long as its size and time stay the same.
    Raises OSError."""
    status = path.stat()
    key, stamp = str(path.resolve()), [status.st_size, status.st_mtime_ns]
    record = cache_dir / _DIGESTS
    try:
        known = json.loads(record.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        known = {}
    if known.get(key, [])[:2] == stamp:
        return str(known[key][2])
    on_progress(f"Checking {path.name}", None)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    known[key] = [*stamp, digest]
    with tempfile.NamedTemporaryFile("w", dir=cache_dir, delete=False, encoding="utf-8") as made:
        json.dump(known, made)
    os.replace(made.name, record)
    return digest


def _convert(path: Path, folder: Path, dtype: torch.dtype, on_progress: LoadProgress) -> None:
    sentence = f"Converting {path.name} (only at the first start)"
    on_progress(sentence, 0.0)
    file = GGUFFile(path)
    config = gguf_config(file)
    generation_config = gguf_generation_config(file)
    # These refuse before the long work.
    read_model_config(config, generation_config)
    tokenizer = tokenizer_json(file.metadata)
    tokenizer_options = tokenizer_config(file.metadata)
    tensors = GGUFTensors(file, config)
    _write_weights(folder / SINGLE_FILE, tensors, dtype, lambda done: on_progress(sentence, done))
    config["dtype"] = str(dtype).removeprefix("torch.")
    for name, content in (
        ("config.json", config),
        ("generation_config.json", generation_config),
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", tokenizer_options),
        (_RECORD, {"format": _FORMAT, "source": path.name}),
    ):
        _write_json(folder / name, content)


def _write_weights(path: Path, tensors: GGUFTensors, dtype: torch.dtype, on_fraction: Any) -> None:
    sizes = {name: torch.Size(tensors.shape(name)).numel() for name in tensors.names}
    total, done = sum(sizes.values()), 0
    ordered = sorted(tensors.names, key=_place)
    writer = SafetensorsWriter(path, [(name, tensors.shape(name)) for name in ordered], dtype)
    try:
        # One more than there are cores: it waits for the disk while the others compute.
        with ThreadPoolExecutor(torch.get_num_threads() + 1) as pool:
            # The largest first, so that the last ones to end are small.
            futures = {
                pool.submit(lambda name: writer.put(name, tensors.tensor(name)), name): name
                for name in sorted(sizes, key=lambda name: -sizes[name])
            }
            try:
                for future in as_completed(futures):
                    future.result()
                    done += sizes[futures[future]]
                    on_fraction(done / total)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        writer.sync()
    finally:
        writer.close()


def _place(name: str) -> tuple[int, str, str, int, str]:
    """Sort key: the embedding, the layers in order, then the rest. Within a layer the weights of
    projections that are merged follow one another, and so do their biases."""
    parts = name.split(".", 3)
    if parts[1] != "layers":
        return (0 if parts[1] == "embed_tokens" else 1 << 30), "", "", 0, name
    path, _, ending = parts[3].rpartition(".")
    group, _, last = path.rpartition(".")
    order = _MERGED_ORDER.index(last) if last in _MERGED_ORDER else len(_MERGED_ORDER)
    return 1 + int(parts[2]), group, ending, order, name


def _write_json(path: Path, content: object) -> None:
    with path.open("w", encoding="utf-8") as file:
        json.dump(content, file, ensure_ascii=False, indent=None if "tokens" in path.name else 1)
        file.flush()
        os.fsync(file.fileno())


def _remove_stale(cache_dir: Path) -> None:
    """Removes what a conversion that was killed has left."""
    building: Iterable[Path] = cache_dir.glob(".building-*")
    for folder in building:
        try:
            if time.time() - folder.stat().st_mtime > _STALE_S:
                shutil.rmtree(folder, ignore_errors=True)
        except FileNotFoundError:  # its owner has just renamed it
            continue
