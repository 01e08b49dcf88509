"""What plays the cases of tests/cases that need an engine: a tiny real model, and requests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from engine.assembly import assemble_model
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.types import GenerationRequest, RequestId, SamplingParams
from tests.support.cases import CASES
from tests.support.engines import Collected, run_to_end

WINDOW = 2048


def copy_model(folder: Path) -> Path:
    """The model of MOD-01 (260 tokens, 2 layers) with a window that long prompts fit into."""
    target = shutil.copytree(CASES / "MOD-01-tied_sharded", folder / "model")
    config = json.loads((target / "config.json").read_text("utf-8"))
    config["max_position_embeddings"] = WINDOW
    (target / "config.json").write_text(json.dumps(config), "utf-8")
    return target


def make_core(folder: Path, **config: Any) -> EngineCore:
    """An engine around the model in `folder`, in float32; `config`: fields of EngineConfig."""
    settings = {
        "dtype": "float32",
        "device": "cpu",
        "block_size": 8,
        "kv_cache_tokens": 4096,
        "max_num_seqs": 15,
        "speculation": "off",
        **config,
    }
    return assemble_model(EngineConfig(model=folder, **settings), None).core


def ask(
    name: str,
    prompt: Iterable[int],
    max_tokens: int,
    *,
    ignore_eos: bool = True,
    same_prompt_as: str | None = None,
    **params: Any,
) -> GenerationRequest:
    """A request, greedy unless `params` say otherwise."""
    return GenerationRequest(
        RequestId(name),
        tuple(prompt),
        SamplingParams(
            **{"temperature": 0.0, "max_tokens": max_tokens, "ignore_eos": ignore_eos, **params}
        ),
        same_prompt_as=None if same_prompt_as is None else RequestId(same_prompt_as),
    )


def prompt_tokens(size: int, kind: int = 0) -> tuple[int, ...]:
    """`size` tokens; prompts of different `kind` differ from the first on."""
    return tuple(
        (kind * 41 + index * (7 + kind % 5) + index * index) % 256 for index in range(size)
    )


def run_alone(folder: Path, requests: Iterable[GenerationRequest]) -> dict[str, Collected]:
    """What each request gets in an engine that does nothing else and remembers nothing."""
    core = make_core(folder, enable_prefix_cache=False)
    got: dict[str, Collected] = {}
    for request in requests:
        core.add(request)
        got |= run_to_end(core)
    return got
