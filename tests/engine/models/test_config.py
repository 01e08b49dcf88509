"""Reading config.json: families, defaults, rope forms, EOS lists, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ModelLoadError, UnsupportedModelError
from engine.models.config import (
    ExpertsConfig,
    read_eos_token_ids,
    read_model_config,
    read_model_folder,
)
from engine.models.rope_config import RopeConfig

CASES = Path(__file__).parents[2] / "cases"

SENSELESS_NUMBERS = (0, -1e-6, math.nan, math.inf, "small", True)
GEMMA_NUMBERS = ("query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping")


def config(architecture: str = "LlamaForCausalLM", **changes: Any) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "vocab_size": 100,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        **changes,
    }


def test_what_a_llama_configuration_leaves_out() -> None:
    read = read_model_config(config())
    assert (read.num_kv_heads, read.head_dim, read.max_position_embeddings) == (4, 16, 2048)
    assert read.rope == RopeConfig(10000.0)
    assert read.rms_norm_eps == 1e-6
    assert not any((read.tie_word_embeddings, read.qkv_bias, read.o_bias, read.qk_norm))
    assert read.layer_windows == (None,) * 4
    assert read.eos_token_ids == ()
    assert read.attention_scale == 16**-0.5
    assert read.is_plain


@pytest.mark.parametrize(
    ("architecture", "attention_bias", "qkv_bias", "o_bias", "qk_norm"),
    [
        ("LlamaForCausalLM", True, True, True, False),
        ("Qwen2ForCausalLM", False, True, False, False),
        ("Qwen3ForCausalLM", True, True, True, True),
        ("Qwen3ForCausalLM", False, False, False, True),
        ("MistralForCausalLM", True, False, False, False),
    ],
)
def test_families_differ_in_biases_and_norms(
    architecture: str, attention_bias: bool, qkv_bias: bool, o_bias: bool, qk_norm: bool
) -> None:
    read = read_model_config(
        config(architecture, attention_bias=attention_bias, num_key_value_heads=2)
    )
    assert (read.qkv_bias, read.o_bias, read.qk_norm) == (qkv_bias, o_bias, qk_norm)


def test_null_head_dim_is_worked_out_and_qwen3_has_its_own_default() -> None:
    assert read_model_config(config(head_dim=None)).head_dim == 16
    assert read_model_config(config("Qwen3ForCausalLM")).head_dim == 128


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({}, (None,) * 4),
        ({"sliding_window": 8}, (None,) * 4),
        (
            {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 3},
            (None, None, None, 8),
        ),
        (
            {
                "use_sliding_window": True,
                "sliding_window": 8,
                "layer_types": ["sliding_attention", "full_attention"] * 2,
            },
            (8, None, 8, None),
        ),
    ],
)
def test_qwen_windows(changes: dict[str, Any], windows: tuple[int | None, ...]) -> None:
    read = read_model_config(config("Qwen2ForCausalLM", **changes))
    assert read.layer_windows == windows


def test_mistral_windows() -> None:
    small = config("MistralForCausalLM", num_key_value_heads=2)
    assert read_model_config(small).layer_windows == (4096,) * 4
    assert read_model_config({**small, "sliding_window": None}).layer_windows == (None,) * 4


@pytest.mark.parametrize(
    ("architecture", "changes", "windows"),
    [
        ("Qwen2MoeForCausalLM", {"use_sliding_window": True}, (8, None, 8, None)),
        (
            "Qwen2MoeForCausalLM",
            {"use_sliding_window": True, "max_window_layers": 2},
            (8, None, None, None),
        ),
        ("Qwen2MoeForCausalLM", {"sliding_window": 0, "use_sliding_window": True}, (None,) * 4),
        ("Qwen3MoeForCausalLM", {"use_sliding_window": True}, (8,) * 4),
        ("Qwen3MoeForCausalLM", {}, (None,) * 4),
        ("Phi3ForCausalLM", {}, (8,) * 4),
        ("Gemma2ForCausalLM", {}, (8, None, 8, None)),
        ("Gemma3ForCausalLM", {}, (8, 8, 8, 8)),
        ("Gemma3ForCausalLM", {"sliding_window_pattern": 3}, (8, 8, None, 8)),
        ("SmolLM3ForCausalLM", {"use_sliding_window": True}, (None, None, None, 8)),
        ("SmolLM3ForCausalLM", {}, (None,) * 4),
    ],
)
def test_windows_of_other_families(
    architecture: str, changes: dict[str, Any], windows: tuple[int | None, ...]
) -> None:
    given = {"num_key_value_heads": 2, "sliding_window": 8, **changes}
    assert read_model_config(config(architecture, **given)).layer_windows == windows


def test_experts_under_both_names_and_layers_without() -> None:
    mixtral = read_model_config(
        config("MixtralForCausalLM", num_local_experts=3, num_key_value_heads=2)
    )
    assert mixtral.experts == ExpertsConfig(3, 2, 128, True, None, (True,) * 4)
    qwen = read_model_config(
        config(
            "Qwen2MoeForCausalLM",
            num_experts=6,
            moe_intermediate_size=24,
            shared_expert_intermediate_size=40,
            decoder_sparse_step=2,
            mlp_only_layers=[3],
        )
    )
    assert qwen.experts == ExpertsConfig(6, 4, 24, False, 40, (False, True, False, False))
    assert read_model_config(config()).experts is None


def test_gemma_scales_caps_and_local_rope() -> None:
    read = read_model_config(
        config(
            "Gemma3ForCausalLM",
            num_key_value_heads=2,
            sliding_window_pattern=2,
            rope_scaling={"rope_type": "linear", "factor": 8.0},
        )
    )
    assert (read.head_dim, read.attention_scale) == (256, 256**-0.5)
    assert (read.embedding_scale, read.norm_offset, read.activation) == (
        8.0,
        1.0,
        "gelu_pytorch_tanh",
    )
    assert read.rope == RopeConfig(1e6, "linear", 8.0)
    assert read.layer_ropes == (RopeConfig(1e4), read.rope) * 2
    gemma2 = read_model_config(config("Gemma2ForCausalLM", num_key_value_heads=2))
    assert (gemma2.attention_soft_cap, gemma2.logits_soft_cap) == (50.0, 30.0)
    assert gemma2.tie_word_embeddings


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("LlamaForCausalLM", {"hidden_act": "gelu"}),
        ("GemmaForCausalLM", {"hidden_activation": "silu"}),
        ("Gemma2ForCausalLM", {}),
        ("MixtralForCausalLM", {"num_key_value_heads": 2}),
        ("SmolLM3ForCausalLM", {}),
        ("Phi3ForCausalLM", {"partial_rotary_factor": 0.5}),
    ],
)
def test_what_is_not_plain(architecture: str, changes: dict[str, Any]) -> None:
    """A step that computes the plain form only must not be given these."""
    assert not read_model_config(config(architecture, **changes)).is_plain


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("Qwen2ForCausalLM", {}),
        ("Qwen3ForCausalLM", {}),
        ("MistralForCausalLM", {"num_key_value_heads": 2}),
        ("Phi3ForCausalLM", {}),
        ("LlamaForCausalLM", {"rope_scaling": {"type": "yarn", "factor": 4.0}}),
        ("SmolLM3ForCausalLM", {"no_rope_layers": [1, 1, 1, 1]}),
    ],
)
def test_what_is_plain(architecture: str, changes: dict[str, Any]) -> None:
    assert read_model_config(config(architecture, **changes)).is_plain


def test_text_part_of_a_model_that_sees_images() -> None:
    """Its sizes may be left out; the dtype and the ids that end an answer stand beside it."""
    content = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "dtype": "bfloat16",
        "eos_token_id": [1, 106],
        "text_config": {"hidden_size": 64, "num_hidden_layers": 6, "sliding_window": 8},
        "vision_config": {"hidden_size": 32},
    }
    read = read_model_config(content)
    assert read.architecture == "Gemma3ForConditionalGeneration"
    assert (read.hidden_size, read.num_heads, read.vocab_size) == (64, 8, 262208)
    assert read.layer_windows == (8,) * 5 + (None,)
    assert (read.dtype, read.eos_token_ids, read.tie_word_embeddings) == (
        "bfloat16",
        (1, 106),
        True,
    )
    assert not read_model_config({**content, "tie_word_embeddings": False}).tie_word_embeddings
    with pytest.raises(ModelLoadError, match="text_config"):
        read_model_config({"architectures": ["Gemma3ForConditionalGeneration"]})


def test_unknown_architecture_is_named_and_the_known_are_listed() -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        read_model_config(config("GPT2LMHeadModel"))
    for name in ("GPT2LMHeadModel", "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM"):
        assert name in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"architectures": None}, "architecture"),
        ({"hidden_act": "relu"}, "relu.*silu, gelu"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "differ by layer type"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ],
)
def test_other_forms_are_refused(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(UnsupportedModelError, match=word):
        read_model_config(config(**changes))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"vocab_size": None}, "lacks vocab_size"),
        ({"hidden_size": "big"}, "hidden_size must be a positive integer"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_key_value_heads": 3}, "no multiple"),
        ({"num_hidden_layers": 2**30}, "num_hidden_layers can be 10000 at most"),
        *(
            ({"rms_norm_eps": value}, "rms_norm_eps must be a positive number")
            for value in SENSELESS_NUMBERS
        ),
        *(
            ({"rope_theta": value}, "rope_theta must be a positive number")
            for value in SENSELESS_NUMBERS
        ),
        *(
            ({key: value, "architectures": ["Gemma2ForCausalLM"]}, key)
            for key in GEMMA_NUMBERS
            for value in SENSELESS_NUMBERS
        ),
        ({"rope_scaling": "linear"}, "rope_scaling must be an object"),
        ({"rope_parameters": [1], "architectures": ["Gemma3ForCausalLM"]}, "rope_parameters"),
        ({"quantization_config": "awq"}, "quantization_config must be an object"),
        ({"mlp_only_layers": 3, "architectures": ["Qwen3MoeForCausalLM"]}, "mlp_only_layers"),
        ({"max_window_layers": "x", "architectures": ["Qwen2ForCausalLM"]}, "max_window_layers"),
        ({"layer_types": 7, "architectures": ["Gemma2ForCausalLM"]}, "layer_types must be a list"),
        (
            {"sliding_window_pattern": 0, "architectures": ["Gemma2ForCausalLM"]},
            "sliding_window_pattern",
        ),
        (
            {"no_rope_layer_interval": 0, "architectures": ["SmolLM3ForCausalLM"]},
            "no_rope_layer_interval",
        ),
        ({"eos_token_id": "</s>"}, "eos_token_id must be an id or a list of ids"),
        ({"eos_token_id": [1, [2]]}, "eos_token_id"),
        ({"rope_scaling": {"type": "linear"}}, "lacks factor"),
        ({"sliding_window": -1, "architectures": ["MistralForCausalLM"]}, "sliding_window"),
        ({"no_rope_layers": [1], "architectures": ["SmolLM3ForCausalLM"]}, "no_rope_layers"),
        ({"layer_types": ["x"], "architectures": ["Gemma2ForCausalLM"]}, "layer type 'x'"),
        ({"layer_types": [], "architectures": ["Gemma2ForCausalLM"]}, "one entry a layer"),
        (
            {"num_experts_per_tok": 9, "architectures": ["MixtralForCausalLM"]},
            r"num_experts_per_tok \(9\) is more than num_experts \(8\)",
        ),
    ],
)
def test_senseless_fields_are_named(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ModelLoadError, match=word):
        read_model_config(config(**changes))


def test_eos_of_both_files() -> None:
    """Only one of several ids was used, and generation ran on into a second turn."""
    case = json.loads((CASES / "MOD-06.json").read_text("utf-8"))
    given = case["input"]
    ids = read_eos_token_ids(given["config.json"], given["generation_config.json"])
    assert list(ids) == case["expect"]["stop_ids"]


@pytest.mark.parametrize(
    ("own", "generation", "ids"),
    [
        (5, None, (5,)),
        ([5, 6], {}, (5, 6)),
        (5, {"eos_token_id": 7}, (5, 7)),
        (None, {"eos_token_id": [9, 8]}, (8, 9)),
        (None, {"eos_token_id": None}, ()),
        (-1, {"eos_token_id": [3]}, (3,)),
    ],
)
def test_eos_as_a_number_or_a_list(
    own: Any, generation: dict[str, Any] | None, ids: tuple[int, ...]
) -> None:
    assert read_eos_token_ids({"eos_token_id": own}, generation) == ids


def test_window_of_a_model_is_capped_unless_asked_for() -> None:
    read = read_model_config(config(max_position_embeddings=100_000))
    assert read.max_model_len(None) == 8192
    assert read.max_model_len(20_000) == 20_000
    assert read_model_config(config()).max_model_len(None) == 2048
    dynamic = read_model_config(config(rope_scaling={"type": "dynamic", "factor": 2.0}))
    assert dynamic.max_model_len(None) == 2048
    assert dynamic.max_model_len(4096) == 4096
    with pytest.raises(ModelLoadError, match="max_model_len is 4097, and the model has 4096"):
        dynamic.max_model_len(4097)
    with pytest.raises(ModelLoadError, match="max_model_len is 2049, and the model has 2048"):
        read_model_config(config()).max_model_len(2049)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"config\.json"):
        read_model_folder(tmp_path)
    (tmp_path / "config.json").write_text("{", "utf-8")
    with pytest.raises(ModelLoadError, match=r"config\.json is not valid JSON"):
        read_model_folder(tmp_path)
    (tmp_path / "config.json").write_text("[]", "utf-8")
    with pytest.raises(ModelLoadError, match="JSON object"):
        read_model_folder(tmp_path)
