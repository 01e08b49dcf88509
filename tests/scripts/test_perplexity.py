from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from engine.config import EngineConfig
from scripts.perplexity import (
    Errors,
    TappedModel,
    course_text,
    parse_variant,
    window_errors,
    windows,
)
from tests.support.oracle import load_oracle
from tests.support.tiny_models import build_tiny_model


def logits(*rows: tuple[float, ...]) -> torch.Tensor:
    """Logits of rows of probabilities."""
    return torch.tensor(rows).log()


def test_figures_are_those_of_the_definitions() -> None:
    """Vocabulary of two. The last row predicts what comes behind the window: it does not count."""
    reference = logits((0.5, 0.5), (0.75, 0.25), (0.1, 0.9))
    other = logits((0.25, 0.75), (0.5, 0.5), (0.9, 0.1))
    figures = window_errors(reference, other, [0, 1, 0]).figures()
    assert figures["tokens"] == 2
    assert figures["perplexity"] == pytest.approx(math.sqrt(1 / (0.75 * 0.5)))
    first = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    second = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    assert figures["divergence"] == pytest.approx((first + second) / 2)


def test_the_same_predictions_agree_and_do_not_diverge() -> None:
    same = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    errors = window_errors(same, same + 3.0, [1, 2, 3, 4, 5])  # a shift of all logits is none
    assert errors.num_agreed == errors.num_tokens == 4
    assert errors.divergence == pytest.approx(0.0, abs=1e-6)


def test_sums_of_windows_weigh_each_token_alike() -> None:
    total = Errors(1, 2.0, 0.5, 1) + Errors(3, 1.0, 0.1, 0)
    assert total == Errors(4, 3.0, 0.6, 1)


def test_a_short_rest_is_left_out_unless_it_is_all() -> None:
    assert [len(w) for w in windows(range(1000), 400)] == [400, 400, 200]
    assert [len(w) for w in windows(range(990), 400)] == [400, 400]
    assert [len(w) for w in windows(range(9), 400)] == [9]
    assert windows(range(1), 400) == []


def test_both_languages_of_the_sample_course_are_found() -> None:
    english, chinese = course_text("en"), course_text("zh")
    assert len(english) > 5000
    assert len(chinese) > 2000
    assert not any("\u4e00" <= letter <= "\u9fff" for letter in english[:200])


@pytest.mark.parametrize("block_size", [16, 5])
def test_the_logits_of_a_window_are_those_of_the_model(tmp_path: Path, block_size: int) -> None:
    build_tiny_model(tmp_path, "qwen2")
    config = EngineConfig(
        model=tmp_path,
        weights="float",
        dtype="float32",
        block_size=block_size,
        kv_cache_tokens=64,
        max_model_len=64,
    )
    window = [5, 99, 3, 250, 17, 17, 42, 8, 301, 77, 12]
    with torch.inference_mode():
        got = TappedModel(config).logits(window)
        oracle = load_oracle(tmp_path)
        expected = oracle(torch.tensor([window])).logits[0]
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_a_variant_names_what_is_rounded_to_8_bit_floats() -> None:
    float32 = {"weights": "float", "dtype": "float32"}
    assert parse_variant(["weights=q8"]) == ({"weights": "q8"}, ())
    assert parse_variant(["fp8=weights,kv"]) == (float32, ("weights", "kv"))
    assert parse_variant(["fp8=kv", "num_threads=1"]) == ({**float32, "num_threads": 1}, ("kv",))
    with pytest.raises(ValueError, match="'head'"):
        parse_variant(["fp8=head"])


def test_8_bit_floats_change_predictions_a_little(tmp_path: Path) -> None:
    build_tiny_model(tmp_path, "qwen2")
    config = EngineConfig(
        model=tmp_path, weights="float", dtype="float32", kv_cache_tokens=64, max_model_len=64
    )
    window = [5, 99, 3, 250, 17, 17, 42, 8, 301, 77, 12]
    with torch.inference_mode():
        exact, weights, cache, both = (
            TappedModel(config, parts).logits(window).clone()
            for parts in ((), ("weights",), ("kv",), ("weights", "kv"))
        )
    scale = exact.abs().mean()
    for rounded in (weights, cache, both):
        assert 0 < (rounded - exact).abs().mean() < 0.4 * scale
    assert not torch.equal(both, weights)
    assert not torch.equal(both, cache)
