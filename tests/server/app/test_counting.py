"""What a question takes of the window while it is written, and what the model really saw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from server.service.errors import NotFoundError, ServiceError
from server.service.messages import Count, Edit
from tests.server.app.asgi_socket import socket_of
from tests.server.app.site import ALICE, BOB, events_of, open_site

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]


@pytest.mark.parametrize("text", ["When is the lab? ", "实验课什么时候开始？"])
async def test_the_room_is_what_a_question_may_have(tmp_path: Path, text: str) -> None:
    """One token more than there is room for is refused, with the same numbers."""
    async with open_site(tmp_path, max_model_len=2048) as site:
        counted = await site.app.chat.count(ALICE, Count(id="c", text=text))
        assert counted["tokens"] == len(text.encode())
        assert counted["window"] == 2048
        parts = ("room", "system", "reserved")
        assert sum(counted[part] for part in parts) == counted["window"]
        assert not counted["at_least"]
        # In this tokenizer a byte is a token; blanks are a part of any language.
        full = text + " " * (counted["room"] - len(text.encode()))
        again = await site.app.chat.count(ALICE, Count(id="c", text=full))
        assert (again["tokens"], again["room"]) == (counted["room"], counted["room"])
        events = await site.answer(full)
        assert "finish" in events
        events = await site.answer(full + " ")
        assert events["error"][0]["code"] == "prompt_too_long"
        assert str(counted["room"]) in events["error"][0]["message"]


async def test_a_text_that_cannot_fit_is_not_counted(tmp_path: Path) -> None:
    async with open_site(tmp_path, max_model_len=1024) as site:
        counted = await site.app.chat.count(ALICE, Count(id="c", text="x" * 500_000))
        assert counted["at_least"]
        assert counted["room"] < counted["tokens"] < 500_000
        empty = await site.app.chat.count(ALICE, Count(id="c", text=""))
        assert (empty["tokens"], empty["at_least"]) == (0, False)


async def test_one_counts_where_one_may_ask(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        conversation = (await site.answer())["accepted"][0]["conversation"]
        own = await site.app.chat.count(ALICE, Count("c", "When?", conversation))
        assert own["tokens"] == 5
        with pytest.raises(NotFoundError):
            await site.app.chat.count(BOB, Count("c", "When?", conversation))


async def test_counted_on_the_wire(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site, socket_of(site, site.session(ALICE)) as socket:
        await socket.send("hello")
        welcome = await socket.until("welcome")
        assert welcome["defaults"] == {"max_tokens": 512}
        assert welcome["login"] is None
        async with site.client() as client:
            page = (await client.get("/")).text
        assert f"/static/{welcome['static']}/js/main.js" in page
        await socket.send("count", id="c1", text="When?")
        counted = await socket.until("counted", "error")
        assert (counted["id"], counted["tokens"]) == ("c1", 5)
        await socket.send("count", id="c2", text="When?", conversation="unknown")
        error = await socket.until("counted", "error")
        assert (error["id"], error["code"]) == ("c2", "not_found")


async def test_welcome_names_the_account(tmp_path: Path) -> None:
    """So that a page can tell that somebody else has logged in."""
    async with open_site(tmp_path) as site:
        for name in ("ana", "ben"):
            user = await site.account("student", name, "demo")
            async with socket_of(site, site.session(user)) as socket:
                await socket.send("hello")
                assert (await socket.until("welcome"))["login"] == user


async def test_the_report_says_where_the_view_begins_and_what_was_used(tmp_path: Path) -> None:
    long = "Tell me about the office hours of the lab, please. " * 4
    async with open_site(tmp_path, max_model_len=1500) as site:
        first = await site.answer(long)
        asked = [first["accepted"][0]]
        assert first["context"][0]["view_from"] == asked[0]["user_message"]
        conversation = asked[0]["conversation"]
        for _ in range(4):
            events = await site.answer(long, conversation=conversation)
            asked.append(events["accepted"][0])
            context = events["context"][0]
            begin = len(asked) - 1 - context["turns_kept"]
            assert context["view_from"] == asked[begin]["user_message"]
            stored = await site.stored(asked[-1]["message"])
            (finish,) = events["finish"]
            assert stored["context"] == {**_told(context), "window_used": finish["window_used"]}
            assert finish["window_used"] == stored["usage"]["total_tokens"]
            parts = ("system", "passages", "history", "question")
            prompt = sum(context[part] for part in parts)
            assert finish["window_used"] == prompt + stored["usage"]["completion_tokens"]
        assert context["turns_dropped"], "the window is small enough"


async def test_turns_without_an_answer_are_no_part_of_the_view(tmp_path: Path) -> None:
    """The line where the model's view begins stood wrong behind them."""
    async with open_site(tmp_path, not_found_score=0.3) as site:
        first = await site.answer("zebra giraffe")
        assert first["retrieval"][0]["not_found"]
        assert first["context"][0]["view_from"] is None
        conversation = first["accepted"][0]["conversation"]
        second = await site.answer(conversation=conversation)
        assert second["context"][0]["view_from"] == second["accepted"][0]["user_message"]
        third = await site.answer("And when do the office hours end?", conversation=conversation)
        assert third["context"][0]["view_from"] == second["accepted"][0]["user_message"]
        assert third["context"][0]["turns_dropped"] == 0
        skipped = [one["context"][0]["turns_skipped"] for one in (first, second, third)]
        assert skipped == [0, 1, 1]
        answer = third["accepted"][0]["message"]
        assert (await site.stored(answer))["context"]["turns_skipped"] == 1
        async with site.client() as client:
            paper = await client.get(f"/records/{answer}", headers={"accept-language": "en"})
        assert "1, not shown to the model" in paper.text


