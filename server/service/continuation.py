"""The cut behind an unfinished answer, so that the model goes on with it: `continue_final_message`.

A template ends an answer with whatever ends a turn. So the last message gets a mark behind its
text, a character that no text holds, and the rendered prompt is cut there.
"""

from __future__ import annotations

from collections.abc import Sequence

from server.service.errors import BadRequestError
from server.service.turns import Turn

PARAM = "continue_final_message"


def final_text(turns: Sequence[Turn]) -> str:
    """The text of the answer that is to go on. Raises BadRequestError for a last turn that is
    none."""
    last = turns[-1]
    if last.role != "assistant" or not last.content or last.tool_calls:
        raise BadRequestError(
            f"{PARAM} needs a last message that is a text of the assistant",
            param=f"messages[{len(turns) - 1}]",
        )
    return last.content


def cut(text: str, mark: str) -> str:
    """The rendered prompt as far as the answer goes. Raises BadRequestError for a template that
    has not kept the answer's end as it is."""
    if text.count(mark) != 1:
        raise BadRequestError(
            "This model's chat template does not keep the end of an answer, so that no answer "
            "can be continued by its text",
            param=PARAM,
        )
    return text[: text.index(mark)]
