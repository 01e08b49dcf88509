"""The GPU's benchmark in small, on whatever device there is."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from scripts.bench_engine import is_for_gpu
from scripts.bench_gpu import Bench, main
from scripts.gpu_ceilings import measure_ceilings
from scripts.gpu_children import num_compiled_kernels
from scripts.gpu_transformers import build, decode_ms, prefill_rate
from scripts.gpu_work import GPU_WORKS
from scripts.model_shapes import SHAPES, write_shape

CPU = torch.device("cpu")


def test_the_engine_alone_in_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    interval_s, file = sys.getswitchinterval(), tmp_path / "figures.json"
    options = ["--quick", "--through", "async", "core", "--profile", "2", "--repeat", "2"]
    main(["shape:tiny", *options, "--json", str(file), "--set", "dtype=float32"])
    content = json.loads(file.read_text("utf-8"))
    expected = [(name, through) for through in ("core", "async") for name in GPU_WORKS]
    got = [(result["work"]["name"], result["through"]) for result in content["results"]]
    assert got == expected
    for result in content["results"]:
        assert len(result["figures"]) == 2
        assert 0 < result["share"] < 1
        assert (result["decode_ms"] is not None) == (result["work"]["kind"] == "decode")
        if result["work"]["name"] == "shared":
            assert all(run["cached_tokens"] > 0 for run in result["runs"])
    assert content["settings"] == {
        "speculation": "off", "load_format": "dummy", "dtype": "float32",
    }  # fmt: skip
    assert content["profiles"]["2"]["host"]["launch"] > 0
    table = capsys.readouterr().out.rpartition("\n\n")[2]
    assert len(table.splitlines()) == 2 + 2 * (len(GPU_WORKS) + 5) + 1
    assert sys.getswitchinterval() == pytest.approx(interval_s)
    assert gc.get_freeze_count() == 0


def test_no_repeat_begins_after_the_time_limit(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    only = ["--only", "decode-1", "decode-8", "--time-limit", "0", "--through", "core"]
    main(["shape:tiny", "--quick", *only, "--json", str(file)])
    results = json.loads(file.read_text("utf-8"))["results"]
    assert [len(result["figures"]) for result in results] == [1, 1]


def test_a_work_that_fails_costs_no_other_its_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"
    settings = ["--set", "max_model_len=140"]  # `shared` has longer prompts
    only = ["--only", "shared", "decode-1", "--through", "core"]
    main(["shape:tiny", "--quick", *only, *settings, "--json", str(file)])
    results = json.loads(file.read_text("utf-8"))["results"]
    assert [result["work"]["name"] for result in results] == ["decode-1"]
    told = "shared through core failed: it needs 168 tokens; max_model_len is 140"
    assert told in capsys.readouterr().out


def test_command_lines() -> None:
    assert is_for_gpu(["shape:qwen3-8b", "--json", "f"])
    assert is_for_gpu(["folder", "--gpu"])
    assert not is_for_gpu(["smollm2-135m-instruct", "--only", "prefill"])
    with pytest.raises(SystemExit):
        main(["shape:tiny", "--set", "max_num_seq=3"])


def test_a_process_knows_its_age_and_a_fresh_start_is_told(tmp_path: Path) -> None:
    code = (
        "from scripts.gpu_children import process_age_s, fresh_start_s\n"
        "print(process_age_s()); print(fresh_start_s(['shape:tiny']))"
    )
    began_s = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[2], env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    elapsed_s = time.perf_counter() - began_s
    age_s, start_s = map(float, done.stdout.split())
    assert 0 <= age_s < elapsed_s + 0.1
    assert 0.1 < start_s < elapsed_s


def test_compiled_kernels_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "none"))
    assert num_compiled_kernels() == 0
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.cubin").touch()
        (tmp_path / name / f"{name}.json").touch()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assert num_compiled_kernels() == 2


def test_ceilings_are_of_this_machine() -> None:
    """No computer that runs this is slower, or faster by so much."""
    ceilings = measure_ceilings(CPU, quick=True)
    assert 1e7 < ceilings.bytes_per_s < 1e13
    assert 1e6 < ceilings.flops_per_s < 1e15


def test_transformers_answers_with_the_same_shape(tmp_path: Path) -> None:
    model = build(write_shape(SHAPES["tiny"], tmp_path), CPU, torch.float32)
    assert model.config._attn_implementation == "sdpa"
    assert model.lm_head.weight.shape == (512, 64)
    assert decode_ms(model, 2, 4) > 0
    assert prefill_rate(model, 16) > 0


def test_an_engine_for_measurements_is_the_one_that_serves(tmp_path: Path) -> None:
    from engine.api import EngineConfig

    folder = write_shape(SHAPES["tiny"], tmp_path)
    bench = Bench(EngineConfig(folder, load_format="dummy", kv_cache_tokens=256, device="cpu"))
    assert bench.assembly.config.max_num_seqs == 32
    assert bench.vocab_size == 512
    bench.finish_start()
    work = GPU_WORKS["decode-1"].shortened()
    with bench.drive("core") as drive:
        drive.run(work.requests(1, 512))
    assert bench.timed.launch_s > 0
