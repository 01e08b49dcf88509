"""An engine on packed weights: greedy and seeded answers are the same, token for token, in any
company, in any chunks, after preemption and behind a cached prefix. (With drafts: see
tests/engine/speculation.)"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.assembly import assemble_model
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.errors import ModelLoadError
from engine.models.registry import load_model
from engine.types import GenerationRequest, RequestId, SamplingParams
from tests.support.engines import Collected, run_to_end
from tests.support.native import require_library
from tests.support.tiny_models import build_tiny_model

NUM_TOKENS = 40
PREFIX = tuple((i * 31 + 7) % 300 + 4 for i in range(40))
PROMPTS = {
    "short": (5, 6, 7),
    "long": tuple((i * i + 3) % 300 + 4 for i in range(90)),
    "shared": (*PREFIX, 9, 10),
    "also": (*PREFIX, 11),
    "repeats": (20, 21, 22, 23, 24, 25) * 6,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_library()
    return build_tiny_model(tmp_path_factory.mktemp("packed"), "qwen2")


def make_engine(folder: Path, *, blocks: int = 200, budget: int = 512) -> EngineCore:
    config = EngineConfig(
        model=folder,
        weights="q8",
        device="cpu",
        block_size=8,
        kv_cache_tokens=blocks * 8,
        max_num_seqs=8,
        max_num_batched_tokens=budget,
        speculation="off",
    )
    return assemble_model(config, None).core


def make(name: str, *, seeded: bool) -> GenerationRequest:
    chosen = {"temperature": 0.8, "seed": 11} if seeded else {"temperature": 0.0}
    return GenerationRequest(
        RequestId(name),
        PROMPTS[name],
        SamplingParams(max_tokens=NUM_TOKENS, ignore_eos=True, **chosen),  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module", params=[False, True], ids=["greedy", "seeded"])
def alone(request: pytest.FixtureRequest, folder: Path) -> tuple[bool, dict[str, list[int]]]:
    answers = {}
    for name in PROMPTS:
        core = make_engine(folder)
        core.add(make(name, seeded=request.param))
        answers[name] = run_to_end(core)[name].token_ids
        assert len(answers[name]) == NUM_TOKENS
    return request.param, answers


def run(core: EngineCore, *, seeded: bool) -> dict[str, Collected]:
    for name in PROMPTS:
        core.add(make(name, seeded=seeded))
    got = run_to_end(core)
    core.check()
    return got


@pytest.mark.parametrize("budget", [512, 9])
def test_together_in_any_chunks(
    folder: Path, alone: tuple[bool, dict[str, list[int]]], budget: int
) -> None:
    seeded, expected = alone
    core = make_engine(folder, budget=budget)
    got = run(core, seeded=seeded)
    assert {name: got[name].token_ids for name in PROMPTS} == expected


def test_after_preemption(folder: Path, alone: tuple[bool, dict[str, list[int]]]) -> None:
    seeded, expected = alone
    core = make_engine(folder, blocks=24)
    got = run(core, seeded=seeded)
    assert core.stats().num_preemptions > 0
    assert {name: got[name].token_ids for name in PROMPTS} == expected


def test_behind_a_cached_prefix(folder: Path, alone: tuple[bool, dict[str, list[int]]]) -> None:
    seeded, expected = alone
    core = make_engine(folder)
    for _ in range(2):
        got = run(core, seeded=seeded)
        assert {name: got[name].token_ids for name in PROMPTS} == expected
    assert core.stats().cached_tokens > 0


def test_weights_are_packed_only_where_that_was_asked_for(folder: Path) -> None:
    def packing(**options: str) -> object:
        return load_model(EngineConfig(model=folder, device="cpu", **options)).packing  # type: ignore[arg-type]

    assert packing() is None
    assert packing(weights="float") is None
    assert packing(weights="q4") is not None
    assert packing(weights="q8") is not None


def test_packed_weights_without_kernels_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.models.packing.load_library", lambda: None)
    with pytest.raises(ModelLoadError, match=r"weights q8 need the native kernels.*scripts/setup"):
        load_model(EngineConfig(model=folder, device="cpu", weights="q8"))
