"""The README's programs, run as they stand there against a server."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server_process import ServerProcess

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
ADDRESS = "127.0.0.1:8000"
QUESTION = "What is a KV cache?"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("readme")
    with ServerProcess(folder, "--scripted", "--scripted-token-s", "0") as server:
        yield server.address.removeprefix("http://")


def program_with(words: str) -> str:
    """The one Python example that holds `words`."""
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (program,) = [block for block in blocks if words in block]
    assert isinstance(program, str)
    return program


def run_python(program: str, address: str) -> str:
    assert ADDRESS in program
    command = [sys.executable, "-c", program.replace(ADDRESS, address)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def test_openai_client(address: str) -> None:
    out = run_python(program_with("import OpenAI"), address)
    assert QUESTION in out
    assert "[stop]" in out
    assert "cached_tokens" in out


def test_websocket_client(address: str) -> None:
    program = program_with("import connect")
    code = [line for line in program.splitlines() if line.strip() and "import" not in line]
    assert len(code) <= 10, "the README promises ten lines"
    out = run_python(program, address)
    assert "".join(out.split("\n")).count(QUESTION) == 1
    assert "'finish_reason': 'stop'" in out


def test_curl(address: str) -> None:
    (command,) = re.findall(r"\$ (curl .*?)\n```", README, re.DOTALL)
    arguments = shlex.split(command.replace("qwen2.5-coder-0.5b-instruct", "scripted"))
    arguments = [argument.replace(ADDRESS, address) for argument in arguments]
    out = subprocess.run(
        [*arguments, "-sS"], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    assert out.startswith("data: {")
    assert out.endswith("data: [DONE]\n\n")
