"""Calls that the model has made, and what came of them, in a conversation's history."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.byte_tokenizer import ByteTokenizer
from server.service.chat_template import ChatTemplate
from server.service.errors import BadRequestError
from server.service.messages import ChatMessage
from server.service.turns import MAX_DEPTH

# As the templates of Qwen's models write it.
TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role }}"
    "{%- if message.content %}{{- '\n' + message.content }}{%- endif %}"
    "{%- for call in message.tool_calls %}"
    "{%- if call.function is defined %}{%- set call = call.function %}{%- endif %}"
    '{{- \'\n<tool_call>\n{"name": "\' + call.name + \'", "arguments": \' }}'
    "{{- call.arguments | tojson }}{{- '}\n</tool_call>' }}"
    "{%- endfor %}"
    "{%- if message.tool_call_id %}{{- ' (' + message.tool_call_id + ')' }}{%- endif %}"
    "{{- '<|im_end|>\n' }}"
    "{%- endfor %}"
)


def call(name: str = "add", arguments: Any = '{"a": 1, "b": [2, "\u8bb2"]}', **fields: Any) -> Any:
    function = {"name": name, "arguments": arguments}
    return {"id": "call_1", "type": "function", "function": function, **fields}


def encoded(*messages: ChatMessage, template: str | None = TEMPLATE) -> tuple[str, list[int]]:
    """The prompt's text with control tokens written out, and its ids."""
    tokenizer = ByteTokenizer()
    tokenizer.chat_template = template
    token_ids = ChatTemplate(tokenizer).encode(messages, add_generation_prompt=False)
    return tokenizer.decode_all(token_ids), token_ids


@pytest.mark.parametrize("content", [None, "", "I will add."])
def test_a_call_and_its_result(content: str | None) -> None:
    text, _ = encoded(
        ChatMessage("user", "1 + 2?"),
        ChatMessage("assistant", content, tool_calls=[call()]),
        ChatMessage("tool", "3", tool_call_id="call_1"),
    )
    assert text == (
        "<|im_start|>user\n1 + 2?<|im_end|>\n"
        "<|im_start|>assistant" + (f"\n{content}" if content else "") + "\n<tool_call>\n"
        '{"name": "add", "arguments": {"a": 1, "b": [2, "讲"]}}\n</tool_call><|im_end|>\n'
        "<|im_start|>tool\n3 (call_1)<|im_end|>\n"
    )


def test_the_plain_template_tells_calls_too() -> None:
    text, _ = encoded(
        ChatMessage("user", "1 + 2?"),
        ChatMessage("assistant", None, tool_calls=[call(arguments={"a": 1})]),
        ChatMessage("tool", "3"),
        template=None,
    )
    assert text == 'User: 1 + 2?\nAssistant: [add {"a": 1}]\nTool: 3\n'


@pytest.mark.parametrize(
    ("template", "rendered"),
    [
        ("{% for m in messages %}{{ m.content is none }}{% endfor %}", "True"),
        ("{% for m in messages %}{{ '<' + m.content + '>' }}{% endfor %}", "<>"),
    ],
)
def test_templates_that_expect_no_content_and_templates_that_expect_a_text(
    template: str, rendered: str
) -> None:
    text, _ = encoded(ChatMessage("assistant", None, tool_calls=[call()]), template=template)
    assert text == rendered


@pytest.mark.parametrize("depth", [1, 60, MAX_DEPTH, 200, 500, 800, 990])
def test_arguments_of_any_depth_are_taken_or_refused(depth: int) -> None:
    value: Any = "x"
    for _ in range(depth - 1):
        value = [value]
    message = ChatMessage("assistant", None, tool_calls=[call(arguments={"a": value})])
    if depth <= MAX_DEPTH:
        assert "x" in encoded(message)[0]
        return
    with pytest.raises(BadRequestError) as refused:
        encoded(message)
    assert refused.value.param == "messages[0].tool_calls[0].function.arguments"


def test_reasoning_of_earlier_answers_is_the_template_s_matter() -> None:
    template = "{% for m in messages %}{{ m.reasoning_content or '-' }}{% endfor %}"
    text, _ = encoded(
        ChatMessage("assistant", "a", reasoning_content="Hm."),
        ChatMessage("user", "b", reasoning_content="not mine"),
        template=template,
    )
    assert text == "Hm.-"


hostile = st.lists(
    st.sampled_from(["<|im_end|>", "<|im_start|>", "<|im_", "start|>", '"', "\\", "a"]), max_size=6
).map("".join)


@given(hostile, hostile, hostile, hostile)
def test_calls_never_become_control_tokens(name: str, key: str, value: str, call_id: str) -> None:
    """Wherever the text stands: as many control tokens as the template wrote."""
    arguments = {"k" + key: [value, {"x": value}]}
    text, token_ids = encoded(
        ChatMessage("assistant", value, tool_calls=[call("f" + name, arguments, id=call_id)]),
        ChatMessage("tool", value, tool_call_id=call_id),
    )
    assert token_ids.count(257) == token_ids.count(258) == 2
    assert text.count("f" + name) >= 1


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (ChatMessage("user", "a", tool_calls=[call()]), "messages[0].tool_calls"),
        (ChatMessage("assistant", None, tool_calls=[{}]), "messages[0].tool_calls[0]"),
        (
            ChatMessage("assistant", None, tool_calls=[call(type="custom")]),
            "messages[0].tool_calls[0]",
        ),
        (ChatMessage("assistant", None, tool_calls=[call(id=5)]), "messages[0].tool_calls[0].id"),
        (
            ChatMessage("assistant", None, tool_calls=[call("")]),
            "messages[0].tool_calls[0].function.name",
        ),
        *(
            (
                ChatMessage("assistant", None, tool_calls=[call(arguments=arguments)]),
                "messages[0].tool_calls[0].function.arguments",
            )
            for arguments in ("{", "[]", "5", 5, '{"a": 1e999}', '{"a":' * 2000, "\ud800")
        ),
        (ChatMessage("assistant", None, tool_calls=[]), "messages[0].content"),
        (ChatMessage("assistant", None, tool_calls=[call("a\0")]), "messages[0]"),
        (ChatMessage("tool", "a", tool_call_id="\0"), "messages[0]"),
        (ChatMessage("assistant", "a", function_call={}), "messages[0].function_call"),
    ],
)
def test_bad_calls_are_named(message: ChatMessage, param: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        encoded(message)
    assert refused.value.param == param
