"""The service's exceptions, and the one table that says how each is told to a client.

ServiceError                 code, message, HTTP status, whether and when to retry
├── BadRequestError          the caller's fault; `param` names the field
│   ├── ConflictError        it does not go with what is there already
│   ├── TemplateError        the model's chat template refused the messages
│   └── PromptTooLongError   the prompt leaves no room for one token of an answer
├── BodyTooLargeError        the request body or frame is over the limit
├── UnauthorizedError        no session, or a token that is not known
├── ForbiddenError           known, but not allowed (another origin, another user's run)
├── NotFoundError            no such course, conversation, message, run, route
│   └── ModelNotFoundError   the request names a model that is not served
├── MethodNotAllowedError    the address exists, the method does not
├── ConversationBusyError    a conversation answers one question at a time
├── RateLimitedError         this client has too much running, or has taken too many tokens
├── QueueFullError           the server has too much waiting
├── ResumeGoneError          the run's log is no longer kept; the stored answer is the truth
├── ModelUnavailableError    the engine is starting, or dead
├── ShuttingDownError        the server takes no new work
├── SlowRequestError         the client took too long to send its request
└── InternalError            our fault; the message never holds a trace or a path

`code` is the WebSocket's word (the list is part of the protocol); OpenAI's `type` and `code` are
made from it by `openai_body`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from engine import api as engine_api


class ServiceError(Exception):
    """Root of everything that is told to a client. Instances carry what the client needs."""

    code: ClassVar[str] = "internal"
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    openai_type: ClassVar[str] = "invalid_request_error"
    openai_code: ClassVar[str | None] = None
    default_retry_ms: ClassVar[int | None] = None
    """When to retry, where the place that refuses knows no better."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        retry_after_ms: int | None = None,
        message_zh: str | None = None,
        reason: str | None = None,
    ) -> None:
        """`message_zh`: the message for readers of Chinese. `reason`: a narrower word than `code`,
        told in its place over HTTP."""
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_ms = self.default_retry_ms if retry_after_ms is None else retry_after_ms
        self.message_zh = message_zh
        self.reason = reason

    def event_fields(self) -> dict[str, Any]:
        """The fields of a WebSocket or run `error` event, without `type`, `id` and `run`."""
        fields: dict[str, Any] = {
            "code": self.code,
            "message": self.message,
            "retryable": self.retryable,
        }
        if self.param is not None:
            fields["param"] = self.param
        if self.retry_after_ms is not None:
            fields["retry_after_ms"] = self.retry_after_ms
        return fields

    def openai_body(self) -> bytes:
        """The JSON body `{"error": {"message", "type", "param", "code"}}`, with `message_zh` where
        there is one."""
        fields = {
            "message": self.message,
            "type": self.openai_type,
            "param": self.param,
            "code": self.reason or self.openai_code or self.code,
        }
        if self.message_zh is not None:
            fields["message_zh"] = self.message_zh
        return msgspec.json.encode({"error": fields})


class BadRequestError(ServiceError):
    """A field is missing, of the wrong kind, out of range or not supported."""

    code = "bad_request"
    http_status = 400
    openai_code = "invalid_value"


class ConflictError(BadRequestError):
    """What is asked for does not go with what is there already."""

    http_status = 409


class TemplateError(BadRequestError):
    """The chat template raised; the message holds its words."""

    def __init__(self, message: str) -> None:
        super().__init__(message, param="messages")


class PromptTooLongError(BadRequestError):
    """The prompt does not fit; the message names both sizes, in tokens. `at_least`: the tokens
    were not counted, there cannot be fewer."""

    code = "prompt_too_long"
    openai_code = "context_length_exceeded"

    def __init__(
        self, num_tokens: int, limit: int, *, param: str = "messages", at_least: bool = False
    ) -> None:
        size = f"at least {num_tokens}" if at_least else num_tokens
        super().__init__(
            # Clients that look for longer windows elsewhere know this error by its first words.
            f"The prompt is too long: it has {size} tokens, this model's context window is "
            f"{limit} tokens, and at least one must remain for the answer.",
            param=param,
        )
        self.num_tokens = num_tokens
        self.limit = limit


class BodyTooLargeError(ServiceError):
    code = "bad_request"
    http_status = 413
    openai_code = "request_too_large"


class UnauthorizedError(ServiceError):
    code = "unauthorized"
    http_status = 401
    openai_type = "authentication_error"
    openai_code = "invalid_api_key"


class ForbiddenError(ServiceError):
    code = "forbidden"
    http_status = 403
    openai_type = "permission_error"


class NotFoundError(ServiceError):
    code = "not_found"
    http_status = 404


class ModelNotFoundError(NotFoundError):
    openai_code = "model_not_found"

    def __init__(self, name: str, served: str) -> None:
        super().__init__(
            f"The model {name[:100]!r} does not exist here; this server serves {served!r}.",
            param="model",
        )


class MethodNotAllowedError(ServiceError):
    code = "bad_request"
    http_status = 405
    openai_code = "method_not_allowed"


class ConversationBusyError(ServiceError):
    code = "conversation_busy"
    http_status = 409
    retryable = True


class RateLimitedError(ServiceError):
    code = "rate_limited"
    http_status = 429
    retryable = True
    openai_type = "rate_limit_error"
    openai_code = "rate_limit_exceeded"
    default_retry_ms = 1000


class QueueFullError(ServiceError):
    code = "queue_full"
    http_status = 429
    retryable = True
    default_retry_ms = 1000
    openai_type = "rate_limit_error"


class ResumeGoneError(ServiceError):
    code = "resume_gone"
    http_status = 410


class ModelUnavailableError(ServiceError):
    code = "model_unavailable"
    http_status = 503
    retryable = True
    openai_type = "server_error"


class ShuttingDownError(ServiceError):
    """The server takes no new work, or could not end this work in time."""

    code = "shutting_down"
    http_status = 503
    retryable = True
    openai_type = "server_error"
    default_retry_ms = 5000

    def __init__(self) -> None:
        super().__init__("The server is shutting down.")


class SlowRequestError(ServiceError):
    code = "bad_request"
    http_status = 408
    retryable = True


class InternalError(ServiceError):
    code = "internal"
    http_status = 500
    retryable = True
    openai_type = "server_error"


def from_engine(error: engine_api.EngineError, *, prompt_param: str = "messages") -> ServiceError:
    """The service's error for an engine error. `prompt_param`: the field that holds the prompt."""
    match error:
        case engine_api.PromptTooLongError():
            told = PromptTooLongError(error.num_tokens, error.limit, param=prompt_param)
            told.message = str(error)
            return told
        case engine_api.InvalidRequestError():
            return BadRequestError(str(error), param=error.param)
        case engine_api.OverloadedError():
            return QueueFullError(str(error), retry_after_ms=int(error.retry_after_s * 1000))
        case engine_api.ShuttingDownError():
            return ShuttingDownError()
        case engine_api.EngineDeadError():
            return ModelUnavailableError("The engine has failed; the server must be restarted.")
        case _:
            return InternalError("The engine failed to answer.")


def from_unknown(error: Exception) -> ServiceError:
    """What a client is told about any exception: service and engine errors in their own words,
    everything else as `internal`, without its text."""
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, engine_api.EngineError):
        return from_engine(error)
    return InternalError("The server failed to answer; the fault is in its log.")
