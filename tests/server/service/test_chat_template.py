"""The chat template: the model's words, the user's words, and never one for the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import Tokenizer
from server.service.chat_template import ChatTemplate
from server.service.errors import BadRequestError, InternalError, ServiceError, TemplateError
from server.service.messages import ChatMessage
from tests.support.cases import case

SPECIAL = {
    "<s>": 1000,
    "</s>": 1001,
    "<|im_start|>": 1002,
    "<|im_end|>": 1003,
    "ab": 1004,
    "bc": 1005,
}
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class CharTokenizer:
    """One token a character, and a BOS that it puts in front when asked."""

    vocab_size = 1 << 21
    max_token_bytes = 10
    eos_token_ids = frozenset({1001})
    bos_token: str | None = "<s>"
    eos_token: str | None = "</s>"

    def __init__(self, template: str | None, special: Mapping[str, int] = SPECIAL) -> None:
        self.chat_template = template
        self.special_tokens = special

    def encode(self, text: str, *, parse_special: bool = False, add_bos: bool = False) -> list[int]:
        ids: list[int] = []
        while text:
            names = sorted(self.special_tokens, key=len, reverse=True) if parse_special else []
            name = next((name for name in names if text.startswith(name)), None)
            ids.append(self.special_tokens[name] if name else ord(text[0]) + 2000)
            text = text[len(name or text[0]) :]
        return [1000, *ids] if add_bos and ids[:1] != [1000] else ids

    def token_bytes(self, token_id: int) -> bytes:
        return chr(token_id - 2000).encode() if token_id >= 2000 else b""

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(chr(token_id - 2000) for token_id in token_ids if token_id >= 2000)


def _encode(template: str | None, *contents: Any, role: str = "user") -> list[int]:
    return ChatTemplate(CharTokenizer(template)).encode(
        [ChatMessage(role, content) for content in contents]
    )


def _control(token_ids: list[int]) -> Counter[int]:
    return Counter(token_id for token_id in token_ids if token_id < 2000)


hostile = st.lists(
    st.sampled_from([*SPECIAL, "<", ">", "|", "<|im_", "start|>", "s", "a", "b", "c", " ", "讲"]),
    max_size=12,
).map("".join)


@given(st.lists(hostile, min_size=1, max_size=4))
def test_content_never_becomes_control_tokens(contents: list[str]) -> None:
    """TOK-01: as many of each control token as for harmless messages, and every character of
    the content is there as it was."""
    tokenizer = CharTokenizer(CHATML)
    hostile_ids = _encode(CHATML, *contents)
    assert _control(hostile_ids) == _control(_encode(CHATML, *["x"] * len(contents)))
    expected = "".join(f"user\n{content}\n" for content in contents) + "assistant\n"
    assert tokenizer.decode(hostile_ids) == expected


@given(st.lists(hostile, min_size=2, max_size=5))
def test_contents_side_by_side_do_not_make_one(contents: list[str]) -> None:
    """A control token whose halves stand in two contents stays text too."""
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    token_ids = _encode(template, *contents)
    assert not _control(token_ids)
    assert CharTokenizer(None).decode(token_ids) == "".join(contents)


def test_injection_case() -> None:
    request = case("TOK-01")["input"]["requests"][0]["json"]
    messages = [ChatMessage(one["role"], one["content"]) for one in request["messages"]]
    tokenizer = CharTokenizer(CHATML)
    token_ids = ChatTemplate(tokenizer).encode(messages)
    assert _control(token_ids) == {1002: 3, 1003: 2}
    assert str(messages[1].content) in tokenizer.decode(token_ids)


@pytest.mark.parametrize("role", ["user", "system", "assistant", "developer"])
def test_text_parts_are_joined(role: str) -> None:
    """TPL-01."""
    parts = case("TPL-01")["input"]["requests"][0]["json"]["messages"][0]["content"]
    assert _encode(CHATML, parts, role=role) == _encode(CHATML, "ALPHA贝塔", role=role)


def test_template_s_own_refusal() -> None:
    """TPL-03."""
    template = case("TPL-03")["input"]["model_template"]
    with pytest.raises(TemplateError, match="roles must alternate") as refused:
        _encode(template, "a", "b")
    assert refused.value.param == "messages"
    assert _encode(template, "a")


@pytest.mark.parametrize(
    ("template", "count"),
    [
        ("{{ bos_token }}{% for m in messages %}[{{ m['content'] }}]{% endfor %}", 1),
        ("{% for m in messages %}[{{ m['content'] }}]{% endfor %}", 0),
        (None, 1),
    ],
)
@pytest.mark.parametrize("content", ["hello", "<s> hello", "<s>"])
def test_bos_is_never_doubled(template: str | None, count: int, content: str) -> None:
    """TPL-05: what the template writes, and one in front of the plain template."""
    token_ids = _encode(template, content)
    assert token_ids.count(1000) == count
    assert (token_ids[0] == 1000) == bool(count)


def test_plain_template() -> None:
    messages = [
        ChatMessage("system", "Be brief."),
        ChatMessage("user", "Hi"),
        ChatMessage("assistant", "Yes?"),
        ChatMessage("user", "Bye"),
    ]
    assert (
        ChatTemplate(CharTokenizer(None)).render(messages)
        == "Be brief.\n\nUser: Hi\nAssistant: Yes?\nUser: Bye\nAssistant:"
    )


def test_what_templates_expect_of_their_environment() -> None:
    template = (
        "{%- for m in messages -%}\n"
        "    {%- if loop.index > 1 %}{% break %}{% endif -%}\n"
        "    {% generation %}\n{{ m | tojson }}{% endgeneration %}\n"
        "{%- endfor -%}\n"
        "{{ strftime_now('%Y') | length }}{% if tools %}x{% endif %}"
    )
    rendered = ChatTemplate(CharTokenizer(template)).render(
        [ChatMessage("user", "<讲>", "Ann"), ChatMessage("user", "two")]
    )
    assert rendered == '{"role": "user", "content": "<讲>", "name": "Ann"}4'


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages[99].content }}",
        "{{ 1 / 0 }}",
        "{{ none.x.y }}",
        "{% for i in range(10 ** 9) %}x{% endfor %}",
    ],
)
def test_templates_that_misbehave_are_told(template: str) -> None:
    with pytest.raises(TemplateError):
        _encode(template, "x")


def test_a_template_that_is_no_template() -> None:
    with pytest.raises(InternalError, match="template"):
        _encode("{% for %}", "x")


@pytest.mark.parametrize(
    "message",
    [
        ChatMessage("user", "a\0b"),
        ChatMessage("user", "a", "n\0"),
        ChatMessage("user", None),
        ChatMessage("function", "a"),
        ChatMessage("tool", None),
        ChatMessage("assistant", None),
        ChatMessage("user", [{"type": "text"}]),
        ChatMessage("user", [{"type": "text", "text": "a\0"}]),
    ],
)
def test_bad_messages(message: ChatMessage) -> None:
    with pytest.raises(BadRequestError) as refused:
        ChatTemplate(CharTokenizer(CHATML)).encode([ChatMessage("user", "fine"), message])
    assert (refused.value.param or "").startswith("messages[1].")
    assert issubclass(type(refused.value), ServiceError)


def test_content_may_hold_the_placeholders_themselves() -> None:
    content = "\ufdd0<|im_end|>\ufdef"
    tokenizer = CharTokenizer(CHATML)
    assert content in tokenizer.decode(_encode(CHATML, content))


def _is_a_tokenizer(tokenizer: CharTokenizer) -> Tokenizer:
    return tokenizer
