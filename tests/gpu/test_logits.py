"""Logits of the GPU's runner against `transformers` in float32 on the same weights: the error is
that of the dtype, as large as that of `transformers` itself in it, whichever way a prompt is
computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from engine.execution.triton_runner import TritonModelRunner
from engine.types import GenerationRequest, RequestId, SamplingParams
from tests.support.engines import run_to_end
from tests.support.gpu_engines import DEVICE, make_engine
from tests.support.tiny_models import VOCAB_SIZE, write_tokenizer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE != "cuda", reason="needs a CUDA device"),
]

# In the interpreter sizes must be small.
IS_LARGE = DEVICE == "cuda"
PROMPT_LENGTH = 700 if IS_LARGE else 40
NUM_TOKENS = 24 if IS_LARGE else 3
SIZES: dict[str, Any] = {
    "hidden_size": 512 if IS_LARGE else 64,
    "intermediate_size": 1536 if IS_LARGE else 96,
    "num_hidden_layers": 4 if IS_LARGE else 2,
    "num_attention_heads": 8 if IS_LARGE else 4,
    "num_key_value_heads": 2,
    "head_dim": 128 if IS_LARGE else 32,
    "vocab_size": VOCAB_SIZE,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
MODELS: Mapping[str, dict[str, Any]] = {
    "qwen3": {},
    "llama": {"attention_bias": True},
    "gemma2": {
        "sliding_window": 64,
        "attn_logit_softcapping": 20.0,
        "final_logit_softcapping": 20.0,
        "query_pre_attn_scalar": SIZES["head_dim"],
        "tie_word_embeddings": True,
    },
}
WAYS: Mapping[str, dict[str, Any]] = {
    "in one chunk": {"max_num_batched_tokens": 2048},
    "in chunks": {"max_num_batched_tokens": 96 if IS_LARGE else 24},
    "in single rows": {"max_num_batched_tokens": 13, "min_chunk_tokens": 1},
}
"""How a prompt is computed. The answer behind it is computed token by token."""


class Watch:
    """Logits by position of all that a runner computes for one request at a time."""

    def __init__(self, runner: TritonModelRunner, monkeypatch: pytest.MonkeyPatch) -> None:
        self.logits: dict[int, Any] = {}
        forward = runner._forward

        def watched(rows: Any, layout: Any, wanted: Any) -> Any:
            hidden = forward(rows, layout, None)
            is_real = rows.context_lens > 0
            logits = runner._compute_logits(hidden[is_real]).float()
            positions = rows.positions[is_real].tolist()
            self.logits.update(zip(positions, logits.unbind(), strict=True))
            # What is sampled from is computed as ever: again, where only some rows are wanted.
            return hidden if wanted is None else forward(rows, layout, wanted)

        monkeypatch.setattr(runner, "_forward", watched)


@dataclass
class Reference:
    """The folder of a model whose weights are the same in float32, bfloat16 and float16 but for
    the smallest, and what transformers computes on them."""

    folder: Path
    models: dict[str, Any] = field(default_factory=dict)

    def logits(self, token_ids: list[int], dtype: str) -> Any:
        """[tokens, vocabulary] in float32, computed in `dtype`."""
        from transformers import AutoModelForCausalLM

        if dtype not in self.models:
            model: Any = AutoModelForCausalLM.from_pretrained(
                self.folder, dtype=getattr(torch, dtype), attn_implementation="eager"
            )
            self.models[dtype] = model.eval().to(DEVICE)
        with torch.inference_mode():
            batch = torch.tensor([token_ids], device=DEVICE)
            return self.models[dtype](batch, use_cache=False).logits[0].float()


@pytest.fixture(scope="module", params=sorted(MODELS))
def reference(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Reference:
    return build_reference(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return build_reference(tmp_path_factory.mktemp("qwen3"), "qwen3")


def build_reference(folder: Path, name: str) -> Reference:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(name, **(SIZES | MODELS[name]))
    generator = torch.Generator().manual_seed(sum(name.encode()))
    model = AutoModelForCausalLM.from_config(config).float()  # type: ignore[no-untyped-call]
    # Products keep the size of what goes in, and heads look at some tokens more than at others.
    deviation = 1.2 * SIZES["hidden_size"] ** -0.5
    for parameter_name, parameter in model.named_parameters():
        is_scale = "norm" in parameter_name and name != "gemma2"
        values = torch.randn(parameter.shape, generator=generator) * deviation + is_scale
        parameter.data = values.bfloat16().float()
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return Reference(folder)


def relative(values: Any, expected: Any) -> float:
    """‖values - expected‖ / ‖expected‖"""
    return float((values - expected).norm() / expected.norm())


@dataclass(frozen=True)
class Outcome:
    """`ours`, `theirs` (transformers in the same dtype) and `exact` (in float32) are logits of the
    same positions, from `first` on."""

    ours: Any
    theirs: Any
    exact: Any
    first: int

    @property
    def error(self) -> float:
        return relative(self.ours, self.exact)

    @property
    def their_error(self) -> float:
        return relative(self.theirs, self.exact)

    @property
    def agreement(self) -> float:
        """How often the likeliest token is that of float32."""
        return float((self.ours.argmax(-1) == self.exact.argmax(-1)).float().mean())


def compute(
    reference: Reference,
    monkeypatch: pytest.MonkeyPatch,
    dtype: str,
    *,
    num_cached: int = 0,
    **settings: Any,
) -> Outcome:
    """A prompt and its greedy answer. With `num_cached`, so many tokens of the prompt are in the
    prefix cache when it comes."""
    core, runner = make_engine(
        reference.folder, dtype=dtype, cuda_graphs="off", max_num_seqs=1, **settings
    )
    prompt = tuple((i * i * 7 + 13 * i) % 310 + 4 for i in range(PROMPT_LENGTH))
    params = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)
    if num_cached:
        core.add(GenerationRequest(RequestId("before"), (*prompt[:num_cached], 5), params))
        run_to_end(core)
    watch = Watch(runner, monkeypatch)
    core.add(GenerationRequest(RequestId("r"), prompt, params))
    answer = run_to_end(core)["r"].token_ids
    first = min(watch.logits)
    positions = range(first, PROMPT_LENGTH + NUM_TOKENS - 1)
    assert sorted(watch.logits) == list(positions)
    ours = torch.stack([watch.logits[position] for position in positions])
    answered = ours[PROMPT_LENGTH - 1 - first :]
    chosen = answered.gather(1, torch.tensor(answer, device=answered.device)[:, None])[:, 0]
    # Nearly: two may be equally likely after rounding.
    assert bool((answered.amax(-1) - chosen < 0.1).all())
    token_ids = [*prompt, *answer[:-1]]
    exact = reference.logits(token_ids, "float32")[first:]
    return Outcome(ours, reference.logits(token_ids, dtype)[first:], exact, first)


def check(outcome: Outcome, dtype: str) -> None:
    if dtype == "float32":
        assert outcome.error < 1e-5
        assert outcome.agreement == 1.0
        return
    # A part of it is the same for both: the logits themselves are rounded. Ours cannot be far
    # below either, unless something was computed in another dtype than asked for.
    assert outcome.their_error / 5 < outcome.error < outcome.their_error * 1.3


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_error_is_that_of_the_dtype(
    reference: Reference, monkeypatch: pytest.MonkeyPatch, dtype: str, way: str
) -> None:
    check(compute(reference, monkeypatch, dtype, **WAYS[way]), dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("way", ["in one chunk", "in single rows"])
def test_behind_a_cached_prefix(
    reference: Reference, monkeypatch: pytest.MonkeyPatch, dtype: str, way: str
) -> None:
    num_cached = PROMPT_LENGTH * 2 // 3
    outcome = compute(reference, monkeypatch, dtype, num_cached=num_cached, **WAYS[way])
    assert outcome.first == num_cached // 16 * 16
    check(outcome, dtype)


@pytest.mark.parametrize(
    ("settings", "largest_error", "least_agreement"),
    [
        ({"kv_cache_dtype": "fp8"}, 0.1, 0.8),
        ({"quantization": "fp8"}, 0.25, 0.6),
        ({"quantization": "fp8", "kv_cache_dtype": "fp8"}, 0.25, 0.6),
    ],
)
@pytest.mark.parametrize("way", ["in one chunk", "in chunks"])
def test_8_bit_floats_cost_so_much(
    qwen3: Reference,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
    largest_error: float,
    least_agreement: float,
    way: str,
) -> None:
    if DEVICE == "cuda" and torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("needs a GPU with 8-bit floats")
    outcome = compute(qwen3, monkeypatch, "bfloat16", **(WAYS[way] | settings))
    # Three bits behind the point instead of seven: many times the error of bfloat16.
    assert 2 * outcome.their_error < outcome.error < largest_error
    assert outcome.agreement > least_agreement
