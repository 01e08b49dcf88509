"""The server over a scripted engine whose answers have 40 tokens, 50 ms each:
`ServerProcess(…, module="tests.e2e.steady_server")`."""

from __future__ import annotations

import sys
from collections.abc import Callable

from engine.api import Engine, Script, create_scripted_engine
from server.__main__ import main
from server.config import ServerConfig
from server.console import Console


def steady(num_tokens: int) -> Callable[[ServerConfig, Console], Engine]:
    """Makes an engine whose answers have so many tokens."""
    tokens = [f"word{n} ".encode() for n in range(num_tokens)]
    script = Script(answer=lambda _: tokens, token_s=0.05)

    def make_engine(config: ServerConfig, _: Console) -> Engine:
        folder = config.data_path / "scripted"
        return create_scripted_engine(config.engine_config(folder, served_name="scripted"), script)

    return make_engine


if __name__ == "__main__":
    sys.exit(main(make_engine=steady(40)))
