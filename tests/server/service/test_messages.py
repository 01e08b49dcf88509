"""Client messages: what decodes, and how a refusal names the field."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.service.errors import BadRequestError
from server.service.messages import Ask, Chat, Continue, Hello, decode, envelope
from server.service.options import GenerationOptions


def test_messages_and_their_defaults() -> None:
    ask = decode('{"type":"ask","id":"a","text":"hi","new_field":1}')
    assert ask == Ask(id="a", text="hi", options=GenerationOptions())
    assert isinstance(decode('{"type":"continue","id":"a","message":"m"}'), Continue)
    hello = decode('{"type":"hello","resume":[{"run":"r","after_seq":3}]}')
    assert isinstance(hello, Hello)
    assert hello.resume[0].after_seq == 3
    chat = decode('{"type":"chat","id":"a","messages":[{"role":"user","content":"x"}]}')
    assert isinstance(chat, Chat)
    assert chat.messages[0].content == "x"


@pytest.mark.parametrize(
    ("frame", "param"),
    [
        ('{"type":"ask","text":"x"}', "id"),
        ('{"type":"ask","id":"","text":"x"}', "id"),
        ('{"type":"ask","id":"a","text":""}', "text"),
        ('{"type":"ask","id":"a","text":5}', "text"),
        ('{"type":"ask","id":"a","text":"x","options":{"stop":[1]}}', "options.stop[0]"),
        ('{"type":"feedback","id":"a","message":"m","value":"great"}', "value"),
        ('{"type":"chat","id":"a","messages":[{"content":"x"}]}', "messages[0]"),
        ('{"id":"a"}', "type"),
        ('{"type":"dance"}', "type"),
        ("{", None),
        ("", None),
        ("[]", None),
        ('{"type":"ask","id":"a","text":"\\ud800"}', None),
    ],
)
def test_refusals_name_the_field(frame: str, param: str | None) -> None:
    with pytest.raises(BadRequestError) as refused:
        decode(frame)
    assert refused.value.param == param


@given(st.text())
def test_any_text_decodes_or_is_refused(frame: str) -> None:
    with pytest.raises(BadRequestError):
        decode(frame)
    assert set(envelope(frame)) <= {"id", "run"}


def test_envelope_finds_what_is_there() -> None:
    assert envelope('{"id":"a","run":5,"text":[]}') == {"id": "a"}
    assert envelope('{"run":"' + "r" * 500 + '"}') == {"run": "r" * 128}


@pytest.mark.parametrize(
    ("frame", "found"),
    [
        # What a page sends of a text that was cut inside a character.
        ('{"type":"ask","id":"a","text":"\\ud83d"}', {"id": "a"}),
        ('{"type":"cancel","run":"r","id":"\\udc00"}', {"run": "r"}),
        ('["\\ud83d"]', {}),
        ('{"id":"a","text":"\\ud83d"', {}),
        ('{"id":"\\ud83d","text":' + "[" * 100_000, {}),
    ],
)
def test_envelope_finds_what_stands_beside_half_a_character(
    frame: str, found: dict[str, str]
) -> None:
    with pytest.raises(BadRequestError):
        decode(frame)
    assert envelope(frame) == found
