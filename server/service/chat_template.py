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
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.api import Tokenizer
from server.service import continuation
from server.service.control_text import ControlText, Shield
from server.service.errors import InternalError, TemplateError
from server.service.messages import ChatMessage
from server.service.turns import ROLES, Turn, to_turns

__all__ = ["PLAIN_TEMPLATE", "ROLES", "ChatTemplate", "TemplateValue"]

PLAIN_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'system' %}{{ message.content }}\n\n"
    "{% elif message.role == 'user' %}User: {{ message.content }}\n"
    "{% elif message.role == 'tool' %}Tool: {{ message.content }}\n"
    "{% else %}Assistant: {{ message.content or '' }}"
    "{% for call in message.tool_calls %}"
    "[{{ call.function.name }} {{ call.function.arguments | tojson }}]{% endfor %}"
    "{{ '\n' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)

TemplateValue = bool | int | float | str
"""What a caller may set of a template's own variables."""

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


class ChatTemplate:
    """One model's template and its tokenizer. Immutable; used by several threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._is_plain = tokenizer.chat_template is None
        self._source = tokenizer.chat_template or PLAIN_TEMPLATE
        self._control = ControlText(tokenizer.special_tokens)

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
        continue_final_message: bool = False,
        variables: Mapping[str, TemplateValue] | None = None,
        check: Callable[[str], None] = lambda text: None,
    ) -> list[int]:
        """The prompt's token ids; with `continue_final_message` no further than the text of the
        last message. `variables` are the template's own. Slow (template and tokenizer): not for
        the event loop.

        Raises BadRequestError for bad messages, TemplateError with the template's words, and
        what `check` raises when it is given the rendered text."""
        turns = to_turns(messages)
        variables = variables or {}
        texts = [text for turn in turns for text in turn.texts()]
        texts += [value for value in variables.values() if isinstance(value, str)]
        shield = Shield(self._control, texts)
        mark = ""
        if continue_final_message:
            continuation.final_text(turns)
            mark = shield.reserve()
        text = self._render(
            [
                *(_for_template(turn, shield) for turn in turns[:-1]),
                _for_template(turns[-1], shield, mark),
            ],
            {name: shield.cover_tree(value) for name, value in variables.items()},
            add_generation_prompt,
        )
        if mark:
            text = continuation.cut(text, mark)
        check(text)
        if not shield.is_used:
            return self._tokenizer.encode(text, parse_special=True, add_bos=self._is_plain)
        return self._encode_pieces(text, shield)

    def render(self, messages: Sequence[ChatMessage], *, add_generation_prompt: bool = True) -> str:
        """The rendered text, for people."""
        shield = Shield(self._control, ())
        turns = [_for_template(turn, shield) for turn in to_turns(messages)]
        return shield.uncover(self._render(turns, {}, add_generation_prompt))

    def _render(
        self,
        messages: Sequence[dict[str, Any]],
        variables: Mapping[str, TemplateValue],
        add_generation_prompt: bool,
    ) -> str:
        fields = {
            **variables,
            "add_generation_prompt": add_generation_prompt,
            "tools": None,
            "documents": None,
            "bos_token": self._tokenizer.bos_token or "",
            "eos_token": self._tokenizer.eos_token or "",
        }
        try:
            try:
                return self._template.render(messages=messages, **fields)
            except TypeError:
                # Templates differ in how they like to be told of calls without a text.
                told = [
                    {**one, "content": ""} if one["content"] is None else one for one in messages
                ]
                return self._template.render(messages=told, **fields)
        except _TEMPLATE_FAULTS as error:
            raise TemplateError(f"The chat template refused the messages: {error}") from error

    def _encode_pieces(self, text: str, shield: Shield) -> list[int]:
        encode = self._tokenizer.encode
        ids: list[int] = encode("", add_bos=True) if self._is_plain else []
        end = 0
        for control in self._control.find_all(text):
            if piece := shield.uncover(text[end : control.start()]):
                ids += encode(piece, parse_special=False)
            ids.append(self._tokenizer.special_tokens[control[0]])
            end = control.end()
        if piece := shield.uncover(text[end:]):
            ids += encode(piece, parse_special=False)
        return ids


def _for_template(turn: Turn, shield: Shield, mark: str = "") -> dict[str, Any]:
    """The message that a template gets, covered; `mark` stands behind its text."""
    message: dict[str, Any] = {
        "role": turn.role,
        "content": None if turn.content is None else shield.cover(turn.content) + mark,
    }
    if turn.name is not None:
        message["name"] = shield.cover(turn.name)
    if turn.tool_call_id is not None:
        message["tool_call_id"] = shield.cover(turn.tool_call_id)
    if turn.reasoning is not None:
        message["reasoning_content"] = shield.cover(turn.reasoning)
    if turn.tool_calls:
        message["tool_calls"] = [
            {
                "type": "function",
                **({} if call.id is None else {"id": shield.cover(call.id)}),
                "function": {
                    "name": shield.cover(call.name),
                    "arguments": shield.cover_tree(call.arguments),
                },
            }
            for call in turn.tool_calls
        ]
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