async def test_costs_are_stored_as_they_are_told(tmp_path: Path) -> None:
    prices: dict[str, Any] = {"price_input_hit": 1.0, "price_input_miss": 2.0, "price_output": 8.0}
    async with open_site(tmp_path, **prices) as site:
        events = await site.answer(max_tokens=2)
        message = events["accepted"][0]["message"]
        stored = await site.stored(message)
        first = stored["usage"]["cost"]["amount"]
        assert events["finish"][0]["usage"] == stored["usage"]
        assert first > 0
        events = await site.go_on(message, max_tokens=3)
        stored = await site.stored(message)
        assert events["finish"][0]["usage"] == stored["usage"]
        amounts = [part["cost"]["amount"] for part in stored["usage"]["parts"]]
        assert amounts[0] == first
        assert stored["usage"]["cost"]["amount"] == pytest.approx(sum(amounts))
        assert stored["usage"]["cost"]["currency"] == "USD"


async def test_a_raised_limit_holds_for_its_part_and_the_next(tmp_path: Path) -> None:
    async with open_site(tmp_path, lambda _: "x" * 400, script={"token_chars": 1}) as site:
        message = (await site.answer(max_tokens=3))["accepted"][0]["message"]
        raised = await site.go_on(message, max_tokens=20)
        assert raised["start"][0]["max_tokens"] == 20
        assert raised["finish"][0]["finish_detail"] == {"type": "max_tokens"}
        assert raised["finish"][0]["max_tokens"] == 20
        stored = await site.stored(message)
        assert [
            (part["max_tokens"], part["completion_tokens"]) for part in stored["usage"]["parts"]
        ] == [(3, 3), (20, 20)]
        assert stored["usage"]["completion_tokens"] == 23
        assert "20" in stored["notices"][0]["en"]
        again = await site.go_on(message)
        assert again["start"][0]["max_tokens"] == 20
        for wrong in (0, -1):
            refused = await site.go_on(message, max_tokens=wrong)
            assert refused["error"][0]["param"] == "max_tokens"


async def test_a_named_parent_is_followed_and_an_edited_first_question_is_a_second_root(
    tmp_path: Path,
) -> None:
    async with open_site(tmp_path) as site:
        first = (await site.answer())["accepted"][0]
        conversation = first["conversation"]
        edit = Edit(id="e", message=first["user_message"], text="When do the hours begin?")
        edited = (await events_of(await site.app.chat.edit(ALICE, edit)))["accepted"][0]
        assert edited["parent"] is None
        assert edited["conversation"] == conversation
        old = await site.answer("And then?", conversation=conversation, parent=first["message"])
        assert old["accepted"][0]["parent"] == first["message"]
        assert old["context"][0]["view_from"] == first["user_message"]
        newest = await site.answer("And now?", conversation=conversation)
        assert newest["accepted"][0]["parent"] == old["accepted"][0]["message"]
        with pytest.raises(ServiceError) as error:
            await site.app.chat.ask(
                ALICE, site.ask(conversation=conversation, parent=first["user_message"])
            )
        assert error.value.param == "parent"
        roots = [
            one["id"]
            for one in (await site.conversation(conversation))["messages"]
            if one["parent"] is None
        ]
        assert roots == [first["user_message"], edited["user_message"]]


def _told(event: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in event.items() if name not in ("type", "run", "seq")}
