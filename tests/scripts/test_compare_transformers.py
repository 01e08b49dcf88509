from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scripts.bench_work import Work
from scripts.compare_served import CLASS_LOAD, chat_bodies
from scripts.compare_transformers import (
    CB_BLOCK_TOKENS,
    as_folder,
    load,
    measure,
    serve_body,
    serve_command,
    spread,
)
from tests.support.tiny_models import build_tiny_model

FACTS: dict[str, Any] = {"folder": "/m", "dtype": "float32"}


def test_lengths_of_a_batch_go_from_half_to_all() -> None:
    assert spread(5, 80) == [80, 70, 60, 50, 40]
    assert spread(1, 80) == [80]


def test_the_server_has_room_for_all_requests_at_once() -> None:
    command = serve_command(FACTS, CLASS_LOAD)
    num_blocks = int(command[command.index("--cb-num-blocks") + 1])
    assert num_blocks * CB_BLOCK_TOKENS >= 16 * (723 + 128)
    assert command[command.index("--host") + 1] == "127.0.0.1"


def test_a_request_to_the_server_is_greedy_and_goes_past_eos() -> None:
    body = serve_body(FACTS, chat_bodies(CLASS_LOAD, 1)[0])
    assert body["model"] == "/m"
    assert body["max_tokens"] == 128
    generation = json.loads(body["generation_config"])
    assert generation["max_new_tokens"] == 128
    assert generation["eos_token_id"] == -1
    assert generation["do_sample"] is False
    assert "ignore_eos" not in body  # it refuses fields that it does not know


def test_every_kind_of_work_is_measured(tmp_path: Path) -> None:
    """With a tiny model whose answers may hold EOS: the right number of tokens all the same."""
    import torch

    build_tiny_model(tmp_path, "llama")
    assert as_folder(tmp_path, tmp_path / "unused", torch.float32) == tmp_path
    model = load(tmp_path, torch.float32)
    for work in (
        Work("p", "prefill", 1, 20, 0),
        Work("d", "decode", 2, 10, 6),
        Work("o", "offline", 3, 16, 6),
    ):
        assert measure(model, work, 1)["tokens_per_s"] > 0
