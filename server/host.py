"""uvicorn with this server's own idea of being ready, of signals and of the end.

The order at the end: take no new work, let every stream reach its terminal event, close the
connections, end the lifespan. uvicorn alone would close WebSockets first."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from server.config import ServerConfig
from server.http_protocol import HttpProtocol
from server.lifespan import lifespan
from server.service.ws_protocol import LingeringWebSocketProtocol

_CLOSE_TIMEOUT_S = 3
"""For connections to close once every stream has ended."""

EXIT_FORCED = 130


class PortError(Exception):
    """The address cannot be listened on; the message says why."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the host asks of those who know the engine and the application."""

    on_ready: Callable[[str], None]
    """Called once with the address, when it is listened on and can answer."""
    on_stop: Callable[[], None]
    """Called when the first signal has come."""
    drain: Callable[[], Awaitable[None]]
    """Takes no new work and returns when every stream has had its terminal event."""
    wait_failed: Callable[[], Awaitable[str]]
    """Returns a sentence when the engine has failed; waits until then."""


class EngineFailedError(Exception):
    """The engine failed while serving; everything was drained before this was raised."""


def bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet: a port in use is found before a model is loaded.

    Raises PortError."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise PortError(f"--host {host} is no address of this machine ({error}).") from error
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise PortError(
                f"Port {port} on {host} is in use by another program. "
                "Stop that one, or choose another with --port."
            ) from error
        raise PortError(f"Cannot listen on {host}, port {port} ({error}).") from error
    return sock


def address_of(sock: socket.socket) -> str:
    """`http://127.0.0.1:8000`, with the real port."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Uvicorn(uvicorn.Server):
    """Says when it listens, and leaves the signals alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Host:
    """Serves one app once. Owned by the event loop's thread."""

    def __init__(
        self, app: ASGIApp, config: ServerConfig, sock: socket.socket, hooks: Hooks
    ) -> None:
        self._app = app
        self._config = config
        self._socket = sock
        self._hooks = hooks
        self._stop = asyncio.Event()
        self._is_started = False

    async def serve(self) -> None:
        """Serves until a SIGTERM or Ctrl-C has been drained; a second Ctrl-C exits at once.

        A signal before the app has started cancels the start. Raises what the start raised, or
        EngineFailedError."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal, number)
        serving = asyncio.ensure_future(self._serve())
        stopping = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if self._stop.is_set() and not self._is_started:
            serving.cancel()
            await asyncio.wait([serving])
            if serving.cancelled():
                return
        await serving

    def _on_signal(self, number: int) -> None:
        if not self._stop.is_set():
            self._stop.set()
            self._hooks.on_stop()
        elif number == signal.SIGINT:
            os._exit(EXIT_FORCED)

    async def _serve(self) -> None:
        async with lifespan(self._app):
            self._is_started = True
            server = _Uvicorn(_uvicorn_config(self._app, self._config))
            running = asyncio.ensure_future(server.serve(sockets=[self._socket]))
            listening = asyncio.ensure_future(server.listening.wait())
            stopped = asyncio.ensure_future(self._stop.wait())
            failed = asyncio.ensure_future(self._hooks.wait_failed())
            try:
                await _first(running, listening)
                # It may have failed, or a signal may have come, before it listened.
                if server.listening.is_set() and not self._stop.is_set():
                    self._hooks.on_ready(address_of(self._socket))
                await _first(running, stopped, failed)
                await self._hooks.drain()
            finally:
                server.should_exit = True
                await running
                for waiter in (listening, stopped, failed):
                    waiter.cancel()
            if failed.done() and not failed.cancelled():
                raise EngineFailedError(failed.result())


async def _first(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


def _uvicorn_config(app: ASGIApp, config: ServerConfig) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=HttpProtocol,
        ws=LingeringWebSocketProtocol,
        ws_max_size=config.max_message_bytes,
        # Deltas are small: compressing each would cost more than it saves.
        ws_per_message_deflate=False,
        lifespan="off",  # driven above
        log_config=None,
        access_log=False,
        server_header=False,
        # No proxy is known here, so nobody may name another client address.
        proxy_headers=False,
        timeout_graceful_shutdown=_CLOSE_TIMEOUT_S,
    )
