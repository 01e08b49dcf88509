"""GET /v1/models and /v1/models/{id}: the served model and its window."""

from __future__ import annotations

import pytest

from tests.server.service.harness import MODEL, serving

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]


async def test_the_one_model_tells_its_window() -> None:
    async with serving(max_model_len=777) as server:
        listed = (await server.http.get("/v1/models")).json()
        one = (await server.http.get(f"/v1/models/{MODEL}")).json()
        missing = await server.http.get("/v1/models/gpt-6")
    assert listed == {"object": "list", "data": [one]}
    assert one["id"] == MODEL
    assert one["max_model_len"] == one["context_length"] == 777
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("name", ["owner/model", "owner%2Fmodel", "a%20b"])
async def test_a_name_may_hold_what_addresses_do_not(name: str) -> None:
    async with serving() as server:
        reply = await server.http.get(f"/v1/models/{name}")
        assert reply.status_code == 404
        assert (
            repr(name.replace("%2F", "/").replace("%20", " ")) in reply.json()["error"]["message"]
        )
