"""What a WebSocket client may send (`/ws/v1`): one struct per message, chosen by `type`.

Unknown fields are ignored, so that a newer client can talk to an older server; a missing or
wrong field is `bad_request`. `id` is the client's idempotency key.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec

from server.service.errors import BadRequestError
from server.service.options import GenerationOptions
from server.service.validation import told_validation

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Note = Annotated[str, msgspec.Meta(max_length=4000)]
Text = Annotated[str, msgspec.Meta(min_length=1)]

OnDisconnect = Literal["keep", "abandon"]
"""Whether an answer goes on when nobody reads it any more. `abandon`: it ends as `client_gone`
when nobody has come back for `abandon_grace_s`."""


class ChatMessage(msgspec.Struct, frozen=True):
    """One turn of a conversation. `content` is a text, or OpenAI's list of text parts; only an
    assistant's message with `tool_calls` may have none. `tool_call_id` says which call a message
    of the role `tool` answers."""

    role: str
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    function_call: dict[str, Any] | None = None


class Message(msgspec.Struct, frozen=True, tag_field="type", tag=str.lower):
    """Base of all client messages."""


class Resume(msgspec.Struct, frozen=True):
    """A run that the client already follows, and the last event it has seen."""

    run: Id
    after_seq: int = 0


class Hello(Message, frozen=True):
    token: str | None = None
    locale: str | None = None
    resume: tuple[Resume, ...] = ()


class Ask(Message, frozen=True):
    """A question about a course. `conversation` None: a new one. `parent`: the message that it
    follows; None: the last."""

    id: Id
    text: Text
    course: str | None = None
    conversation: str | None = None
    parent: str | None = None
    options: GenerationOptions = GenerationOptions()
    on_disconnect: OnDisconnect = "keep"


class Chat(Message, frozen=True):
    """A plain chat without course, for other programs."""

    id: Id
    messages: list[ChatMessage]
    options: GenerationOptions = GenerationOptions()
    on_disconnect: OnDisconnect = "keep"


class Continue(Message, frozen=True):
    """Goes on with a cut answer, token-exactly."""

    id: Id
    message: Id
    options: GenerationOptions = GenerationOptions()
    on_disconnect: OnDisconnect = "keep"


class Regenerate(Message, frozen=True):
    id: Id
    message: Id
    options: GenerationOptions = GenerationOptions()
    on_disconnect: OnDisconnect = "keep"


class Edit(Message, frozen=True):
    id: Id
    message: Id
    text: Text
    options: GenerationOptions = GenerationOptions()
    on_disconnect: OnDisconnect = "keep"


class Carry(Message, frozen=True):
    """Goes on in a new conversation, which begins with a summary of the one that `message` (an
    answer) ends."""

    id: Id
    message: Id
    options: GenerationOptions = GenerationOptions()
    on_disconnect: OnDisconnect = "keep"


class Undo(Message, frozen=True):
    """Takes back the last continuation of an answer. A repeated `id` takes nothing more back."""

    id: Id
    message: Id


class Count(Message, frozen=True):
    """How much of the window a question would take that is still being written. `conversation`
    is where it will be asked; None: in a new one."""

    id: Id
    text: str
    conversation: str | None = None


class Cancel(Message, frozen=True):
    run: Id


class Attach(Message, frozen=True):
    run: Id
    after_seq: int = 0


class Feedback(Message, frozen=True):
    id: Id
    message: Id
    value: Literal["up", "down", "none"]
    note: Note | None = None


class Ping(Message, frozen=True):
    id: str | None = None


ClientMessage = (
    Hello
    | Ask
    | Chat
    | Continue
    | Regenerate
    | Edit
    | Carry
    | Undo
    | Count
    | Cancel
    | Attach
    | Feedback
    | Ping
)

_decoder: msgspec.json.Decoder[ClientMessage] = msgspec.json.Decoder(ClientMessage)


class _Envelope(msgspec.Struct):
    id: Any = None
    run: Any = None


_envelope = msgspec.json.Decoder(_Envelope)


def decode(frame: str) -> ClientMessage:
    """The message in a text frame. Raises BadRequestError, which names the field."""
    try:
        message = _decoder.decode(frame)
    except msgspec.ValidationError as error:
        raise told_validation(error) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadRequestError("The frame is not valid JSON.") from None
    return message


def envelope(frame: str) -> dict[str, str]:
    """What can be told of a frame that failed to decode: its `id` and `run`, when they are
    strings, so that the client can match the error to what it sent."""
    try:
        found = _envelope.decode(frame)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        found = _lenient_envelope(frame)
    named = {"id": found.id, "run": found.run}
    return {
        key: value[:128]
        for key, value in named.items()
        # A lone surrogate could not be told back.
        if isinstance(value, str) and _is_unicode(value)
    }


def _lenient_envelope(frame: str) -> _Envelope:
    """What the strict decoder refuses, half of a surrogate pair in some text, is JSON to others."""
    try:
        found = json.loads(frame)
    except (ValueError, RecursionError):
        return _Envelope()
    if not isinstance(found, dict):
        return _Envelope()
    return _Envelope(found.get("id"), found.get("run"))


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text[:128])
