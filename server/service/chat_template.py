"""The model's own chat template: messages to token ids, safe against control tokens in content.

Whoever writes a message must not be able to write a turn of somebody else. The text of a control
token (`<|im_start|>`) inside content is therefore kept as plain characters: before rendering, one
character of each such text is swapped for a placeholder (a Unicode noncharacter that no content
holds); after rendering, the text is cut at the control tokens that the *template* wrote, and each
piece between them gets its characters back and is encoded without looking for control tokens.
Content free of such text takes the short way: the rendered text is encoded as a whole.

A model without a template gets `PLAIN_TEMPLATE`: the system text, then turns that begin with
"User:" and "Assistant:".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.api import Tokenizer
from server.service.errors import BadRequestError, InternalError, TemplateError
from server.service.messages import ChatMessage
from server.service.validation import refuse_nul

PLAIN_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'system' %}{{ message.content }}\n\n"
    "{% elif message.role == 'user' %}User: {{ message.content }}\n"
    "{% else %}Assistant: {{ message.content }}\n{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)

ROLES = ("system", "developer", "user", "assistant")
_PLACEHOLDERS = tuple(chr(code) for code in range(0xFDD0, 0xFDF0))

# What a template's own code may raise on messages that it did not expect.
_TEMPLATE_FAULTS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class Turn:
    """A checked message: `content` is one text."""

    role: str
    content: str
    name: str | None = None


def to_turns(messages: Sequence[ChatMessage]) -> list[Turn]:
    """Checks messages and joins lists of text parts. Raises BadRequestError naming the field."""
    if not messages:
        raise BadRequestError("messages must hold at least one message", param="messages")
    return [_to_turn(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _to_turn(message: ChatMessage, where: str) -> Turn:
    if message.role not in ROLES:
        raise BadRequestError(
            f"{where}.role must be one of {', '.join(ROLES)}", param=f"{where}.role"
        )
    content = _text_of(message.content, f"{where}.content")
    refuse_nul(content, f"{where}.content")
    if message.name is not None:
        refuse_nul(message.name, f"{where}.name")
    role = "system" if message.role == "developer" else message.role
    return Turn(role, content, message.name)


def _text_of(content: str | list[dict[str, Any]] | None, where: str) -> str:
    if isinstance(content, str):
        return content
    if content is None:
        raise BadRequestError(f"{where} is missing", param=where)
    texts = []
    for index, part in enumerate(content):
        text = part.get("text")
        if part.get("type") != "text" or not isinstance(text, str):
            raise BadRequestError(
                f"{where}[{index}]: this server reads text parts only", param=f"{where}[{index}]"
            )
        texts.append(text)
    return "".join(texts)


class ChatTemplate:
    """One model's template and its tokenizer. Immutable; used by several threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._is_plain = tokenizer.chat_template is None
        self._source = tokenizer.chat_template or PLAIN_TEMPLATE
        specials = sorted(filter(None, tokenizer.special_tokens), key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, specials))) if specials else None
        self._heads = _cuts(specials, lambda text, at: text[:at])
        self._tails = _cuts(specials, lambda text, at: text[at:])

    @cached_property
    def _template(self) -> jinja2.Template:
        try:
            return _environment().from_string(self._source)
        except jinja2.TemplateError as error:
            raise InternalError(f"The model's chat template cannot be used: {error}") from error

    def encode(
        self,
        messages: Sequence[ChatMessage],
        *,
        add_generation_prompt: bool = True,
        check: Callable[[str], None] = lambda text: None,
    ) -> list[int]:
        """The prompt's token ids. Slow (template and tokenizer): not for the event loop.

        Raises BadRequestError for bad messages, TemplateError with the template's words, and
        what `check` raises when it is given the rendered text."""
        turns = to_turns(messages)
        shield = _Shield(self._control, self._heads, self._tails, turns)
        text = self._render([shield.cover_turn(turn) for turn in turns], add_generation_prompt)
        check(text)
        if not shield.is_used:
            return self._tokenizer.encode(text, parse_special=True, add_bos=self._is_plain)
        return self._encode_pieces(text, shield)

    def render(self, messages: Sequence[ChatMessage], *, add_generation_prompt: bool = True) -> str:
        """The rendered text, for people."""
        return self._render(to_turns(messages), add_generation_prompt)

    def _render(self, turns: Sequence[Turn], add_generation_prompt: bool) -> str:
        try:
            return self._template.render(
                messages=[_for_template(turn) for turn in turns],
                add_generation_prompt=add_generation_prompt,
                tools=None,
                documents=None,
                bos_token=self._tokenizer.bos_token or "",
                eos_token=self._tokenizer.eos_token or "",
            )
        except _TEMPLATE_FAULTS as error:
            raise TemplateError(f"The chat template refused the messages: {error}") from error

    def _encode_pieces(self, text: str, shield: _Shield) -> list[int]:
        encode = self._tokenizer.encode
        ids: list[int] = encode("", add_bos=True) if self._is_plain else []
        end = 0
        for control in self._control.finditer(text) if self._control else ():
            if piece := shield.uncover(text[end : control.start()]):
                ids += encode(piece, parse_special=False)
            ids.append(self._tokenizer.special_tokens[control[0]])
            end = control.end()
        if piece := shield.uncover(text[end:]):
            ids += encode(piece, parse_special=False)
        return ids


