"""Greedy answers of the catalogue's models equal those of `transformers`, which reads the same
files on its own.

`scripts/fetch_models.py` puts the files where this looks for them; a model that is not there is
skipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.assembly import assemble_model
from engine.config import EngineConfig
from engine.text.protocol import Tokenizer
from engine.types import GenerationRequest, RequestId, SamplingParams
from server.config import ServerConfig
from server.model_catalogue import CATALOGUE
from tests.support.engines import run_to_end
from tests.support.oracle import greedy, load_gguf_oracle

pytestmark = [pytest.mark.real_model, pytest.mark.timeout(900)]

NUM_TOKENS = 64
QUESTIONS = (
    "When are office hours?",
    "Write a Python function that reverses a list in place.",
    "Explain in two sentences what a key-value cache is for.",
    "实验四需要提交什么？",
    "用一句话解释什么是分页。",
)


def prompt(question: str) -> str:
    return (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.fixture(scope="module", params=sorted(CATALOGUE))
def model_file(request: pytest.FixtureRequest) -> Path:
    path = ServerConfig().models_dir / f"{request.param}.gguf"
    if not path.exists():
        pytest.skip(f"{path.name} is not fetched (scripts/fetch_models.py {request.param})")
    return path


@pytest.fixture(scope="module")
def oracle(model_file: Path) -> tuple[Any, Any]:
    return load_gguf_oracle(model_file)


def test_five_prompts_token_for_token(
    model_file: Path, oracle: tuple[Any, Any], tmp_path: Path
) -> None:
    """Together in one batch here, one after the other there."""
    model, their_tokenizer = oracle
    assembly = assemble_model(
        EngineConfig(model=model_file, dtype="float32", max_model_len=512, cache_dir=tmp_path), None
    )
    prompts = [tuple(_encode(assembly.tokenizer, prompt(question))) for question in QUESTIONS]
    assert prompts == [
        tuple(their_tokenizer(prompt(question), add_special_tokens=False)["input_ids"])
        for question in QUESTIONS
    ]
    params = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)
    for index, token_ids in enumerate(prompts):
        assembly.core.add(GenerationRequest(RequestId(str(index)), token_ids, params))
    got = run_to_end(assembly.core)
    for index, token_ids in enumerate(prompts):
        expected = greedy(model, token_ids, NUM_TOKENS)
        assert got[str(index)].token_ids == expected, QUESTIONS[index]
        decoded = their_tokenizer.decode(expected, skip_special_tokens=True)
        assert got[str(index)].text.rstrip("\ufffd") == decoded.rstrip("\ufffd")


def _encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, parse_special=True)
