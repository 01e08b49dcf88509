"""The engine's exceptions.

EngineError
├── InvalidRequestError      the caller's fault; `param` names the field. Do not retry unchanged.
│   └── PromptTooLongError   the prompt leaves no room for one token, or can never fit the cache
├── OverloadedError          the queue is full; retry later (`retry_after_s`)
├── ShuttingDownError        the engine takes no new work
├── EngineDeadError          the engine thread failed; only a restart helps
├── StreamBusyError          a second reader on a one-reader stream: a bug of the caller
└── ModelLoadError           at start: a file, a tensor or an architecture is not usable
    └── UnsupportedModelError  names the architecture or option, and lists what is supported
"""

from __future__ import annotations


class EngineError(Exception):
    """Root of everything the engine raises on purpose."""


class InvalidRequestError(EngineError):
    """A field of the request is wrong. `param` is the field's name."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class PromptTooLongError(InvalidRequestError):
    """The prompt does not fit; the message names the prompt's size and the limit, in tokens."""

    def __init__(self, num_tokens: int, limit: int, *, what: str = "context window") -> None:
        super().__init__(
            f"The prompt is too long: it has {num_tokens} tokens; the {what} is {limit} tokens "
            "and at least one must remain for the answer.",
            param="messages",
        )
        self.num_tokens = num_tokens
        self.limit = limit


class OverloadedError(EngineError):
    """The waiting queue is full."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ShuttingDownError(EngineError):
    """The engine is draining and takes no new requests."""


class EngineDeadError(EngineError):
    """The engine thread has ended by an error; no request can be answered any more."""


class StreamBusyError(EngineError):
    """A second consumer tried to read a stream that has one reader."""


class ModelLoadError(EngineError):
    """A model could not be loaded; the message names the file, tensor or field."""


class UnsupportedModelError(ModelLoadError):
    """The model's architecture or an option of its configuration is not supported."""
