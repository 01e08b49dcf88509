"""The server over a scripted engine whose answers have no end and are fast: 1 KiB in each token, no
pause. `ServerProcess(…, module="tests.e2e.endless_server")`."""

from __future__ import annotations

import sys

from engine.api import Engine, Script, create_scripted_engine
from server.__main__ import main
from server.config import ServerConfig
from server.console import Console

TOKEN = b"x" * 1024
SHORT = "a short answer"


def answer(prompt: str) -> list[bytes]:
    """Endless, but for who asks for a short one."""
    return [b"word "] * 40 if SHORT in prompt else [TOKEN] * 1_000_000


def make_engine(config: ServerConfig, _: Console) -> Engine:
    """The engine with that script."""
    engine_config = config.engine_config(config.data_path / "scripted", served_name="scripted")
    script = Script(answer=answer, token_s=config.scripted_token_s)
    return create_scripted_engine(engine_config, script)


if __name__ == "__main__":
    sys.exit(main(make_engine=make_engine))
