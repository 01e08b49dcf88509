"""One's own conversations over HTTP: listed by pages, searched, renamed, read lightly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from threading import get_ident
from typing import Any

import httpx
import pytest

from server.app import api_conversations
from tests.server.app.site import ALICE, BOB, Site, events_of, open_site

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

LIST = "/api/conversations"


@pytest.fixture
async def site(tmp_path: Path, database_url: str) -> AsyncIterator[Site]:
    async with open_site(tmp_path / "data", database_url=database_url) as site:
        yield site


async def asked(site: Site, text: str, **fields: Any) -> str:
    """A question of Alice's; the id of its conversation."""
    events = await site.answer(text, **fields)
    found: str = events["accepted"][0]["conversation"]
    return found


async def listed(client: httpx.AsyncClient, **query: Any) -> list[str]:
    reply = await client.get(LIST, params=query)
    assert reply.status_code == 200, reply.text
    return [conversation["id"] for conversation in reply.json()["conversations"]]


async def test_the_list_comes_in_pages_that_hold_each_conversation_once(site: Site) -> None:
    made = [await asked(site, f"When is lab {n}?") for n in range(5)]
    async with site.client() as client:
        assert await listed(client) == made[::-1]
        first = (await client.get(LIST, params={"limit": 2})).json()
        assert [one["id"] for one in first["conversations"]] == made[:2:-1]
        # What happens to the last one of a page does not move the next page.
        assert (await client.delete(f"{LIST}/{made[3]}")).status_code == 204
        second = (await client.get(LIST, params={"limit": 2, "before": first["next"]})).json()
        assert [one["id"] for one in second["conversations"]] == [made[2], made[1]]
        last = (await client.get(LIST, params={"limit": 2, "before": second["next"]})).json()
        assert [one["id"] for one in last["conversations"]] == [made[0]]
        assert last["next"] is None
        assert await listed(client, before="", q="", course="", limit="") == [
            *(made[4], made[2], made[1], made[0])
        ]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"before": "yesterday"}, "before"),
        ({"before": "12"}, "before"),
        ({"limit": "0"}, "limit"),
        ({"limit": "201"}, "limit"),
        ({"q": "x" * 201}, "q"),
        ({"q": "a\0b"}, "q"),
    ],
)
async def test_what_is_wrong_is_named(tmp_path: Path, query: dict[str, str], param: str) -> None:
    async with open_site(tmp_path) as site, site.client() as client:
        reply = await client.get(LIST, params=query)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


async def test_words_are_found_in_both_languages(site: Site) -> None:
    hours = await asked(site, "When are the office hours of the lab?")
    late = await asked(site, "迟交实验报告会扣多少分？")
    other = await asked(site, "Who wrote the compiler?")
    await site.app.record_indexer.index_waiting()
    async with site.client() as client:
        assert await listed(client, q="office hours") == [hours]
        assert await listed(client, q="OFFICE") == [hours]
        assert await listed(client, q="compil") == [other], "a beginning is found"
        assert await listed(client, q="扣多少分") == [late]
        assert await listed(client, q="答疑") == [hours], "by the other language's word"
        assert await listed(client, q="office compiler") == [], "all words must be there"
        assert await listed(client, q="zebra") == []
        # Every answer says "On Tuesday, in room B204": words of answers count.
        assert await listed(client, q="Tuesday") == [other, late, hours]
        page = (await client.get(LIST, params={"q": "Tuesday", "limit": 2})).json()
        rest = await listed(client, q="Tuesday", limit=2, before=page["next"])
        assert rest == [hours]


async def test_a_hit_shows_why_it_was_found(site: Site) -> None:
    await asked(site, "When are the office hours of the lab?")
    await site.app.record_indexer.index_waiting()
    async with site.client() as client:

        async def found(q: str) -> dict[str, Any] | None:
            (hit,) = (await client.get(LIST, params={"q": q})).json()["conversations"]
            snippet: dict[str, Any] | None = hit["snippet"]
            return snippet

        in_question = await found("office")
        assert in_question is not None
        assert in_question["role"] == "user"
        ((start, end),) = in_question["marks"]
        assert in_question["text"][start:end] == "office"
        in_answer = await found("room")
        assert in_answer is not None
        assert in_answer["role"] == "assistant"
        ((start, end),) = in_answer["marks"]
        assert in_answer["text"][start:end] == "room"


