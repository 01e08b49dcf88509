"""The converted copy: made once, whole or not at all, and readable by others."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.config import EngineConfig
from engine.errors import ModelLoadError
from engine.models import gguf_conversion
from engine.models.gguf_conversion import file_digest
from engine.models.registry import LoadedModel, load_model
from tests.engine.models.running import logits_of
from tests.support.gguf_files import write_gguf

IDS = list(range(3, 40))


class Start:
    """Loads one GGUF file with one cache, and keeps what was reported."""

    def __init__(self, path: Path, cache_dir: Path) -> None:
        self.path, self.cache_dir = path, cache_dir
        self.reports: list[tuple[str, float | None]] = []

    def __call__(self, dtype: str = "float32") -> LoadedModel:
        self.reports.clear()
        config = EngineConfig(
            model=self.path,
            cache_dir=self.cache_dir,
            dtype=dtype,  # type: ignore[arg-type]
            device="cpu",
        )
        return load_model(config, lambda text, done: self.reports.append((text, done)))

    @property
    def has_converted(self) -> bool:
        return any(text.startswith("Converting") for text, _ in self.reports)

    @property
    def copies(self) -> list[Path]:
        return sorted(path for path in self.cache_dir.iterdir() if path.is_dir())


@pytest.fixture
def start(tiny_model: Callable[[str], Path], tmp_path: Path) -> Start:
    path = write_gguf(tmp_path / "tiny.gguf", tiny_model("qwen2"), "Q8_0")
    return Start(path, tmp_path / "cache")


def test_second_start_uses_the_copy_and_gives_the_same_model(start: Start) -> None:
    first = start()
    assert start.has_converted
    fractions = [done for text, done in start.reports if "Converting" in text]
    assert fractions[0] == 0.0
    assert fractions[-1] == pytest.approx(1.0)
    assert fractions == sorted(fractions, key=lambda done: done or 0.0)
    second = start()
    assert not start.has_converted
    assert first.config == second.config
    assert torch.equal(logits_of(first.model, IDS), logits_of(second.model, IDS))
    text = "Paging <|im_end|> 缓存"
    assert first.tokenizer.encode(text) == second.tokenizer.encode(text)


def test_copy_equals_the_file_read_directly(start: Start) -> None:
    copied = start()
    direct = load_model(EngineConfig(model=start.path, dtype="float32"))
    assert direct.config.eos_token_ids == copied.config.eos_token_ids
    assert direct.tokenizer.chat_template == copied.tokenizer.chat_template
    assert torch.equal(logits_of(direct.model, IDS), logits_of(copied.model, IDS))


def test_merged_weights_of_the_copy_are_views_of_the_mapped_file(start: Start) -> None:
    model: Any = start().model
    mapping = model.embedding.weight.untyped_storage().data_ptr()
    for layer in model.layers:
        for linear in (layer.qkv, layer.gate_up, layer.output, layer.down):
            assert linear.weight.untyped_storage().data_ptr() == mapping
        assert layer.qkv.bias is not None
        assert layer.qkv.bias.untyped_storage().data_ptr() == mapping


def test_transformers_reads_the_copy(start: Start) -> None:
    ours = start()
    (folder,) = start.copies
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        expected = theirs(torch.tensor([IDS])).logits[0]
    torch.testing.assert_close(logits_of(ours.model, IDS), expected, atol=2e-4, rtol=2e-4)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "Paging lets the cache grow. 缓存按块分配"
    assert ours.tokenizer.encode(text) == tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.chat_template == ours.tokenizer.chat_template


def test_each_dtype_has_its_copy(start: Start) -> None:
    start("float32")
    model = start("bfloat16").model
    assert model.dtype == torch.bfloat16
    assert [path.name.rpartition("-")[2] for path in start.copies] == ["bfloat16", "float32"]


def test_changed_file_is_converted_anew(start: Start, tiny_model: Callable[[str], Path]) -> None:
    start()
    write_gguf(start.path, tiny_model("llama"), "Q8_0")
    assert start().config.architecture == "LlamaForCausalLM"
    assert len(start.copies) == 2


def test_unchanged_file_is_not_hashed_again(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    start()

    def hash_again(*_: object) -> None:
        raise AssertionError("hashed again")

    monkeypatch.setattr("hashlib.file_digest", hash_again)
    start()
    os.utime(start.path, (1, 1))
    with pytest.raises(AssertionError, match="hashed again"):
        start()


def test_damaged_digest_record_is_made_anew(start: Start) -> None:
    start()
    (start.cache_dir / "digests.json").write_text("{", "utf-8")
    assert len(file_digest(start.path, start.cache_dir, lambda *_: None)) == 64
    start()
    assert not start.has_converted


def test_failed_conversion_leaves_nothing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ModelLoadError("no")

    monkeypatch.setattr(gguf_conversion, "_write_weights", fail)
    with pytest.raises(ModelLoadError):
        start()
    assert start.copies == []


def test_cache_that_cannot_be_written_is_done_without(start: Start) -> None:
    start.cache_dir.write_text("a file where the folder should be", "utf-8")
    loaded = start()
    assert any("No converted copy can be kept" in text for text, _ in start.reports)
    assert loaded.config.architecture == "Qwen2ForCausalLM"
    assert logits_of(loaded.model, IDS).isfinite().all()


def test_full_disk_is_done_without(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("engine.models.safetensors_file.SafetensorsWriter.put", fail)
    loaded = start()
    assert any("No space left on device" in text for text, _ in start.reports)
    assert start.copies == []
    assert logits_of(loaded.model, IDS).isfinite().all()


def test_copy_of_another_format_is_made_anew(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    start()
    monkeypatch.setattr(gguf_conversion, "_FORMAT", 2)
    start()
    assert start.has_converted
    start()
    assert not start.has_converted


def test_leavings_of_a_killed_conversion_are_removed(start: Start) -> None:
    start.cache_dir.mkdir()
    old, new = start.cache_dir / ".building-old", start.cache_dir / ".building-new"
    old.mkdir()
    new.mkdir()
    os.utime(old, (1, 1))
    start()
    assert not old.exists()
    assert new.exists()
