"""One declaration, four uses: command line, environment, help and engine."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from engine.api import EngineConfig
from server.command_line import ConfigError, describe_range, load_config
from server.config import ServerConfig, default_data_dir, option_name
from server.service.key_store import Access, KeyFile


def test_command_line_wins_over_environment_over_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_config([]).port == 8000
    monkeypatch.setenv("LECTERN_PORT", "81")
    assert load_config([]).port == 81
    assert load_config(["--port", "82"]).port == 82


def test_help_explains_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        load_config(["--help"])
    text = capsys.readouterr().out
    assert stop.value.code == 0
    for name, field in ServerConfig.model_fields.items():
        assert option_name(name) in text
        assert field.description, name
    assert "(default: 8000)" in text
    assert "None" not in text, "a default that is not a value is said in words"


def test_options_without_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_config(["--scripted"]).scripted
    assert not load_config(["--no-enable-prefix-cache"]).enable_prefix_cache
    monkeypatch.setenv("LECTERN_SCRIPTED", "1")
    assert load_config([]).scripted
    assert not load_config(["--no-scripted"]).scripted


@pytest.mark.parametrize("argv", [["--no-such"], ["--por", "1"], ["stray"], ["--port"]])
def test_unknown_option_is_an_error(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        load_config(argv)
    assert stop.value.code == 2
    assert argv[0] in capsys.readouterr().err


def test_unknown_variable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LECTERN_MAX_NUM_SEQ", "3")
    with pytest.raises(ConfigError, match=r"LECTERN_MAX_NUM_SEQ .*Did you mean .*_SEQS\?"):
        load_config([])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--port", "70000"], "--port (or LECTERN_PORT) must be a whole number from 0 to 65535"),
        (["--max-num-seqs", "x"], "must be a whole number from 1 to 4096, not 'x'"),
        (["--device", "tpu"], "must be one of auto, cpu, cuda, not 'tpu'"),
        (["--kv-cache-tokens", "0"], "--kv-cache-tokens (or LECTERN_KV_CACHE_TOKENS) must be"),
        (["--price-currency", "usd"], "must be a text like USD, not 'usd'"),
        (["--max-messages-per-s", "0"], "must be a number from 0.1 to 100000, not '0'"),
        (["--drain-timeout-s", "nan"], "must be a number from 0 to 3600, not 'nan'"),
    ],
)
def test_a_wrong_value_names_field_and_range(argv: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(argv)
    assert message in str(error.value)


@pytest.mark.parametrize("tokens", ["16", "32"])
def test_a_step_has_a_token_for_each_answer_and_one_more(tokens: str) -> None:
    """The engine's own check came only after the model was downloaded."""
    with pytest.raises(ConfigError) as error:
        load_config(["--max-num-batched-tokens", tokens])
    assert f"--max-num-batched-tokens ({tokens})" in str(error.value)
    assert "--max-num-seqs (32)" in str(error.value)
    on_gpu = ["--device", "cuda", "--max-num-batched-tokens", "256"]
    with pytest.raises(ConfigError, match=r"more than --max-num-seqs \(256\)\.$"):
        load_config(on_gpu)
    assert load_config(["--max-num-seqs", "600"]).max_num_seqs == 600, "a GPU has tokens for it"
    with pytest.raises(ConfigError, match=r"--max-num-batched-tokens \(512\)"):
        load_config(["--max-num-seqs", "600", "--device", "cpu"])
    least = load_config(["--max-num-batched-tokens", tokens, "--max-num-seqs", "15"])
    assert least.engine_config(Path("m")).max_num_seqs == 15


@pytest.mark.parametrize("option", ["--quantization", "--kv-cache-dtype"])
def test_eight_bit_floats_need_a_gpu(option: str) -> None:
    with pytest.raises(ConfigError, match=f"{option} fp8 is for a GPU"):
        load_config([option, "fp8", "--device", "cpu"])
    assert load_config([option, "fp8"]).device == "auto", "perhaps there is one"


