"""The page of one record: everything is text, nothing is loaded, marks stand where they belong."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from server.service.messages import Feedback
from tests.server.app.site import ALICE, new_key, open_site, write_course

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"
ANSWER = (
    f"# On Tuesday {EVIL}\n\nOffice hours of the lab are on Tuesday.\n\n"
    "| a | b |\n| - | - |\n| **1** | 2 |\n\n"
    "[click](javascript:alert(3)) ![x](http://evil.example/x.png) <http://evil.example> [1] [9]"
)


async def test_nothing_on_the_page_is_code_or_loaded(tmp_path: Path) -> None:
    course = write_course(tmp_path / "course")
    (course / "evil.en.md").write_text(
        f"# Lab {EVIL}\n\nOffice hours of the lab on Tuesday: {EVIL}\n", "utf-8"
    )
    async with open_site(tmp_path, lambda _: ANSWER) as site:
        question = f"When are the office hours of the lab? {EVIL}"
        answer = (await site.answer(question))["accepted"][0]["message"]
        said = Feedback(id=new_key(), message=answer, value="down", note=EVIL)
        await site.app.chat.feedback(ALICE, said)
        async with site.client() as client:
            reply = await client.get(f"/records/{answer}", headers={"accept-language": "en"})
            chinese = await client.get(f"/records/{answer}", headers={"accept-language": "zh"})
    assert reply.status_code == 200
    tags = set(re.findall(r"<(\w+)", reply.text.partition("</style>")[2]))
    assert not tags & {"script", "img", "a", "iframe", "object", "link", "form", "svg"}
    assert "onerror=alert" not in re.sub(r"&lt;.*?&gt;", "", reply.text)
    assert reply.text.count("&lt;script&gt;") >= 4, "question, answer, source, note"
    assert "<strong>1</strong>" in reply.text
    assert "<mark>" in reply.text
    assert "[9]" not in reply.text
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert '<html lang="zh-CN">' in chinese.text
    assert "提问记录" in chinese.text


async def test_paper_names_the_sources_and_shows_no_markdown(tmp_path: Path) -> None:
    """What the page shows as chips, tables and separated numbers, paper says too."""
    course = write_course(tmp_path / "course")
    (course / "weights.en.md").write_text(
        "# Weights\n\n## Grade\n\nThe **grade** is made of parts:\n\n| Part | Weight |\n"
        "| --- | ---: |\n| Four labs | 40% |\n| Final exam | 60% |\n",
        "utf-8",
    )
    said = "The final exam weighs 60%. The four labs weigh 40%."
    async with open_site(tmp_path, lambda _: said) as site:
        asked = await site.answer("How are the labs and the final exam weighted in the grade?")
        answer = asked["accepted"][0]["message"]
        async with site.client() as client:
            reply = await client.get(f"/records/{answer}", headers={"accept-language": "en"})
            chinese = await client.get(f"/records/{answer}", headers={"accept-language": "zh"})
    page = html.unescape(re.sub(r"<[^>]+>", " ", reply.text.partition("</style>")[2]))
    page = re.sub(r"\s+", " ", page)
    cited = re.search(r"weigh 40%\. \[(\d)\]", page)
    assert cited is not None, page
    assert re.search(rf"\[{cited[1]}\] Weights", page), page
    assert "| Four labs" not in page
    assert "**" not in page
    assert re.search(r"<td[^>]*>(<mark>)?Four labs", reply.text)
    assert "<mark>Final exam</mark>" in reply.text
    assert "style=" not in reply.text
    window = int(asked["context"][0]["window"])
    assert window >= 1000
    assert f"{window:,} tokens" in page
    assert f"{window:,} 个词元" in chinese.text
    # (Ids of random digits stand there, too.)
    assert not re.search(rf"\b{window}\b", page)
