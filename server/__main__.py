"""The composition root: configuration → model → engine → application → uvicorn.

Exit codes: 0 after a drained stop; 1 when the server cannot start or its engine failed; 2 for a
wrong option. What is expected to go wrong is one sentence on stderr, never a traceback.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from engine.api import Engine, EngineError, Script, create_engine, create_scripted_engine
from server.command_line import ConfigError, load_config
from server.config import ServerConfig
from server.console import Console

if TYPE_CHECKING:
    from server.service.tracing import Tracing

MakeEngine = Callable[[ServerConfig, Console], Engine]
"""The engine for a configuration, not started yet; says on the console what takes time."""

EXIT_OK, EXIT_FAILURE, EXIT_USAGE = 0, 1, 2

# The interpreter's default of 5 ms lets the engine's thread keep the loop waiting that long, and
# the loop the engine, which wants to launch a step as soon as a GPU is done with one. Measured on
# two busy cores with 256 streams and steps of 2.5 ms (scripts/bench_host.py), a device waits 0.4 ms
# a step at 0.2 ms, 0.6 at 0.5, and 0.8 at 1 and 5.
_SWITCH_INTERVAL_S = 0.0002


def main(argv: Sequence[str] | None = None, make_engine: MakeEngine | None = None) -> int:
    """Runs the server, over another engine where `make_engine` says so; returns the exit code."""
    argv = sys.argv[1:] if argv is None else list(argv)
    if argv[:1] == ["import"]:
        from server import import_command

        return import_command.main(argv[1:])
    try:
        config = load_config(argv)
    except ConfigError as error:
        return _refuse(error, EXIT_USAGE)
    console = Console()
    signal.signal(signal.SIGTERM, _interrupt)  # until the event loop has its own handler
    try:
        return _run(config, console, make_engine or _make_engine)
    except KeyboardInterrupt:
        console.say("Stopped before it was ready.")
        return EXIT_OK


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _run(config: ServerConfig, console: Console, make_engine: MakeEngine) -> int:
    # Late, so that --help and a wrong option answer at once.
    from sqlalchemy.exc import SQLAlchemyError

    from server.app.retrieval_setup import RetrievalModelError
    from server.data_folder import DataFolderError, held
    from server.host import EngineFailedError, PortError, bind
    from server.log_lines import configure_logging
    from server.model_source import ModelSourceError
    from server.service.key_store import KeyFileError
    from server.service.tracing import TracingUnavailableError
    from server.store.database import UnsupportedDatabaseError

    configure_logging(config.log_level, config.log_format)
    try:
        tracing = _make_tracing(config)
        with (
            contextlib.closing(bind(config.host, config.port)) as sock,
            held(config.data_path),
        ):
            engine = make_engine(config, console)
            return _serve(config, engine, sock, console, tracing)
    except EngineFailedError as error:
        return _refuse(error, EXIT_FAILURE)
    except TracingUnavailableError as error:
        return _refuse(f"Lectern cannot start: {error}", EXIT_USAGE)
    except (
        PortError,
        DataFolderError,
        ModelSourceError,
        EngineError,
        KeyFileError,
        RetrievalModelError,
    ) as error:
        console.close()
        return _refuse(f"Lectern cannot start: {error}", EXIT_FAILURE)
    except UnsupportedDatabaseError as error:
        return _refuse(f"Lectern cannot start: {error} (--database-url).", EXIT_USAGE)
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        return _refuse(f"Lectern cannot start: the database fails ({reason}).", EXIT_FAILURE)
    except OSError as error:
        return _refuse(f"Lectern cannot start: {error}.", EXIT_FAILURE)


def _make_engine(config: ServerConfig, console: Console) -> Engine:
    from server.model_source import resolve_model

    if config.scripted:
        console.say("Answers come from a script: this is a demonstration without a model.")
        return create_scripted_engine(
            config.engine_config(Path("scripted"), served_name="scripted"),
            Script(token_s=config.scripted_token_s),
        )
    resolved = resolve_model(config.model, config.models_dir, console.say, console.progress)
    console.progress("Starting the engine", None)
    return create_engine(
        config.engine_config(
            resolved.path, served_name=resolved.served_name, is_fallback=resolved.is_fallback
        ),
        console.progress,
    )


def _make_tracing(config: ServerConfig) -> Tracing | None:
    if config.otlp_endpoint is None:
        return None
    from server.service.tracing import otlp_tracing

    return otlp_tracing(config.otlp_endpoint)


def _serve(
    config: ServerConfig,
    engine: Engine,
    sock: socket.socket,
    console: Console,
    tracing: Tracing | None,
) -> int:
    import uvloop

    from server.app.factory import create_app
    from server.host import Hooks, Host

    app = create_app(config, engine, tracing=tracing)

    def on_ready(address: str) -> None:
        # Everything made so far lives as long as the server: the collector need not look at it.
        gc.collect()
        gc.freeze()
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        console.say(f"Lectern is ready: {address}")
        if app.first_link is not None:
            url = (config.public_url or address).rstrip("/") + app.first_link.path
            console.say(f"The first teacher's account is made here, once, within a day: {url}")

    def on_stop() -> None:
        app.refuse_new_work()
        console.say("Stopping: running answers may end. Ctrl-C again stops at once.")

    async def serve() -> None:
        await Host(
            app, config, sock, Hooks(on_ready, on_stop, app.drain, engine.wait_failed)
        ).serve()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve())
    finally:
        if tracing is not None:
            tracing.close()
    console.say("Stopped.")
    return EXIT_OK


def _refuse(message: object, code: int) -> int:
    sys.stderr.write(f"{message}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
