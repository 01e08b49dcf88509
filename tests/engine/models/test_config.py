"""Reading config.json: families, defaults, rope forms, EOS lists, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ModelLoadError, UnsupportedModelError
from engine.models.config import (
    RopeConfig,
    read_eos_token_ids,
    read_model_config,
    read_model_folder,
)

CASES = Path(__file__).parents[2] / "cases"


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
    ("changes", "rope"),
    [
        ({"rope_scaling": None, "rope_theta": 5e5}, RopeConfig(5e5)),
        ({"rope_parameters": None}, RopeConfig(1e4)),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}}, RopeConfig(7.0)),
        ({"rope_scaling": {"type": "linear", "factor": 4}}, RopeConfig(1e4, "linear", 4.0)),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2}}, RopeConfig(1e4, "linear", 2.0)),
        (
            {
                "rope_theta": 5e5,
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 32.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 8192,
                },
            },
            RopeConfig(5e5, "llama3", 32.0, 1.0, 4.0, 8192),
        ),
    ],
)
def test_rope_in_its_old_and_new_forms(changes: dict[str, Any], rope: RopeConfig) -> None:
    assert read_model_config(config(**changes)).rope == rope


@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_unknown_rope_type_is_named(key: str) -> None:
    with pytest.raises(UnsupportedModelError, match=r"'foo'.*default, linear, llama3"):
        read_model_config(config(rope_scaling={key: "foo", "factor": 2.0}))


def test_unknown_architecture_is_named_and_the_known_are_listed() -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        read_model_config(config("GPT2LMHeadModel"))
    for name in ("GPT2LMHeadModel", "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM"):
        assert name in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"architectures": None}, "architecture"),
        ({"hidden_act": "gelu"}, "gelu"),
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
        ({"rms_norm_eps": "small"}, "rms_norm_eps must be a number"),
        ({"rope_scaling": {"type": "linear"}}, "lacks factor"),
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
