"""The command that makes keys, as a person and a script use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from server import keys
from server.service.key_store import FILE_NAME, Access, KeyFile


def run(folder: Path, *argv: str) -> int:
    return keys.main(["--data-dir", str(folder), *argv])


def test_a_key_is_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "create", "ci", "--access", "batch", "--access", "metrics") == 0
    made = capsys.readouterr()
    key = made.out.strip()
    assert "It is the first one" in made.err
    assert key not in made.err
    found = KeyFile(tmp_path / FILE_NAME).read().find(key)
    assert found is not None
    assert (found.name, found.access) == ("ci", (Access.BATCH, Access.METRICS))
    assert run(tmp_path, "list") == 0
    listed = capsys.readouterr().out
    assert "ci" in listed
    assert "batch, metrics" in listed
    assert key not in listed
    assert found.sha256 not in listed


def test_a_key_is_for_chat_unless_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, "create", "one")
    found = KeyFile(tmp_path / FILE_NAME).read().find(capsys.readouterr().out.strip())
    assert found is not None
    assert found.access == (Access.CHAT,)


def test_a_revoked_key_is_listed_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, "create", "one")
    assert run(tmp_path, "revoke", "one") == 0
    capsys.readouterr()
    run(tmp_path, "list")
    assert "revoked" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["revoke", "nobody"], "no valid key nobody"),
        (["create", "a b"], "name"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str], words: str
) -> None:
    assert run(tmp_path, *argv) == keys.EXIT_FAILURE
    told = capsys.readouterr()
    assert words in told.err
    assert len(told.err.splitlines()) == 1
    assert not told.out


@pytest.mark.parametrize("argv", [[], ["create"], ["create", "x", "--access", "admin"], ["show"]])
def test_wrong_options(tmp_path: Path, argv: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        run(tmp_path, *argv)
    assert stop.value.code == 2
    assert not (tmp_path / FILE_NAME).exists()


def test_it_writes_where_the_server_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "empty", "list") == 0
    assert "no keys" in capsys.readouterr().out
    monkeypatch.setenv("LECTERN_DATA_DIR", str(tmp_path / "folder"))
    assert keys.main(["create", "by-environment"]) == 0
    assert (tmp_path / "folder" / FILE_NAME).exists()
    monkeypatch.setenv("LECTERN_API_KEYS_FILE", str(tmp_path / "named.json"))
    assert keys.main(["create", "named"]) == 0
    assert (tmp_path / "named.json").exists()
    assert keys.main(["--file", str(tmp_path / "option.json"), "create", "option"]) == 0
    assert (tmp_path / "option.json").exists()