class _Shield:
    """Covers control-token text in one request's content, and uncovers it again."""

    def __init__(
        self,
        control: re.Pattern[str] | None,
        heads: frozenset[str],
        tails: frozenset[str],
        turns: Sequence[Turn],
    ) -> None:
        self._control = control
        self._heads = heads
        self._tails = tails
        self._covers: dict[str, str] = {}
        written = {char for turn in turns for char in turn.content + (turn.name or "")}
        self._free = [char for char in _PLACEHOLDERS if char not in written]

    @property
    def is_used(self) -> bool:
        return bool(self._covers)

    def cover_turn(self, turn: Turn) -> Turn:
        name = self._cover(turn.name) if turn.name is not None else None
        return Turn(turn.role, self._cover(turn.content), name)

    def uncover(self, text: str) -> str:
        return text.translate({ord(cover): char for char, cover in self._covers.items()})

    def _cover(self, text: str) -> str:
        if self._control is None or not text:
            return text
        # Again until none is left: a match that overlapped another one was not seen.
        while self._control.search(text):
            text = self._control.sub(lambda found: self._hide(found[0]), text)
        # A control token must not come together across the border of a content either. Its
        # last characters may stand at the start of a content, its first ones at the end.
        longest = max(map(len, self._heads | self._tails), default=0)
        for size in range(min(longest, len(text)), 0, -1):
            if text[:size] in self._tails and text[0] not in self._covers.values():
                text = self._hide(text)
            if text[-size:] in self._heads:
                text = text[:-size] + self._hide(text[-size:])
        return text

    def _hide(self, text: str) -> str:
        first = text[0]
        if first not in self._covers:
            if not self._free:
                raise BadRequestError(
                    "messages hold too many kinds of control characters", param="messages"
                )
            self._covers[first] = self._free.pop()
        return self._covers[first] + text[1:]


def _cuts(specials: Sequence[str], cut: Callable[[str, int], str]) -> frozenset[str]:
    return frozenset(cut(text, at) for text in specials for at in range(1, len(text)))


def _for_template(turn: Turn) -> dict[str, str]:
    message = {"role": turn.role, "content": turn.content}
    if turn.name is not None:
        message["name"] = turn.name
    return message


class _GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks the assistant's part for training tools;
    here it stands for what it encloses."""

    tags = {"generation"}  # noqa: RUF012 -- the base class declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> jinja2.Environment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationTag, "jinja2.ext.loopcontrols"],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML, which chat templates do not expect.
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().astimezone().strftime(pattern)