async def test_a_title_is_changed_found_and_shown(site: Site) -> None:
    older = await asked(site, "When are the office hours of the lab?")
    newer = await asked(site, "Who wrote the compiler?")
    async with site.client() as client:
        before = (await client.get(LIST)).json()["conversations"][1]
        reply = await client.patch(f"{LIST}/{older}", json={"title": "  Étude\n\t№ 7 \u202e "})
        assert reply.status_code == 200
        assert reply.json() == before | {"title": "Étude № 7"}
        assert await listed(client) == [newer, older], "a new name is no use"
        # Titles are found by any part, folded: the words of the talk need not be indexed yet.
        assert await listed(client, q="etud") == [older]
        assert (await client.get(LIST, params={"q": "tude №"})).json()["conversations"][0][
            "snippet"
        ] is None
        for title in ("", " \n", "x" * 201):
            reply = await client.patch(f"{LIST}/{older}", json={"title": title})
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, "title")
        assert (await client.patch(f"{LIST}/{older}", json={})).status_code == 400
        assert (await client.patch(f"{LIST}/nothing", json={"title": "x"})).status_code == 404


async def test_what_is_somebody_elses_is_not_there(site: Site) -> None:
    mine = await asked(site, "When are the office hours of the lab?")
    run = await site.app.chat.ask(BOB, site.ask("When are the office hours of Bob?"))
    theirs = (await events_of(run))["accepted"][0]
    await site.app.record_indexer.index_waiting()
    async with site.client(ALICE) as client:
        for query in ({}, {"q": "office hours"}, {"q": "Bob"}, {"q": "When"}, {"q": "B204"}):
            assert theirs["conversation"] not in await listed(client, **query)
        assert await listed(client, q="office hours", course="demo") == [mine]
        one = f"{LIST}/{theirs['conversation']}"
        assert (await client.patch(one, json={"title": "mine now"})).status_code == 404
        for path in (one, f"{one}/export?format=md"):
            assert (await client.get(path)).status_code == 404
        assert (await client.delete(one)).status_code == 404
    assert (await site.conversation(theirs["conversation"], BOB))["title"].endswith("Bob?")


async def test_what_has_not_changed_is_not_sent_again(site: Site) -> None:
    conversation = await asked(site, "When are the office hours of the lab?")
    path = f"{LIST}/{conversation}"
    async with site.client() as client:
        first = await client.get(path)
        tag = first.headers["etag"]
        again = await client.get(path, headers={"If-None-Match": f'"old", W/{tag}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        await client.patch(f"{LIST}/{conversation}", json={"title": "Hours"})
        changed = await client.get(path, headers={"If-None-Match": tag})
        assert (changed.status_code, changed.json()["title"]) == (200, "Hours")


@pytest.mark.parametrize(
    ("makers", "path"),
    [
        (("message_json", "etag_reply"), ""),
        (("export_jsonl",), "/export"),
        (("to_markdown",), "/export?format=md"),
    ],
)
async def test_what_may_be_long_is_made_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, makers: tuple[str, ...], path: str
) -> None:
    """All answers stream on the loop, whoever reads a conversation of thousands of turns."""
    calls: list[tuple[str, bool]] = []
    loop = get_ident()

    def noted(name: str) -> Any:
        make = getattr(api_conversations, name)

        def making(*args: Any, **options: Any) -> Any:
            calls.append((name, get_ident() == loop))
            return make(*args, **options)

        return making

    for name in makers:
        monkeypatch.setattr(api_conversations, name, noted(name))
    async with open_site(tmp_path) as site, site.client() as client:
        one = f"{LIST}/{await asked(site, 'When is the lab?')}{path}"
        reply = await client.get(one)
        tag = reply.headers.get("etag", '"none"')
        again = await client.get(one, headers={"If-None-Match": tag})
    assert (reply.status_code, again.status_code) == (200, 200 if path else 304)
    assert set(calls) == {(name, False) for name in makers}


async def test_searches_while_answers_end_lose_nothing(site: Site) -> None:
    """The index is written while it is read."""
    made = await asyncio.gather(*(asked(site, f"What is a zebra of kind {n}?") for n in range(4)))
    async with site.client() as client:
        indexing = asyncio.create_task(site.app.record_indexer.index_waiting())
        while not indexing.done():
            assert set(await listed(client, q="zebra")) <= set(made)
        await indexing
        assert set(await listed(client, q="zebra")) == set(made)
