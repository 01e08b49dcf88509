"""`load_model`: which reader is used, what dtype and device are chosen, dummy weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.config import EngineConfig
from engine.errors import ModelLoadError, UnsupportedModelError
from engine.models import registry
from engine.models.decoder import Decoder
from engine.models.registry import choose_device, choose_dtype, load_model
from tests.engine.models.running import logits_of
from tests.support.gguf_files import write_gguf

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_missing_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="nowhere"):
        load_model(EngineConfig(model=tmp_path / "nowhere"))


def test_unsupported_architecture_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["T5Model"]}', "utf-8")
    with pytest.raises(UnsupportedModelError, match="T5Model"):
        load_model(EngineConfig(model=tmp_path))


def test_gguf_whatever_its_name(tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.bin", tiny_model("llama"))
    assert load_model(EngineConfig(model=path)).config.architecture == "LlamaForCausalLM"


def test_progress_ends_at_one(tiny_model: Callable[[str], Path]) -> None:
    reports: list[tuple[str, float | None]] = []
    load_model(
        EngineConfig(model=tiny_model("llama")), lambda text, done: reports.append((text, done))
    )
    assert reports[0] == ("Loading llama", 0.0)
    assert reports[-1] == ("Loading llama", 1.0)


def test_length_of_the_rotary_table(tiny_model: Callable[[str], Path]) -> None:
    folder = tiny_model("llama")
    for max_model_len, num_positions in ((None, 512), (300, 300)):
        model = load_model(EngineConfig(model=folder, max_model_len=max_model_len)).model
        assert isinstance(model, Decoder)
        assert model.rotary.num_positions == num_positions
    with pytest.raises(ModelLoadError, match="max_model_len is 700"):
        load_model(EngineConfig(model=folder, max_model_len=700))


def test_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_dtype("float16", CPU, None) == torch.float16
    monkeypatch.setattr(registry, "can_multiply_bfloat16_fast", lambda: False)
    assert choose_dtype("auto", CPU, "bfloat16") == torch.float32
    monkeypatch.setattr(registry, "can_multiply_bfloat16_fast", lambda: True)
    assert choose_dtype("auto", CPU, "float32") == torch.bfloat16
    assert choose_dtype("auto", CUDA, "float16") == torch.float16
    assert choose_dtype("auto", CUDA, "float32") == torch.bfloat16


def test_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == CPU
    with pytest.raises(ModelLoadError, match="no CUDA device"):
        choose_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto") == CUDA


def dummy(folder: Path) -> EngineConfig:
    return EngineConfig(model=folder, load_format="dummy", dtype="float32", device="cpu")


@pytest.mark.parametrize("name", ["llama_biases", "qwen2", "qwen3"])
def test_dummy_weights_need_only_a_configuration(
    name: str, tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    config = json.loads((tiny_model(name) / "config.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    one, two = load_model(dummy(tmp_path)), load_model(dummy(tmp_path))
    ids = one.tokenizer.encode("你好 hello<|im_end|>", parse_special=True)
    assert ids[-1] == 258
    assert one.tokenizer.decode(ids) == "你好 hello"
    logits = logits_of(one.model, ids)
    assert logits.shape == (len(ids), 320)
    assert logits.isfinite().all()
    assert logits.std() > 0
    assert torch.equal(logits, logits_of(two.model, ids))  # seeded


def test_dummy_weights_use_the_tokenizer_that_is_there(tiny_model: Callable[[str], Path]) -> None:
    loaded = load_model(dummy(tiny_model("llama")))
    assert loaded.tokenizer.special_tokens["<|im_end|>"] == 2
