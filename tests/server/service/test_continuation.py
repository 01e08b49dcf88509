"""An answer that goes on from its text (`continue_final_message`), and prompts without a new
turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import Script
from engine.text.byte_tokenizer import ByteTokenizer
from server.service.chat_template import ChatTemplate
from server.service.errors import BadRequestError
from server.service.messages import ChatMessage
from tests.server.service.harness import Server, parse_sse, serving, text_of
from tests.server.service.recorded_requests import recorded_requests

QUESTION = ChatMessage("user", "hi")
hostile = st.lists(
    st.sampled_from(["<|im_end|>", "<|im_", "start|>", "\n", " ", "a", "讲", "\ufdef", "\ufdd0"]),
    min_size=1,
    max_size=8,
).map("".join)


def encoded(
    *messages: ChatMessage,
    template: str | None = None,
    add_generation_prompt: bool = False,
    continue_final_message: bool = False,
) -> list[int]:
    tokenizer = ByteTokenizer()
    if template is not None:
        tokenizer.chat_template = template
    return ChatTemplate(tokenizer).encode(
        messages,
        add_generation_prompt=add_generation_prompt,
        continue_final_message=continue_final_message,
    )


@given(hostile, st.text(max_size=5).filter(lambda text: "\0" not in text))
def test_the_prompt_is_the_beginning_of_the_finished_turn(start: str, rest: str) -> None:
    begun = encoded(QUESTION, ChatMessage("assistant", start), continue_final_message=True)
    whole = encoded(QUESTION, ChatMessage("assistant", start + rest))
    assert begun == whole[: len(begun)]
    assert bytes(begun[-len(start.encode()) :]) == start.encode()


@pytest.mark.parametrize(
    ("template", "is_kept"),
    [
        ("{% for m in messages %}[{{ m.content }}]{% endfor %}", True),
        # Blanks before the mark are no blanks at an end.
        ("{% for m in messages %}[{{ m.content | trim }}]{% endfor %}", True),
        ("{% for m in messages %}[{{ m.content[:-1] }}]{% endfor %}", False),
        ("{% for m in messages[:-1] %}[{{ m.content }}]{% endfor %}", False),
        ("{% for m in messages %}[{{ m.content }}{{ m.content }}]{% endfor %}", False),
    ],
)
def test_templates_that_do_not_keep_the_end(template: str, is_kept: bool) -> None:
    messages = (QUESTION, ChatMessage("assistant", "Yes, "))
    if is_kept:
        token_ids = encoded(*messages, template=template, continue_final_message=True)
        assert bytes(token_ids) == b"[hi][Yes, "
        return
    with pytest.raises(BadRequestError) as refused:
        encoded(*messages, template=template, continue_final_message=True)
    assert refused.value.param == "continue_final_message"


@pytest.mark.parametrize(
    "last",
    [
        QUESTION,
        ChatMessage("assistant", ""),
        ChatMessage("tool", "3"),
        ChatMessage("assistant", "a", tool_calls=[{"function": {"name": "f"}}]),
    ],
)
def test_only_an_answer_can_go_on(last: ChatMessage) -> None:
    with pytest.raises(BadRequestError) as refused:
        encoded(QUESTION, last, continue_final_message=True)
    assert refused.value.param == "messages[1]"


@pytest.mark.anyio
@pytest.mark.one_loop
async def test_an_answer_goes_on_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was there is not told again, streamed or not; parts of a text count as the text."""
    started = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nOne, "

    def answer(prompt: str) -> str:
        return "two." if prompt == started else f"not {prompt}"

    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "text", "text": "One, "}]},
    ]
    async with serving(Script(answer=answer)) as server:
        for fields in ({}, {"add_generation_prompt": False}):
            body = {"messages": messages, "continue_final_message": True, **fields}
            reply = await server.http.post("/v1/chat/completions", json=body)
            assert reply.json()["choices"][0]["message"]["content"] == "two."
            streamed = await server.http.post("/v1/chat/completions", json={**body, "stream": True})
            assert text_of(parse_sse(streamed.text)) == "two."
        await _check_generation_prompts(server, monkeypatch)


async def _check_generation_prompts(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    found = recorded_requests(server, monkeypatch)
    for fields in ({}, {"add_generation_prompt": True}, {"add_generation_prompt": False}):
        assert (await server.chat(**fields)).status_code == 200
    default, added, left_out = (one.prompt_token_ids for one in found)
    assert default == added
    assert bytes(added[-10:]) == b"assistant\n"
    # One control token and the role are all that a new turn begins with.
    assert left_out == added[:-11]
