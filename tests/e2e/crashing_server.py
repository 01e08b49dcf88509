"""The server over a scripted engine whose thread dies when somebody asks for it: for
`ServerProcess(…, module="tests.e2e.crashing_server")`."""

from __future__ import annotations

import sys

from engine.api import Engine, Script, create_scripted_engine
from server.__main__ import main
from server.config import ServerConfig
from server.console import Console

TRIGGER = "please crash"
SECRET_DETAIL = "the panic's own words"


class Panic(BaseException):
    """As a panic in a native library: no Exception, which handlers would catch."""


def answer(prompt: str) -> str:
    """Endless for a test; a panic for who asks for one."""
    if TRIGGER in prompt:
        raise Panic(SECRET_DETAIL)
    return "going on " * 800


def make_engine(config: ServerConfig, _: Console) -> Engine:
    """The engine with that script."""
    engine_config = config.engine_config(config.data_path / "scripted", served_name="scripted")
    return create_scripted_engine(engine_config, Script(answer=answer, token_s=0.01))


if __name__ == "__main__":
    sys.exit(main(make_engine=make_engine))
