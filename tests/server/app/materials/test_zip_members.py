"""Archives: names of any kind are only shown, and what may not be unpacked is told with why."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.app.materials import zip_members
from server.app.materials.document import ParseLimits
from server.app.materials.errors import MaterialError
from server.app.materials.worker_messages import MemberRecord
from server.app.materials.zip_members import MAX_FILES, unpack
from tests.server.app.materials.made_files import zip_of


def members(tmp_path: Path, data: bytes, limits: ParseLimits | None = None) -> list[MemberRecord]:
    into = tmp_path / "into"
    into.mkdir()
    archive = tmp_path / "term.zip"
    archive.write_bytes(data)
    return list(unpack(archive, "term.zip", into, limits or ParseLimits()))


def codes(found: list[MemberRecord]) -> list[str | None]:
    return [member.code for member in found]


def test_names_with_paths_lead_nowhere(tmp_path: Path) -> None:
    names = ["../../../../tmp/escaped.txt", "/etc/passwd.txt", "..\\..\\up.txt", "a/b/c.txt"]
    found = members(tmp_path, zip_of(dict.fromkeys(names, b"text")))
    assert [member.name for member in found] == [name.replace("\\", "/") for name in names]
    assert [member.file for member in found] == [
        str(tmp_path / "into" / f"{n:04d}") for n in range(4)
    ]
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        *("0000", "0001", "0002", "0003"),
        *("into", "term.zip"),
    ]


@pytest.mark.parametrize("encoding", ["gb18030", "utf-8"])
def test_names_without_a_mark_are_read_as_chinese(encoding: str, tmp_path: Path) -> None:
    raw = "实验三.txt".encode(encoding)
    placeholder = b"x" * len(raw)
    data = zip_of({placeholder.decode(): b"text"}).replace(placeholder, raw)
    assert [member.name for member in members(tmp_path, data)] == ["实验三.txt"]


def test_what_systems_put_beside_files_is_passed_over(tmp_path: Path) -> None:
    clutter = ["__MACOSX/._a.txt", ".DS_Store", "b/.hidden.txt", "Thumbs.db", "~$lab.docx"]
    found = members(tmp_path, zip_of(dict.fromkeys([*clutter, "lab.txt"], b"text")))
    assert [member.name for member in found] == ["lab.txt"]


def test_each_file_that_cannot_be_taken_says_why(tmp_path: Path) -> None:
    data = zip_of(
        {
            "inner.zip": b"PK",
            "film.mp4": b"x",
            "zeros.txt": bytes(5_000_000),
            "large.txt": bytes(range(256)) * 8000,
            "fine.md": b"# Fine",
        }
    )
    found = members(tmp_path, data, ParseLimits(max_file_bytes=2_000_000))
    assert codes(found) == ["unsupported", "unsupported", "too_big", "too_big", None]


def test_a_file_that_unpacks_to_far_more_than_it_is_is_refused(tmp_path: Path) -> None:
    assert codes(members(tmp_path, zip_of({"zeros.txt": bytes(5_000_000)}))) == [
        "inflates_too_much"
    ]


def test_a_broken_member_leaves_no_file_and_the_others_are_unpacked(tmp_path: Path) -> None:
    data = zip_of({"a.txt": b"first text " * 50, "b.txt": b"second"})
    broken = bytearray(data)
    broken[45] ^= 0xFF  # in the middle of the first member's data
    found = members(tmp_path, bytes(broken))
    assert codes(found) == ["not_this_format", None]
    assert [path.name for path in (tmp_path / "into").iterdir()] == ["0001"]


def test_an_encrypted_member_asks_for_the_password(tmp_path: Path) -> None:
    data = bytearray(zip_of({"a.txt": b"text"}))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    assert codes(members(tmp_path, bytes(data))) == ["password_required"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"no zip", "not_this_format"),
        (zip_of({f"{n}.txt": b"" for n in range(MAX_FILES + 1)}), "too_many_files"),
    ],
)
def test_an_archive_that_is_none_or_too_much_is_refused(
    data: bytes, code: str, tmp_path: Path
) -> None:
    with pytest.raises(MaterialError) as refused:
        members(tmp_path, data)
    assert refused.value.code == code


def test_sizes_are_added_up_before_anything_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zip_members, "MAX_UNPACKED_BYTES", 1_000_000)
    data = zip_of({f"{n}.txt": bytes(300_000) for n in range(4)})
    with pytest.raises(MaterialError) as refused:
        members(tmp_path, data)
    assert refused.value.code == "inflates_too_much"
    assert list((tmp_path / "into").iterdir()) == []
