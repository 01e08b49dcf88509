"""What a model thinks before it answers a question about a course: told apart, stored, cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.api import FinishType
from server.service.messages import Continue
from tests.server.app.site import ALICE, Site, events_of, kill, open_site
from tests.server.service.socket_events import check_fields

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THOUGHT, ANSWER = "Labs: 星期二?\n", "Tue 星期二, B204 [1]."
OPENING, CLOSING = 900_001, 900_002
"""Control tokens, of which the text shows nothing."""


def in_text() -> list[bytes | int]:
    """One token a byte, so that cuts fall into markers and characters."""
    whole = f"<think>\n{THOUGHT}</think>\n\n{ANSWER}"
    return [bytes([byte]) for byte in whole.encode()]


def in_control_tokens() -> list[bytes | int]:
    thought, answer = (
        [bytes([byte]) for byte in text.encode()] for text in (f"\n{THOUGHT}", f"\n\n{ANSWER}")
    )
    return [OPENING, *thought, CLOSING, *answer]


SHAPES = {"text": in_text, "control": in_control_tokens}


@asynccontextmanager
async def thinking_site(data_dir: Path, shape: str = "text", **options: Any) -> AsyncIterator[Site]:
    """A site whose model thinks before it answers."""
    async with open_site(data_dir, lambda _: SHAPES[shape](), **options) as site:
        tokenizer: Any = site.app.engine.tokenizer
        if shape == "text":
            tokenizer.chat_template = TEMPLATE
        else:
            control = {"<think>": OPENING, "</think>": CLOSING}
            tokenizer.special_tokens = {**tokenizer.special_tokens, **control}
        yield site


def thinking_of(events: dict[str, list[dict[str, Any]]]) -> str:
    return "".join(event["text"] for event in events.get("thinking", ()))


@pytest.mark.parametrize("shape", SHAPES)
async def test_thinking_is_told_apart_and_stored(tmp_path: Path, shape: str) -> None:
    async with thinking_site(tmp_path, shape) as site:
        events = await site.answer()
        (finish,), message = events["finish"], events["accepted"][0]["message"]
        assert (thinking_of(events), events["text"][0]["text"]) == (THOUGHT, ANSWER)
        stored = await site.stored(message)
        assert (stored["thinking"], stored["text"]) == (THOUGHT, ANSWER)
        for name in ("usage", "timing", "finish_detail"):
            assert finish[name] == stored[name]
        assert finish["finish_detail"] == {"type": "eos"}
        thought = stored["usage"]["completion_tokens_details"]["reasoning_tokens"]
        marker = CLOSING if shape == "control" else b">"
        tokens = SHAPES[shape]()
        assert thought == len(tokens) - tokens[::-1].index(marker), "both markers included"
        assert stored["timing"]["thinking_ms"] >= 0

        # The next question sees the answer and not what was thought.
        conversation = events["accepted"][0]["conversation"]
        assert "finish" in await site.answer("And late work?", conversation=conversation)
        assert ANSWER in site.prompts[-1]
        assert THOUGHT.strip() not in site.prompts[-1]


async def test_all_that_is_told_of_an_answer_is_documented(tmp_path: Path) -> None:
    async with thinking_site(
        tmp_path, price_input_hit=1, price_input_miss=1, price_output=1
    ) as site:
        first = await site.answer(max_tokens=12, id="asked")
        rest = await site.go_on(first["accepted"][0]["message"], max_tokens=500)
        site.app.service.runs._forget(first["accepted"][0]["run"])
        told = await events_of(await site.app.chat.ask(ALICE, site.ask(id="asked")))
        types = {"accepted", "retrieval", "context", "start", "thinking", "delta", "citation"}
        assert types < first.keys() | rest.keys()
        site.app.service.runs._forget(rest["accepted"][0]["run"])
        more = Continue(id=rest["accepted"][0]["id"], message=rest["accepted"][0]["message"])
        retold = await events_of(await site.app.chat.continue_(ALICE, more))
        assert (thinking_of(retold), retold["text"]) == (thinking_of(rest), rest["text"])
        for events in (first, rest, told, retold):
            for event in (one for type, some in events.items() if type != "text" for one in some):
                check_fields(event)


async def test_an_answer_without_thinking_has_none(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        events = await site.answer()
        stored = await site.stored(events["accepted"][0]["message"])
        assert stored["thinking"] is None
        assert "thinking_ms" not in stored["timing"]
        assert "completion_tokens_details" not in stored["usage"]


async def test_a_limit_that_went_into_thinking_is_told_and_can_be_raised(tmp_path: Path) -> None:
    async with thinking_site(tmp_path) as site:
        events = await site.answer(max_tokens=12)
        (finish,), message = events["finish"], events["accepted"][0]["message"]
        assert finish["finish_detail"] == {"type": "max_tokens", "in": "reasoning"}
        assert (finish["can_continue"], events["text"][0]["text"]) == (True, "")
        stored = await site.stored(message)
        assert stored["finish_detail"] == finish["finish_detail"]
        assert (stored["thinking"], stored["text"]) == ("Labs", "")
        assert [notice["kind"] for notice in stored["notices"]] == ["all_thinking"]

        rest = await site.go_on(message, max_tokens=500)
        assert rest["finish"][0]["finish_detail"] == {"type": "eos"}
        stored = await site.stored(message)
        assert (stored["thinking"], stored["text"]) == (THOUGHT, ANSWER)
        assert "Labs" + thinking_of(rest) == THOUGHT
        # What was asked of each part, and what it used.
        parts = stored["usage"]["parts"]
        assert [part["max_tokens"] for part in parts] == [12, 500]
        assert [part["completion_tokens"] for part in parts] == [12, len(in_text()) - 12 + 1]
        assert (stored["max_tokens"], stored["options"]["max_tokens"]) == (500, 500)
        reasoning = [part["completion_tokens_details"]["reasoning_tokens"] for part in parts]
        assert stored["usage"]["completion_tokens_details"]["reasoning_tokens"] == sum(reasoning)


@pytest.mark.parametrize(("shape", "step"), [("text", 1), ("text", 7), ("control", 2)])
async def test_continuing_is_exact_at_any_cut(tmp_path: Path, shape: str, step: int) -> None:
    async with thinking_site(tmp_path, shape) as site:
        events = await site.answer(max_tokens=step)
        message = events["accepted"][0]["message"]
        thinking, text = thinking_of(events), events["text"][0]["text"]
        num_parts = 1
        while events["finish"][0]["can_continue"]:
            stored = await site.stored(message)
            assert stored["can_continue"]
            assert (stored["thinking"] or "", stored["text"]) == (thinking, text)
            is_inside = stored["finish_detail"].get("in") == "reasoning"
            assert not (is_inside and text)
            events = await site.go_on(message)
            (start,) = events["start"]
            base = (start["base_thinking_chars"], start["base_chars"])
            assert base == (len(thinking), len(text))
            thinking += thinking_of(events)
            text += events["text"][0]["text"]
            num_parts += 1
            assert num_parts <= len(SHAPES[shape]()) + 2
        assert (thinking, text) == (THOUGHT, ANSWER)
        stored = await site.stored(message)
        assert (stored["thinking"], stored["text"]) == (THOUGHT, ANSWER)
        assert stored["finish_detail"] == {"type": "eos"}
        assert stored["usage"]["completion_tokens"] == len(SHAPES[shape]()) + 1


async def test_who_comes_late_gets_the_thinking_in_the_snapshot(tmp_path: Path) -> None:
    async with thinking_site(tmp_path) as site:
        run = await site.app.chat.ask(ALICE, site.ask(id="asked"))
        await events_of(run)
        folded = await events_of(run)
        assert folded["snapshot"][0]["thinking"] == THOUGHT
        assert folded["snapshot"][0]["text"] == ANSWER

        # After the log is gone the stored answer is told again.
        site.app.service.runs._forget(run.id)
        again = await events_of(await site.app.chat.ask(ALICE, site.ask(id="asked")))
        told = [*again.get("snapshot", ()), {"thinking": thinking_of(again)}]
        assert told[0]["thinking"] == THOUGHT
        assert again["text"][0]["text"] == ANSWER


async def test_a_killed_server_keeps_what_was_thought_and_goes_on(tmp_path: Path) -> None:
    slow = {"token_s": 0.05}
    async with thinking_site(tmp_path / "a", script=slow) as site:
        run = await site.app.chat.ask(ALICE, site.ask(id="asked"))
        async with asyncio.timeout(10):
            num = 0
            async for event in run.events():
                num += event.type == "thinking"
                if num == 4:
                    break
        await site.app.drafts.save()
        left = kill(tmp_path / "a", tmp_path / "b")
        message = run.message
        run.cancel(FinishType.CANCELLED)
        await events_of(run)
    assert message is not None
    async with thinking_site(left) as site:
        stored = await site.stored(message)
        assert (stored["state"], stored["text"]) == ("interrupted", "")
        assert THOUGHT.startswith(stored["thinking"])
        assert stored["can_continue"]
        again = await events_of(await site.app.chat.ask(ALICE, site.ask(id="asked")))
        assert "finish" in again, "told again, not begun again"
        rest = await site.go_on(message)
        assert stored["thinking"] + thinking_of(rest) == THOUGHT
        assert (await site.stored(message))["text"] == ANSWER
