"""What clients get of a model that thinks: `reasoning_content` apart from `content`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from engine.api import Script
from server.app.factory import create_app
from server.config import ServerConfig
from server.service.options import GenerationOptions
from server.service.prompt import Prompt
from tests.server.service.harness import Json, Server, parse_sse, serving

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
    "{% endif %}"
)
THOUGHT = "<think>\nTwo and two.\n</think>\n\nFour."


@asynccontextmanager
async def thinking(
    answer: str = THOUGHT, *, template: str = TEMPLATE, chars: int = 3
) -> AsyncIterator[Server]:
    """A server whose model has a template that knows of thinking."""
    async with serving(Script(answer=lambda _: answer, token_chars=chars)) as server:
        server.engine.tokenizer.chat_template = template  # type: ignore[misc]
        yield server


def deltas(events: list[Json], field: str, index: int = 0) -> str:
    return "".join(
        choice["delta"].get(field) or ""
        for event in events
        for choice in event["choices"]
        if choice["index"] == index
    )


@pytest.mark.parametrize("fields", [{}, {"n": 2}, {"logprobs": True}])
@pytest.mark.parametrize("chars", [1, 3, 100])
async def test_whole_and_streamed(fields: dict[str, Any], chars: int) -> None:
    async with thinking(chars=chars) as server:
        whole = (await server.chat(**fields)).json()
        events = await server.stream(**fields, stream_options={"include_usage": True})
    for index, choice in enumerate(whole["choices"]):
        message = choice["message"]
        assert message["reasoning_content"] == "Two and two.\n"
        assert message["content"] == "Four."
        assert choice["finish_detail"] == {"type": "eos"}
        assert deltas(events, "reasoning_content", index) == "Two and two.\n"
        assert deltas(events, "content", index) == "Four."
        if fields.get("logprobs"):
            tokens = [one["token"] for one in choice["logprobs"]["content"]]
            assert "think" not in "".join(tokens)
            assert "Four.".endswith("".join(tokens))
            assert tokens or chars > 1
    details = whole["usage"]["completion_tokens_details"]
    assert events[-1]["usage"]["completion_tokens_details"] == details
    closing = THOUGHT.index("</think>") + len("</think>")
    assert details["reasoning_tokens"] == -(-closing // chars) * fields.get("n", 1)


async def test_a_budget_spent_on_thinking_says_so() -> None:
    async with thinking() as server:
        whole = (await server.chat(max_tokens=5)).json()
        events = await server.stream(max_tokens=5)
        enough = (await server.chat(max_tokens=11)).json()
    (choice,) = whole["choices"]
    assert choice["message"]["content"] == ""
    assert choice["message"]["reasoning_content"] == "Two and"
    assert choice["finish_reason"] == "length"
    assert choice["finish_detail"] == {"type": "max_tokens", "in": "reasoning"}
    assert whole["usage"]["completion_tokens_details"] == {"reasoning_tokens": 5}
    last = events[-1]["choices"][0]
    assert (last["finish_reason"], last["finish_detail"]) == ("length", choice["finish_detail"])
    assert deltas(events, "reasoning_content") == "Two and"
    assert deltas(events, "content") == ""
    assert enough["choices"][0]["finish_detail"] == {"type": "max_tokens"}


async def test_an_answer_that_begins_inside_its_thinking() -> None:
    template = TEMPLATE.replace("{% if enable_thinking", "<think>\n{% if enable_thinking")
    async with thinking("Hm.</think>Yes.", template=template) as server:
        message = (await server.chat()).json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "Yes.")


async def test_thinking_that_is_switched_off() -> None:
    """The template closes the thinking in the prompt; what the model then says is its answer."""
    async with thinking("Yes, </think> closes it.") as server:
        reply = (await server.chat(chat_template_kwargs={"enable_thinking": False})).json()
    message = reply["choices"][0]["message"]
    assert message["content"] == "Yes, </think> closes it."
    assert "reasoning_content" not in message


async def test_a_stop_string_in_the_thinking() -> None:
    async with thinking() as server:
        (choice,) = (await server.chat(stop="two", include_stop_str_in_output=True)).json()[
            "choices"
        ]
    assert choice["message"]["content"] == ""
    assert choice["message"]["reasoning_content"] == "Two and two"
    assert choice["finish_reason"] == "stop"
    assert choice["finish_detail"] == {
        "type": "stop_string",
        "matched": "two",
        "in": "reasoning",
    }


async def test_a_raw_completion_is_the_model_s_text() -> None:
    async with thinking() as server:
        body = {"prompt": "x", "max_tokens": 50}
        whole = (await server.http.post("/v1/completions", json=body)).json()
        streamed = await server.http.post("/v1/completions", json={**body, "stream": True})
    assert whole["choices"][0]["text"] == THOUGHT
    texts = [event["choices"][0]["text"] for event in parse_sse(streamed.text)]
    assert "".join(texts) == THOUGHT


@pytest.mark.parametrize("reasoning", ["auto", "off"])
async def test_reasoning_can_be_left_in_the_text(
    reasoning: Literal["auto", "off"], tmp_path: Path
) -> None:
    """By the server's configuration."""
    config = ServerConfig(scripted=True, data_dir=tmp_path, reasoning=reasoning)
    async with thinking() as server:
        app = create_app(config, server.engine, course_folders=())
        reader = app.service.generation.piece_reader(Prompt((97,)), GenerationOptions())
        app.service.generation.close()
        await app.database.close()
    assert (reader is None) == (reasoning == "off")


async def test_a_model_without_markers_has_no_reader() -> None:
    """The hot path: nothing looks at its text, which may well speak of markers."""
    async with serving(Script(answer=lambda _: THOUGHT)) as server:
        reply = (await server.chat()).json()
        generation = server.service.generation
        assert generation.piece_reader(Prompt((97,)), GenerationOptions()) is None
    assert reply["choices"][0]["message"]["content"] == THOUGHT
    assert "completion_tokens_details" not in reply["usage"]
