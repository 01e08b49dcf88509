"""The composition root's words and exit codes."""

from __future__ import annotations

import logging
import signal
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from sqlalchemy.exc import OperationalError

from engine.api import ModelLoadError, UnsupportedModelError
from server import __main__ as entry
from server.host import EngineFailedError, PortError
from server.model_source import ModelSourceError
from server.version import VERSION


@pytest.fixture(autouse=True)
def process_state() -> Iterator[None]:
    """`main` owns its process: puts back what it changes."""
    terminate, root = signal.getsignal(signal.SIGTERM), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    signal.signal(signal.SIGTERM, terminate)
    root.handlers[:], root.level = handlers, level


def run(tmp_path: Path, error: BaseException) -> int:
    """`main` whose engine cannot be made because of `error`."""

    def fail(*_: object) -> NoReturn:
        raise error

    return entry.main(["--port", "0", "--data-dir", str(tmp_path)], fail)


@pytest.mark.parametrize(
    "error",
    [
        ModelLoadError("model.safetensors is cut off."),
        UnsupportedModelError("Mamba is not supported."),
        ModelSourceError("There is no such model."),
        PortError("Port 1 is in use."),
        PermissionError(13, "Permission denied", "/data"),
        OperationalError("select", {}, Exception("unable to open database file")),
    ],
)
def test_what_may_go_wrong_is_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
) -> None:
    assert run(tmp_path, error) == entry.EXIT_FAILURE
    err = capsys.readouterr().err
    assert err.startswith("Lectern cannot start: ")
    assert len(err.splitlines()) == 1
    words = error.orig if isinstance(error, OperationalError) else error
    assert str(words).rstrip(".") in err


@pytest.mark.parametrize(
    ("options", "words", "code"),
    [
        (["--otlp-endpoint", "http://127.0.0.1:9"], "extra 'tracing'", entry.EXIT_USAGE),
        (["--scripted"], "is no file of API keys", entry.EXIT_FAILURE),
    ],
)
def test_what_it_cannot_keep_or_trace_with_is_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    words: str,
    code: int,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    (tmp_path / "api-keys.json").write_text("{")
    assert entry.main(["--port", "0", "--data-dir", str(tmp_path), *options]) == code
    err = capsys.readouterr().err
    assert words in err
    assert len(err.splitlines()) == 1


def test_a_failed_engine_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = EngineFailedError("The engine failed.")
    assert run(tmp_path, error) == entry.EXIT_FAILURE
    assert capsys.readouterr().err == "The engine failed.\n"


def test_bugs_keep_their_traceback(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        run(tmp_path, ZeroDivisionError())


def test_ctrl_c_before_the_server_is_ready(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, KeyboardInterrupt()) == entry.EXIT_OK
    assert "Stopped before it was ready." in capsys.readouterr().out


def test_sigterm_before_the_server_is_ready(tmp_path: Path) -> None:
    def terminated(*_: object) -> NoReturn:
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("the signal was ignored")

    assert entry.main(["--port", "0", "--data-dir", str(tmp_path)], terminated) == entry.EXIT_OK


def test_the_version_is_the_package_s() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION
