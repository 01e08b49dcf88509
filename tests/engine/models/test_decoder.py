"""The decoder against transformers' forward pass of the same files, and against given values."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.config import EngineConfig
from engine.models.registry import load_model
from tests.engine.models.running import greedy, logits_of
from tests.support.tiny_models import TINY_MODELS

CASES = Path(__file__).parents[2] / "cases"
PROMPT = [(7 * i * i + 3 * i + 5) % 320 for i in range(45)]


@pytest.mark.parametrize("name", sorted(TINY_MODELS))
def test_equals_transformers(name: str, tiny_model: Callable[[str], Path]) -> None:
    """Logits are close at every position, and 64 greedy tokens are the same."""
    folder = tiny_model(name)
    ours = load_model(EngineConfig(model=folder, dtype="float32", device="cpu"))
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    output = greedy(ours.model, PROMPT, 64)
    token_ids = PROMPT + output
    with torch.inference_mode():
        expected = theirs(torch.tensor([token_ids])).logits[0]
    torch.testing.assert_close(logits_of(ours.model, token_ids), expected, atol=2e-4, rtol=2e-4)
    assert expected[len(PROMPT) - 1 : -1].argmax(-1).tolist() == output


@pytest.mark.parametrize("chunk", [1, 7, 44])
def test_chunks_of_a_prompt_change_nothing(chunk: int, tiny_model: Callable[[str], Path]) -> None:
    ours = load_model(EngineConfig(model=tiny_model("qwen2_window"), dtype="float32")).model
    assert greedy(ours, PROMPT, 16, chunk=chunk) == greedy(ours, PROMPT, 16)


@pytest.mark.parametrize("name", sorted(TINY_MODELS))
def test_bfloat16_stays_close_to_transformers(name: str, tiny_model: Callable[[str], Path]) -> None:
    folder = tiny_model(name)
    ours = load_model(EngineConfig(model=folder, dtype="bfloat16", device="cpu")).model
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    with torch.inference_mode():
        expected = theirs(torch.tensor([PROMPT])).logits[0].float()
    difference = logits_of(ours, PROMPT) - expected
    assert difference.abs().mean() < 0.05 * expected.abs().mean()


def test_dynamic_rope_beyond_the_trained_window(
    tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    """A sequence that fills the served window gets transformers' own logits, also when it came in
    chunks."""
    for file in tiny_model("llama_dynamic_rope").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    config["max_position_embeddings"] = 64
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    ids = [(11 * i * i + 5) % 320 for i in range(128)]
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    with torch.inference_mode():
        expected = theirs(torch.tensor([ids]), use_cache=False).logits[0]
    wide = EngineConfig(model=tmp_path, dtype="float32", device="cpu", max_model_len=128)
    ours = load_model(wide).model
    torch.testing.assert_close(logits_of(ours, ids), expected, atol=2e-4, rtol=2e-4)
    assert greedy(ours, ids[:-1], 1, chunk=30) == [int(expected[-2].argmax())]
    narrow = load_model(EngineConfig(model=tmp_path, dtype="float32", device="cpu")).model
    with torch.inference_mode():
        expected = theirs(torch.tensor([ids[:60]]), use_cache=False).logits[0]
    torch.testing.assert_close(logits_of(narrow, ids[:60]), expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("case", ["MOD-01", "MOD-04"])
def test_given_ids_and_logits(case: str) -> None:
    """Tied embeddings in two shards; rope scaling under its old key."""
    description = json.loads((CASES / f"{case}.json").read_text("utf-8"))
    expect = description["expect"]
    folder = CASES / description["input"]["dir"]
    loaded = load_model(EngineConfig(model=folder, dtype="float32", device="cpu"))
    prompt = expect["prompt_ids"]
    assert greedy(loaded.model, prompt, 12) == expect["greedy_12_ids_ignoring_eos"]
    logits = logits_of(loaded.model, prompt)[-1]
    for token_id, value in expect["top5_logits_after_prompt"]:
        assert logits[token_id].item() == pytest.approx(value, abs=expect["tolerance"])
    assert logits.topk(5).indices.tolist() == [i for i, _ in expect["top5_logits_after_prompt"]]


def test_tied_head_shares_memory_with_the_embedding() -> None:
    model: Any = load_model(
        EngineConfig(model=CASES / "MOD-01-tied_sharded", dtype="float32")
    ).model
    assert model.head.weight.data_ptr() == model.embedding.weight.data_ptr()


def test_untied_head_is_its_own() -> None:
    folder = CASES / "MOD-04-rope_linear_oldkey"
    model: Any = load_model(EngineConfig(model=folder, dtype="float32")).model
    assert model.head.weight.data_ptr() != model.embedding.weight.data_ptr()
