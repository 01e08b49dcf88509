"""API keys: a file of their hashes, who may change it, and how a running server hears of it.

A key is 256 random bits, so its plain SHA-256 is as hard to reverse as the key is to guess. A slow
hash, which passwords need because people choose them, would only make every request slow.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout

FILE_NAME = "api-keys.json"
"""Where the server looks in its data folder."""
KEY_PREFIX = "lk-"
"""By which a scanner for secrets knows one."""
_KEY_BYTES = 32
_ID_CHARS = 24
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_LOCK_TIMEOUT_S = 10.0


class Access(StrEnum):
    """What a caller may do."""

    CHAT = "chat"
    """Ask the model, at any priority."""
    BATCH = "batch"
    """Ask the model, behind everybody who waits for an answer."""
    METRICS = "metrics"
    """Read the metrics."""


class KeyFileError(Exception):
    """The file of keys cannot be used, or not so; the message is a sentence."""


class KeyRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept of a key. `created` and `revoked` are UTC; `revoked` None: it is valid."""

    name: str
    sha256: str
    access: tuple[Access, ...]
    created: datetime
    revoked: datetime | None = None

    @property
    def id(self) -> str:
        """Names the key in user ids, which end up in the database: a part of the hash, from
        which nobody gets the key."""
        return self.sha256[:_ID_CHARS]


class KeyRing:
    """The keys of one moment. Immutable."""

    def __init__(self, records: Iterable[KeyRecord] = ()) -> None:
        self.records = tuple(records)
        valid = [record for record in self.records if record.revoked is None]
        self._by_hash = {record.sha256: record for record in valid}
        self._by_id = {record.id: record for record in valid}

    @classmethod
    def of(cls, keys: Iterable[str]) -> KeyRing:
        """A ring of keys that are in no file; each may do everything."""
        now = datetime.now(UTC)
        return cls(
            KeyRecord(f"key-{number}", _digest(key), tuple(Access), now)
            for number, key in enumerate(keys, 1)
        )

    def find(self, key: str) -> KeyRecord | None:
        """The record of a valid key. What a look-up's time might tell is of hashes, of which a
        caller cannot choose one near another."""
        return self._by_hash.get(_digest(key))

    def with_id(self, key_id: str) -> KeyRecord | None:
        """The record of a valid key, by `KeyRecord.id`."""
        return self._by_id.get(key_id)


class KeyFile:
    """The file, as its writers see it. Stateless; safe among processes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> KeyRing:
        """The keys in the file; none if there is no file. Raises KeyFileError."""
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return KeyRing()
        except OSError as error:
            raise KeyFileError(f"{self.path} cannot be read ({error.strerror}).") from error
        try:
            return KeyRing(msgspec.json.decode(raw, type=_Content).keys)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise KeyFileError(f"{self.path} is no file of API keys ({error}).") from error

    def create(self, name: str, access: Iterable[Access]) -> str:
        """Adds a key and returns it: nobody can read it again. Raises KeyFileError for a name
        that a valid key has, or that is none."""
        if not _NAME.fullmatch(name):
            raise KeyFileError(
                "A key's name has 1 to 64 letters, digits or . _ @ - and begins with a letter or "
                "digit."
            )
        key = KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)
        with self._changing() as records:
            if any(record.name == name and record.revoked is None for record in records):
                raise KeyFileError(f"There is a key {name} already.")
            rights = tuple(one for one in Access if one in set(access))
            records.append(KeyRecord(name, _digest(key), rights, _now()))
        return key

    def revoke(self, name: str) -> None:
        """Ends a key. Raises KeyFileError if no valid key has that name."""
        with self._changing() as records:
            for place, record in enumerate(records):
                if record.name == name and record.revoked is None:
                    records[place] = msgspec.structs.replace(record, revoked=_now())
                    return
            raise KeyFileError(f"There is no valid key {name}.")

    @contextmanager
    def _changing(self) -> Iterator[list[KeyRecord]]:
        """The records, to be changed in the block; written when it ends well. One writer at a
        time, and a reader sees the file before or after, never half of it."""
        lock = FileLock(f"{self.path}.lock", timeout=_LOCK_TIMEOUT_S, mode=0o600)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with lock:
                records = list(self.read().records)
                yield records
                self._write(records)
        except Timeout as error:
            raise KeyFileError(f"Another program keeps {self.path} locked.") from error
        except OSError as error:
            raise KeyFileError(f"{self.path} cannot be written ({error.strerror}).") from error

    def _write(self, records: list[KeyRecord]) -> None:
        content = msgspec.json.format(msgspec.json.encode(_Content(keys=tuple(records))), indent=2)
        fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, self.path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise


class KeyStore:
    """The keys that a server accepts now. Owned by the event loop's thread.

    Once keys were seen the server stays closed: a file that disappears leaves it without valid
    keys, not without a lock. What cannot be read leaves the keys as they were."""

    def __init__(self, file: KeyFile | None = None, ring: KeyRing | None = None) -> None:
        """Of a file, or of a ring that never changes. Raises KeyFileError."""
        self._file = file
        self._stamp = self._look()
        self.ring = ring or (file.read() if file is not None else KeyRing())
        self._is_closed = bool(self.ring.records)

    @property
    def is_closed(self) -> bool:
        """A key is needed: there is one, or was, even if it was revoked since."""
        return self._is_closed

    def close(self) -> None:
        """From now on a key is needed, even before the first is made. Idempotent."""
        self._is_closed = True

    def refresh(self) -> bool:
        """Rereads the file if it has changed; returns whether the keys may be others now. Raises
        KeyFileError once for a change that cannot be read, and then nothing has changed."""
        stamp = self._look()
        if self._file is None or stamp == self._stamp:
            return False
        self._stamp = stamp
        self.ring = self._file.read()
        self._is_closed = self._is_closed or bool(self.ring.records)
        return True

    def _look(self) -> tuple[int, int, int] | None:
        """Changes whenever a writer has put a new file in place."""
        if self._file is None:
            return None
        try:
            found = self._file.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: tuple[KeyRecord, ...] = ()


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
