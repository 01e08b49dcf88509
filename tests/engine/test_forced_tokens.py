"""Forced tokens through the whole engine: how likely a text is after a prompt."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.api import create_scripted_engine
from engine.assembly import assemble_model
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.errors import InvalidRequestError
from engine.types import FinishType, GenerationRequest, RequestId, SamplingParams
from tests.support.drafters import GuessingDrafter, always
from tests.support.engines import make_core as make_plain_core
from tests.support.engines import run_to_end
from tests.support.tiny_models import build_tiny_model

PROMPT = tuple(b"a passage of the course ")
TEXT = tuple(b"what is asked?")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("model"), "qwen2")


def make_core(folder: Path, *, blocks: int = 100, budget: int = 512) -> EngineCore:
    config = EngineConfig(
        model=folder,
        dtype="float32",
        block_size=8,
        kv_cache_tokens=blocks * 8,
        max_num_seqs=min(8, budget - 1),
        max_num_batched_tokens=budget,
    )
    return assemble_model(config, None).core


def forced(
    name: str = "r",
    text: tuple[int, ...] = TEXT,
    *,
    prompt: tuple[int, ...] = PROMPT,
    more: int = 0,
    **params: object,
) -> GenerationRequest:
    options = SamplingParams(
        temperature=0.0,
        max_tokens=len(text) + more,
        logprobs=0,
        **params,  # type: ignore[arg-type]
    )
    return GenerationRequest(RequestId(name), prompt, options, forced_token_ids=text)


def reference(folder: Path, prompt: tuple[int, ...], text: tuple[int, ...]) -> list[float]:
    """By transformers."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        logits = model(torch.tensor([prompt + text])).logits[0]
    rows = torch.log_softmax(logits, -1)[len(prompt) - 1 : -1]
    found: list[float] = rows.gather(1, torch.tensor(text)[:, None])[:, 0].tolist()
    return found


def logprobs(core: EngineCore, name: str = "r") -> list[float]:
    outputs = run_to_end(core)[name].outputs
    return [entry.logprob for output in outputs for entry in output.logprobs]


def test_log_probabilities_are_the_model_s_in_two_steps(folder: Path) -> None:
    core = make_core(folder)
    core.add(forced())
    found = logprobs(core)
    assert found == pytest.approx(reference(folder, PROMPT, TEXT), abs=1e-4)
    stats = core.stats()
    assert (stats.num_steps, stats.generated_tokens) == (2, len(TEXT))
    assert stats.drafted_tokens == stats.accepted_tokens == 0  # nothing was guessed


@pytest.mark.parametrize(("blocks", "budget"), [(100, 9), (8, 64)])
def test_cut_preempted_and_in_company(folder: Path, blocks: int, budget: int) -> None:
    core = make_core(folder, blocks=blocks, budget=budget)
    texts = {f"r{i}": tuple(range(32 + i, 122, 3 + i)) for i in range(5)}
    for name, text in texts.items():
        core.add(forced(name, text))
    core.add(GenerationRequest(RequestId("free"), PROMPT, SamplingParams(0.0, max_tokens=30)))
    got = run_to_end(core)
    for name, text in texts.items():
        outputs = got[name].outputs
        found = [entry.logprob for output in outputs for entry in output.logprobs]
        assert tuple(got[name].token_ids) == text
        assert found == pytest.approx(reference(folder, PROMPT, text), abs=1e-4)
    assert len(got["free"].token_ids) == 30
    if blocks < 20:
        assert core.stats().num_preemptions > 0
    core.check()


def test_the_same_passage_is_computed_once(folder: Path) -> None:
    core = make_core(folder)
    core.add(forced())
    run_to_end(core)
    other = tuple(b"something else")
    core.add(forced("other", other))
    got = run_to_end(core)["other"]
    finish = got.outputs[-1].finish
    assert finish is not None
    assert finish.usage.cached_tokens == 16
    found = [entry.logprob for output in got.outputs for entry in output.logprobs]
    assert found == pytest.approx(reference(folder, PROMPT, other), abs=1e-4)


def test_the_model_goes_on_behind_them(folder: Path) -> None:
    core = make_core(folder)
    core.add(forced(more=8, ignore_eos=True))
    answer = run_to_end(core)["r"].token_ids
    assert tuple(answer[: len(TEXT)]) == TEXT
    core.add(
        GenerationRequest(
            RequestId("free"), PROMPT + TEXT, SamplingParams(0.0, max_tokens=8, ignore_eos=True)
        )
    )
    assert run_to_end(core)["free"].token_ids == answer[len(TEXT) :]


def test_a_continuation_may_be_forced_too(folder: Path) -> None:
    core = make_core(folder)
    request = forced(prompt=PROMPT[:10])
    core.add(
        GenerationRequest(
            request.request_id,
            request.prompt_token_ids,
            request.params,
            continued_token_ids=PROMPT[10:],
            forced_token_ids=TEXT,
        )
    )
    assert logprobs(core) == pytest.approx(reference(folder, PROMPT, TEXT), abs=1e-4)


def test_what_was_forced_teaches_the_drafter_nothing() -> None:
    drafter = GuessingDrafter(lambda tokens: 7, always(4), always(0))
    core, _ = make_plain_core(drafter=drafter)
    core.add(forced(more=1))
    core.step()
    core.step()
    assert (drafter.asked, drafter.observed) == ([], [])


@pytest.mark.anyio
async def test_bounds_are_named() -> None:
    engine = create_scripted_engine(EngineConfig(model=Path("unread")))
    await engine.start()
    for text, words in (
        ((1 << 40,), f"token {1 << 40}, which is outside the vocabulary"),
        ((-1,), "token -1, which"),
        ((1,) * 1025, "1025 tokens; at most 1024"),
    ):
        with pytest.raises(InvalidRequestError, match=words) as caught:
            async with engine.generate(forced(text=text)):
                pass
        assert caught.value.param == "forced_token_ids"
    await engine.shutdown(0.0)


@pytest.mark.anyio
async def test_a_script_takes_them_too() -> None:
    engine = create_scripted_engine(EngineConfig(model=Path("unread")))
    await engine.start()
    async with engine.generate(forced(text=tuple(b"given"))) as stream:
        outputs = [output async for output in stream]
    assert "".join(output.text for output in outputs) == "given"
    assert sum(len(output.logprobs) for output in outputs) == 5
    finish = outputs[-1].finish
    assert finish is not None
    assert finish.detail.type is FinishType.MAX_TOKENS
    await engine.shutdown(0.0)
