from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.bench_work import WORKS
from scripts.compare_llama import (
    Llama,
    batched_command,
    bench_command,
    read_batched_bench,
    read_bench,
    read_version,
)
from scripts.compare_llama_build import SERVER, TARGETS, LlamaSetting, llama_settings
from scripts.compare_worker import ChildError

SETTING = LlamaSetting(Path("m.gguf"), "file", flash_attention=False)


def options(command: list[str]) -> dict[str, str]:
    return dict(zip(command[1::2], command[2::2], strict=True))


def test_prefill_reads_a_prompt_and_generates_nothing() -> None:
    asked = options(bench_command(SETTING, WORKS["prefill"]))
    assert (asked["-p"], asked["-n"], asked["-d"]) == ("1000", "0", "0")
    assert asked["-fa"] == "off"


@pytest.mark.parametrize(("name", "depth"), [("decode-empty", "0"), ("decode-650", "650")])
def test_decode_begins_at_the_depth_of_the_context(name: str, depth: str) -> None:
    asked = options(bench_command(SETTING, WORKS[name]))
    assert (asked["-p"], asked["-n"], asked["-d"]) == ("0", str(WORKS[name].num_tokens), depth)


def test_the_cache_of_the_batch_holds_every_sequence_to_its_end() -> None:
    asked = options(batched_command(SETTING, WORKS["decode-16"]))
    assert (asked["-npl"], asked["-npp"], asked["-ntg"]) == ("16", "600", "64")
    assert int(asked["-c"]) == 16 * (600 + 64)


def test_the_rate_is_read_from_llama_bench() -> None:
    test = {"n_prompt": 1000, "avg_ts": 279.870838, "samples_ts": [279.871]}
    assert read_bench(json.dumps([test])) == 279.870838
    with pytest.raises(ChildError, match="2 tests"):
        read_bench(json.dumps([test, test]))


def test_the_rate_of_the_batch_is_that_of_generation_alone() -> None:
    told = {"pp": 600, "tg": 64, "pl": 16, "speed_pp": 282.3, "speed_tg": 178.3, "speed": 265.1}
    text = f"some log line\n{json.dumps(told)}\n\nanother\n"
    assert read_batched_bench(text) == 178.3
    with pytest.raises(ChildError, match="0 results"):
        read_batched_bench("some log line\n")


def test_the_version_is_found_among_other_lines() -> None:
    text = "warning: x\nversion: 0.5.0-dev (build 1, commit 0c1e570)\nbuilt with GNU\n"
    assert read_version(text) == "0.5.0-dev (build 1, commit 0c1e570)"
    assert read_version("") == "unknown"


def test_each_slot_of_the_server_has_room_for_one_request(tmp_path: Path) -> None:
    for target in TARGETS:
        (tmp_path / target).touch()
    llama = Llama(tmp_path, threads=2, timeout_s=1, log=tmp_path / "log")
    command = llama.server_command(SETTING, num_slots=16, tokens_per_slot=1024)
    assert command[0] == str(tmp_path / SERVER)
    asked = options(command)
    assert (asked["-np"], asked["-c"], asked["--host"]) == ("16", "16384", "127.0.0.1")


def test_a_folder_without_programs_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no llama-bench"):
        Llama(tmp_path, threads=2, timeout_s=1, log=tmp_path / "log")


@pytest.mark.anyio
@pytest.mark.one_loop
async def test_further_forms_are_made_once(tmp_path: Path) -> None:
    """A stand-in for llama-quantize: IN, OUT and the form are its last three arguments."""
    quantize = tmp_path / "llama-quantize"
    quantize.write_text('#!/bin/sh\necho "$4" >"$3"\n')
    quantize.chmod(0o755)
    model, cache, log = tmp_path / "m.gguf", tmp_path / "cache", tmp_path / "log"
    model.touch()
    settings = await llama_settings(model, ["file", "Q8_0"], tmp_path, cache, log)
    assert [str(setting) for setting in settings] == [
        "file, flash attention off",
        "file, flash attention on",
        "Q8_0, flash attention off",
        "Q8_0, flash attention on",
    ]
    assert [setting.model for setting in settings[:2]] == [model, model]
    assert settings[2].model.read_text() == "Q8_0\n"
    quantize.unlink()
    assert await llama_settings(model, ["file", "Q8_0"], tmp_path, cache, log) == settings
