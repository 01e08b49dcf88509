"""Bytes on disk: names of our own, whole or not at all."""

from __future__ import annotations

import errno
import io
import os
import stat
import time
from pathlib import Path

import pytest

from server.app.materials.errors import MaterialError
from server.app.materials.files import MaterialFiles
from server.app.materials.upload_errors import StorageFullError


@pytest.fixture
def files(tmp_path: Path) -> MaterialFiles:
    return MaterialFiles(tmp_path / "materials", tmp_path / "uploads")


def test_a_file_is_staged_and_kept_under_its_digest(files: MaterialFiles, tmp_path: Path) -> None:
    staged = files.stage(io.BytesIO(b"hello"), "../../x.md", max_bytes=5)
    assert staged.path.parent == tmp_path / "uploads"
    assert staged.size == 5
    path = files.keep(staged, "c1")
    assert path == tmp_path / "materials" / "c1" / staged.sha256
    assert path.read_bytes() == b"hello"
    assert not staged.path.exists()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    files.remove("c1", staged.sha256)
    files.remove("c1", staged.sha256)
    assert not path.parent.exists()


def test_what_is_too_large_leaves_nothing(files: MaterialFiles, tmp_path: Path) -> None:
    with pytest.raises(MaterialError) as raised:
        files.stage(io.BytesIO(b"hello!"), "x.md", max_bytes=5)
    assert raised.value.code == "too_big"
    assert list((tmp_path / "uploads").iterdir()) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_no_room_is_told_and_leaves_nothing(
    files: MaterialFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageFullError):
        files.stage(io.BytesIO(b"hello"), "x.md", max_bytes=5)
    assert list((tmp_path / "uploads").iterdir()) == []


def test_only_old_leftovers_are_removed(files: MaterialFiles, tmp_path: Path) -> None:
    files.remove_stale()  # where nothing was ever uploaded
    young = files.stage(io.BytesIO(b"young"), "x.md", max_bytes=5)
    old = files.stage(io.BytesIO(b"old"), "x.md", max_bytes=5)
    folder = tmp_path / "uploads" / "unpacking"
    folder.mkdir()
    (folder / "0000").write_bytes(b"x")
    day_ago = time.time() - 86_400
    os.utime(old.path, (day_ago, day_ago))
    os.utime(folder, (day_ago, day_ago))
    files.remove_stale()
    assert list((tmp_path / "uploads").iterdir()) == [young.path]


def test_a_folder_is_gone_after_its_use(files: MaterialFiles) -> None:
    with files.folder() as folder:
        (folder / "x").write_bytes(b"x")
    assert not folder.exists()
