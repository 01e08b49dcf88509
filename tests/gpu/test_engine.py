"""The whole engine on a GPU, in float32: the same tokens whatever a request's company is, by graph
or kernel by kernel, by our kernels or by torch's, and whatever is captured meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("triton")

from engine.core import EngineCore
from engine.types import GenerationRequest, RequestId, SamplingParams
from tests.support.engines import Collected, collect, run_to_end
from tests.support.gpu_engines import DEVICE, answers, make_engine, make_plain_engine
from tests.support.tiny_models import VOCAB_SIZE, build_tiny_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE != "cuda", reason="needs a CUDA device"),
]

BATCH = 64
NUM_TOKENS = 24
SAMPLING: tuple[dict[str, Any], ...] = (
    {"temperature": 0.8},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 1.2, "top_k": 40},
    {"temperature": 1.5, "min_p": 0.03},
    {"temperature": 1.1, "top_k": 100, "top_p": 0.95, "repetition_penalty": 1.2},
    {"temperature": 0.9, "presence_penalty": 0.7, "frequency_penalty": 0.3},
    {"temperature": 1.3, "min_p": 0.01, "logit_bias": ((9, 4.0), (40, -30.0)), "top_p": 0.98},
    {"temperature": 0.0, "repetition_penalty": 1.3},
)


def make_requests(count: int, num_tokens: int = NUM_TOKENS) -> list[GenerationRequest]:
    """Prompts of 1 to 60 tokens, each with its own seed, the kinds of sampling in turn."""
    random = Random(count)
    return [
        GenerationRequest(
            RequestId(f"r{number}"),
            tuple(random.randrange(4, VOCAB_SIZE) for _ in range(random.randrange(1, 61))),
            SamplingParams(
                seed=1000 + number,
                max_tokens=num_tokens,
                ignore_eos=True,
                **SAMPLING[number % len(SAMPLING)],
            ),
        )
        for number in range(count)
    ]


def answers_alone(core: EngineCore, requests: Iterable[GenerationRequest]) -> dict[str, list[int]]:
    """Each request is sent when the one before it has ended."""
    got: dict[str, list[int]] = {}
    for request in requests:
        got |= answers(core, [request])
    return got


def capture_all(core: EngineCore) -> int:
    """How many graphs were left to capture."""
    count = 0
    while core.idle():
        count += 1
    return count


@pytest.fixture(scope="module", params=["llama", "qwen3", "gemma2"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two that are fused, and one that is not."""
    return build_tiny_model(tmp_path_factory.mktemp(request.param), request.param)


def test_a_seed_means_the_same_alone_in_a_batch_of_64_and_on_a_cpu(folder: Path) -> None:
    requests = make_requests(BATCH)
    core, _ = make_engine(folder, max_num_batched_tokens=2048)
    for request in requests:
        core.add(request)
    collected: dict[str, Collected] = {}
    most_running = 0
    while core.has_work:
        for output in core.step():
            collect(collected, output)
        most_running = max(most_running, core.stats().num_running)
    together = {name: got.token_ids for name, got in collected.items()}
    assert most_running == BATCH
    assert len({tuple(answer) for answer in together.values()}) > BATCH // 2
    assert answers_alone(make_engine(folder)[0], requests) == together
    assert answers(make_plain_engine(folder), requests) == together


def test_graphs_change_no_answer(folder: Path) -> None:
    """Steps with chunks and without, padded to all kinds of captured shapes; the same step by
    step; and by torch's operations."""
    requests = make_requests(24)
    core, runner = make_engine(folder)
    num_first = len(runner._graphs.captured)
    if DEVICE == "cuda":
        assert num_first > 0
        assert capture_all(core) > 0
        assert len(runner._graphs.captured) > num_first
    expected = answers(core, requests)
    bare, bare_runner = make_engine(folder, cuda_graphs="off")
    assert answers(bare, requests) == expected
    assert not bare_runner._graphs.captured
    assert answers(make_plain_engine(folder, DEVICE), requests) == expected


def test_captures_keep_the_blocks_of_the_prefix_cache(folder: Path) -> None:
    requests = [one for one in make_requests(24) if len(one.prompt_token_ids) > 32][:4]
    core, _ = make_engine(folder)
    expected = answers(core, requests)
    before = core.stats().cached_tokens
    assert capture_all(core) > 0 or DEVICE == "cpu"
    assert answers(core, requests) == expected
    hits = core.stats().cached_tokens - before
    assert hits == sum((len(one.prompt_token_ids) - 1) // 16 * 16 for one in requests)


def test_captures_between_the_steps_of_running_requests(folder: Path) -> None:
    """They leave alone what the requests have on the GPU: tokens still to be read, last tokens,
    counts for penalties, blocks."""
    requests = make_requests(16, num_tokens=40)
    expected = answers(make_engine(folder)[0], requests)
    core, runner = make_engine(folder)
    collected: dict[str, Collected] = {}
    num_first = len(runner._graphs.captured)
    waiting = list(requests)
    while core.has_work or waiting:
        if waiting:
            core.add(waiting.pop(0))
        for output in core.step():
            collect(collected, output)
        core.idle()
        core.check()
    assert {name: got.token_ids for name, got in collected.items()} == expected
    assert len(runner._graphs.captured) > num_first + 10 or DEVICE == "cpu"


def test_answers_in_a_tight_pool(folder: Path) -> None:
    """Preempted requests lose their slot and come back to another one; what they have sampled
    counts for penalties again."""
    requests = make_requests(24, num_tokens=60)
    expected = answers(make_engine(folder)[0], requests)
    core, _ = make_engine(folder, kv_cache_tokens=320, max_model_len=128)
    assert answers(core, requests) == expected
    assert core.stats().num_preemptions > 0
    assert core.stats().used_blocks == 0


def test_forced_tokens_tell_what_a_cpu_tells(folder: Path) -> None:
    """With two steps in flight, in graphs, beside requests that are free."""
    core, _ = make_engine(folder)
    plain = make_plain_engine(folder)
    random = Random(5)
    free = make_requests(6)
    forced = [
        GenerationRequest(
            RequestId(f"forced{number}"),
            tuple(random.randrange(4, VOCAB_SIZE) for _ in range(20 + number)),
            SamplingParams(temperature=0.0, max_tokens=30, logprobs=0, ignore_eos=True),
            forced_token_ids=tuple(random.randrange(4, VOCAB_SIZE) for _ in range(25)),
        )
        for number in range(5)
    ]
    for request in (*free, *forced):
        core.add(request)
        plain.add(request)
    got, expected = run_to_end(core), run_to_end(plain)
    for request in forced:
        mine, theirs = got[request.request_id], expected[request.request_id]
        assert tuple(mine.token_ids[:25]) == request.forced_token_ids
        assert mine.token_ids == theirs.token_ids
        assert logprobs(mine) == pytest.approx(logprobs(theirs), abs=2e-3)
    for request in free:
        assert got[request.request_id].token_ids == expected[request.request_id].token_ids


def logprobs(collected: Collected) -> list[float]:
    return [entry.logprob for output in collected.outputs for entry in output.logprobs]
