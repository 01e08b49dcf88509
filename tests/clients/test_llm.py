"""The `llm` command against a real server: a streamed prompt, then a whole answer to the next."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MODELS = """\
- model_id: lectern
  model_name: scripted
  api_base: {address}/v1
  api_key_name: lectern
"""


@pytest.mark.client
def test_llm(address: str, client_env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "extra-openai-models.yaml").write_text(MODELS.format(address=address))
    (tmp_path / "keys.json").write_text('{"lectern": "none"}')

    def llm(*arguments: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-m", "llm", *arguments],
            check=False,
            env={**client_env, "LLM_USER_PATH": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.rstrip("\n")

    assert llm("-m", "lectern", "-s", "Be brief.", "hello there") == "You asked: hello there"
    assert llm("-c", "--no-stream", "-o", "max_tokens", "3", "and then?") == "You asked: a"
