"""The server over a scripted engine whose answers have 40 tokens, 50 ms each:
`ServerProcess(…, module="tests.e2e.steady_server")`."""

from __future__ import annotations

import sys

from engine.api import Engine, Script, create_scripted_engine
from server.__main__ import main
from server.config import ServerConfig
from server.console import Console

TOKENS = [f"word{n} ".encode() for n in range(40)]


def make_engine(config: ServerConfig, _: Console) -> Engine:
    """The engine with that script."""
    engine_config = config.engine_config(config.data_path / "scripted", served_name="scripted")
    return create_scripted_engine(engine_config, Script(answer=lambda _: TOKENS, token_s=0.05))


if __name__ == "__main__":
    sys.exit(main(make_engine=make_engine))