def test_a_secret_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as error:
        load_config(["--secret", "hunter2"])
    assert "--secret" in str(error.value)
    assert "hunter2" not in str(error.value)
    assert "a-long-enough-secret" not in repr(ServerConfig(secret="a-long-enough-secret"))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_other_machines_are_let_in_only_on_purpose(host: str, tmp_path: Path) -> None:
    argv = ["--host", host, "--data-dir", str(tmp_path)]
    assert load_config(argv).asks_for_login, "the page is for people with an account"
    with pytest.raises(ConfigError, match=r"no API keys.*scripts/keys create.*--insecure"):
        load_config([*argv, "--login", "off"])
    assert not load_config([*argv, "--insecure"]).is_exposed
    named = load_config([*argv, "--api-keys-file", "~/keys.json"])
    assert named.is_exposed
    assert named.keys_path == Path.home() / "keys.json"
    KeyFile(tmp_path / "api-keys.json").create("first", [Access.CHAT])
    found = load_config(argv)
    assert found.is_exposed
    assert found.keys_path == tmp_path / "api-keys.json"


def test_a_name_of_elsewhere_is_an_exposure(tmp_path: Path) -> None:
    """A proxy in front brings other machines to a server that listens on the loopback address."""
    argv = ["--allowed-hosts", "a.example", "--data-dir", str(tmp_path)]
    assert not load_config(argv[2:]).is_exposed
    assert load_config(argv).asks_for_login
    with pytest.raises(ConfigError, match=r"--allowed-hosts a\.example would let other machines"):
        load_config([*argv, "--login", "off"])
    assert not load_config([*argv, "--insecure"]).is_exposed
    assert load_config([*argv, "--api-keys-file", "keys.json"]).is_exposed


def test_names_and_origins() -> None:
    names = ["--allowed-hosts", "A.example, b.example:81,", "--cors-origins", "*"]
    config = load_config([*names, "--insecure"])
    assert config.origins.hosts == {"a.example", "b.example:81"}
    assert config.origins.origins == {"*"}
    assert config.origins.is_local
    assert not load_config(["--host", "0.0.0.0", "--insecure"]).origins.is_local


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--allowed-hosts", "http://a"], "--allowed-hosts: 'http://a' is no host's name"),
        (["--cors-origins", "a.example"], "--cors-origins: 'a.example' is no origin"),
        (["--otlp-endpoint", "collector:4318"], "--otlp-endpoint must be an address such as"),
    ],
)
def test_what_is_no_address_is_refused(argv: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(argv)
    assert message in str(error.value)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_no_permission(host: str) -> None:
    assert load_config(["--host", host]).host == host


def test_configuration_cannot_be_changed() -> None:
    config = ServerConfig()
    with pytest.raises(ValidationError):
        config.port = 1  # type: ignore[misc]
    with pytest.raises(ValidationError):
        ServerConfig(prot=1)  # type: ignore[call-arg]


def test_engine_gets_every_choice_that_is_its_own(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "load_format": "gguf",
        "weights": "float",
        "dtype": "float32",
        "device": "cuda",
        "max_model_len": 1000,
        "kv_cache_tokens": 2000,
        "quantization": "fp8",
        "kv_cache_dtype": "fp8",
        "gpu_memory_utilization": 0.5,
        "execution": "torch",
        "cuda_graphs": "off",
        "block_size": 8,
        "max_num_seqs": 5,
        "max_num_batched_tokens": 99,
        "max_queued_requests": 7,
        "step_time_target_s": 0.125,
        "prefill_step_time_target_s": 0.5,
        "enable_prefix_cache": False,
        "speculation": "off",
        "max_draft_tokens": 6,
        "speculation_max_batch": 9,
        "num_threads": 3,
    }
    config = ServerConfig(data_dir=tmp_path, **values)
    engine = config.engine_config(tmp_path / "m.gguf", served_name="m", is_fallback=True)
    assert {name: getattr(engine, name) for name in values} == values
    assert engine.served_name == "m"
    assert engine.is_fallback
    assert engine.cache_dir == tmp_path / "converted"
    shared = {f.name for f in dataclasses.fields(EngineConfig)} & set(ServerConfig.model_fields)
    assert shared - {"model"} == set(values)


def test_defaults_are_the_engines_own() -> None:
    config, engine = ServerConfig(), EngineConfig(model=Path("x"))
    for field in dataclasses.fields(EngineConfig):
        if field.name in ServerConfig.model_fields and field.name != "model":
            assert getattr(config, field.name) == getattr(engine, field.name), field.name


def test_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_data_dir() == tmp_path / "lectern"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_data_dir() == Path("~/.local/share/lectern")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ServerConfig(data_dir=Path("~/here")).data_path == tmp_path / "here"
    assert ServerConfig(data_dir=Path("~/here")).models_dir == tmp_path / "here" / "models"


def test_every_range_can_be_said() -> None:
    for name in ServerConfig.model_fields:
        assert describe_range(name)
