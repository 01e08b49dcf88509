"""CTX-01, CTX-03 and CTX-05 of tests/cases, for questions about a course: the same limits and the
same words whichever way a question comes in."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from server.service.errors import BadRequestError
from server.service.messages import Ask, Edit, Regenerate
from server.service.runs import Run
from tests.server.app.site import ALICE, Site, events_of, new_key, open_site
from tests.support.cases import case

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

NUM_WORDS = case("CTX-03")["input"]["stub_emits_n_then_eos"]["n"]


def too_long() -> str:
    """The prompt of CTX-01."""
    (text, times) = case("CTX-01")["input"]["requests"][0]["json"]["messages"][0]["content"][
        "@repeat"
    ]
    return str(text) * int(times)


async def test_a_question_over_the_window_is_refused_alike_on_every_way(tmp_path: Path) -> None:
    async with open_site(tmp_path, max_model_len=512) as site:
        chat, text = site.app.chat, too_long()
        asked = await events_of(await chat.ask(ALICE, site.ask(text)))
        question = asked["accepted"][0]["user_message"]
        edited = await events_of(
            await chat.edit(ALICE, Edit(id=new_key(), message=question, text=text))
        )
        again = await events_of(
            await chat.regenerate(ALICE, Regenerate(id=new_key(), message=question))
        )
    errors = [events["error"][0] for events in (asked, edited, again)]
    for error in errors:
        assert error["code"] == "prompt_too_long"
        assert "512" in error["message"]
        assert error["message"] == errors[0]["message"], "the same numbers"
    assert not any("finish" in events for events in (asked, edited, again))


async def test_no_limit_means_the_one_that_is_configured(tmp_path: Path) -> None:
    """CTX-03: a missing or null max_tokens is no small hidden limit."""
    word = bytes.fromhex(case("CTX-03")["input"]["stub_emits_n_then_eos"]["hex"])
    async with open_site(
        tmp_path, lambda _: [word] * NUM_WORDS, max_model_len=2048, default_max_tokens=1024
    ) as site:
        for options in ({}, {"max_tokens": None}):
            data = json.dumps(
                {"id": new_key(), "text": "When are the office hours?", "options": options}
            )
            run = await site.app.chat.ask(ALICE, msgspec.json.decode(data, type=Ask))
            (finish,) = (await events_of(run))["finish"]
            assert finish["finish_detail"] == {"type": "eos"}
            assert finish["usage"]["completion_tokens"] == NUM_WORDS + 1
        stored = await site.stored(run.message or "")
    assert stored["max_tokens"] == 1024, "the limit is told, whoever set it"


Way = Callable[[Site, str, Any], Awaitable[Run]]


async def _ask(site: Site, question: str, value: Any) -> Run:
    return await site.app.chat.ask(ALICE, site.ask(max_tokens=value))


async def _edit(site: Site, question: str, value: Any) -> Run:
    options = site.ask(max_tokens=value).options
    return await site.app.chat.edit(
        ALICE, Edit(id=new_key(), message=question, text="When?", options=options)
    )


async def _regenerate(site: Site, question: str, value: Any) -> Run:
    options = site.ask(max_tokens=value).options
    return await site.app.chat.regenerate(
        ALICE, Regenerate(id=new_key(), message=question, options=options)
    )


@pytest.mark.parametrize("way", [_ask, _edit, _regenerate])
async def test_senseless_limits_are_refused_before_anything_is_stored(
    tmp_path: Path, way: Way
) -> None:
    """CTX-05, whose wrong kinds (1.5, "10", true) a socket refuses when it reads them."""
    values = [request["json"]["max_tokens"] for request in case("CTX-05")["input"]["requests"]]
    async with open_site(tmp_path) as site:
        accepted = (await site.answer())["accepted"][0]
        for value in (value for value in values if type(value) is int):
            with pytest.raises(BadRequestError) as refused:
                await way(site, accepted["user_message"], value)
            assert refused.value.param == "max_tokens"
        messages = (await site.conversation(accepted["conversation"]))["messages"]
    assert len(messages) == 2


def test_wrong_kinds_of_limits_are_refused_when_they_are_read() -> None:
    values = [request["json"]["max_tokens"] for request in case("CTX-05")["input"]["requests"]]
    wrong = [value for value in values if type(value) is not int]
    assert len(wrong) == 3
    for value in wrong:
        data = json.dumps({"id": "k", "text": "?", "options": {"max_tokens": value}})
        with pytest.raises(msgspec.ValidationError, match="max_tokens"):
            msgspec.json.decode(data, type=Ask)
