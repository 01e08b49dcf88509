"""What a model asks of its attention is found, and what cannot be given refuses it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.olmo2 import modeling_olmo2 as olmo2

from engine.errors import UnsupportedModelError
from engine.models.generic import AttentionForm, load_generic
from engine.models.generic_probe import MaskForm, _describe, _problems

CPU = torch.device("cpu")
COMMON = {
    "vocab_size": 320,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def saved(folder: Path, model_type: str, **config: Any) -> Path:
    torch.manual_seed(3)
    build: Any = AutoModelForCausalLM.from_config
    model = build(AutoConfig.for_model(model_type, **{**COMMON, **config}))
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.2)
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("model_type", "config", "reason"),
    [
        ("bloom", {"n_head": 4, "n_layer": 2}, "does not go through transformers' registry"),
        ("falcon", {}, "does not go through transformers' registry"),
        (
            "gpt_oss",
            {
                "num_local_experts": 4,
                "num_experts_per_tok": 2,
                "head_dim": 16,
                "num_key_value_heads": 2,
                "intermediate_size": 32,
                "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
            },
            "attention sinks",
        ),
        (
            "lfm2",
            {
                "layer_types": ["conv", "full_attention"],
                "num_key_value_heads": 2,
                "intermediate_size": 96,
            },
            "it has convolutions",
        ),
        (
            "minimax",
            {
                "layer_types": ["linear_attention", "full_attention"],
                "num_key_value_heads": 2,
                "intermediate_size": 32,
                "num_local_experts": 4,
            },
            "1 of its 2 layers attend in the usual way",
        ),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.filterwarnings("ignore")  # transformers tells of faster kernels that are not there
def test_models_that_need_more_are_refused(
    model_type: str, config: dict[str, Any], reason: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    """Biases of position, sinks, and layers with a state of their own."""
    with pytest.raises(UnsupportedModelError) as caught:
        load_generic(saved(tmp_path, model_type, **config), dtype=dtype, device=CPU)
    assert reason in str(caught.value)


def test_a_trial_tells_what_nothing_else_did(
    tiny_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neighbouring tokens of a step are mixed, which no layer shows."""
    run: Any = olmo2.Olmo2MLP.forward

    def mixing(self: nn.Module, x: Tensor) -> Tensor:
        out: Tensor = run(self, x)
        return out + out.roll(1, dims=1)

    monkeypatch.setattr(olmo2.Olmo2MLP, "forward", mixing)
    with pytest.raises(UnsupportedModelError, match="a trial at start gave other logits"):
        load_generic(tiny_model("olmo2"), dtype=torch.float32, device=CPU)


@pytest.mark.parametrize(
    ("name", "forms"),
    [
        ("starcoder2", [AttentionForm(0, 0.25, 16), AttentionForm(1, 0.25, 16)]),
        ("cohere2", [AttentionForm(0, 0.25, 16), AttentionForm(1, 0.25, None)]),
        ("granite", [AttentionForm(0, 0.2), AttentionForm(1, 0.2)]),
    ],
)
def test_forms(name: str, forms: list[AttentionForm], tiny_model: Callable[[str], Path]) -> None:
    _, model = load_generic(tiny_model(name), dtype=torch.float32, device=CPU)
    assert list(model._forms.values()) == forms


def causal(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return key <= query


@pytest.mark.parametrize(
    ("mask", "local_size", "form"),
    [
        (causal, None, MaskForm(None)),
        (causal, 100, MaskForm(None)),
        (lambda b, h, q, k: (k <= q) & (k > q - 5), 5, MaskForm(5)),
        (lambda b, h, q, k: (k <= q) & (k > q - 4096), 4096, MaskForm(4096)),
    ],
)
def test_masks_that_are_known(
    mask: Callable[..., Tensor], local_size: int | None, form: MaskForm
) -> None:
    assert _describe(mask, local_size) == form


@pytest.mark.parametrize(
    ("mask", "local_size"),
    [
        (lambda b, h, q, k: torch.ones_like(k <= q), None),  # sees what is to come
        (lambda b, h, q, k: (k <= q) & (k // 8 == q // 8), 8),  # chunks
        (lambda b, h, q, k: (k <= q) & (k > q - 6), 5),  # another window than is said
        (lambda b, h, q, k: (k <= q) & ((k > q - 5) | (k < 2)), 5),  # a window and the beginning
    ],
)
def test_masks_of_another_kind(mask: Callable[..., Tensor], local_size: int | None) -> None:
    assert _describe(mask, local_size).problem is not None


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, None),
        ({"dropout": 0.0, "softcap": 3.0, "use_cache": False, "other": None}, None),
        ({"position_bias": torch.zeros(1)}, "'position_bias'"),
        ({"is_causal": False}, "not causal"),
        ({"value": torch.zeros(1, 2, 5, 4)}, "another width"),
        ({"key": torch.zeros(1, 2, 9, 8), "value": torch.zeros(1, 2, 9, 8)}, "from elsewhere"),
        ({"mask": torch.zeros(1, 1, 5, 5)}, "makes itself"),
        ({"mask": MaskForm(problem="a strange mask")}, "strange"),
    ],
)
def test_problems(changes: dict[str, Any], word: str | None) -> None:
    given = {
        "query": torch.zeros(1, 4, 5, 8),
        "key": torch.zeros(1, 2, 5, 8),
        "value": torch.zeros(1, 2, 5, 8),
        "mask": MaskForm(),
        **changes,
    }
    query, key, value, mask = (given.pop(name) for name in ("query", "key", "value", "mask"))
    problems = _problems(nn.Identity(), query, key, value, mask, given)
    assert (problems == []) if word is None else (word in problems[0])
