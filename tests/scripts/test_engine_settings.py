from __future__ import annotations

from pathlib import Path

import pytest

from scripts.engine_settings import engine_config, find_model, parse_settings


def test_fields_get_their_own_types() -> None:
    texts = ["num_threads=2", "dtype=bfloat16", "step_time_target_s=0.1", "cache_dir=/x/y"]
    assert parse_settings([*texts, "enable_prefix_cache=false", "max_model_len=none"]) == {
        "num_threads": 2,
        "dtype": "bfloat16",
        "step_time_target_s": 0.1,
        "cache_dir": Path("/x/y"),
        "enable_prefix_cache": False,
        "max_model_len": None,
    }


@pytest.mark.parametrize(
    "text", ["num_threads", "threads=2", "num_threads=two", "dtype=int3", "enable_prefix_cache=1"]
)
def test_what_does_not_fit_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse_settings([text])


def test_settings_win_over_the_usual_place_for_copies(tmp_path: Path) -> None:
    assert engine_config(tmp_path, {"cache_dir": None}).cache_dir is None
    assert engine_config(tmp_path, {}).cache_dir is not None


def test_a_model_that_is_not_there_is_told_so(tmp_path: Path) -> None:
    assert find_model(str(tmp_path)) == tmp_path
    with pytest.raises(SystemExit, match="neither in the catalogue"):
        find_model(str(tmp_path / "none.gguf"))
