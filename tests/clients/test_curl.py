"""curl: streams, old HTTP, large bodies that wait for a word, and encodings we do not have."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.client,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]

QUESTION = {"messages": [{"role": "user", "content": "hello there"}]}
ANSWER = "You asked: hello there"


def curl(env: dict[str, str], *arguments: str) -> tuple[str, str]:
    """The headers (of all replies) and the body."""
    ran = subprocess.run(
        ["curl", "-sS", "--max-time", "30", "-D", "/dev/stderr", *arguments],
        check=True,
        env=env,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    return ran.stderr.lower(), ran.stdout


def post(env: dict[str, str], url: str, body: Any, *arguments: str) -> tuple[str, str]:
    data = body if isinstance(body, str) else json.dumps(body)
    json_type = ("-H", "Content-Type: application/json")
    return curl(env, *json_type, "--data-binary", data, *arguments, url)


def streamed_text(body: str) -> str:
    assert body.endswith("data: [DONE]\n\n")
    chunks = [json.loads(event[6:]) for event in body.split("\n\n")[:-2]]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


@pytest.mark.parametrize("version", ["--http1.1", "--http1.0"])
def test_stream(address: str, client_env: dict[str, str], version: str) -> None:
    url = f"{address}/v1/chat/completions"
    headers, body = post(client_env, url, {**QUESTION, "stream": True}, "-N", version)
    assert " 200 " in headers
    assert "content-type: text/event-stream" in headers
    assert streamed_text(body) == ANSWER


def test_whole_by_http_1_0(address: str, client_env: dict[str, str]) -> None:
    _, body = post(client_env, f"{address}/v1/chat/completions", QUESTION, "--http1.0")
    assert json.loads(body)["choices"][0]["message"]["content"] == ANSWER


def test_a_large_body_waits_for_the_word(
    address: str, client_env: dict[str, str], tmp_path: Path
) -> None:
    """curl asks with `Expect: 100-continue` before it sends more than a megabyte."""
    url = f"{address}/v1/chat/completions"
    large = tmp_path / "large.json"
    large.write_text(json.dumps({**QUESTION, "padding": "x" * 1_500_000}))
    headers, body = post(client_env, url, f"@{large}", "-H", "Expect: 100-continue")
    assert "100 continue" in headers
    assert "x-lectern-ignored: padding" in headers
    assert json.loads(body)["choices"][0]["message"]["content"] == ANSWER


def test_a_body_that_is_too_large_gets_its_answer(
    address: str, client_env: dict[str, str], tmp_path: Path
) -> None:
    url = f"{address}/v1/chat/completions"
    large = tmp_path / "large.json"
    large.write_text(json.dumps({**QUESTION, "padding": "x" * 3_000_000}))
    headers, body = post(client_env, url, f"@{large}")
    assert " 413 " in headers
    assert json.loads(body)["error"]["code"] == "request_too_large"


def test_compression_may_be_asked_for(address: str, client_env: dict[str, str]) -> None:
    url = f"{address}/v1/chat/completions"
    _, body = post(client_env, url, {**QUESTION, "stream": True}, "-N", "--compressed")
    assert streamed_text(body) == ANSWER


def test_one_connection_serves_several_requests(address: str, client_env: dict[str, str]) -> None:
    urls = [f"{address}/v1/models", f"{address}/health", f"{address}/v1/models/scripted"]
    headers, body = curl(client_env, "-w", " %{num_connects}\n", *urls)
    assert headers.count(" 200 ") == 3
    assert [line.rsplit(" ", 1)[1] for line in body.splitlines()] == ["1", "0", "0"]


def test_head_and_other_methods(address: str, client_env: dict[str, str]) -> None:
    headers, _ = curl(client_env, "-I", f"{address}/health")
    assert " 200 " in headers
    headers, body = curl(client_env, "-X", "PUT", f"{address}/v1/chat/completions")
    assert " 405 " in headers
    assert "allow: post" in headers
    assert json.loads(body)["error"]["code"] == "method_not_allowed"
