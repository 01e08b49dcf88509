"""The native step: against the same packed weights under torch, and the same bits in any batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.config import EngineConfig
from engine.execution.flat_step import FlatStep
from engine.execution.native_step import NativeDecoderStep, native_decoder
from engine.kernels.attention import AttentionLayout, SequenceSpan, create_attention
from engine.kernels.native.library import NativeEngine
from engine.kv.kv_cache import KVCache
from engine.models.decoder import Decoder
from engine.models.registry import LoadedModel, load_model
from tests.support.native import require_library
from tests.support.tiny_models import build_tiny_model

BLOCK = 16
FORMS = ("llama_tied", "qwen2", "qwen3", "mistral")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def engine() -> NativeEngine:
    return NativeEngine(require_library(), num_threads=2)


def load_any(folder: Path, form: str) -> LoadedModel:
    require_library()
    path = folder / form
    if not path.exists():
        build_tiny_model(path, form)
    return load_model(EngineConfig(model=path, weights="q8", device="cpu"))


def load(folder: Path, form: str) -> Decoder:
    loaded = load_any(folder, form)
    decoder = native_decoder(loaded.model, loaded.packing)
    assert decoder is not None
    return decoder


def make_cache(model: Decoder, dtype: torch.dtype) -> KVCache:
    return KVCache(
        num_layers=model.config.num_layers,
        num_blocks=64,
        block_size=BLOCK,
        num_kv_heads=model.config.num_kv_heads,
        head_dim=model.config.head_dim,
        dtype=dtype,
        device=torch.device("cpu"),
    )


def flat(*parts: tuple[int, list[int], list[int]]) -> FlatStep:
    """Parts are (position of the first token, tokens, blocks); every row samples."""
    token_ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    blocks: list[int] = []
    spans: list[tuple[int, int, int, int]] = []
    for start, tokens, table in parts:
        spans.append((len(token_ids), len(tokens), start + len(tokens), len(blocks)))
        token_ids += tokens
        where = range(start, start + len(tokens))
        positions += where
        slots += [table[i // BLOCK] * BLOCK + i % BLOCK for i in where]
        blocks += table
    columns = np.array(spans, dtype=np.int64).T.copy()
    return FlatStep(
        np.array(token_ids),
        np.array(positions),
        np.array(slots),
        columns[0].copy(),
        columns[1].copy(),
        columns[2].copy(),
        columns[3].copy(),
        np.array(blocks, dtype=np.int32),
        np.arange(len(token_ids)),
        (),
    )


def run(step: NativeDecoderStep, batch: FlatStep) -> Tensor:
    return step.run(batch).clone()  # the next call writes to the same memory


def torch_logits(model: Decoder, tokens: list[int]) -> Tensor:
    cache = make_cache(model, torch.float32)
    count = len(tokens)
    layout = AttentionLayout(torch.arange(count), (SequenceSpan(0, count, count, 0, None),))
    with torch.inference_mode():
        attention = create_attention("reference", cache, layout)
        hidden = model.forward(torch.tensor(tokens), torch.arange(count), attention)
        return model.compute_logits(hidden)


@pytest.mark.parametrize("form", FORMS)
def test_equals_the_decoder_on_torch(engine: NativeEngine, folder: Path, form: str) -> None:
    model = load(folder, form)
    tokens = np.random.default_rng(1).integers(3, 250, 90).tolist()
    expected = torch_logits(model, tokens)
    cache = make_cache(model, torch.float32)
    got = NativeDecoderStep(model, engine, cache).run(flat((0, tokens, list(range(6)))))
    # Inputs of products are rounded to int8: a last bit of difference before that can become one
    # step of the 127 after it.
    spread = float(expected.std())
    assert float((got - expected).abs().mean()) < 0.01 * spread
    assert float((got - expected).abs().max()) < 0.2 * spread


@pytest.mark.parametrize("form", FORMS)
def test_any_batch_gives_the_same_bits(engine: NativeEngine, folder: Path, form: str) -> None:
    model = load(folder, form)
    step = NativeDecoderStep(model, engine, make_cache(model, torch.float16))
    generator = np.random.default_rng(2)
    first, second = (generator.integers(3, 250, size).tolist() for size in (100, 70))
    alone = run(step, flat((0, first, list(range(10)))))
    other = run(step, flat((0, second, list(range(10, 20)))))
    tables = [20, 33, 21, 30, 22, 35, 23], [40, 39, 38, 37, 36]
    # A long chunk with a short one, then decodes beside a chunk, then several rows of drafts.
    mixed = [
        run(step, flat((0, first[:50], tables[0]), (0, second[:3], tables[1]))),
        run(step, flat((50, first[50:51], tables[0]), (3, second[3:60], tables[1]))),
        run(step, flat((51, first[51:55], tables[0]), (60, second[60:61], tables[1]))),
        run(step, flat((61, second[61:], tables[1]), (55, first[55:], tables[0]))),
    ]
    assert torch.equal(mixed[0], torch.cat([alone[:50], other[:3]]))
    assert torch.equal(mixed[1], torch.cat([alone[50:51], other[3:60]]))
    assert torch.equal(mixed[2], torch.cat([alone[51:55], other[60:61]]))
    assert torch.equal(mixed[3], torch.cat([other[61:], alone[55:]]))


def test_only_sampled_rows_pass_the_head(engine: NativeEngine, folder: Path) -> None:
    model = load(folder, "qwen2")
    step = NativeDecoderStep(model, engine, make_cache(model, torch.float16))
    tokens = list(range(3, 60))
    whole = flat((0, tokens, list(range(4))))
    everything = run(step, whole)
    fields = {name: getattr(whole, name) for name in FlatStep.__dataclass_fields__}
    some = run(step, FlatStep(**{**fields, "sample_rows": np.array([2, 56])}))
    assert torch.equal(some, everything[[2, 56]])
    none = run(step, FlatStep(**{**fields, "sample_rows": np.array([], dtype=np.int64)}))
    assert none.shape == (0, everything.shape[1])
    # The cache was written all the same.
    after = run(step, flat((57, [9], list(range(4)))))
    assert torch.equal(after, run(step, flat((0, [*tokens, 9], list(range(10, 14)))))[-1:])


def test_a_form_that_the_step_lacks_is_left_to_torch(folder: Path) -> None:
    loaded = load_any(folder, "gemma2")
    assert loaded.packing is not None
    assert native_decoder(loaded.model, loaded.packing) is None


def test_numbers_that_lead_out_of_memory_are_refused(engine: NativeEngine, folder: Path) -> None:
    model = load(folder, "qwen2")
    step = NativeDecoderStep(model, engine, make_cache(model, torch.float16))
    vocab_size, num_positions = model.config.vocab_size, model.rotary.num_positions
    with pytest.raises(IndexError, match="token id"):
        step.run(flat((0, [vocab_size], [0])))
    with pytest.raises(IndexError, match="token id"):
        step.run(flat((0, [-1], [0])))
    with pytest.raises(IndexError, match="slot"):
        step.run(flat((0, [5], [64])))
    with pytest.raises(IndexError, match="position"):
        step.run(flat((num_positions, [5], list(range(num_positions // BLOCK + 1)))))
