"""`TemplateOptions`: what a caller may say about how messages become a prompt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from server.service.chat_template import TemplateValue
from server.service.errors import BadRequestError
from server.service.validation import safe_name

VARIABLES = ("enable_thinking", "thinking", "reasoning_effort")
"""What `chat_template_kwargs` may set: a template is the model's own, and so are the rest of its
variables."""
_WORD = re.compile(r"[A-Za-z0-9_-]{1,32}")


@dataclass(frozen=True, slots=True)
class TemplateOptions:
    """`add_generation_prompt`: the prompt ends with the beginning of a new answer.
    `continue_final_message`: it ends where the last message's text ends. `variables` are the
    template's own."""

    add_generation_prompt: bool
    continue_final_message: bool
    variables: Mapping[str, TemplateValue]


NEW_TURN = TemplateOptions(True, False, {})


def template_options(
    add_generation_prompt: bool | None,
    continue_final_message: bool | None,
    chat_template_kwargs: Mapping[str, Any] | None,
) -> TemplateOptions:
    """The fields of a body, checked. A new turn of the assistant is begun unless its last one goes
    on. Raises BadRequestError, which names the field."""
    if add_generation_prompt and continue_final_message:
        raise BadRequestError(
            "add_generation_prompt begins a new message, and continue_final_message goes on with "
            "the last one: they cannot both be true",
            param="continue_final_message",
        )
    continues = bool(continue_final_message)
    adds = not continues if add_generation_prompt is None else add_generation_prompt
    return TemplateOptions(adds, continues, _variables(chat_template_kwargs or {}))


def _variables(kwargs: Mapping[str, Any]) -> dict[str, TemplateValue]:
    found: dict[str, TemplateValue] = {}
    for name, value in kwargs.items():
        param = f"chat_template_kwargs.{safe_name(name)}"
        if name not in VARIABLES:
            raise BadRequestError(f"{param} cannot be set; {', '.join(VARIABLES)} can", param=param)
        if isinstance(value, str) and not _WORD.fullmatch(value):
            raise BadRequestError(f"{param} must be a single word", param=param)
        if not isinstance(value, bool | int | float | str | None):
            raise BadRequestError(f"{param} must be true, false, a number or a word", param=param)
        if value is not None:
            found[name] = value
    return found
