"""Whether the server takes a request now. The engine's queue is the only queue."""

from __future__ import annotations

from engine.api import Engine, EngineState
from server.service.errors import ModelUnavailableError, QueueFullError, ShuttingDownError

_RETRY_FULL_MS = 1000


class Ticket:
    """A place among the requests that are answered. Owned by the loop's thread."""

    def close(self) -> None:
        """Gives the place back. Idempotent."""

    def __enter__(self) -> Ticket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Admission:
    """Says no at once, before any work is done for a request. Owned by the loop's thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_draining = False

    @property
    def is_ready(self) -> bool:
        """New work would be taken."""
        return not self._is_draining and self._engine.state is EngineState.READY

    @property
    def state(self) -> str:
        """The engine's state, or `draining` as soon as the server takes no new work."""
        if self._is_draining and self._engine.state is EngineState.READY:
            return EngineState.DRAINING.value
        return self._engine.state.value

    def drain(self) -> None:
        """From now on everything new is refused. Idempotent."""
        self._is_draining = True

    def check(self) -> None:
        """For new work. Raises ShuttingDownError or ModelUnavailableError."""
        if self._is_draining:
            raise _shutting_down()
        self.check_engine()

    def check_run(self) -> None:
        """For a new answer, before anything is looked up or stored for it. Raises QueueFullError
        too. The engine counts once more when it gets the request: its word is the last."""
        self.check()
        limit = self._engine.max_requests
        if self._engine.num_requests >= limit:
            raise QueueFullError(
                f"{limit} requests are running or waiting already.", retry_after_ms=_RETRY_FULL_MS
            )

    def enter(self, account: str, *, num_sequences: int = 1) -> Ticket:
        """A place for one accepted request of `num_sequences` answers, until the ticket is closed.
        Raises RateLimitedError for an account that has too much running."""
        return Ticket()

    def enter_run(self, account: str) -> Ticket:
        """`check_run`, then `enter`."""
        self.check_run()
        return self.enter(account)

    def check_engine(self) -> None:
        """For work that was accepted, perhaps before the drain began: only the engine counts.
        Raises ShuttingDownError or ModelUnavailableError."""
        state = self._engine.state
        if state in (EngineState.DRAINING, EngineState.STOPPED):
            raise _shutting_down()
        if state is EngineState.STARTING:
            raise ModelUnavailableError("The model is still loading.", retry_after_ms=2000)
        if state is EngineState.DEAD:
            raise ModelUnavailableError("The engine has failed; the server must be restarted.")


def _shutting_down() -> ShuttingDownError:
    return ShuttingDownError("The server is shutting down.", retry_after_ms=5000)
