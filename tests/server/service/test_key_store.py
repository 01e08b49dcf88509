"""The file of keys, its writers, and a server that reads it while they write."""

from __future__ import annotations

import hashlib
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from server.service.auth import Auth
from server.service.key_store import (
    FILE_NAME,
    KEY_PREFIX,
    Access,
    KeyFile,
    KeyFileError,
    KeyRing,
    KeyStore,
)
from server.service.key_watch import INTERVAL_S, KeyWatch
from tests.server.service.harness import SECRET, eventually, serving
from tests.server.service.socket_events import close_code


@pytest.fixture
def file(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "folder" / FILE_NAME)


def test_a_key_is_found_and_is_not_in_the_file(file: KeyFile) -> None:
    key = file.create("ci", [Access.METRICS, Access.CHAT, Access.CHAT])
    assert key.startswith(KEY_PREFIX)
    assert len(key) >= len(KEY_PREFIX) + 43, "256 bits"
    found = file.read().find(key)
    assert found is not None
    assert (found.name, found.access) == ("ci", (Access.CHAT, Access.METRICS))
    assert file.read().with_id(found.id) == found
    raw = file.path.read_text()
    assert key not in raw
    assert key.removeprefix(KEY_PREFIX) not in raw
    assert hashlib.sha256(key.encode()).hexdigest() in raw
    for other in ("", key[:-1], key + "x", key.upper(), found.sha256, "\ud800"):
        assert file.read().find(other) is None


def test_only_the_owner_may_read_the_file(file: KeyFile) -> None:
    before = os.umask(0)
    try:
        file.create("ci", [Access.CHAT])
        file.create("other", [Access.CHAT])
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    beside = {path.name for path in file.path.parent.iterdir()}
    assert beside <= {FILE_NAME, f"{FILE_NAME}.lock"}, "what was written aside is gone"


def test_a_revoked_key_is_kept_by_name_only(file: KeyFile) -> None:
    first = file.create("ci", [Access.CHAT])
    with pytest.raises(KeyFileError, match="already"):
        file.create("ci", [Access.CHAT])
    file.revoke("ci")
    assert file.read().find(first) is None
    assert file.read().records[0].revoked is not None
    with pytest.raises(KeyFileError, match="no valid key ci"):
        file.revoke("ci")
    second = file.create("ci", [Access.CHAT])
    assert file.read().find(second) is not None
    assert file.read().find(first) is None
    file.revoke("ci")
    assert [record.revoked is None for record in file.read().records] == [False, False]


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "-x", "x" * 65, "é", "../x"])
def test_names_that_are_none(file: KeyFile, name: str) -> None:
    with pytest.raises(KeyFileError, match="name"):
        file.create(name, [Access.CHAT])
    assert not file.path.exists()


def test_writers_at_once_lose_nothing(file: KeyFile) -> None:
    names = [f"key-{number}" for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda name: file.create(name, [Access.CHAT]), names))
    ring = file.read()
    assert sorted(record.name for record in ring.records) == sorted(names)
    assert all(ring.find(key) is not None for key in keys)


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"keys": 1}', '{"keys": [{"name": "x"}]}', '{"key": []}', '{"keys": [', "\xff"],
)
def test_a_file_that_is_none_is_said_in_words(file: KeyFile, content: str) -> None:
    file.path.parent.mkdir()
    file.path.write_bytes(content.encode("latin-1"))
    with pytest.raises(KeyFileError, match="is no file of API keys"):
        KeyStore(file)
    with pytest.raises(KeyFileError):
        file.create("ci", [Access.CHAT])
    assert file.path.read_bytes() == content.encode("latin-1"), "it is not overwritten"


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="cannot be read"):
        KeyFile(tmp_path).read()


def test_a_server_hears_of_changes(file: KeyFile) -> None:
    store = KeyStore(file)
    assert not store.is_closed
    assert not store.refresh()
    key = file.create("ci", [Access.CHAT])
    assert store.ring.find(key) is None
    assert store.refresh()
    assert not store.refresh()
    assert store.is_closed
    assert store.ring.find(key) is not None
    file.revoke("ci")
    assert store.refresh()
    assert store.ring.find(key) is None
    assert store.is_closed, "a server without valid keys is not an open one"


def test_a_file_that_is_lost_or_broken_opens_nothing(
    file: KeyFile, caplog: pytest.LogCaptureFixture
) -> None:
    key = file.create("ci", [Access.CHAT])
    store = KeyStore(file)
    changes: list[None] = []
    watch = KeyWatch(store, lambda: changes.append(None))
    good = file.path.read_bytes()
    file.path.write_text("broken")
    watch.look()
    watch.look()
    assert store.ring.find(key) is not None, "one typing error does not shut everybody out"
    assert len(caplog.records) == 1
    file.path.write_bytes(good)
    file.path.unlink()
    watch.look()
    assert store.ring.find(key) is None
    assert store.is_closed
    assert len(changes) == 1


def test_a_ring_of_plain_keys() -> None:
    ring = KeyRing.of(["one", "two"])
    assert ring.find("one") is not ring.find("two")
    assert ring.find("three") is None
    assert not KeyStore(ring=KeyRing()).refresh()


@pytest.mark.anyio
@pytest.mark.one_loop
async def test_a_revoked_key_ends_at_once_and_its_sockets_too(file: KeyFile) -> None:
    good, bad = file.create("good", [Access.CHAT]), file.create("bad", [Access.CHAT])
    auth = Auth(SECRET, KeyStore(file))
    async with serving(auth=auth) as server:
        models = "/v1/models"
        bearer = {"Authorization": f"Bearer {bad}"}
        assert (await server.http.get(models, headers=bearer)).status_code == 200
        async with server.socket() as one, server.socket() as two, server.socket() as page:
            await one.hello(token=bad)
            await two.hello(token=good)
            await page.hello(token=auth.new_session()[1])
            file.revoke("bad")
            assert await close_code(one) == 1008
            refused = await server.http.get(models, headers=bearer)
            assert refused.status_code == 401
            assert refused.json()["error"]["code"] == "invalid_api_key"
            await two.send("ping")
            assert (await two.receive())["type"] == "pong"
            await page.send("ping")
            assert (await page.receive())["type"] == "pong"
        assert INTERVAL_S < 1


@pytest.mark.anyio
@pytest.mark.one_loop
async def test_the_first_key_closes_an_open_server(file: KeyFile) -> None:
    async with serving(auth=Auth(SECRET, KeyStore(file))) as server:
        assert (await server.http.get("/v1/models")).status_code == 200
        file.create("first", [Access.CHAT])
        await eventually(lambda: not server.service.auth.is_open)
        assert (await server.http.get("/v1/models")).status_code == 401
