"""A conversation as Markdown to read elsewhere, a record's page at the door, the server's state."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pytest

from server.app.conversation_export import to_markdown
from server.service.messages import Feedback, Regenerate
from server.store.column_types import utc_now
from server.store.schema import Conversation, Message
from tests.server.app.site import ALICE, QUESTION, events_of, new_key, open_site

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]


async def test_the_export_says_what_the_page_says(tmp_path: Path) -> None:
    def said(prompt: str) -> str:
        return "# On Tuesday\n\nIn room B204 [1], not [9]." + " And a few words more." * 20

    async with open_site(tmp_path, said) as site:
        asked = await site.answer("# When?\nAre the office hours of the lab [1]?", max_tokens=30)
        accepted = asked["accepted"][0]
        again = Regenerate(id=new_key(), message=accepted["message"])
        await events_of(await site.app.chat.regenerate(ALICE, again))
        note = Feedback(id=new_key(), message=accepted["message"], value="up", note="Good\n# one")
        await site.app.chat.feedback(ALICE, note)
        path = f"/api/conversations/{accepted['conversation']}/export"
        async with site.client() as client:
            english = await client.get(path, params={"format": "md"})
            chinese = await client.get(
                path, params={"format": "md"}, headers={"accept-language": "zh"}
            )
            lines = (await client.get(path)).text.splitlines()
            wrong = await client.get(path, params={"format": "pdf"})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "format")
    assert json.loads(lines[0])["kind"] == "conversation"
    assert english.headers["content-type"] == "text/markdown; charset=utf-8"
    day = r"\d{4}-\d\d-\d\d"
    plain, wide = english.headers["content-disposition"].split("; ")[1:]
    stem = "# When Are the office hours of the lab [1]"
    assert re.fullmatch(rf'filename="{re.escape(stem)} {day}\.md"', plain)
    assert re.fullmatch(rf"filename\*=UTF-8''{re.escape(quote(stem))}%20{day}\.md", wide)
    text = english.text
    assert text.startswith("# # When? Are the office hours of the lab [1]?\n")
    assert "> # When?\n> Are the office hours" in text, "a question is no heading"
    assert "## Answer (version 1 of 2)" in text
    assert "## Answer (version 2 of 2)" in text
    assert "In room B204 [1], not" in text
    assert "[9]" not in text
    assert "*Stopped at the length limit of 30 tokens.*" in text
    assert "*Ended by: the length limit of 30 tokens*" in text
    assert "- [1] Staff – Office hours, Late work (cited)" in text
    assert "*Feedback: helpful: Good # one*" in text
    assert "## 回答 (第 1 版，共 2 版)" in chinese.text
    assert "结束方式：达到 30 个词元的长度上限" in chinese.text
    assert "演示，" in chinese.text


def markdown(messages: list[Message]) -> str:
    conversation = Conversation(title="Long", created_at=utc_now(), updated_at=utc_now())
    return to_markdown(conversation, None, messages, {}, {}, language="en", zone=ZoneInfo("UTC"))


async def test_versions_are_counted_by_parent_and_role() -> None:
    messages = [
        Message(id=id, parent_id=parent, role=role, text=id, state="running", not_found=False)
        for id, parent, role in (
            ("a", None, "summary"),
            ("b", None, "user"),
            ("c", "b", "assistant"),
            ("d", None, "user"),
            ("e", "b", "assistant"),
            ("f", "d", "assistant"),
            ("g", "b", "assistant"),
            ("h", "f", "user"),
        )
    ]
    headings = [line for line in markdown(messages).splitlines() if line.startswith("## ")]
    assert headings == [
        "## Summary of an earlier conversation",
        "## Question (version 1 of 2)",
        "## Answer (version 1 of 3)",
        "## Question (version 2 of 2)",
        "## Answer (version 2 of 3)",
        "## Answer",
        "## Answer (version 3 of 3)",
        "## Question",
    ]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("is_chain", [True, False], ids=["turns", "versions"])
async def test_a_long_conversation_takes_no_square_of_its_length(is_chain: bool) -> None:
    """Compared each with each, so many messages would take minutes."""
    number = 20_000
    messages = [
        Message(id=str(n), parent_id=str(n - 1) if is_chain and n else None, role="user", text="?")
        for n in range(number)
    ]
    last = "## Question" if is_chain else "## Question (version 20,000 of 20,000)"
    assert markdown(messages).endswith(f"{last}\n\n> ?\n")


async def test_matched_sources_are_numbered_in_the_text(tmp_path: Path) -> None:
    said = "Office hours are on Tuesday from 14:00 to 16:00 in room B204."
    async with open_site(tmp_path, lambda _: f"{said} Ask there.") as site:
        asked = (await site.answer())["accepted"][0]
        async with site.client() as client:
            path = f"/api/conversations/{asked['conversation']}/export?format=md"
            text = (await client.get(path)).text
            stored = (await client.get(f"/api/conversations/{asked['conversation']}")).json()
    (citation, *_) = stored["messages"][-1]["citations"]
    assert citation["by"] == "match"
    assert f"{said} [{citation['n']}] Ask there." in text


async def test_what_no_source_supports_is_marked_and_explained(tmp_path: Path) -> None:
    said = "Office hours are on Tuesday from 14:00 to 16:00 in room B204."
    wrong = "The dean likes green tea and classical music."
    answers = iter([f"{said} {wrong} {wrong}", said])
    async with open_site(tmp_path, lambda _: next(answers)) as site:
        asked = (await site.answer())["accepted"][0]
        sound = (await site.answer())["accepted"][0]
        async with site.client() as client:

            async def read(path: str, language: str = "en") -> str:
                return (await client.get(path, headers={"accept-language": language})).text

            export = f"/api/conversations/{asked['conversation']}/export?format=md"
            english, chinese = await read(export), await read(export, "zh")
            page = await read(f"/records/{asked['message']}")
            other = await read(f"/api/conversations/{sound['conversation']}/export?format=md")
            other_page = await read(f"/records/{sound['message']}")
    assert f"{said} [1] {wrong} [?] {wrong} [?]\n" in english
    assert "*[?] stands behind sentences that no source supports.*" in english
    assert "*[?] 标在来源中找不到依据的句子之后。*" in chinese
    assert f"{wrong} [?]" in page
    assert "[?] stands behind sentences that no source supports." in page
    assert "[?]" not in other + other_page


async def test_a_record_sends_a_browser_to_the_login_and_a_program_nowhere(tmp_path: Path) -> None:
    async with open_site(tmp_path, login="on") as site:
        answer = (await site.answer(QUESTION))["accepted"][0]["message"]
        async with site.client() as client:
            client.cookies.clear()
            path = f"/records/{answer}?print=1"
            browser = await client.get(path, headers={"accept": "text/html,*/*"})
            program = await client.get(path, headers={"accept": "application/json"})
    assert browser.status_code == 303
    assert browser.headers["location"] == f"/login?next=%2Frecords%2F{answer}%3Fprint%3D1"
    assert program.status_code == 401


async def test_a_record_is_told_in_the_readers_language(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        teacher = await site.account("teacher", "tia", "demo")
        student = await site.account("student", "ana", "demo")
        run = await site.app.chat.ask(student, site.ask(QUESTION))
        answer = (await events_of(run))["accepted"][0]["message"]
        async with site.client(teacher) as client:
            chinese = (
                await client.get(f"/records/{answer}", headers={"accept-language": "zh"})
            ).text
            page = (await client.get("/api/courses/demo/records", params={"before": ""})).json()
    assert "学生 " in chinese
    assert "Student " not in chinese.partition("</style>")[2]
    assert "回答完整" in chinese
    assert [record["id"] for record in page["records"]] == [answer]


async def test_a_teacher_sees_how_the_server_is_doing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 100.0
    monkeypatch.setattr("server.app.server_state.time.monotonic", lambda: clock)
    async with open_site(tmp_path) as site:
        teacher = await site.account("teacher", "tia")
        async with site.client(teacher) as client:
            first = (await client.get("/api/server")).json()
            await site.answer()
            clock += 2
            second = (await client.get("/api/server")).json()
        async with site.client() as client:
            assert (await client.get("/api/server")).status_code == 403
    assert first["tokens_per_s"] is None
    made = second["generated_tokens"] - first["generated_tokens"]
    assert made > 0
    assert second["tokens_per_s"] == pytest.approx(made / 2, abs=0.1)
    assert second["uptime_s"] - first["uptime_s"] == 2
    assert (second["state"], second["running"], second["waiting"]) == ("ready", 0, 0)
    assert second["model"]["window"] == 8192
    assert second["data"]["used_bytes"] > 1000
    assert second["data"]["free_bytes"] > 0
    assert 0 <= second["kv_used"] <= 1
