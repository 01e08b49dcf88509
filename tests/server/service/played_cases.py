"""Cases of tests/cases that are lists of requests: sent in order, each reply checked."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NoReturn

from engine.api import Script
from tests.server.service.harness import Json, filled, serving
from tests.support.cases import case


def is_met(expect: Json, status: int, body: Json) -> bool:
    """Whether a reply is what the case says, or one of what it says."""
    if "any_of" in expect:
        return any(is_met(one, status, body) for one in expect["any_of"])
    error = body.get("error", {})
    param = error.get("param") or ""
    return (
        status == expect.get("status", 400 if "error_type" in expect else 200)
        and error.get("type") == expect.get("error_type", error.get("type"))
        and param.startswith(expect.get("error_param", ""))
        and error.get("code") == expect.get("error_code", error.get("code"))
        and expect.get("message_contains", "") in error.get("message", "")
    )


async def play(name: str, *, model: Path | None = None, **config: Any) -> list[Json]:
    """Sends a case's requests and checks what it expects of each, and afterwards; the replies."""
    played = case(name)
    expected = played["expect"].get("each", [{"status": 200}] * len(played["input"]["requests"]))
    replies: list[Json] = []
    script = Script(answer=lambda _: "fine")
    async with serving(script, model=model, **config) as server:
        for request, expect in zip(played["input"]["requests"], expected, strict=True):
            began = time.monotonic()
            response = await server.http.request(
                request["method"], request["path"], json=filled(request["json"])
            )
            body = strict_json(response.text)
            assert is_met(expect, response.status_code, body), (expect, response.text)
            assert (time.monotonic() - began) * 1000 < played["expect"].get("max_ms", 5000)
            replies.append(body)
        assert (await server.http.get("/health")).status_code == 200
        assert (await server.chat(max_tokens=4)).status_code == 200
    return replies


def strict_json(text: str) -> Json:
    """Parses by the letter of the standard: no NaN, no Infinity."""

    def refuse(constant: str) -> NoReturn:
        raise AssertionError(f"{constant} is not JSON")

    found: Json = json.loads(text, parse_constant=refuse)
    return found
