"""Cases of faults seen in other servers, in loading models: tied and sharded weights, old keys, and
the tokens that end an answer. Through the whole engine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.assembly import assemble_model
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.errors import ModelLoadError
from engine.execution.runner import Sample, StepResult, SynchronousRunner
from engine.kv.block_allocator import BlockAllocator
from engine.models.config import read_eos_token_ids
from engine.scheduling.scheduler import SchedulerLimits
from engine.scheduling.scheduler_output import SchedulerOutput
from engine.text.tokenizer import HFTokenizer
from engine.types import GenerationRequest, RequestId, SamplingParams
from tests.support.cases import CASES, case
from tests.support.engines import Collected, run_to_end


def edited(name: str, target: Path, **changes: Any) -> Path:
    """A copy of a case's folder with other values in its config.json."""
    folder = Path(shutil.copytree(CASES / case(name)["input"]["dir"], target / "model"))
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, **changes}), "utf-8")
    return folder


def generate(folder: Path, prompt: list[int], count: int) -> list[int]:
    core = assemble_model(EngineConfig(model=folder, dtype="float32", device="cpu"), None).core
    params = SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True)
    core.add(GenerationRequest(RequestId("r"), tuple(prompt), params))
    return run_to_end(core)["r"].token_ids


@pytest.mark.parametrize("name", ["MOD-01", "MOD-04"])
def test_given_ids(name: str) -> None:
    expect = case(name)["expect"]
    ids = generate(CASES / case(name)["input"]["dir"], expect["prompt_ids"], 12)
    assert ids == expect["greedy_12_ids_ignoring_eos"]


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    """MOD-01: never random weights."""
    folder = edited("MOD-01", tmp_path)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelLoadError, match="model-00002-of-00002"):
        generate(folder, [1], 1)


def test_scaling_that_is_null_or_unknown(tmp_path: Path) -> None:
    """MOD-04: null means none, and another type stops the start with its name."""
    expect = case("MOD-04")["expect"]
    folder = edited("MOD-04", tmp_path, rope_scaling=None)
    assert generate(folder, expect["prompt_ids"], 4) == expect["wrong_if_ids_begin"]
    other = edited("MOD-04", tmp_path / "other", rope_scaling={"type": "foo", "factor": 4.0})
    with pytest.raises(ModelLoadError, match="'foo'"):
        generate(other, [1], 1)


class GivenTokens(SynchronousRunner):
    """A model that says given tokens, one a step."""

    def __init__(self, token_ids: list[int]) -> None:
        self._token_ids = iter(token_ids)

    def execute(self, plan: SchedulerOutput) -> StepResult:
        samples = [Sample((next(self._token_ids),)) for item in plan.scheduled if item.samples]
        return StepResult(samples)

    def forget(self, request_id: RequestId) -> None:
        pass


def play_eos(generation_eos: int | list[int], *, ignore_eos: bool = False) -> Collected:
    given = case("MOD-06")["input"]
    ids = read_eos_token_ids(given["config.json"], {"eos_token_id": generation_eos})
    folder = CASES / "MOD-01-tied_sharded"
    core = EngineCore(
        GivenTokens(given["stub_emits_ids"]),
        HFTokenizer.from_folder(folder, eos_token_ids=ids),
        BlockAllocator(16, 4),
        SchedulerLimits(),
        max_model_len=64,
        clock=lambda: 0.0,
    )
    params = SamplingParams(temperature=0.0, max_tokens=5, ignore_eos=ignore_eos)
    core.add(GenerationRequest(RequestId("r"), (1, 2, 3), params))
    return run_to_end(core)["r"]


def test_every_listed_eos_ends_the_answer() -> None:
    """MOD-06: a second turn was generated behind the first EOS that was not the main one."""
    expect = case("MOD-06")["expect"]
    got = play_eos(case("MOD-06")["input"]["generation_config.json"]["eos_token_id"])
    assert got.text == expect["text"]
    assert len(got.token_ids) == expect["sampled_tokens"]
    assert got.finish_type == "eos"
    finish = got.outputs[-1].finish
    assert finish is not None
    assert finish.reason == expect["finish_reason"]
    assert play_eos(258).text == "AB"


def test_ignored_eos_passes_all_of_them() -> None:
    got = play_eos([256, 258], ignore_eos=True)
    assert (got.text, len(got.token_ids), got.finish_type) == ("ABC", 5, "max_tokens")
