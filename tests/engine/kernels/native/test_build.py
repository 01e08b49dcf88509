"""Building: what is damaged is built anew, and a compiler that makes nothing is not believed."""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path

import pytest

from engine.kernels.native import build
from engine.kernels.native import library as library_module
from engine.kernels.native.library import load_library


@pytest.fixture
def sound(library: ctypes.CDLL) -> bytes:
    return build.library_path().read_bytes()


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the library lies in these tests."""
    path = tmp_path / "liblectern-test.so"
    monkeypatch.setattr(build, "BUILT_DIR", tmp_path)
    monkeypatch.setattr(build, "library_path", lambda: path)
    monkeypatch.setattr(library_module, "library_path", lambda: path)
    return path


def compiler_that_copies(tmp_path: Path, source: Path | None) -> str:
    """A stand-in for a compiler; without a source it makes an empty file."""
    script = tmp_path / "compiler"
    made = f"cp {source}" if source else "cp /dev/null"
    script.write_text(f'#!/bin/sh\nfor last; do :; done\n{made} "$last"\n')
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize("size", [0, 200, 50_000])
def test_a_damaged_library_is_not_used_and_is_built_anew(
    sound: bytes, place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    place.write_bytes(sound[:size])
    load_library.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            assert load_library() is None
        assert "scripts/setup" in caplog.text
    finally:
        load_library.cache_clear()
    good = tmp_path / "good"
    good.write_bytes(sound)
    assert build.build(compiler_that_copies(tmp_path, good)) == place
    assert place.read_bytes() == sound
    assert build.is_sound(place)


def test_a_compiler_that_makes_nothing_is_an_error(
    library: ctypes.CDLL, place: Path, tmp_path: Path
) -> None:
    left = tmp_path / "tmpkilled.so"
    left.touch()
    with pytest.raises(OSError, match="cannot be loaded"):
        build.build(compiler_that_copies(tmp_path, None))
    assert not place.exists()
    assert not list(tmp_path.glob("*.so")), "nothing half made is left"


def test_the_compiler_may_come_with_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "sh -c")
    assert build.find_compiler() == "sh -c"
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build.find_compiler() is None
