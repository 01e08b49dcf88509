"""The lock of the data folder, where the file system has none."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import NoReturn

import pytest

from server.data_folder import DataFolderError, held


def failing(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_file: int, _operation: int) -> NoReturn:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", fail)


def test_it_is_held_once_and_free_again(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    for _ in range(2):
        with held(folder), pytest.raises(DataFolderError, match=str(folder)), held(folder):
            pass


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_said_and_used(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing(code, monkeypatch)
    with held(tmp_path):
        assert "knows no locks" in caplog.text


def test_another_failure_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(errno.EIO, monkeypatch)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)), held(tmp_path):
        pass
