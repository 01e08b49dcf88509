"""One real server for all clients, and each client in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.server_process import ServerProcess

PROGRAMS = Path(__file__).parent / "programs"
TIMEOUT_S = 90.0

Run = Callable[..., Any]


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`http://127.0.0.1:PORT` of a server whose script repeats the question, 4 characters in
    5 ms."""
    folder = tmp_path_factory.mktemp("clients")
    with ServerProcess(folder, "--scripted", "--scripted-token-s", "0.005") as server:
        yield server.address


@pytest.fixture(scope="session")
def client_env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a client: nothing of ours, a home of its own, and no way out: whatever
    is not this machine goes to a proxy that does not exist."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path_factory.mktemp("home")),
        "PYTHONIOENCODING": "utf-8",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "127.0.0.1",
        "LANGSMITH_TRACING": "false",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


@pytest.fixture(scope="session")
def run_program(address: str, client_env: dict[str, str]) -> Run:
    """Runs one of `programs` with the server's address; what it prints last is its result."""

    def run(name: str) -> Any:
        ran = subprocess.run(
            [sys.executable, str(PROGRAMS / name), address],
            check=False,
            env=client_env,
            capture_output=True,
            encoding="utf-8",
            timeout=TIMEOUT_S,
        )
        assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
        return json.loads(ran.stdout.splitlines()[-1])

    return run
